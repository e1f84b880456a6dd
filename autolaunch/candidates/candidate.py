"""One full set of launch options, and what became of those that were dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Stage = Literal["table", "start", "load", "capture", "gate", "serve"]
"""Where a candidate was when it ended."""

FailureKind = Literal[
    "rejected", "crash", "oom", "hang", "garbage", "silent_fallback", "slow", "memory", "environment"
]

ORIGINAL_ID = "c0"


@dataclass(frozen=True, slots=True)
class Candidate:
    """The original command plus `flags` at its end and `env` beside it; `c0` adds neither."""

    id: str
    flags: tuple[str, ...] = ()
    """SGLang tokens appended to the original command line."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables the choice cannot work without."""
    origin: Literal["original", "table", "user"] = "table"
    dimension: str | None = None
    """The SGLang flag that differs from `c0`, where exactly one does."""
    choice: str | None = None
    """The value it has here; `on` for a switch."""
    resolved_as: str | None = None
    """The field of SGLang's server info that shows what became of the choice."""

    @property
    def label(self) -> str:
        """What a person reads: the flags as typed, or `the original command`."""
        words = [f"{name}={value}" for name, value in self.env] + list(self.flags)
        return " ".join(words) if words else "the original command"


ORIGINAL = Candidate(id=ORIGINAL_ID, origin="original")


@dataclass(frozen=True, slots=True)
class Dropped:
    """A candidate or choice that is out, with the stage and the reason; it stays in every output."""

    label: str
    stage: Stage
    reason: str
    kind: FailureKind | None = None
    rule: str | None = None
    evidence: str = ""
    """Where it was seen, where it failed here before."""

    def to_json(self) -> dict[str, Any]:
        """As documents hold it."""
        row = {
            "label": self.label,
            "stage": self.stage,
            "failure": self.kind,
            "reason": self.reason,
            "rule": self.rule,
        }
        return row | ({"evidence": [{"kind": "measured", "ref": self.evidence}]} if self.evidence else {})
