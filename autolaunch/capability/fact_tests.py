"""What one fact must be: each way a condition may say it, compiled to a test in three values."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from autolaunch.capability.fact_names import UNKNOWN, UNSET, Fact, Facts, Kind, Value, fact_kind
from autolaunch.capability.kleene import Truth, truth_not, truth_or
from autolaunch.capability.versions import VersionRange, parse_range

_NUMBER_CLAUSE = re.compile(r"(==|!=|<=|>=|<|>|=)\s*(-?\d+(?:\.\d+)?)")
_SM_FAMILY = re.compile(r"(\d{1,2})x")
_COMPARES = ("<", ">", "=", "!", "~")
_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}

Test = Callable[[Fact, Facts], Truth]
"""Whether a fact, which is not UNKNOWN, passes; the facts are there for tests that compare two of them."""


def compile_test(name: str, kind: Kind, wanted: Any) -> Test:
    """What the fact `name` of `kind` must pass to be as `wanted`."""
    if isinstance(wanted, Mapping):
        return _operation(name, kind, wanted)
    if isinstance(wanted, list):
        if not wanted:
            raise ValueError("an empty list holds for nothing")
        if any(isinstance(one, str) and one.startswith("!") for one in wanted):
            raise ValueError("`!=` in a list of alternatives is nearly always true; say { not = [...] }")
        tests = [compile_test(name, kind, one) for one in wanted]
        plain = frozenset(one for one in wanted if not isinstance(one, str | Mapping | list))
        if len(plain) == len(wanted) and bool not in {type(one) for one in wanted}:
            return lambda fact, facts: _is_in(fact, plain)
        return lambda fact, facts: truth_or(test(fact, facts) for test in tests)
    if isinstance(wanted, str) and wanted.startswith(_COMPARES):
        return _comparison(kind, wanted)
    if isinstance(wanted, bool):
        if kind not in ("bool", "open"):
            raise ValueError(f"is a {kind}, and never {str(wanted).lower()}")
        if not wanted:  # a switch that a version does not have is off there
            return lambda fact, facts: fact is False or fact == UNSET
        return lambda fact, facts: fact is True
    if isinstance(wanted, int | float):
        if kind not in ("number", "open"):
            raise ValueError(f"is a {kind}, and never {wanted}")
        return lambda fact, facts: not isinstance(fact, bool) and _equal(fact, wanted)
    if isinstance(wanted, str):
        return _text(name, kind, wanted)
    raise ValueError(f"`{wanted!r}` is no condition")


def _is_in(fact: Fact, wanted: Collection[Any]) -> bool:
    """Whether a number is one of `wanted`."""
    return not isinstance(fact, bool | tuple) and fact in wanted


def _equal(fact: Fact, wanted: Value) -> bool:
    """Equality; a flag with several values equals each of them."""
    return str(wanted) in fact if isinstance(fact, tuple) else fact == wanted


def _text(name: str, kind: Kind, wanted: str) -> Test:
    """A name, a pattern with `*`, a family of SMs, or a plain version."""
    family = _SM_FAMILY.fullmatch(wanted)
    if name == "sm":
        if family is None:
            raise ValueError(f'`{wanted}` is no SM: write 120, "12x" or a comparison')
        major = int(family[1])
        return lambda fact, facts: isinstance(fact, int) and fact // 10 == major
    if kind == "bool":
        raise ValueError(f"is true or false, never `{wanted}`")
    if kind == "version" and wanted != "none":
        return _comparison(kind, f"=={wanted}")
    if "*" in wanted:
        return lambda fact, facts: isinstance(fact, str) and fnmatchcase(fact, wanted)
    return lambda fact, facts: _equal(fact, wanted)


def _comparison(kind: Kind, text: str) -> Test:
    """Comparisons with numbers or versions, joined by commas; a fact that is neither passes `!=` only."""
    if kind == "version":
        return _version_test(parse_range(text))
    clauses = [_NUMBER_CLAUSE.fullmatch(part.strip()) for part in text.split(",")]
    if kind == "open" and text.startswith("!=") and None in clauses:
        unwanted = text[2:].strip()
        return lambda fact, facts: not _equal(fact, unwanted)
    if kind not in ("number", "open"):
        raise ValueError(f'is a {kind}: `{text}` compares nothing; for all but one say {{ not = "…" }}')
    numbers = [(one[1], float(one[2])) for one in clauses if one is not None]
    if len(numbers) != len(clauses):
        raise ValueError(f"`{text}` is no comparison with a number, such as `>=4`")

    def test(fact: Fact, facts: Facts) -> Truth:
        if isinstance(fact, bool) or not isinstance(fact, int | float):
            return all(sign == "!=" for sign, _ in numbers)
        return all(_OPERATORS[sign](fact, limit) for sign, limit in numbers)

    return test


def _version_test(wanted: VersionRange) -> Test:
    """Whether a version lies in `wanted`; a package that is not there (`none`) lies nowhere."""

    def test(fact: Fact, facts: Facts) -> Truth:
        if not isinstance(fact, str):
            return None
        return False if fact == "none" else wanted.holds(fact)

    return test


class Relation:
    """A test against another fact, which is unknown when that one is."""

    __slots__ = ("compare", "refers_to")

    def __init__(self, refers_to: str, compare: Callable[[Fact, Fact], Truth]) -> None:
        """`compare` takes the fact and the one it refers to, which are both known."""
        self.refers_to = refers_to
        self.compare = compare

    def __call__(self, fact: Fact, facts: Facts) -> Truth:
        other = facts.get(self.refers_to, UNKNOWN)
        return None if other is UNKNOWN else self.compare(fact, other)


def _operation(name: str, kind: Kind, wanted: Mapping[str, Any]) -> Test:
    """`{ not = X }`, `{ multiple_of = N or "fact" }`, `{ fact = "other" }`."""
    if len(wanted) != 1:
        raise ValueError("an operation has one key: not, multiple_of or fact")
    ((key, operand),) = wanted.items()
    if key == "not":
        inner = compile_test(name, kind, operand)
        if isinstance(inner, Relation):
            return Relation(inner.refers_to, lambda fact, other: truth_not(inner.compare(fact, other)))
        return lambda fact, facts: truth_not(inner(fact, facts))
    if key == "multiple_of":
        if isinstance(operand, int) and not isinstance(operand, bool) and operand > 0:
            return lambda fact, facts: _is_multiple(fact, operand)
        if isinstance(operand, str) and fact_kind(operand) in ("number", "open"):
            return Relation(operand, _is_multiple)
        raise ValueError(f"`multiple_of` takes a number above 0 or the name of a fact, not `{operand!r}`")
    if key == "fact":
        if not isinstance(operand, str) or fact_kind(operand) is None:
            raise ValueError(f"`{operand}` is no fact")
        return Relation(operand, lambda fact, other: fact == other)
    raise ValueError(f"`{key}` is no operation: not, multiple_of or fact")


def _is_multiple(fact: Fact, of: Fact) -> bool:
    """Whether `fact` is a whole multiple of `of`; everything is one of 0, which stands for no blocks."""
    if not isinstance(fact, int) or not isinstance(of, int):
        return False
    return of == 0 or fact % of == 0
