"""What can be done with the heads of a checkpoint, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from autolaunch.capability.rows import Evidence
from autolaunch.capability.verdicts import Hit

NextnMode = Literal["auto", "on", "off"]
"""`--nextn`."""


@dataclass(frozen=True, slots=True)
class NextnPlan:
    """What can be done with the heads of a checkpoint in one SGLang version."""

    usable: bool
    """Heads are there, this version drafts with them, and nothing here forbids it."""
    suggested: bool
    """Usable, and neither the user's own flags nor `--nextn off` decide already."""
    reason: str
    """One sentence without full stop."""
    family: str | None = None
    """Id of the row of `data/mtp_families.toml`; None where no row knows the architecture."""
    title: str | None = None
    """The family's name."""
    in_version: bool | None = None
    """Whether this SGLang has a draft class for the architecture; None where that is not known."""
    draft_class: str | None = None
    flags: tuple[str, ...] = ()
    """Tokens to add, in SGLang's spelling of this version; empty unless usable."""
    env: tuple[tuple[str, str], ...] = ()
    companions: tuple[str, ...] = ()
    """Why each companion is among `flags` and `env`, one sentence each."""
    pinned: bool = False
    """The user's own flags already say what is drafted with."""
    conflict: Hit | None = None
    """The rule that forbids it here."""
    gain: str | None = None
    """What was published or reported, in words."""
    gain_range: tuple[float, float] | None = None
    gain_evidence: tuple[Evidence, ...] = ()
    cost_bytes: int | None = None
    """Weights that the heads add to each GPU."""
    cost: str | None = None
    """The cost in words."""
    max_running_requests: int | None = None
    """What SGLang sets without a word when the flag is missing."""
    warnings: tuple[str, ...] = ()
    """What to look out for, one sentence each."""
    evidence: tuple[Evidence, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As `explain --format json` prints it."""
        hit = self.conflict
        return {
            "usable": self.usable,
            "suggested": self.suggested,
            "reason": self.reason,
            "family": self.family,
            "title": self.title,
            "in_version": self.in_version,
            "draft_class": self.draft_class,
            "flags": list(self.flags),
            "env": dict(self.env),
            "companions": list(self.companions),
            "pinned": self.pinned,
            "conflict": None if hit is None else {"id": hit.rule, "text": hit.sentence},
            "gain": self.gain,
            "gain_range": list(self.gain_range) if self.gain_range else None,
            "cost_bytes": self.cost_bytes,
            "cost": self.cost,
            "max_running_requests": self.max_running_requests,
            "warnings": list(self.warnings),
            "evidence": [{"kind": one.kind, "ref": one.ref} for one in (*self.evidence, *self.gain_evidence)],
        }
