"""An Assessment for a person: what matters in the first ten seconds, then every choice, then what to do.

The first lines hold the result, the memory, each repair with its reason, NEXTN and the warnings; whoever
reads on finds each choice of each dimension with its verdict and reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autolaunch.assessment import Assessment
from autolaunch.capability.verdicts import Repair, TableWarning
from autolaunch.explain.choices import every_choice, overview
from autolaunch.explain.next_steps import next_steps
from autolaunch.explain.screen import EMPTY, Line, Style
from autolaunch.explain.words import (
    checkpoint_name,
    counted,
    evidence_line,
    machine_name,
    model_name,
    software_name,
)
from autolaunch.request.command_line import Notice


def lines_of(assessment: Assessment, *, brief: bool = False) -> Iterator[Line]:
    """Every line, in the order of what a person wants to know.

    `brief` is for a terminal, where what scrolls away is not read: one line a dimension, and how to see more.
    """
    yield from headline(assessment)
    yield from top(assessment)
    yield EMPTY
    dimensions = assessment.evaluation.dimensions
    yield from overview(dimensions) if brief else every_choice(dimensions)
    yield from _race(assessment, brief)
    yield EMPTY
    yield Line("next", style="head")
    steps = next_steps(assessment)
    wide = max(len(what) for what, _ in steps) + 2
    for what, command in steps:
        yield Line(f"{what}:".ljust(wide), command, indent=2, hang=wide)


def top(assessment: Assessment) -> Iterator[Line]:
    """What matters, below the headline: memory, repairs, NEXTN, warnings, notes."""
    yield from _memory(assessment)
    for repair in assessment.evaluation.repairs:
        yield EMPTY
        yield from _repair(repair)
    yield from _nextn(assessment)
    for warning in assessment.warnings:
        yield EMPTY
        yield from _warning(warning)
    for notice in assessment.notices:
        yield EMPTY
        yield from _notice(notice)


def result_of(assessment: Assessment) -> str:
    """The one line that says it all: how many repairs, suggestions and warnings."""
    suggestions = int(assessment.nextn.suggested)
    said = [
        counted(len(assessment.evaluation.repairs), "repair"),
        counted(suggestions, "suggestion"),
        counted(len(assessment.warnings), "warning"),
    ]
    return ", ".join(said)


def headline(assessment: Assessment) -> Iterator[Line]:
    """Result, model, machine, software."""
    harm = bool(assessment.warnings)
    style: Style = "warn" if harm or assessment.evaluation.repairs else "good"
    yield Line(
        result_of(assessment), f" for {model_name(assessment)} on {machine_name(assessment.machine)}", style
    )
    if assessment.checkpoint is not None:
        yield Line(checkpoint_name(assessment.checkpoint), indent=2)
    elif assessment.not_inspected is not None:
        why = assessment.not_inspected
        yield Line("not inspected: ", why.reason, "warn", indent=2)
        yield from _because(why.because)
        if why.hint:
            yield Line("hint: ", why.hint, indent=2)
    yield Line(software_name(assessment), indent=2)


def _memory(assessment: Assessment) -> Iterator[Line]:
    """Whether it fits, with the arithmetic."""
    memory = assessment.memory
    words = {True: "it fits: ", False: "it does not fit: ", None: ""}
    style: Style = {True: "good", False: "bad", None: "warn"}[memory.fits]  # type: ignore[assignment]
    yield EMPTY
    yield Line("memory: ", f"{words[memory.fits]}{memory.reason}", style)
    said_below = any(one.id.startswith("memory.") for one in assessment.warnings)
    if memory.hint and not said_below:
        yield Line("hint: ", memory.hint, indent=2)


def _repair(repair: Repair) -> Iterator[Line]:
    """What is put in the place of SGLang's own choice, and why."""
    words = " ".join([*(f"{name}={value}" for name, value in repair.env), *repair.tokens])
    yield Line("repair: ", f"`{words}` in place of SGLang's own `{repair.replaces}`", "good")
    yield from _because(repair.because)
    yield Line("evidence: ", evidence_line(repair.evidence, repair.rules), "dim", indent=2)


def _nextn(assessment: Assessment) -> Iterator[Line]:
    """The heads the checkpoint brings along: the ready flags with gain and cost, or why not."""
    plan, checkpoint = assessment.nextn, assessment.checkpoint
    if checkpoint is None or not (plan.usable or checkpoint.mtp.announced or checkpoint.mtp.present):
        return
    yield EMPTY
    if not plan.usable:
        proven = "no" if checkpoint.mtp.present is not None else "not known"
        yield Line("NEXTN: ", f"{proven}, {plan.reason}", "dim")
        return
    words = " ".join([*(f"{name}={value}" for name, value in plan.env), *plan.flags])
    yield Line("NEXTN: ", f"{_standing(assessment)} `{words}`" if words else _standing(assessment), "good")
    yield from _because((plan.reason, *plan.companions))
    if plan.gain or plan.cost:
        yield Line(
            "",
            "; ".join(filter(None, (plan.gain and f"gain: {plan.gain}", plan.cost and f"cost: {plan.cost}"))),
            indent=2,
        )
    for warning in plan.warnings:
        yield Line("but ", warning, "warn", indent=2)
    evidence = (*plan.gain_evidence, *plan.evidence)
    if evidence:
        yield Line("evidence: ", evidence_line(evidence, ()), "dim", indent=2)


def _standing(assessment: Assessment) -> str:
    """Whether the heads are suggested, chosen or pinned."""
    if assessment.nextn.pinned:
        return "your own flags say how to draft"
    if assessment.choice.choice == "NEXTN":
        return "chosen, because you said `--nextn on`:"
    return "suggested, nothing is measured yet:" if assessment.nextn.suggested else "possible:"


def _warning(warning: TableWarning) -> Iterator[Line]:
    """Something harmful or risky in what will run."""
    yield Line("warning: ", warning.text, "bad" if warning.pinned else "warn")
    yield from _because(warning.because)
    if warning.evidence:
        yield Line("evidence: ", evidence_line(warning.evidence, (warning.id,)), "dim", indent=2)
    if warning.hint:
        yield Line("hint: ", warning.hint, indent=2)


def _notice(notice: Notice) -> Iterator[Line]:
    """Something to know of."""
    yield Line("note: ", notice.text)
    yield from _because(notice.because)
    if notice.evidence:
        yield Line("evidence: ", notice.evidence, "dim", indent=2)
    if notice.hint:
        yield Line("hint: ", notice.hint, indent=2)


def _because(facts: Sequence[str]) -> Iterator[Line]:
    """The reasons below what they are reasons for."""
    for at, fact in enumerate(facts):
        yield Line(f"{'because' if at == 0 else 'and'} ", fact, indent=2)


def _race(assessment: Assessment, brief: bool) -> Iterator[Line]:
    """What a race would try, and what it leaves out beside the excluded choices."""
    challengers = assessment.field.challengers
    how = " (`autolaunch serve … --tune quick`)"
    if challengers and brief:
        yield EMPTY
        yield Line(f"a race would try {counted(len(challengers), 'candidate')}", how, "head")
        return
    if challengers:
        yield EMPTY
        yield Line("a race would try", how, "head")
        for one in assessment.field.candidates:
            yield Line(f"{one.id:<4}", one.label, indent=2, hang=4)
    yield from left_out(assessment)


def left_out(assessment: Assessment) -> Iterator[Line]:
    """The candidates that are dropped for another reason than an excluded choice."""
    excluded = {
        dimension.flag if dimension.is_switch else f"{dimension.flag} {choice.choice}"
        for dimension in assessment.evaluation.dimensions
        for choice in dimension.choices
        if choice.verdict == "excluded"
    }
    left: dict[str, list[str]] = {}
    for out in assessment.field.dropped:
        if out.label not in excluded:
            left.setdefault(out.reason, []).append(out.label)
    for reason, names in left.items():
        yield Line("not tried, ", f"because {reason}: {'; '.join(names)}", "dim", indent=2)
