"""Gains and regrets by hand, and how often noise alone looks like one."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolaunch.race.paired import gain, regret

COSTS = st.lists(st.floats(1e-6, 1e6), min_size=4, max_size=12)


def test_a_gain_is_of_the_cost() -> None:
    one = gain([1.0] * 4, [1.5] * 4, min_rounds=4)
    assert one is not None
    assert (one.mean, one.low, one.high) == pytest.approx((0.5, 0.5, 0.5))
    assert (one.rounds, one.starts, one.noise) == (4, 1, pytest.approx(0))


def test_what_changes_from_round_to_round_changes_nothing() -> None:
    drift = [1.0, 3.0, 0.5, 2.0]
    one = gain(drift, [1.1 * cost for cost in drift], min_rounds=4)
    assert one is not None and one.low == pytest.approx(0.1)


def test_the_interval_is_students() -> None:
    logs = [0.01, 0.02, 0.03, 0.04]
    one = gain([1.0] * 4, [math.exp(value) for value in logs], min_rounds=4)
    assert one is not None
    reach = 5.841 * math.sqrt(sum((value - 0.025) ** 2 for value in logs) / 3 / 4)
    assert math.log1p(one.low) == pytest.approx(0.025 - reach)
    assert math.log1p(one.high) == pytest.approx(0.025 + reach)


def test_too_few_rounds_are_no_gain() -> None:
    assert gain([1.0] * 3, [1.0] * 3, min_rounds=4) is None
    assert gain([], [], min_rounds=0) is None
    assert gain([1.0, math.inf, 0.0, 1.0], [1.0] * 4, min_rounds=3) is None
    assert gain([1.0] * 4, [1.0] * 4, [0, 0, 0, 1], min_rounds=4) is None


def test_what_differs_between_starts_is_noise() -> None:
    mine = [1.0] * 4 + [1.2] * 4
    one = gain(mine, [1.1] * 8, [(0, 0)] * 4 + [(1, 0)] * 4, min_rounds=4)
    assert one is not None
    assert one.starts == 2
    assert one.low < 0 < one.high, "the gain did not hold over the second start"
    assert one.high == pytest.approx(0.1)
    steady = gain([1.0] * 8, [1.1] * 8, [(0, 0)] * 4 + [(1, 0)] * 4, min_rounds=4)
    assert steady is not None and steady.low == pytest.approx(0.1)


@given(COSTS, st.randoms(use_true_random=False))
def test_the_interval_holds_its_mean_and_turns_with_the_sides(costs: list[float], rng: random.Random) -> None:
    others = [cost * rng.uniform(0.5, 2) for cost in costs]
    starts = [number % 2 for number in range(len(costs))]
    for chosen in ([], starts):
        one, other = gain(costs, others, chosen, min_rounds=4), gain(others, costs, chosen, min_rounds=4)
        assert one is not None and other is not None
        assert one.low <= one.mean + 1e-12 and one.mean <= one.high + 1e-12
        assert math.log1p(one.mean) == pytest.approx(-math.log1p(other.mean), abs=1e-9)


def test_noise_is_hardly_ever_taken_for_a_gain() -> None:
    rng = random.Random(7)
    taken = 0
    for _ in range(2000):
        mine, theirs = ([rng.gauss(1, 0.05) for _ in range(8)] for _ in range(2))
        one = gain(mine, theirs, min_rounds=4)
        assert one is not None
        taken += one.low > 0
    assert taken <= 2000 * 0.01, "half of one in a hundred, and some luck"


def test_a_regret_is_of_the_best_ones_cost() -> None:
    one = regret([2.0, 2.0], [2.1, 2.1])
    assert (one.mean, one.low, one.high, one.runs) == pytest.approx((0.05, 0.05, 0.05, 2))
    alone = regret([2.0], [2.0])
    assert (alone.mean, alone.low, alone.high, alone.runs) == (0.0, None, None, 1)


def test_a_regret_of_pairs_forgives_drift_and_one_of_unlike_runs_does_not() -> None:
    best = [1.0, 1.5, 2.0]
    paired = regret(best, [1.01 * cost for cost in best])
    assert paired.low == pytest.approx(0.01) and paired.high == pytest.approx(0.01)
    unlike = regret(best, [1.01 * cost for cost in best] + [1.4])
    assert unlike.low is not None and unlike.high is not None
    assert unlike.low < 0 < unlike.high


@pytest.mark.parametrize(("best", "chosen"), [([], [1.0]), ([1.0], []), ([0.0], [1.0]), ([1.0], [math.inf])])
def test_a_regret_needs_costs(best: list[float], chosen: list[float]) -> None:
    with pytest.raises(ValueError, match="needs costs of both"):
        regret(best, chosen)
