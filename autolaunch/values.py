"""`dataclass` for frozen values, whose class is made in half the time that `dataclasses` takes for one.

`dataclasses` compiles six methods for each class.  A start by a profile makes seventy classes before SGLang
starts, and that was a fifth of what it added.  Here `__init__` alone is compiled, and the others are shared.
What is made is a dataclass all the same: `replace`, `fields`, `asdict`, comparison, hash and copies are as
usual.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import MISSING, FrozenInstanceError, fields
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, Final, NoReturn

_set: Final = object.__setattr__


def _frozen(*, frozen: bool, slots: bool) -> Callable[[type[Any]], type[Any]]:
    """What `@dataclass(frozen=True, slots=True)` decorates with; ValueError for any other kind."""
    if not (frozen and slots):
        raise ValueError("only frozen values with slots are made here")
    return _made


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # whose meaning a checker knows
else:
    dataclass = _frozen


def _made(cls: type[Any]) -> type[Any]:
    """`cls` as a frozen dataclass with slots; what it defines itself stays."""
    made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)
    for name, method in (("__init__", _init_of(made)), *_SHARED.items()):
        if name not in made.__dict__:
            setattr(made, name, method)
    return made


def _init_of(cls: type[Any]) -> Any:
    """The `__init__` that `dataclasses` would write."""
    scope: dict[str, Any] = {"_set": _set, "_MISSING": MISSING}
    words, by_name, lines = ["self"], ["*"], []
    for one in fields(cls):
        if not one.init:
            continue  # `__post_init__` sets it
        parameter = value = one.name
        default = f"_default_{one.name}"
        if one.default is not MISSING:
            parameter, scope[default] = f"{one.name}={default}", one.default
        elif one.default_factory is not MISSING:
            parameter, scope[default] = f"{one.name}=_MISSING", one.default_factory
            value = f"{default}() if {one.name} is _MISSING else {one.name}"
        (by_name if one.kw_only else words).append(parameter)
        lines.append(f"_set(self, {one.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    parameters = ", ".join([*words, *(by_name if len(by_name) > 1 else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join(lines or ["pass"]), scope)  # noqa: S102  # fields' names
    init = scope["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({shown})"


def _eq(self: Any, other: Any) -> Any:
    return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self))


def _compared(value: Any) -> tuple[Any, ...]:
    """What two values of a class are compared by."""
    return tuple(getattr(value, one.name) for one in fields(value) if one.compare)


def _refuse_to_set(self: Any, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in fields(self)]


def _set_state(self: Any, state: Sequence[Any]) -> None:
    for one, value in zip(fields(self), state, strict=True):
        _set(self, one.name, value)


_SHARED: Final[dict[str, Callable[..., Any]]] = {
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _refuse_to_set,
    "__delattr__": _refuse_to_delete,
    "__getstate__": _state,
    "__setstate__": _set_state,
}
