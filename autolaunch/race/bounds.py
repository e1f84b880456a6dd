"""Which trials may not win however fast they are, and why: memory, drafts without worth, broken ceilings."""

from __future__ import annotations

from dataclasses import dataclass

from autolaunch.candidates.candidate import ORIGINAL_ID, FailureKind
from autolaunch.race.result import RaceResult, Trial
from autolaunch.race.scale import Scale
from autolaunch.race.workload import Workload

MIN_KV_SHARE = 0.9
"""Of the original's tokens of key/value cache; with fewer, a server under load would queue or evict more."""
ACCEPTANCE_FLOOR = 1.05
"""Tokens a step at which drafts are hardly ever accepted: a step gives one token without any draft."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Why a candidate is not the one that is launched."""

    reason: str
    kind: FailureKind | None = None
    """None for a candidate that is sound and was merely not better."""


def out_of_bounds(trial: Trial, original: Trial | None, result: RaceResult, scale: Scale) -> Lost | None:
    """Why `trial`, which did not fail, may not win; None where it may."""
    if trial.merged_into is not None:
        return Lost(f"it ran the same kernels as {trial.merged_into}")
    return _memory(trial, original, result.workload) or _drafts(trial, original, scale)


def broken_ceilings(trials: tuple[Trial, ...], scale: Scale) -> dict[str, str]:
    """What each of `trials` that breaks a ceiling breaks, by candidate id."""
    broken: dict[str, str] = {}
    for trial in trials:
        for concurrency in dict.fromkeys(window.concurrency for window in trial.windows):
            windows = [window for window in trial.windows if window.concurrency == concurrency]
            words = scale.objective.breach(windows, tokens_per_step=scale.tokens_per_step(trial))
            if words is not None:
                broken.setdefault(trial.candidate.id, words)
    return broken


def unknown_ceilings(trials: tuple[Trial, ...], scale: Scale) -> str | None:
    """Which ceilings nothing is known about for some of `trials`, in words."""
    for trial in trials:
        if trial.windows and (words := scale.objective.unknown(trial.windows)) is not None:
            return words
    return None


def _memory(trial: Trial, original: Trial | None, workload: Workload | None) -> Lost | None:
    """Why the caches of `trial` are too small, if they are."""
    tokens = trial.kv_tokens
    if tokens is None:
        return None
    needed = workload.held_tokens if workload is not None else 0
    if tokens < needed:
        return Lost(f"room for {tokens} tokens at full depth, and the workload holds {needed}", "memory")
    theirs = original.kv_tokens if original is not None else None
    if theirs is not None and tokens < MIN_KV_SHARE * theirs:
        share = 100 * tokens / theirs
        return Lost(
            f"room for {tokens} tokens at full depth, {share:.0f} % of the {theirs} of {ORIGINAL_ID}",
            "memory",
        )
    return None


def _drafts(trial: Trial, original: Trial | None, scale: Scale) -> Lost | None:
    """Why the drafts of `trial` cannot be judged or are worth nothing, if so."""
    if not trial.drafts:
        return None
    acceptance = trial.acceptance
    worth = None if acceptance is None else acceptance.tokens_per_step
    if (acceptance is not None and acceptance.label == "cost only") or (scale.traced and worth is None):
        ratio = scale.step_ratio(trial, original) if original is not None else None
        cost = (
            "the cost of drafting" if ratio is None else f"the cost, {ratio:.2f} times the original's step,"
        )
        return Lost(f"only {cost} is known, not how often its drafts are accepted")
    if worth is not None and worth <= ACCEPTANCE_FLOOR:
        return Lost(f"its drafts give {worth:.2f} tokens a step, where no drafts give 1", "slow")
    if scale.basis == "slice":
        return Lost(
            "what a draft costs beside all layers is not known from a slice that was not extrapolated"
        )
    return None
