"""What to do after an Assessment was read: each step with the command to type."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from autolaunch.assessment import Assessment
from autolaunch.capability.repair import HARMFUL
from autolaunch.capability.verdicts import ChoiceVerdict, DimensionVerdict
from autolaunch.command import Command
from autolaunch.explain.words import redacted_env
from autolaunch.redact import redact_argv


def next_steps(assessment: Assessment) -> tuple[tuple[str, str], ...]:
    """What to do now: each step with its command."""
    argv = assessment.request.argv
    model, rest = ((argv[1],), argv[2:]) if argv[:1] == ("--model-path",) and len(argv) > 1 else ((), argv)
    typed = shlex.join(redact_argv([*model, *rest]))
    pasted = "".join(
        f"{name}={shlex.quote(value)} " for name, value in redacted_env(assessment.pasted_env).items()
    )
    steps = [("start it", f"{pasted}autolaunch serve {typed}")]
    if assessment.command != assessment.original:
        steps.append(
            (
                "or by hand",
                f"{pasted}{Command(redact_argv(assessment.command.argv), assessment.command.env).shell()}",
            )
        )
    if assessment.nextn.suggested:
        steps.append(("with NEXTN", f"{pasted}autolaunch serve {typed} --nextn on"))
    if assessment.machine.platform == "cuda" and len(assessment.field.candidates) > 1:
        steps.append(("race first", f"{pasted}autolaunch serve {typed} --tune quick"))
    example = _example(assessment.evaluation.dimensions)
    if example:
        plan = "".join(f" {shlex.quote(word)}" for word in assessment.planned)
        steps.append(("ask why", f"{pasted}autolaunch explain {typed}{plan} --why {example}"))
    return tuple(steps)


def _example(dimensions: Sequence[DimensionVerdict]) -> str | None:
    """A choice worth asking about: what was repaired, else what this GPU keeps out of a raced dimension."""

    def worth(dimension: DimensionVerdict, choice: ChoiceVerdict) -> tuple[bool, ...]:
        """Small for what is worth much."""
        return (
            not (dimension.decision == "repaired" and choice.choice == dimension.auto),
            not dimension.raced,
            not any(name == "sm" for hit in choice.hits for name, _ in hit.facts),
            choice.failure not in HARMFUL,
        )

    excluded = [
        (worth(dimension, choice), f"{dimension.flag.removeprefix('--')}={choice.choice}")
        for dimension in dimensions
        for choice in dimension.choices
        if choice.verdict == "excluded"
    ]
    return min(excluded, key=lambda one: one[0])[1] if excluded else None
