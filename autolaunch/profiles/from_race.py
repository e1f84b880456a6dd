"""A race and its choice into the profile that is kept of it: the choice, each loser, a summary of figures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from autolaunch.candidates.candidate import ORIGINAL_ID
from autolaunch.choose.choose import Choice
from autolaunch.profiles.parts import chosen_of, objective_json
from autolaunch.profiles.profile import Depth, Entrant, Fingerprint, Measured, Profile
from autolaunch.race.objective import Objective
from autolaunch.race.result import RaceResult, Trial
from autolaunch.race.scale import Scale
from autolaunch.race.workload import Workload
from autolaunch.units import now_utc


@dataclass(frozen=True, slots=True)
class Raced:
    """One race as a profile sees it."""

    result: RaceResult
    choice: Choice
    workload: Workload
    objective: Objective
    depth: Depth
    weights: Literal["real", "synthetic", "unknown"] = "real"
    on_slice: Raced | None = None
    """The race on a slice before it, whose best it repeated on the whole model."""


def profile_of(
    raced: Raced,
    *,
    model: str,
    fingerprint: Fingerprint,
    origin: Literal["serve", "tune"],
    warnings: tuple[str, ...] = (),
) -> Profile:
    """What is kept of `raced` for the next start of what `fingerprint` describes."""
    return Profile(
        model=model,
        chosen=chosen_of(raced.choice.candidate),
        reason=raced.choice.reason,
        origin=origin,
        created=now_utc(),
        fingerprint=fingerprint,
        workload=raced.workload.to_json() | {"words": raced.workload.words},
        objective=objective_json(raced.objective),
        measured=_measured(raced),
        entrants=entrants_of(raced),
        warnings=warnings,
    )


def entrants_of(raced: Raced) -> tuple[Entrant, ...]:
    """Everybody who was tried, in the order of trial; those that only the slice saw come last."""
    scale = Scale.of(raced.result, raced.objective)
    ranks = ranking(raced.choice, raced.result, scale)
    found = [_entrant(raced, one, scale, ranks) for one in raced.result.trials]
    before = raced.on_slice
    if before is None:
        return tuple(found)
    again = {one.candidate.id for one in raced.result.trials}
    earlier = Scale.of(before.result, before.objective)
    # Whoever the whole model did not see is not compared with whom it did, so nobody launches it instead.
    found += [
        _entrant(before, one, earlier, {}) for one in before.result.trials if one.candidate.id not in again
    ]
    return tuple(found)


def ranking(choice: Choice, result: RaceResult, scale: Scale) -> dict[str, int]:
    """The places of who may be launched, by candidate id: the choice, then who surely beat the original.

    Where the original failed, that is whoever is sound.  The original itself has no place: it is what is left
    when all others are used up.
    """
    if choice.candidate.id == ORIGINAL_ID:
        return {}
    lost, gains = choice.lost, choice.gains
    sound = [
        one
        for one in result.trials
        if one.failure is None
        and one.merged_into is None
        and one.candidate.id not in (ORIGINAL_ID, choice.candidate.id)
        and (one.candidate.id not in lost or lost[one.candidate.id].kind is None)
        and scale.typical(one) < math.inf
    ]
    if ORIGINAL_ID not in lost:
        sound = [one for one in sound if one.candidate.id in gains and gains[one.candidate.id].low > 0]
    sound.sort(key=scale.typical)
    names = (choice.candidate.id, *(one.candidate.id for one in sound))
    return {name: place for place, name in enumerate(names, 1)}


def _entrant(raced: Raced, trial: Trial, scale: Scale, ranks: dict[str, int]) -> Entrant:
    """One trial, with its figure or why it is out."""
    one, failure = trial.candidate, trial.failure
    gain, lost = raced.choice.gains.get(one.id), raced.choice.lost.get(one.id)
    if failure is not None:
        reason = failure.reason
    elif lost is not None:
        reason = lost.reason
    else:
        reason = "" if one.id == raced.choice.candidate.id else "the choice is better"
    return Entrant(
        chosen=chosen_of(one),
        value=scale.value(trial),
        gain=None if gain is None else gain.mean,
        lost=reason,
        failure=failure.kind if failure is not None else lost.kind if lost is not None else None,
        stage=None if failure is None else failure.stage,
        rank=ranks.get(one.id),
    )


def _measured(raced: Raced) -> Measured:
    """The summary of a race."""
    scale = Scale.of(raced.result, raced.objective)
    trials = {one.candidate.id: one for one in raced.result.trials}
    winner, original = trials.get(raced.choice.candidate.id), trials.get(ORIGINAL_ID)
    gain = raced.choice.gains.get(raced.choice.candidate.id)
    worth = None if winner is None else winner.acceptance
    return Measured(
        depth=raced.depth,
        unit=raced.objective.unit,
        value=None if winner is None else scale.value(winner),
        original_value=None if original is None else scale.value(original),
        gain=None if gain is None else gain.to_json(),
        figures=raced.choice.basis,
        ended=raced.result.ended,
        race_s=round(raced.result.race_s, 1),
        weights=raced.weights,
        acceptance_length=None if worth is None else worth.tokens_per_step,
        acceptance_source="" if worth is None else ": ".join(filter(None, (worth.label, worth.source))),
    )
