"""What a profile is: a choice, where it came from, what it is valid for, what was measured, how it did since.

Values only: how they are written is `document`, where they lie is `store`, when they hold is `matching`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

SCHEMA: Final = "autolaunch.profile/1"

Status = Literal["fresh", "verified", "suspect", "quarantined"]
"""`fresh`: measured, its server not judged yet.  `verified`: a server with it answered soundly.  `suspect`: a
server with it ended before it was healthy, which may have been somebody's wish.  `quarantined`: a server
with it failed by itself or answered garbage; it is never chosen silently again."""
Origin = Literal["serve", "tune", "shipped", "imported"]
Depth = Literal["slice", "whole", "none"]
"""What was timed: the first layers, the whole model, or nothing (a choice that others reported)."""
FlatValue = str | int | float | bool
Fingerprint = Mapping[str, FlatValue]
"""Dotted field names to plain values, as `data/fingerprint.toml` names them: `gpu.name`, `version.sglang`,
`flag.context_length`.  A field that is absent is not stated."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """Flags and variables on top of the original command line."""

    flags: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    id: str = "c0"
    """The candidate's name in its race."""
    origin: Literal["original", "table", "user"] = "original"
    dimension: str | None = None
    choice: str | None = None

    @property
    def is_original(self) -> bool:
        """Whether this is the original command."""
        return not (self.flags or self.env)


@dataclass(frozen=True, slots=True)
class Entrant:
    """One candidate of the race behind a profile: what it showed, or why it is out."""

    chosen: Chosen
    value: float | None = None
    """In the profile's unit."""
    gain: float | None = None
    """The mean gain over the original, as a fraction."""
    lost: str = ""
    """Why it is not the choice; empty for the choice."""
    failure: str | None = None
    """A failure kind; None for one that is sound."""
    stage: str | None = None
    rank: int | None = None
    """Its place among those that may be launched, 1 for the choice; None for one that may not."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The summary of a race."""

    depth: Depth
    unit: str = ""
    """`output_tok_per_s` or `latency_ms`."""
    value: float | None = None
    original_value: float | None = None
    gain: Mapping[str, float] | None = None
    """`mean`, `low`, `high` as fractions and `rounds`."""
    figures: str = ""
    """Where the figures come from, in words."""
    ended: str = "done"
    race_s: float | None = None
    weights: Literal["real", "synthetic", "unknown"] = "real"
    acceptance_length: float | None = None
    """Tokens a decode step with the model's own heads, where it is known."""
    acceptance_source: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """One profile, as it is kept."""

    model: str
    """The last part of the model's path or hub id; for people and for the file's name."""
    chosen: Chosen
    reason: str
    """Why it was chosen, in words."""
    origin: Origin
    created: str
    """UTC, ISO 8601."""
    fingerprint: Fingerprint
    workload: Mapping[str, Any]
    """`Workload.to_json` and its `words`."""
    objective: Mapping[str, Any]
    """`name`, `unit`, `higher_is_better`, and ceilings where there are some."""
    measured: Measured
    entrants: tuple[Entrant, ...] = ()
    status: Status = "fresh"
    status_reason: str = ""
    status_since: str = ""
    warnings: tuple[str, ...] = ()
    """What the table warned of when it was made: said again wherever it is used without asking the table."""
    provenance: tuple[str, ...] = ()
    """Who measured it, where and how; each a sentence or a link."""
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What its server said it uses (`status.RESOLVED`), and what a later autolaunch adds, as it was read."""

    @property
    def next_best(self) -> tuple[Entrant, ...]:
        """Who may be launched in place of the choice, the best first; the original is not among them."""
        ranked = [one for one in self.entrants if one.rank is not None and one.rank > 1]
        return tuple(sorted(ranked, key=lambda one: one.rank or 0))
