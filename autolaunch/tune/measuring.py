"""A start and the ground of its race into what was measured, and into the choice that follows from it.

With `--tune full`, a race on a slice is followed by a second one, of the original and the best of the first
on the whole model, on the wall; then the second decides.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from autolaunch.candidates.candidate import ORIGINAL, ORIGINAL_ID, Candidate
from autolaunch.candidates.generate import Field
from autolaunch.choose.choose import Choice, choose
from autolaunch.errors import render_message
from autolaunch.launch.report import Reporter
from autolaunch.profiles import files
from autolaunch.profiles.from_race import Raced, profile_of
from autolaunch.profiles.kept import Kept
from autolaunch.profiles.mounts import container_layer
from autolaunch.profiles.names import name_of
from autolaunch.profiles.parts import candidate_of
from autolaunch.profiles.profile import Fingerprint
from autolaunch.profiles.proofs import prove
from autolaunch.race.progress import Progress
from autolaunch.race.result import RaceResult
from autolaunch.race.workload import Workload
from autolaunch.serve import lookup
from autolaunch.serve.asked import Asked
from autolaunch.serve.stages import QUICK_STAGE_LIMIT_S
from autolaunch.tune import racing
from autolaunch.tune.ground import Ground, whole_ground
from autolaunch.tune.learning import RACED_LIMIT_S, launched, remember_race
from autolaunch.tune.result import is_worth_keeping

RACE_GRACE_S = 120.0
"""What a race may take beyond its budget: the request that was under way and the ends of its engines."""
MOST_ON_THE_WHOLE = 2
"""Challengers whose final is repeated on the whole model: each loads all of its weights."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One race, and who was chosen after it."""

    plan: racing.Plan
    result: RaceResult
    choice: Choice
    on_slice: Measured | None = None
    """The race on a slice before it, whose best it repeated on the whole model."""

    @property
    def tells(self) -> bool:
        """Whether anything was learned: a figure, or a failure that is not the machine's alone."""
        return any(
            trial.windows if trial.failure is None else trial.failure.kind != "environment"
            for trial in self.result.trials
        )

    @property
    def workload(self) -> Workload:
        """What the windows sent."""
        return self.result.workload or self.plan.workload


def measure(asked: Asked, ground: Ground | None, progress: Progress, reporter: Reporter) -> Measured:
    """Stages `race` and `choose`; SliceError where the slice of `ground` cannot be made."""
    assessment = asked.assessment if asked.on_gpus else None
    plan = racing.Plan(asked.field, asked.workload, asked.objective, ground or Ground(), assessment)
    first = _race(asked, plan, asked.invocation.options.budget_s, progress, reporter)
    if asked.invocation.options.tune != "full" or plan.ground.plan is None:
        return first
    return _repeat(asked, first, progress, reporter)


def keep(
    asked: Asked,
    measured: Measured,
    progress: Progress,
    origin: Literal["serve", "tune"],
    fingerprint: Fingerprint | None = None,
) -> Kept | None:
    """Keep what was found for the next start; the profile, where that was possible and worth it.

    `fingerprint` is that of this start, where it was read already.
    """
    if not is_worth_keeping(measured.result, measured.choice):
        return None
    now = fingerprint or lookup.fingerprint(asked)
    if now is None:
        return None
    profile = profile_of(
        raced_of(measured),
        model=str(now["model.name"]),
        fingerprint=now,
        origin=origin,
        warnings=warnings_of(asked),
    )
    store = lookup.store_of(asked)
    try:
        with files.patience(RACED_LIMIT_S):
            path = store.save(profile)
    except OSError as error:
        what = "the result could not be kept for the next start"
        progress.block(render_message("warning", what, (error.strerror or str(error),)))
        return None
    with suppress(OSError):  # without a proof the table is asked at each start, and that is all
        prove(asked.invocation.folders.proofs, profile, lambda chosen: launched(asked, candidate_of(chosen)))
    layer = container_layer(path)
    if layer is not None:
        hint = "`--profile-dir DIR` on a volume keeps profiles"
        progress.block(
            render_message("warning", "the profile will not outlive this container", (layer,), hint=hint)
        )
    return Kept(profile, path, name_of(profile), writable=True)


def raced_of(measured: Measured) -> Raced:
    """A race as a profile sees it."""
    plan, before = measured.plan.ground.plan, measured.on_slice
    return Raced(
        measured.result,
        measured.choice,
        measured.workload,
        measured.plan.objective,
        depth="whole" if plan is None else "slice",
        weights="synthetic" if plan is not None and plan.kind == "synthetic" else "real",
        on_slice=None if before is None else raced_of(before),
    )


def warnings_of(asked: Asked) -> tuple[str, ...]:
    """What the table warns of, a line each; what the command line itself makes is said anew at each start."""
    if asked.assessment is None or not asked.on_gpus:
        return ()
    found = (one for one in asked.assessment.warnings if not one.id.startswith("request."))
    return tuple("; ".join((one.text, *one.because)) for one in found)


def _race(
    asked: Asked, plan: racing.Plan, budget_s: float, progress: Progress, reporter: Reporter
) -> Measured:
    """One race within `budget_s`, and who is chosen after it."""
    invocation = replace(asked.invocation, options=replace(asked.invocation.options, budget_s=budget_s))
    reporter.stage("race", budget_s + RACE_GRACE_S)
    result = racing.race(
        invocation, asked.understood, plan, progress, reporter.census_fd, lambda: reporter.interrupted
    )
    reporter.stage("choose", QUICK_STAGE_LIMIT_S)
    remember_race(asked, result, progress, piece=plan.ground.plan)
    return Measured(plan, result, choose(result, plan.objective))


# The whole model ----------------------------------------------------------------------------------


def _repeat(asked: Asked, first: Measured, progress: Progress, reporter: Reporter) -> Measured:
    """The final of `first` once more, on the whole model; `first` itself where that comes to nothing."""
    left_s = asked.invocation.options.budget_s - first.result.race_s
    best = best_of(first)
    why_not = None
    if first.result.ended == "interrupted":
        why_not = "interrupted"
    elif not best:
        why_not = "no challenger was compared with the original on the slice"
    elif left_s <= 0:
        why_not = "the budget is spent; `--budget TIME` gives more"
    if why_not is not None:
        return _only_on_the_slice(first, why_not, progress)
    names = " and ".join((ORIGINAL_ID, *(one.id for one in best)))
    progress.say(f"racing {names} once more, on the whole model, as `--tune full` says")
    field = Field((ORIGINAL, *best), first.result.dropped)
    ground = whole_ground(asked.understood.request, asked.table, field, asked.workload)
    plan = replace(first.plan, field=field, ground=ground)
    second = replace(_race(asked, plan, left_s, progress, reporter), on_slice=first)
    if settles(second, first.choice.candidate):
        return second
    unsettled = replace(first, result=replace(first.result, ended=second.result.ended))
    return _only_on_the_slice(unsettled, second.choice.reason, progress)


def _only_on_the_slice(first: Measured, why: str, progress: Progress) -> Measured:
    """`first`, with the word that the whole model decided nothing."""
    words = f"the whole model decided nothing ({why})"
    progress.say(f"{words}; what the slice showed stands")
    return replace(first, choice=replace(first.choice, reason=f"{first.choice.reason}; {words}"))


def best_of(first: Measured) -> tuple[Candidate, ...]:
    """The challengers with the largest gains of those that are sound, the best first."""
    gains, lost = first.choice.gains, first.choice.lost
    sound = [
        trial.candidate
        for trial in first.result.trials
        if trial.candidate.id in gains
        and trial.merged_into is None
        and (trial.candidate.id not in lost or lost[trial.candidate.id].kind is None)
    ]
    ranked = sorted(sound, key=lambda one: -gains[one.id].mean)
    return tuple(ranked[:MOST_ON_THE_WHOLE])


def settles(second: Measured, favourite: Candidate) -> bool:
    """Whether a race says anything of `favourite`: it failed, or was compared, or the original failed."""
    failed = {trial.candidate.id for trial in second.result.trials if trial.failure is not None}
    compared = set(second.choice.gains)
    if favourite.id == ORIGINAL_ID:
        return bool(compared | failed)
    return bool({favourite.id, ORIGINAL_ID} & (compared | failed))
