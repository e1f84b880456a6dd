"""What the table says: verdicts on choices, warnings and repairs, each with rules, reason and evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from autolaunch.candidates.candidate import FailureKind, Stage
from autolaunch.capability.fact_names import Fact, Facts
from autolaunch.capability.rows import Evidence
from autolaunch.capability.rules import Companion, Effect, Numerics
from autolaunch.request.command_line import Notice

VerdictName = Literal["eligible", "excluded", "unknown"]
Decision = Literal["kept", "repaired", "pinned", "raced"]


@dataclass(frozen=True, slots=True)
class Hit:
    """A rule that applies."""

    rule: str
    effect: Effect
    reason: str
    contradiction: str
    failure: FailureKind | None
    stage: Stage | None
    evidence: tuple[Evidence, ...]
    facts: tuple[tuple[str, Fact], ...] = ()
    """The facts the rule asked for, with their values."""

    @property
    def sentence(self) -> str:
        """The reason, and whose guard contradicts it."""
        return f"{self.reason}; {self.contradiction}" if self.contradiction else self.reason


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a choice needs beside it, by which rule."""

    companion: Companion
    hit: Hit


@dataclass(frozen=True, slots=True)
class ChoiceVerdict:
    """The verdict on one choice of one dimension."""

    choice: str
    verdict: VerdictName
    reason: str
    rules: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    failure: FailureKind | None = None
    stage: Stage | None = None
    numerics: Numerics = "same"
    missing: tuple[str, ...] = ()
    """The facts for want of which it is unknown."""
    hits: tuple[Hit, ...] = ()
    """The rules behind the verdict, in the order of the table."""
    warnings: tuple[Hit, ...] = ()
    requires: tuple[Requirement, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As `explain --format json` prints it."""
        return {
            "choice": self.choice,
            "verdict": self.verdict,
            "failure": self.failure,
            "stage": self.stage,
            "numerics": self.numerics,
            "reason": self.reason,
            "rules": list(self.rules),
            "evidence": [{"kind": one.kind, "ref": one.ref} for one in self.evidence],
            "missing": list(self.missing),
            "warnings": [{"id": one.rule, "text": one.sentence} for one in self.warnings],
            "requires": [str(one.companion) for one in self.requires],
        }


@dataclass(frozen=True, slots=True)
class Repair:
    """A choice put in place of SGLang's own, which cannot work."""

    dimension: str
    value: str
    tokens: tuple[str, ...]
    """The choice and its companions as SGLang reads them."""
    env: tuple[tuple[str, str], ...]
    companions: tuple[Companion, ...]
    """The flags among `tokens` besides the choice."""
    replaces: str
    because: tuple[str, ...]
    rules: tuple[str, ...]
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class DimensionVerdict:
    """One dimension: what was pinned, what SGLang would pick, what is decided, and every choice."""

    flag: str
    """As this version spells it."""
    name: str
    """In the newest spelling, as the table has it."""
    dest: str
    title: str
    pinned: str | None
    auto: str | None
    """What SGLang picks by itself; `unset` for nothing; None where it is unknown."""
    auto_reason: str
    auto_rule: str | None
    auto_evidence: tuple[Evidence, ...]
    decision: Decision
    value: str | None
    """What is pinned or repaired; None where SGLang's own choice stands."""
    choices: tuple[ChoiceVerdict, ...]
    raced: bool
    is_switch: bool
    relevant: bool | None
    """Whether it matters for this model; None where that is unknown."""
    order: int
    repair: Repair | None = None

    @property
    def effective(self) -> str | None:
        """What will run: pinned, repaired, or SGLang's own; None where it is unknown."""
        return self.value if self.value is not None else self.auto

    def choice(self, name: str) -> ChoiceVerdict | None:
        """The verdict on one choice, if the table has it here."""
        return next((one for one in self.choices if one.choice == name), None)

    def to_json(self) -> dict[str, Any]:
        """As `explain --format json` prints it."""
        return {
            "flag": self.flag,
            "pinned": self.pinned,
            "auto": self.auto,
            "auto_reason": self.auto_reason,
            "decision": self.decision,
            "value": self.value,
            "choices": [one.to_json() for one in self.choices],
        }


@dataclass(frozen=True, slots=True)
class TableWarning:
    """Something harmful, or risky, in what will run."""

    id: str
    """Of the rule."""
    text: str
    because: tuple[str, ...]
    evidence: tuple[Evidence, ...]
    failure: FailureKind | None
    flags: tuple[str, ...]
    """The flags it is about, with their values."""
    pinned: bool
    """Whether the user's own flags bring it about."""
    hint: str | None = None

    def notice(self) -> Notice:
        """For a person."""
        refs = "; ".join(one.ref for one in self.evidence[:2])
        return Notice(self.id, self.text, self.because, f"{refs}  [{self.id}]" if refs else None, self.hint)

    def to_json(self) -> dict[str, Any]:
        """As `explain --format json` prints it."""
        return {
            "id": self.id,
            "text": self.text,
            "because": list(self.because),
            "failure": self.failure,
            "flags": list(self.flags),
            "pinned": self.pinned,
            "evidence": [{"kind": one.kind, "ref": one.ref} for one in self.evidence],
        }


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The whole answer of the table for one request."""

    dimensions: tuple[DimensionVerdict, ...]
    """Those that matter here, or were pinned, or may matter, in the order they are shown."""
    warnings: tuple[TableWarning, ...]
    repairs: tuple[Repair, ...]
    notices: tuple[Notice, ...]
    """About the table itself: versions that it does not know."""
    facts: Facts = field(repr=False, compare=False, default_factory=dict)
    """With every `flag.<dest>` as it will run."""
    given: Facts = field(repr=False, compare=False, default_factory=dict)
    """As they were handed in: only what the user pinned."""

    def dimension(self, flag: str) -> DimensionVerdict | None:
        """The dimension that `flag` spells."""
        return next((one for one in self.dimensions if flag in (one.flag, one.name)), None)

    @property
    def flags(self) -> tuple[str, ...]:
        """The tokens of all repairs."""
        return tuple(token for repair in self.repairs for token in repair.tokens)

    @property
    def env(self) -> Mapping[str, str]:
        """The variables of all repairs."""
        return dict(pair for repair in self.repairs for pair in repair.env)
