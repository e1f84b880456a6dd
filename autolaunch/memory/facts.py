"""Rows of `data/memory.toml`, and facts as plain numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final

from autolaunch.capability.fact_names import FLAG, Facts
from autolaunch.capability.versions import parse_range
from autolaunch.tables import load_table

MIB: Final = 1 << 20


@cache
def memory_rows() -> Mapping[str, tuple[Mapping[str, Any], ...]]:
    """The tables of `data/memory.toml`."""
    return {kind: tuple(rows) for kind, rows in load_table("memory").items()}


def rows_for(kind: str, facts: Facts) -> Iterator[Mapping[str, Any]]:
    """The rows `kind` that hold for the SGLang version and the architecture of `facts`.

    Of a version that is not known the newest rows are taken.
    """
    version, architecture = facts.get("sglang"), str(facts.get("arch"))
    for row in memory_rows()[kind]:
        span = row.get("sglang", "")
        known = version if isinstance(version, str) else "9999"
        if span and parse_range(span).holds(known) is False:
            continue
        likes = row.get("architectures", ["*"])
        if any(fnmatchcase(architecture, like) for like in likes):
            yield row


def number(facts: Facts, name: str) -> int | None:
    """The fact `name` where it is a whole number."""
    value = facts.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def size(facts: Facts, name: str) -> int:
    """A parallel size, 1 where it is not known."""
    return max(1, number(facts, name) or 1)


def flag_number(facts: Facts, dest: str) -> float | None:
    """The number that a flag is set to."""
    value = facts.get(f"{FLAG}{dest}")
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def is_on(facts: Facts, dest: str) -> bool:
    """Whether a switch is on."""
    return facts.get(f"{FLAG}{dest}") is True


def attention_ranks(facts: Facts, tp: int) -> int:
    """The ranks that share the heads of attention."""
    return max(1, tp // size(facts, "dp")) if facts.get("dp_attention") is True else tp


def is_drafting(facts: Facts) -> bool:
    """Whether something drafts with weights and a cache of its own."""
    return facts.get("spec") not in ("off", "NGRAM", None)
