"""The rows of `data/dimensions.toml`: which choices exist on which platform, why, and where each is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from autolaunch.request.flags import FlagCatalogue
from autolaunch.tables import load_rows


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a fact comes from."""

    kind: str
    ref: str


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of one SGLang flag that may be raced."""

    id: str
    platform: str
    flag: str
    value: str | None
    env: tuple[tuple[str, str], ...]
    rank: int
    reason: str
    evidence: tuple[Evidence, ...]

    @property
    def tokens(self) -> tuple[str, ...]:
        """The choice as SGLang reads it."""
        return (self.flag,) if self.value is None else (self.flag, self.value)


_EVIDENCE_KINDS = frozenset({"source", "docs", "issue", "measured"})


def load_choices() -> tuple[Choice, ...]:
    """Every row, in the order of trial; a malformed one is a ValueError that names it."""
    rows = [_choice(row) for row in load_rows("dimensions", "choice")]
    seen: set[str] = set()
    for row in rows:
        if row.id in seen:
            raise ValueError(f"dimensions.toml: id `{row.id}` is used twice")
        seen.add(row.id)
    return tuple(sorted(rows, key=lambda row: row.rank))


def shown_as(catalogue: FlagCatalogue, name: str) -> str | None:
    """The field of SGLang's server info that shows the choice of flag `name` as it was typed, if one does.

    None does for a value out of no list: SGLang writes numbers in its own way, and adjusts them.
    """
    flag = catalogue.resolve(name)
    if flag is None or (flag.takes_value and flag.choices is None) or renamed().intersection(flag.names):
        return None
    return flag.dest


@cache
def renamed() -> frozenset[str]:
    """The flags whose choices SGLang gives other names."""
    return frozenset(row["flag"] for row in load_rows("dimensions", "renamed"))


def _choice(row: Mapping[str, Any]) -> Choice:
    """Check one row and make it a value."""
    unknown = set(row) - {"id", "platform", "flag", "value", "env", "rank", "reason", "evidence"}
    name = row.get("id", "without an id")
    if unknown:
        raise ValueError(f"dimensions.toml: row {name} has unknown keys {sorted(unknown)}")
    try:
        evidence = tuple(Evidence(kind=item["kind"], ref=item["ref"]) for item in row["evidence"])
        choice = Choice(
            id=row["id"],
            platform=row["platform"],
            flag=row["flag"],
            value=row.get("value"),
            env=tuple(sorted(row.get("env", {}).items())),
            rank=row["rank"],
            reason=row["reason"],
            evidence=evidence,
        )
    except KeyError as missing:
        raise ValueError(f"dimensions.toml: row {name} lacks {missing}") from missing
    if not evidence or any(item.kind not in _EVIDENCE_KINDS for item in evidence):
        raise ValueError(f"dimensions.toml: row {name} needs evidence of a known kind")
    return choice
