"""From the samples of a race to one candidate and the reason in words.

Failures are out first, then what is out of bounds (`race.bounds`).  Of the rest, one must beat the original
by more than the noise and by 2 %, at every concurrency of the workload and over every start: the gain is a
mean of paired log ratios of costs, and the lower end of its 99 % interval must be above zero.  Outliers
widen the interval, so a noisy machine decides for the original.  A gain in GPU time must be 2 % also where
the time counts in which the GPU waits for the host.  Among those within the noise of the best, the one that
changes fewest flags is taken.
"""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass, field

from autolaunch.candidates.candidate import ORIGINAL, ORIGINAL_ID, Candidate
from autolaunch.choose.words import MIN_GAIN, Gained, figure, nobody, nothing_measured, with_waiting, won
from autolaunch.race.bounds import Lost, broken_ceilings, out_of_bounds, unknown_ceilings
from autolaunch.race.objective import Objective
from autolaunch.race.outcomes import Failure
from autolaunch.race.paired import Gain, Regret, regret
from autolaunch.race.result import RaceResult, Trial
from autolaunch.race.scale import Scale

__all__ = ["Choice", "Gain", "Lost", "Regret", "choose", "regret"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The candidate to launch, and why it and no other."""

    candidate: Candidate
    reason: str
    gains: dict[str, Gain]
    """By candidate id, for every finalist but the original, also those that may not win."""
    lost: dict[str, Lost] = field(default_factory=dict)
    """By candidate id, why each trial but the chosen one is not launched."""
    basis: str = ""
    """Where the figures come from, in words; empty where nothing was measured."""


def choose(result: RaceResult, objective: Objective | None = None) -> Choice:
    """The candidate that is launched after `result`; ties and doubts go to the original."""
    scale = Scale.of(result, objective or Objective())
    trials = {trial.candidate.id: trial for trial in result.trials}
    original = trials.get(ORIGINAL_ID)
    lost = {one: why for one, trial in trials.items() if (why := _why_out(trial, original, result, scale))}
    if original is not None and original.failure is not None:
        return _without_original(original.failure, result, lost, scale)
    lost.pop(ORIGINAL_ID, None)
    challengers = [trial for one, trial in trials.items() if one != ORIGINAL_ID and trial.failure is None]
    gains = {} if original is None else _gains(challengers, original, scale)
    for trial in challengers:
        if trial.candidate.id not in gains:
            lost.setdefault(trial.candidate.id, Lost("not measured over enough rounds of a final"))
    if original is None or not gains:
        return Choice(ORIGINAL, nothing_measured(original, result), gains, lost)
    broken, notes = _broken(original, challengers, gains, lost, scale)
    standing = [trial for trial in challengers if trial.candidate.id not in lost]
    gained = {
        one.candidate.id: Gained(gains[one.candidate.id], scale.gain_with_waiting(one, original))
        for one in standing
    }
    for trial in standing:
        if (why := _no_winner(trial, original, gained[trial.candidate.id], broken, scale)) is not None:
            lost[trial.candidate.id] = why
    winners = [trial for trial in standing if trial.candidate.id not in lost]
    if not winners:
        reason = nobody(gained, scale)
        return Choice(ORIGINAL, "; ".join([reason, *notes]), gains, lost, scale.words)
    best = _simplest_of_the_best(winners, gains, lost, scale)
    reason = won(best, original, gains[best.candidate.id], broken, scale)
    return Choice(best.candidate, "; ".join([reason, *notes]), gains, lost, scale.words)


def _gains(challengers: list[Trial], original: Trial, scale: Scale) -> dict[str, Gain]:
    """What each of `challengers` gains over the original, by candidate id."""
    gains = {trial.candidate.id: scale.gain(trial, original) for trial in challengers}
    return {one: gain for one, gain in gains.items() if gain is not None}


# Who may not win ----------------------------------------------------------------------------------


def _why_out(trial: Trial, original: Trial | None, result: RaceResult, scale: Scale) -> Lost | None:
    """Why `trial` may not win, by what is known before costs are compared."""
    if trial.failure is not None:
        return Lost(f"failed at {trial.failure.stage}: {trial.failure.reason}", trial.failure.kind)
    return out_of_bounds(trial, original, result, scale)


def _broken(
    original: Trial, challengers: list[Trial], gains: dict[str, Gain], lost: dict[str, Lost], scale: Scale
) -> tuple[str | None, list[str]]:
    """Put into `lost` who breaks a ceiling; what the original breaks and others keep, and notes for a person.

    Where all break one, ceilings decide nothing.
    """
    able = tuple(one for one in challengers if one.candidate.id in gains and one.candidate.id not in lost)
    broken = broken_ceilings((original, *able), scale)
    unknown = unknown_ceilings((original, *able), scale)
    notes = [] if unknown is None else [f"`--slo`: {unknown}"]
    theirs = broken.pop(ORIGINAL_ID, None)
    if theirs is not None and len(broken) == len(able):
        return None, [*notes, f"nobody keeps `--slo`, the original has {theirs}"]
    for one, words in broken.items():
        lost[one] = Lost(f"it breaks `--slo`: {words}", "slow")
    return theirs, notes


def _no_winner(
    trial: Trial, original: Trial, gained: Gained, broken: str | None, scale: Scale
) -> Lost | None:
    """Why `trial`, within all bounds, is no better than the original, which breaks the ceilings `broken`."""
    for one in (trial, original):
        if one.boots < one.boots_wanted:
            return Lost(
                f"kernels of {one.candidate.id} draw their tactics at each start, and one start was measured"
            )
    if broken is not None:
        nearer = scale.nearer(trial, original)
        if nearer is None or nearer.low <= 0:
            return Lost("it keeps `--slo` by no more than the noise")
        return None
    gain = gained.gain
    if gain.low <= 0:
        return Lost(
            f"{figure(gain, scale)}, no more than the noise" if gain.high > 0 else figure(gain, scale)
        )
    if gain.mean < MIN_GAIN:
        return Lost(f"{figure(gain, scale)}, less than the {100 * MIN_GAIN:.0f} % that a change must gain")
    if gained.is_waited_away:
        return Lost(f"{figure(gain, scale)}, {with_waiting(gained)}")
    return None


def _simplest_of_the_best(
    winners: list[Trial], gains: dict[str, Gain], lost: dict[str, Lost], scale: Scale
) -> Trial:
    """The winner that changes least among those within the noise of the best; the others into `lost`."""
    fastest = max(winners, key=lambda one: gains[one.candidate.id].mean)
    level = [one for one in winners if one is fastest or _level(fastest, one, gains, scale)]
    best = min(level, key=lambda one: (_changes(one.candidate), -gains[one.candidate.id].mean))
    for one in winners:
        if one is not best:
            why = f"{figure(gains[one.candidate.id], scale)}, "
            same = f"within the noise of {best.candidate.id}, which changes no more flags"
            lost[one.candidate.id] = Lost(why + (same if one in level else f"less than {best.candidate.id}"))
    return best


def _level(fastest: Trial, other: Trial, gains: dict[str, Gain], scale: Scale) -> bool:
    """Whether nothing but noise is between the two."""
    between = scale.gain(fastest, other)
    if between is None:
        return gains[fastest.candidate.id].low <= gains[other.candidate.id].high
    return between.low <= 0


def _changes(candidate: Candidate) -> int:
    """How many flags and variables the candidate adds to the original command."""
    return len(candidate.env) + sum(token.startswith("--") for token in candidate.flags)


# Without the original -----------------------------------------------------------------------------

_FROM_OUTSIDE = frozenset(
    -number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
)
"""Exit statuses of processes that others end; kernels crash by other signals."""
_TELLING = frozenset({"rejected", "crash", "oom", "hang", "garbage"})
"""Failures of a trial that the server would meet too; an `environment` that failed says nothing of it."""


def _without_original(failure: Failure, result: RaceResult, lost: dict[str, Lost], scale: Scale) -> Choice:
    """The fastest healthy challenger, since the original command failed where the others did not."""
    what = f"the original command failed in its trial ({failure.kind} at {failure.stage}: {failure.reason})"
    lost.pop(ORIGINAL_ID, None)
    # A signal out of the blue came from outside: an operator, or somebody else's want of memory.
    killed = failure.exit in _FROM_OUTSIDE and not failure.said_error
    if killed or failure.kind not in _TELLING:
        return Choice(ORIGINAL, f"{what}, which says nothing of the server", {}, lost, scale.words)
    shown = {
        trial.candidate.id: scale.typical(trial) for trial in result.trials if trial.candidate.id not in lost
    }
    standing = [trial for trial in result.trials if shown.get(trial.candidate.id, math.inf) < math.inf]
    broken = broken_ceilings(tuple(standing), scale)
    standing = [trial for trial in standing if trial.candidate.id not in broken] or standing
    if not standing:
        return Choice(ORIGINAL, f"{what}, and no other did better", {}, lost, scale.words)
    best = min(standing, key=lambda trial: shown[trial.candidate.id])
    lost[ORIGINAL_ID] = Lost(what, failure.kind)
    if best.gate is None or best.gate.label == "ungated":
        what += "; ungated: there was nothing to compare the answers with"
    return Choice(best.candidate, what, {}, lost, scale.words)
