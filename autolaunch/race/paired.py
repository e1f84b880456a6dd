"""Costs of two candidates over the same rounds, turned into a gain or a regret with its interval.

Both are means of paired log ratios, so that what changes from round to round changes nothing.  The interval
is Student's, and outliers widen it.  Where a candidate was started more than once, what differs between its
starts counts as noise: the interval reaches from the poorest pair of starts to the best.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

# Two-sided quantiles of Student's t by degrees of freedom (any table of it); those of ten will do for more.
_T_99 = {1: 63.66, 2: 9.925, 3: 5.841, 4: 4.604, 5: 4.032, 6: 3.707, 7: 3.499, 8: 3.355, 9: 3.250, 10: 3.169}
_T_95 = {1: 12.71, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228}


@dataclass(frozen=True, slots=True)
class Gain:
    """How many times less something costs, less one: 0.31 is 31 % more throughput for it."""

    mean: float
    low: float
    high: float
    rounds: int
    starts: int = 1
    """Pairs of starts, one of each candidate, that the rounds were taken on."""

    @property
    def noise(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2

    def to_json(self) -> dict[str, float]:
        """This gain as plain JSON values, fractions all."""
        return {"mean": self.mean, "low": self.low, "high": self.high, "rounds": self.rounds}


@dataclass(frozen=True, slots=True)
class Regret:
    """How much more the chosen one costs than the best, as a fraction of the best's cost."""

    mean: float
    low: float | None
    """Ends of the 95 % interval; None with too few runs for one."""
    high: float | None
    runs: int


def gain(
    mine: Sequence[float],
    theirs: Sequence[float],
    starts: Sequence[Hashable] = (),
    *,
    min_rounds: int,
) -> Gain | None:
    """What the costs `mine` gain over `theirs`, the n-th of both from the same round.

    `starts` names, for each round, the pair of starts it was taken on.  None with fewer rounds than
    `min_rounds`, or fewer than two on each pair of starts.
    """
    pairs = list(zip(mine, theirs, starts or [0] * len(mine), strict=True))
    groups: dict[Hashable, list[float]] = {}
    for cost, other, start in pairs:
        if 0 < cost < math.inf and 0 < other < math.inf:
            groups.setdefault(start, []).append(math.log(other / cost))
    rounds = sum(map(len, groups.values()))
    if not groups or rounds < max(min_rounds, 2) or min(map(len, groups.values())) < 2:
        return None
    means = [statistics.fmean(ratios) for ratios in groups.values()]
    freedom = rounds - len(groups)
    squares = sum(
        (one - mean) ** 2 for ratios, mean in zip(groups.values(), means, strict=True) for one in ratios
    )
    spread = math.sqrt(squares / freedom / min(map(len, groups.values())))
    reach = spread * _T_99[min(freedom, max(_T_99))]
    return Gain(
        mean=math.expm1(statistics.fmean(means)),
        low=math.expm1(min(means) - reach),
        high=math.expm1(max(means) + reach),
        rounds=rounds,
        starts=len(groups),
    )


def regret(best: Sequence[float], chosen: Sequence[float]) -> Regret:
    """The regret of costs `chosen` against the costs `best`, from runs that decided nothing.

    Equally many are taken as pairs of the same runs; ValueError where one is empty or not positive.
    """
    if not best or not chosen or not all(0 < cost < math.inf for cost in (*best, *chosen)):
        raise ValueError("a regret needs costs of both, each more than nothing")
    logs, others = [math.log(cost) for cost in chosen], [math.log(cost) for cost in best]
    runs = min(len(logs), len(others))
    mean = statistics.fmean(logs) - statistics.fmean(others)
    if runs < 2:
        return Regret(math.expm1(mean), None, None, runs)
    if len(logs) == len(others):
        differences = [mine - other for mine, other in zip(logs, others, strict=True)]
        spread = statistics.stdev(differences) / math.sqrt(runs)
    else:
        spread = math.sqrt(statistics.variance(logs) / len(logs) + statistics.variance(others) / len(others))
    reach = spread * _T_95[min(runs - 1, max(_T_95))]
    return Regret(math.expm1(mean), math.expm1(mean - reach), math.expm1(mean + reach), runs)
