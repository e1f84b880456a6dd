"""Frozen values: what is made is what `dataclasses` would make, by the same words."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

from autolaunch import values


def classes(dataclass: Callable[..., Any]) -> tuple[type[Any], type[Any]]:
    """A class with everything that fields can be, and one that inherits from it."""

    @dataclass(frozen=True, slots=True)
    class Base:
        """Meaning."""

        first: int
        words: tuple[str, ...] = ()
        lists: list[int] = field(default_factory=list, compare=False)
        hidden: str = field(default="", repr=False)
        late: int = field(init=False, repr=False, compare=False)
        named: int | None = field(default=None, kw_only=True)
        shared: ClassVar[int] = 3

        def __post_init__(self) -> None:
            object.__setattr__(self, "late", self.first + 1)

    @dataclass(frozen=True, slots=True)
    class Child(Base):
        """More meaning."""

        last: str = "z"

        def __repr__(self) -> str:
            return f"<{self.last}>"

    return Base, Child


@pytest.fixture(params=[dataclasses.dataclass, values.dataclass], ids=["theirs", "ours"])
def both(request: pytest.FixtureRequest) -> tuple[type[Any], type[Any]]:
    """The same classes by each; every test below holds for both."""
    return classes(request.param)


def test_what_is_given_and_what_is_not(both: tuple[type[Any], type[Any]]) -> None:
    base, child = both
    one = base(1, ("a",), named=5)
    assert (one.first, one.words, one.lists, one.hidden, one.late, one.named, one.shared) == (
        *(1, ("a",), [], "", 2, 5, 3),
    )
    assert base(1).lists is not base(1).lists
    assert child(1, (), [], "", "y").last == "y"
    assert list(inspect.signature(child).parameters) == ["first", "words", "lists", "hidden", "last", "named"]
    for wrong in (lambda: base(), lambda: base(1, other=2), lambda: base(1, (), [], "", 5)):
        with pytest.raises(TypeError, match=r"Base\.__init__\(\)"):
            wrong()


def test_comparison_hash_and_words(both: tuple[type[Any], type[Any]]) -> None:
    base, child = both
    assert base(1, lists=[1]) == base(1, lists=[2])
    assert hash(base(1, lists=[1])) == hash(base(1, lists=[2]))
    assert base(1) != base(2)
    assert base(1) != child(1)
    assert base(1) != 1
    assert repr(base(1, hidden="x")).endswith("Base(first=1, words=(), lists=[], named=None)")
    assert repr(child(1)) == "<z>"
    assert base.__match_args__ == ("first", "words", "lists", "hidden")


def test_nothing_can_be_changed(both: tuple[type[Any], type[Any]]) -> None:
    one = both[1](1)
    for change in (lambda: setattr(one, "first", 2), lambda: delattr(one, "last")):
        with pytest.raises(FrozenInstanceError, match="cannot"):
            change()
    assert not hasattr(one, "__dict__")


def test_the_functions_of_dataclasses_know_them(both: tuple[type[Any], type[Any]]) -> None:
    base, child = both
    assert dataclasses.is_dataclass(base)
    assert dataclasses.replace(child(1, named=4), first=2) == child(2, named=4)
    assert [one.name for one in dataclasses.fields(child)][-1] == "last"
    assert dataclasses.asdict(base(1))["late"] == 2
    assert copy.copy(base(1)) == copy.deepcopy(base(1)) == base(1)


@values.dataclass(frozen=True, slots=True)
class Sent:
    """A value that goes to another process."""

    word: str
    count: int = 0


def test_a_value_can_be_sent() -> None:
    assert pickle.loads(pickle.dumps(Sent("a", 2))) == Sent("a", 2)


def test_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="only frozen values with slots"):
        values.dataclass(frozen=True, slots=False)
