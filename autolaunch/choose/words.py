"""A choice in words: the gain with its noise, the values behind it, and where the figures come from."""

from __future__ import annotations

from dataclasses import dataclass

from autolaunch.race.paired import Gain
from autolaunch.race.result import RaceResult, Trial
from autolaunch.race.scale import Scale

MIN_GAIN = 0.02
"""Below this a change is not worth what could be wrong with it."""


@dataclass(frozen=True, slots=True)
class Gained:
    """What a challenger gains over the original, and what with the time that its GPU waits for the host."""

    gain: Gain
    waiting: float | None
    """None where nothing was traced."""

    @property
    def is_waited_away(self) -> bool:
        """Whether a change would be worth it, but for that time."""
        worth = self.gain.low > 0 and self.gain.mean >= MIN_GAIN
        return worth and self.waiting is not None and self.waiting < MIN_GAIN


def won(best: Trial, original: Trial, gain: Gain, broken: str | None, scale: Scale) -> str:
    """Why the winner is launched, with figures, noise and where they come from."""
    words = f"{figure(gain, scale)[:-1]}; {values(best, original, scale)}; {scale.words})"
    if best.acceptance is not None and best.acceptance.tokens_per_step is not None:
        worth = f"{best.acceptance.tokens_per_step:.2f} tokens a step, {best.acceptance.label}"
        words += f", with {worth}" + (f" by {best.acceptance.source}" if best.acceptance.source else "")
    return words if broken is None else f"keeps `--slo`, where the original has {broken}: {words}"


def nobody(standing: dict[str, Gained], scale: Scale) -> str:
    """Why the original is launched after a final, with the figure of the best challenger."""
    reason = "no challenger beat the original by more than the noise"
    if not standing:
        return f"{reason} and stayed within bounds ({scale.words})"
    best, gained = max(standing.items(), key=lambda one: one[1].gain.mean)
    shown = f"{figure(gained.gain, scale)[:-1]}; {scale.words})"
    if gained.is_waited_away:
        shown += f", {with_waiting(gained)}"
    return f"{reason} and {100 * MIN_GAIN:.0f} %; the best, {best}: {shown}"


def nothing_measured(original: Trial | None, result: RaceResult) -> str:
    """Why the original is launched where no challenger was compared with it."""
    if result.ended == "interrupted":
        return "interrupted before any challenger was measured"
    if original is None or original.ready is None:
        return "the budget ended before the original command was ready"
    return "no challenger reached the final"


def figure(gain: Gain, scale: Scale) -> str:
    """A gain as a person says it, with its interval; ends with a bracket."""
    if scale.objective.name == "throughput":
        words = ("more output tok/s", "less output tok/s")
        mean, low, high = gain.mean, gain.low, gain.high
    else:
        words = ("less latency", "more latency")
        mean, low, high = (1 - 1 / (1 + part) for part in (gain.mean, gain.low, gain.high))
    digits = 0 if abs(mean) >= 0.1 else 1
    starts = f" on {gain.starts} pairs of starts" if gain.starts > 1 else ""
    return (
        f"{100 * abs(mean):.{digits}f} % {words[mean < 0]} than the original "
        f"({100 * low:.{digits}f} to {100 * high:.{digits}f} % with the noise, {gain.rounds} rounds{starts})"
    )


def with_waiting(gained: Gained) -> str:
    """What is left of a gain in GPU time where the time counts in which the GPU waits."""
    left = f"{100 * gained.waiting:.1f} %" if gained.waiting is not None and gained.waiting > 0 else "nothing"
    return f"and {left} is left where the time counts in which its GPU waits for the host"


def values(best: Trial, original: Trial, scale: Scale) -> str:
    """The two values behind a gain."""
    mine, theirs = (_short(scale.objective.shown(scale.typical(one))) for one in (best, original))
    unit = "tok/s" if scale.objective.name == "throughput" else "ms"
    return f"{mine} against {theirs} {unit}"


def _short(value: float) -> str:
    """Four digits, or all before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.4g}"
