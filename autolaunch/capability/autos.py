"""What SGLang picks where the user says nothing: the rows of `data/auto/*.toml`.

`[[auto]]` rows are tried in the order of the file and the first that applies wins.  `[[prefer]]` rows say
in which order to try the other choices where the automatic one cannot work.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path

from autolaunch.capability.fact_names import FLAG, UNKNOWN, UNSET, Fact, Facts, fact_kind
from autolaunch.capability.rows import Evidence, Row, Scope, read_rows
from autolaunch.capability.rules import scope_missing, scope_truth

_COPY = "="


@dataclass(frozen=True, slots=True)
class AutoRow:
    """One case of SGLang's automatic choice."""

    id: str
    value: str
    """The choice, `unset`, or `= flag.<dest>` for "whatever that flag is"."""
    scope: Scope
    reason: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class PreferRow:
    """An order of trial for a repair."""

    order: tuple[str, ...]
    scope: Scope


@dataclass(frozen=True, slots=True)
class AutoTable:
    """One file of automatic choices."""

    autos: tuple[AutoRow, ...]
    prefers: tuple[PreferRow, ...]


@dataclass(frozen=True, slots=True)
class Auto:
    """What SGLang picks, and why."""

    value: str | None
    """The choice or `unset`; None where it is unknown."""
    rule: str | None
    reason: str
    evidence: tuple[Evidence, ...] = ()
    missing: tuple[str, ...] = ()
    """The facts for want of which it is unknown."""
    copies: str | None = None
    """The attribute whose flag it repeats."""


def load_autos(file: Traversable, dimension: str, cache: Path | None = None) -> AutoTable:
    """The rows of `file`, which must all be about `dimension`; RowError for a row that is wrong."""
    rows = read_rows(file, ("auto", "prefer"), cache)
    return AutoTable(
        autos=tuple(_auto(row, dimension) for row in rows["auto"]),
        prefers=tuple(_prefer(row, dimension) for row in rows["prefer"]),
    )


def resolve_auto(table: AutoTable, facts: Facts) -> Auto:
    """What SGLang picks for `facts`.

    A row that may apply or not does no harm when everything it could change ends in the same choice;
    else the choice is unknown, and the missing facts are named.
    """
    possible: list[tuple[str | None, AutoRow]] = []
    missing: dict[str, None] = {}
    for row in table.autos:
        truth = scope_truth(row.scope, facts)
        if truth is False:
            continue
        value, wanting = _value(row.value, facts)
        possible.append((value, row))
        if truth is None:
            missing.update(dict.fromkeys(scope_missing(row.scope, facts)))
            continue
        if wanting:
            missing[wanting] = None
        if all(one == value for one, _ in possible) and value is not None:
            return Auto(value, row.id, row.reason, row.evidence, copies=_copied(row.value))
        return _unknown(possible, missing)
    if possible:
        return _unknown(possible, missing)
    return Auto(None, None, "no row says what SGLang picks here")


def _unknown(possible: list[tuple[str | None, AutoRow]], missing: dict[str, None]) -> Auto:
    """An automatic choice that depends on facts nobody detected."""
    values = ", ".join(dict.fromkeys(f"`{value}`" for value, _ in possible if value is not None))
    reason = f"SGLang picks {values or 'something'}, depending on {', '.join(missing)}"
    evidence = tuple(one for _, row in possible for one in row.evidence)
    return Auto(None, None, reason, evidence, tuple(missing))


def _value(value: str, facts: Facts) -> tuple[str | None, str]:
    """The value a row stands for, or None and the fact that is missing."""
    if not value.startswith(_COPY):
        return value, ""
    name = value.removeprefix(_COPY).strip()
    fact: Fact = facts.get(name, UNKNOWN)
    if fact is UNKNOWN:
        return None, name
    if isinstance(fact, bool):
        return ("on" if fact else UNSET), ""
    return str(fact), ""


def _copied(value: str) -> str | None:
    """The attribute that a row's value repeats, if it repeats one."""
    return value.removeprefix(_COPY).strip().removeprefix(FLAG) if value.startswith(_COPY) else None


def _auto(row: Row, dimension: str) -> AutoRow:
    """Check one `[[auto]]` row."""
    found = AutoRow(
        id=row.identifier(),
        value=row.text("value"),
        scope=row.scope(),
        reason=row.sentence("reason"),
        evidence=row.evidence(),
    )
    _finish(row, dimension)
    copied = found.value.removeprefix(_COPY).strip() if found.value.startswith(_COPY) else None
    if copied is not None and (fact_kind(copied) is None or not copied.startswith(FLAG)):
        raise row.wrong("a value that is copied is written `= flag.<dest>`")
    return found


def _prefer(row: Row, dimension: str) -> PreferRow:
    """Check one `[[prefer]]` row."""
    found = PreferRow(order=row.strings("order"), scope=row.scope())
    row.text("id", "")
    row.text("reason", "")
    _finish(row, dimension)
    return found


def _finish(row: Row, dimension: str) -> None:
    """The row must be about the file's dimension, and say nothing else."""
    if row.text("dimension") != dimension:
        raise row.wrong(f"a row of this file is about `{dimension}`")
    row.done()
