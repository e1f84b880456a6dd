"""Whether a candidate draws the tactics of its kernels at start, by `data/tactics.toml`.

Then one start says little about the next: a gain must hold over two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from autolaunch.candidates.candidate import Candidate
from autolaunch.capability.versions import parse_range
from autolaunch.tables import load_rows

OFF = ("disable_flashinfer_autotune", "enable_deterministic_inference")
"""Fields of the server info with which nothing is drawn."""


def draws_tactics(candidate: Candidate, resolved: Mapping[str, Any], log: Sequence[str] = ()) -> str | None:
    """Id of the row by which an engine of `candidate` draws at start.

    `resolved` is its server info and `log` its lines, which tell where the server info says `auto`.
    """
    if any(resolved.get(name) is True for name in OFF):
        return None
    for row in _rows("sign"):
        if any(row["pattern"] in line for line in log):
            return str(row["id"])
    version = str(resolved.get("version", ""))
    for row in _rows("tactics"):
        found = str(resolved.get(row["dest"], "auto"))
        if found == "auto" and candidate.dimension == row["flag"]:
            found = candidate.choice or found
        if found in row["choices"] and parse_range(row["sglang"]).holds(version):
            return str(row["id"])
    return None


def drawing_again(candidate: Candidate, resolved: Mapping[str, Any], start: int) -> Candidate:
    """`candidate` for its start number `start`, which draws anew; its log is its own."""
    version = str(resolved.get("version", ""))
    env = tuple(
        (str(row["variable"]), str(row["value"]))
        for row in _rows("again")
        if parse_range(row["sglang"]).holds(version)
    )
    return again(candidate, start, env)


def again(candidate: Candidate, start: int, env: tuple[tuple[str, str], ...] = ()) -> Candidate:
    """`candidate` for a further start: the same but for `env`, and an id for a log of its own."""
    return replace(candidate, id=f"{candidate.id}-{start}", env=(*candidate.env, *env))


@cache
def _rows(key: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(load_rows("tactics", key))
