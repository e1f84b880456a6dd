"""An Assessment for a person: what matters in the first ten seconds, then every choice, then what to do.

The first lines hold the result, the memory, each repair with its reason, NEXTN and the warnings; whoever
reads on finds each choice of each dimension with its verdict and reason.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from autolaunch.assessment import Assessment
from autolaunch.capability.repair import HARMFUL
from autolaunch.capability.verdicts import ChoiceVerdict, DimensionVerdict, Repair, TableWarning
from autolaunch.command import Command
from autolaunch.explain.screen import EMPTY, Line, Style
from autolaunch.explain.words import (
    checkpoint_name,
    counted,
    evidence_line,
    groups,
    machine_name,
    model_name,
    redacted_env,
    runs,
    software_name,
    whose,
)
from autolaunch.redact import redact_argv
from autolaunch.request.command_line import Notice

_STYLES: dict[str, Style] = {"eligible": "good", "unknown": "warn", "excluded": "bad"}
_WIDE = 9


def lines_of(assessment: Assessment, *, brief: bool = False) -> Iterator[Line]:
    """Every line, in the order of what a person wants to know.

    `brief` is for a terminal, where what scrolls away is not read: one line a dimension, and how to see more.
    """
    yield from headline(assessment)
    yield from top(assessment)
    yield EMPTY
    yield from (
        _overview(assessment.evaluation.dimensions) if brief else _choices(assessment.evaluation.dimensions)
    )
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


def choice_sections(
    dimensions: Sequence[DimensionVerdict],
) -> Iterator[tuple[DimensionVerdict, DimensionVerdict | None]]:
    """Each dimension, with the earlier one that has the same choices and verdicts, if there is one."""
    told: list[DimensionVerdict] = []
    for dimension in dimensions:
        if not dimension.choices and dimension.pinned is None:
            continue  # it has no list of choices, and nothing was chosen
        like = next((one for one in told if _is_alike(one, dimension)), None)
        if like is None:
            told.append(dimension)
        yield dimension, like


def _choices(dimensions: Sequence[DimensionVerdict]) -> Iterator[Line]:
    """Every choice of every dimension with its reason."""
    yield Line("choices", style="head")
    for dimension, like in choice_sections(dimensions):
        yield Line(
            dimension.title, f"  {dimension.flag}: {runs(dimension)} ({whose(dimension)})", "head", indent=2
        )
        if like is not None:
            yield Line("the same verdicts as for ", f"{like.title}, `{like.flag}`", "dim", indent=4)
            continue
        for group in groups(dimension.choices):
            named = f"  [{', '.join(group.rules)}]" if group.rules else ""
            yield Line(
                f"{group.verdict:<{_WIDE}}",
                f"{', '.join(group.choices)}: {group.reason}{named}",
                _STYLES[group.verdict],
                indent=4,
                hang=_WIDE,
            )


def _overview(dimensions: Sequence[DimensionVerdict]) -> Iterator[Line]:
    """One line for each dimension that is raced or decided: what runs, what else might, how many cannot."""
    shown = [one for one in dimensions if (one.raced and not one.is_switch) or one.decision != "kept"]
    wide = max((len(one.title) for one in shown), default=0) + 2
    yield Line("choices", style="head")
    for one in shown:
        others = [choice for choice in one.choices if choice.choice != one.effective]
        names = [choice.choice for choice in others if choice.verdict == "eligible"]
        said = [f"or {', '.join(names)}"] if names and not one.is_switch else []
        for verdict in ("unknown", "excluded"):
            count = sum(choice.verdict == verdict for choice in others)
            said += [f"{count} {verdict}"] if count else []
        style: Style = {"repaired": "good", "pinned": "warn"}.get(one.decision, "")  # type: ignore[assignment]
        mark = f" ({one.decision})" if one.decision != "kept" else ""
        yield Line(
            f"{one.title:<{wide}}{runs(one)}{mark}",
            f"  {'; '.join(said)}" if said else "",
            style,
            indent=2,
            hang=wide,
        )
    hidden = sum(bool(one.choices) for one in dimensions) - len(shown)
    more = f" of these and of {hidden} more dimensions" if hidden > 0 else ""
    reasons = f"{more} with its reason: `autolaunch explain … | less`, or `--why DIMENSION`"
    yield Line("every choice", reasons, "dim", indent=2)


def _is_alike(one: DimensionVerdict, other: DimensionVerdict) -> bool:
    """Whether two dimensions have the same choices with the same verdicts and reasons."""
    return len(one.choices) > 1 and [(c.choice, c.verdict, c.reason) for c in one.choices] == [
        (c.choice, c.verdict, c.reason) for c in other.choices
    ]


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
