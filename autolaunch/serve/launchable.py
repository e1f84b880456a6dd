"""Why a choice that was kept may not be launched: what it is made of, what the user set, what the table says.

A profile is data and has no authority: each of its choices passes here before it gets on a command line.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from autolaunch.candidates.candidate import Candidate
from autolaunch.profiles.parts import candidate_of, chosen_of
from autolaunch.profiles.profile import Chosen
from autolaunch.profiles.status import written
from autolaunch.profiles.tuned_flags import check, flags_and_values, is_wished
from autolaunch.serve.asked import Asked, Start

if TYPE_CHECKING:
    from autolaunch.assessment import Assessment


def why_not(start: Start, candidate: Candidate) -> str | None:
    """Why `candidate` may not be launched, by its flags alone and by what the user set; None where it may."""
    request, catalogue = start.understood.request, start.understood.catalogue
    options = start.invocation.options
    reason = check(
        chosen_of(candidate),
        catalogue,
        model=request.model,
        wished=options.candidates,
        admitted=options.admit,
    )
    if reason is not None or is_wished(chosen_of(candidate), options.candidates):
        return reason
    for name, values in flags_and_values(candidate.flags):
        flag = catalogue.resolve(name)
        pin = None if flag is None else request.pins.get(flag.dest)
        if pin is not None and tuple(pin.values) != values:
            return f"you pinned `{' '.join([pin.typed, *pin.values])}` ({pin.source})"
    for name, value in candidate.env:
        mine = start.invocation.environ.get(name)
        if mine is not None and mine != value:
            return f"you set the variable `{name}`"
    return None


def as_typed(start: Start, chosen: Chosen) -> Candidate:
    """What a profile holds, as a candidate; with the secrets that the user typed for it, if any."""
    wished = start.invocation.options.candidates
    if wished:
        from autolaunch.candidates.generate import split_user_candidate

        kept = written(chosen)
        for text in wished:
            env, flags = split_user_candidate(text)
            if written(Chosen(flags, env)) == kept:
                return replace(candidate_of(chosen), flags=flags, env=env, origin="user")
    return candidate_of(chosen)


def excluded_now(asked: Asked, candidate: Candidate) -> str | None:
    """Why today's table, or where none is asked what failed here, excludes `candidate`; None if neither."""
    assessment = asked.assessment
    if any(one.flags == candidate.flags and one.env == candidate.env for one in asked.field.candidates):
        return None
    if assessment is None or not asked.on_gpus:
        from autolaunch.tune.learning import why_not as why_not_again

        failed = why_not_again(asked.learned, asked.invocation, asked.understood, asked.machine)(candidate)
        return None if failed is None else failed.reason
    changes: dict[str, str] = {}
    for name, values in flags_and_values(candidate.flags):
        dimension = assessment.evaluation.dimension(name)
        if dimension is None:
            continue
        value = " ".join(values) or "on"
        verdict = dimension.choice(value)
        if verdict is not None and verdict.verdict == "excluded" and not _is_admitted(asked, name, value):
            return f"`{name} {value}`: {verdict.reason}"
        changes[dimension.dest] = value
    return _conflict(assessment, changes) if changes else None


def _is_admitted(asked: Asked, name: str, value: str) -> bool:
    """Whether `--admit` lets the choice in against the table."""
    from autolaunch.capability.contenders import parse_admit

    return (name, value) in map(parse_admit, asked.invocation.options.admit)


def _conflict(assessment: Assessment, changes: dict[str, str]) -> str | None:
    """The rule by which `changes` do not go together, or with what else will run."""
    from autolaunch.capability.conflicts import new_conflict
    from autolaunch.capability.flag_facts import FactSheet
    from autolaunch.capability.judge import Judge

    sheet = FactSheet(assessment.evaluation.facts)
    judge = Judge(sheet, assessment.table, assessment.catalogue, assessment.declared)
    hit = new_conflict(judge, assessment.evaluation, changes)
    return None if hit is None else f"{hit.sentence} [{hit.rule}]"
