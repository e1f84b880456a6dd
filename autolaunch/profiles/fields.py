"""What a field of a fingerprint means: what a difference in it invalidates, by data/fingerprint.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from autolaunch.errors import visible
from autolaunch.profiles.profile import FlatValue
from autolaunch.redact import redact, redact_value
from autolaunch.tables import load_rows

Invalidates = Literal["nothing", "speed", "trust", "identity"]
Absence = Literal["counts", "shipped", "older"]
INVALIDATES: Final = ("nothing", "speed", "trust", "identity")
"""From the least to the most."""
_MOST_TURNS = 5


@dataclass(frozen=True, slots=True)
class FieldRule:
    """One row: what happens where a field differs."""

    field: str
    """A dotted name, or the beginning of names and `*`."""
    invalidates: Invalidates
    reason: str
    """Why, one sentence without a full stop."""
    consequence: str
    """What a person should expect, as it is said after the difference."""
    within: float | None = None
    """Numbers that differ by no more than this share are the same."""
    absence: Absence = "counts"
    """Whose silence about the field is no difference: nobody's; a shipped profile's; also that of a profile
    which another autolaunch made, which may not have known the field."""
    default: FlatValue | None = None
    """What holds where a side does not say."""


def consequence_of(field: str) -> FieldRule:
    """The row about `field`: the one that names it, else that with the longest beginning."""
    rules = field_rules()
    if field in rules:
        return rules[field]
    return max(
        (rules[one] for one in _beginnings() if field.startswith(one[:-1])), key=lambda one: len(one.field)
    )


def presentable(field: str, value: FlatValue) -> FlatValue:
    """`value` as it may be kept and shown: a secret hidden, in one line; twice changes nothing more."""
    if not isinstance(value, str):
        return value
    name = field.rpartition(".")[2]
    text = visible(value)
    for _ in range(_MOST_TURNS):  # what was hidden may show what else is a secret
        before, text = text, redact(redact_value(name, text))
        if text == before:
            break
    return text


@cache
def field_rules() -> Mapping[str, FieldRule]:
    """Every row by its field, in the order of the file."""
    rules: dict[str, FieldRule] = {}
    for row in load_rows("fingerprint", "field"):
        names = row.pop("field")
        for name in [names] if isinstance(names, str) else names:
            if name in rules:
                raise ValueError(f"fingerprint.toml: `{name}` has two rows")
            rules[name] = FieldRule(name, **row)
    return rules


@cache
def _beginnings() -> tuple[str, ...]:
    """The fields that stand for all names with their beginning."""
    return tuple(one for one in field_rules() if one.endswith("*"))
