"""Turns log-probabilities of the same tokens into distances, their ratios, and whether those are too large.

One value a token, one row a sequence.  The distance of two engines on a sequence is the mean
|Δ log-probability| over its tokens, in nats.  What parts healthy kernels from broken ones is no distance
but a ratio: how much further than candidate 0 an engine is from the same weights in a more exact arithmetic,
the *truth*.  The limits are facts, in `data/gate.toml`.

NOTE: sequences are the sample, so the error is over sequences, and the mean is over logarithms: a mean of
plain ratios is above 1 for two equally good engines, by the variance of the denominator.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median, stdev
from typing import Any

from autolaunch.tables import load_rows

Logprobs = Sequence[Sequence[float]]
"""One row a sequence, one value a token; None or NaN where an engine had no value."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A candidate's distance to the truth over candidate 0's, mean over sequences."""

    value: float
    error: float
    """Standard error of `value`."""
    sequences: int

    def exceeds(self, limit: float) -> bool:
        """Whether it is above `limit` by more than its error allows for."""
        return self.value - load_limit("errors") * self.error > limit


@cache
def load_limits() -> Mapping[str, float]:
    """The numbers of `data/gate.toml` by their ids."""
    return {row["id"]: float(row["value"]) for row in load_rows("gate", "limit")}


def load_limit(name: str) -> float:
    """The number of `data/gate.toml` whose id is `name`."""
    return load_limits()[name]


def are_finite(*tables: Logprobs) -> bool:
    """Whether every value is there and finite; an engine that computed NaN has said nothing."""
    return all(
        value is not None and math.isfinite(value) for table in tables for row in table for value in row
    )


def distances(left: Logprobs, right: Logprobs) -> tuple[float, ...]:
    """Mean |Δ| of each sequence, in nats; NaN where any value is missing or not finite."""
    return tuple(_distance(ours, theirs) for ours, theirs in zip(left, right, strict=True))


def difference(left: Logprobs, right: Logprobs) -> float:
    """Mean |Δ| over all tokens, in nats; NaN when any value is missing or not finite."""
    if not are_finite(left, right):
        return math.nan
    return fmean(
        abs(ours - theirs)
        for row, other in zip(left, right, strict=True)
        for ours, theirs in zip(row, other, strict=True)
    )


def ratio_of(candidate: Sequence[float], original: Sequence[float]) -> Ratio:
    """The ratio of two engines' distances to one truth, sequence by sequence."""
    least = load_limit("least_distance")
    logs = [
        math.log(max(mine, least) / max(theirs, least))
        for mine, theirs in zip(candidate, original, strict=True)
    ]
    value = math.exp(fmean(logs))
    error = value * stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    return Ratio(value, error, len(logs))


def resample(candidate: Sequence[float], original: Sequence[float], n: int, seed: int) -> tuple[Ratio, ...]:
    """The ratio in `n` draws of as many sequences with replacement: what other prompts might have shown."""
    generator = random.Random(seed)  # noqa: S311 - statistics, not a secret
    count = len(candidate)
    draws = []
    for _ in range(n):
        drawn = [generator.randrange(count) for _ in range(count)]
        draws.append(ratio_of([candidate[at] for at in drawn], [original[at] for at in drawn]))
    return tuple(draws)


def unrelatedness(found: Logprobs, truth: Logprobs) -> float:
    """Distance to the truth over the distance to the truth's values of other tokens: 0 is equal, 1 unrelated.

    The other token is the one half a sequence away.  Free of scale, so it means the same for a sharp model
    and a flat one; NaN when the truth gives all tokens the same value.
    """
    apart = difference(found, truth)
    shifted = [[*row[len(row) // 2 :], *row[: len(row) // 2]] for row in truth]
    strange = difference(found, shifted)
    return apart / strange if strange > 0 else math.nan


def find_odd(scores: Mapping[str, Logprobs]) -> dict[str, str]:
    """Who is far from everybody, with the reason, where at least two others are near each other.

    Engines with the same values to the last bit run the same kernels and are one voice; fewer than three
    voices tell nothing.
    """
    voices: dict[str, list[str]] = {}
    for name, table in scores.items():
        same = next((other for other in voices if difference(scores[other], table) == 0.0), name)
        voices.setdefault(same, []).append(name)
    if len(voices) < 3:
        return {}
    nearest = {
        name: min(difference(scores[name], scores[other]) for other in voices if other != name)
        for name in voices
    }
    odd: dict[str, str] = {}
    for name, distance in nearest.items():
        usual = median(other for one, other in nearest.items() if one != name)
        if distance > max(load_limit("odd_distance"), load_limit("odd") * usual):
            reason = (
                f"log-probabilities are {distance:.2f} away from the nearest other engine's, "
                f"which are {usual:.2f} from one another"
            )
            odd |= dict.fromkeys(voices[name], reason)
    return odd


def rounded(values: Sequence[float]) -> list[Any]:
    """`values` for a journal: six digits, and words for what JSON cannot hold."""
    return [float(f"{value:.6g}") if math.isfinite(value) else str(value) for value in values]


def _distance(left: Sequence[float], right: Sequence[float]) -> float:
    if not are_finite((left, right)):
        return math.nan
    return fmean(abs(ours - theirs) for ours, theirs in zip(left, right, strict=True))
