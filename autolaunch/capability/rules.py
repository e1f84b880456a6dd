"""The rules: what a row of `data/rules/*.toml` says about one choice, or about a combination of flags.

How to write a row is told in `data/rules/README.md`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, Literal

from autolaunch.candidates.candidate import FailureKind, Stage
from autolaunch.capability.fact_names import UNKNOWN, Facts
from autolaunch.capability.kleene import Truth, truth_and, truth_not
from autolaunch.capability.rows import Evidence, Row, Scope, read_rows

Effect = Literal["exclude", "allow", "unknown", "warn", "require"]
Numerics = Literal["same", "lossy", "unknown"]

ANY_CHOICE: Final = "*"
EFFECTS: Final = ("exclude", "allow", "unknown", "warn", "require")
STAGES: Final = ("", "table", "start", "load", "capture", "gate", "serve")
FAILURES: Final = (
    "",
    "rejected",
    "crash",
    "oom",
    "hang",
    "garbage",
    "silent_fallback",
    "slow",
    "memory",
    "environment",
)
_COMPANION = re.compile(r"(--[a-z][a-z0-9-]*)(?:[ =](\S+))?|([A-Z][A-Z0-9_]+)=(\S+)")


@dataclass(frozen=True, slots=True)
class Companion:
    """A flag or a variable that a choice needs beside it."""

    name: str
    """`--page-size`, or the variable's name."""
    values: tuple[str, ...]
    """Any of them will do and the first is the one to add; none for a switch."""

    @property
    def is_variable(self) -> bool:
        """Whether it is an environment variable."""
        return not self.name.startswith("-")

    @property
    def tokens(self) -> tuple[str, ...]:
        """The companion as SGLang reads it; nothing for a variable."""
        return () if self.is_variable else (self.name, *self.values[:1])

    def __str__(self) -> str:
        if self.is_variable:
            return f"{self.name}={self.values[0]}"
        return " ".join(self.tokens)


@dataclass(frozen=True, slots=True)
class FlashinferBackend:
    """A backend of a FlashInfer function, whose SMs FlashInfer itself declares."""

    function: str
    backend: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One row: for these choices, under this scope, this effect, because of this reason."""

    id: str
    dimensions: tuple[str, ...]
    """The flags it is about, in the newest spelling; none for a combination of flags."""
    choices: tuple[str, ...]
    effect: Effect
    scope: Scope
    backend: FlashinferBackend | None
    failure: FailureKind | None
    stage: Stage | None
    numerics: Numerics | None
    require: tuple[Companion, ...]
    reason: str
    contradiction: str
    evidence: tuple[Evidence, ...]
    names: tuple[str, ...]
    """Every fact the row asks for, those of its condition first."""
    learned: bool = False
    """Whether it tells of something that failed here, and is no row of a file."""

    def warns_slow(self, choice: str) -> bool:
        """Whether it warns that `choice` is slow."""
        return self.effect == "warn" and self.failure == "slow" and choice in self.choices

    def is_about(self, dimension: str, choice: str) -> bool:
        """Whether the row speaks of `choice` of `dimension`."""
        return dimension in self.dimensions and (choice in self.choices or ANY_CHOICE in self.choices)


def scope_truth(scope: Scope, facts: Facts) -> Truth:
    """Whether a row with `scope` applies."""
    truths: list[Truth] = []
    for name, versions in (("sglang", scope.sglang), ("flashinfer", scope.flashinfer)):
        if versions is not None:
            version = facts.get(name, UNKNOWN)
            truth = versions.holds(version) if isinstance(version, str) else None
            if truth is False:
                return False
            truths.append(truth)
    truths.append(scope.when.truth(facts))
    if scope.unless is not None and truths[-1] is not False:
        truths.append(truth_not(scope.unless.truth(facts)))
    return truth_and(truths)


def scope_missing(scope: Scope, facts: Facts) -> tuple[str, ...]:
    """The facts for want of which it is unknown whether the row applies."""
    names: dict[str, None] = {}
    for name, versions in (("sglang", scope.sglang), ("flashinfer", scope.flashinfer)):
        version = facts.get(name, UNKNOWN)
        if versions is not None and (not isinstance(version, str) or versions.holds(version) is None):
            names[name] = None
    names.update(dict.fromkeys(scope.when.missing(facts)))
    if scope.unless is not None:
        names.update(dict.fromkeys(scope.unless.missing(facts)))
    return tuple(names)


def load_rules(file: Traversable, cache: Path | None = None) -> tuple[Rule, ...]:
    """The rules of one file, in its order; RowError for a row that is wrong."""
    return tuple(_rule(row) for row in read_rows(file, ("rule",), cache)["rule"])


def _rule(row: Row) -> Rule:
    """Check one row and make it a rule."""
    effect: Effect = row.text("effect", among=EFFECTS)  # type: ignore[assignment]
    dimensions = tuple(filter(None, row.strings("dimension")))
    choices = row.strings("choice", ANY_CHOICE)
    failure = row.text("failure", "", among=FAILURES)
    stage = row.text("stage", "", among=STAGES)
    numerics = row.text("numerics", "", among=("", "same", "lossy", "unknown"))
    backend = row.table("flashinfer_backend")
    scope = row.scope()
    rule = Rule(
        id=row.identifier(),
        dimensions=dimensions,
        choices=choices,
        effect=effect,
        scope=scope,
        backend=_backend(row, backend) if backend is not None else None,
        failure=failure or None,  # type: ignore[arg-type]
        stage=stage or None,  # type: ignore[arg-type]
        numerics=numerics or None,  # type: ignore[arg-type]
        require=tuple(_companion(row, text) for text in row.strings("require", ())),
        reason=row.sentence("reason"),
        contradiction=row.sentence("contradiction", ""),
        evidence=row.evidence(),
        names=_names(scope, backend is not None),
    )
    row.done()
    problem = _problem(rule)
    if problem:
        raise row.wrong(problem)
    return rule


def _names(scope: Scope, backend: bool) -> tuple[str, ...]:
    """The facts that `scope` and a FlashInfer backend ask for."""
    names = dict.fromkeys(scope.when.names())
    if scope.unless is not None:
        names.update(dict.fromkeys(scope.unless.names()))
    names.update((name, None) for name in ("sglang", "flashinfer") if getattr(scope, name) is not None)
    return (*names, "sm") if backend and "sm" not in names else tuple(names)


def _problem(rule: Rule) -> str:
    """What does not fit together in `rule`, or an empty text."""
    if not rule.choices:
        return "`choice` is empty"
    if rule.effect in ("exclude", "warn") and rule.failure is None:
        return f"an effect of `{rule.effect}` needs a `failure`"
    if (rule.effect == "require") != bool(rule.require):
        return "`require` goes with the effect of that name, and only with it"
    if rule.backend is not None and rule.effect not in ("exclude", "allow"):
        return "`flashinfer_backend` goes with exclude and allow only"
    if not rule.dimensions:
        if rule.choices != (ANY_CHOICE,) or rule.effect in ("allow", "unknown"):
            return "a combination has no `choice`, and excludes, warns or requires"
        if not any(name.startswith(("flag.", "env.")) for name in rule.names):
            return "a combination asks for a flag or a variable"
    return ""


def _backend(row: Row, table: object) -> FlashinferBackend:
    """The `flashinfer_backend` of a row."""
    if not isinstance(table, dict) or set(table) != {"function", "backend"}:
        raise row.wrong("`flashinfer_backend` is { function = …, backend = … }")
    if not all(isinstance(value, str) for value in table.values()):
        raise row.wrong("`flashinfer_backend` is made of two strings")
    return FlashinferBackend(table["function"], table["backend"])


def _companion(row: Row, text: str) -> Companion:
    """`--page-size 64`, `--page-size 32|64`, `--enable-x` or `NAME=value`."""
    found = _COMPANION.fullmatch(text)
    if found is None:
        raise row.wrong(f"`require`: `{text}` is neither a flag with its value nor NAME=value")
    value = found[2] or found[4]
    return Companion(found[1] or found[3], tuple(value.split("|")) if value else ())
