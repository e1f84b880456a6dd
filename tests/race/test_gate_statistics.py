"""Distances and ratios, and that the limits part healthy from broken on what was recorded."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from autolaunch.race.gate_statistics import (
    Ratio,
    are_finite,
    difference,
    distances,
    find_odd,
    load_limit,
    load_limits,
    ratio_of,
    resample,
    rounded,
    unrelatedness,
)
from autolaunch.tables import load_rows

RECORDED: list[dict[str, Any]] = json.loads(Path(__file__).with_name("gate_distances.json").read_text())
"""Distances to a truth, one a sequence, of real engines: candidate 0's, healthy backends', broken weights'."""
RESAMPLES = 300

HEALTHY = [
    pytest.param(row, name, id=f"{row['model']}: {name}") for row in RECORDED for name in row["healthy"]
]
FAULTY = [
    pytest.param(row, name, id=f"{row['model']}: {name}")
    for row in RECORDED
    for name in row["faulty"]
    if ratio_of(row["faulty"][name], row["original"]).value >= 1.7
]
"""Those that come near to doubling the distance, and beyond."""


def limit_of(row: dict[str, Any]) -> float:
    """The limit for a recording's kind of truth."""
    return load_limit(f"ratio.{row['truth']}")


def share_stopped(candidate: list[float], original: list[float], limit: float, seed: int = 0) -> float:
    """How often the gate would stop a candidate, over draws of other sequences."""
    draws = resample(candidate, original, RESAMPLES, seed)
    return sum(ratio.exceeds(limit) for ratio in draws) / len(draws)


def test_limits_have_reasons_and_evidence() -> None:
    rows = load_rows("gate", "limit")
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        assert row["reason"], row["id"]
        assert row["value"] > 0, row["id"]
        assert all(one["kind"] and one["ref"] and one["checked"] for one in row["evidence"]), row["id"]
    assert set(load_limits()) == {row["id"] for row in rows}


def test_distances_are_means_over_a_sequence() -> None:
    assert distances([[-1.0, -2.0], [-3.0, -3.0]], [[-1.5, -2.5], [-3.0, -1.0]]) == (0.5, 1.0)
    assert difference([[-1.0, -2.0], [-3.0]], [[-1.5, -2.5], [-5.0]]) == 1.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
def test_what_is_no_number_spoils_its_distance(value: Any) -> None:
    assert not are_finite([[value]])
    assert math.isnan(difference([[-1.0, value]], [[-1.0, -1.0]]))
    first, second = distances([[value], [-1.0]], [[-1.0], [-2.0]])
    assert math.isnan(first)
    assert second == 1.0
    assert json.dumps(rounded([first, second]), allow_nan=False)


def test_the_ratio_has_no_side() -> None:
    """Exchanging two engines gives the reciprocal, which no mean of plain ratios does."""
    mine, theirs = [0.1, 0.4, 0.2], [0.2, 0.2, 0.2]
    assert ratio_of(mine, theirs).value == pytest.approx(1 / ratio_of(theirs, mine).value)
    assert ratio_of(theirs, theirs) == Ratio(1.0, 0.0, 3)


def test_an_exact_candidate_0_makes_no_ratio_infinite() -> None:
    assert ratio_of([0.0, 0.0], [0.0, 0.0]).value == 1.0
    assert ratio_of([0.01, 0.01], [0.0, 0.0]).value == pytest.approx(10.0)


def test_one_sequence_decides_nothing() -> None:
    assert not ratio_of([5.0], [1.0]).exceeds(1.05)


def test_the_error_is_taken_into_account() -> None:
    assert Ratio(1.08, 0.01, 32).exceeds(1.05)
    assert not Ratio(1.08, 0.02, 32).exceeds(1.05)


def test_resamples_repeat() -> None:
    mine, theirs = [0.1, 0.4, 0.2], [0.2, 0.2, 0.2]
    assert resample(mine, theirs, 5, seed=1) == resample(mine, theirs, 5, seed=1)
    assert resample(mine, theirs, 5, seed=1) != resample(mine, theirs, 5, seed=2)


def test_unrelatedness_needs_no_scale() -> None:
    generator = random.Random(1)
    truth = [[generator.gauss(-8, 3) for _ in range(64)] for _ in range(8)]
    noisy = [[value + generator.gauss(0, 0.3) for value in row] for row in truth]
    other = [[generator.gauss(-8, 3) for _ in row] for row in truth]
    flat = [[-6.2 for _ in row] for row in truth]
    assert unrelatedness(truth, truth) == 0.0
    assert unrelatedness(noisy, truth) < 0.15
    assert unrelatedness(other, truth) == pytest.approx(1.0, abs=0.1)
    assert unrelatedness(flat, truth) == pytest.approx(1.0, abs=0.01), "a flat answer knows nothing either"
    assert math.isnan(unrelatedness(flat, flat))


def voices(**shifts: float) -> dict[str, list[list[float]]]:
    """Engines whose values are random around those of one model, `shifts` apart from it."""
    generator = random.Random(3)
    model = [[generator.gauss(-8, 3) for _ in range(64)] for _ in range(4)]
    return {
        name: [[value + generator.gauss(0, shift * math.sqrt(math.pi) / 2) for value in row] for row in model]
        for name, shift in shifts.items()
    }


def test_the_odd_one_out() -> None:
    assert set(find_odd(voices(c0=0.08, c1=0.08, c2=0.5))) == {"c2"}
    assert set(find_odd(voices(c0=3.0, c1=0.08, c2=0.08))) == {"c0"}
    odd = find_odd(voices(c0=0.08, c1=0.08, c2=0.5))
    assert "away from the nearest other engine's" in odd["c2"]


def test_nobody_is_odd_among_equals() -> None:
    assert find_odd(voices(c0=0.08, c1=0.08, c2=0.12, c3=0.07)) == {}
    assert find_odd(voices(c0=0.4, c1=0.6, c2=0.5)) == {}, "healthy FP8 kernels of a dense model"
    assert find_odd(voices(c0=0.001, c1=0.001, c2=0.05)) == {}, "bf16 noise"


def test_equal_bits_are_one_voice() -> None:
    """Two candidates that run the same kernels do not outvote a healthy one that runs others."""
    some = voices(c0=0.08, c2=0.5)
    assert find_odd({**some, "c1": some["c0"]}) == {}
    assert find_odd(voices(c0=0.1, c1=5.0)) == {}, "two voices tell nothing"
    many = voices(c0=0.08, c1=0.08, c2=0.5)
    assert set(find_odd({**many, "c3": many["c2"]})) == {"c2", "c3"}, "wrong kernels may be there twice"


@pytest.mark.parametrize(("row", "name"), HEALTHY)
def test_healthy_backends_never_fail(row: dict[str, Any], name: str) -> None:
    assert share_stopped(row["healthy"][name], row["original"], limit_of(row)) == 0.0


@pytest.mark.parametrize(("row", "name"), FAULTY)
def test_faults_that_double_the_distance_are_caught(row: dict[str, Any], name: str) -> None:
    assert share_stopped(row["faulty"][name], row["original"], limit_of(row)) >= 0.95


@pytest.mark.parametrize("true_ratio", [0.987, 1.002, 1.010, 1.018])
def test_healthy_block_fp8_as_it_was_measured(true_ratio: float) -> None:
    """Ratios and errors of `data/gate.toml`'s evidence, 32 sequences each, drawn anew."""
    generator = random.Random(true_ratio)
    spread = 0.009 * math.sqrt(32)
    failed = 0
    for _ in range(RESAMPLES):
        original = [generator.uniform(0.14, 0.18) for _ in range(32)]
        mine = [one * math.exp(generator.gauss(math.log(true_ratio), spread)) for one in original]
        failed += ratio_of(mine, original).exceeds(load_limit("ratio.bf16"))
    assert failed == 0


@pytest.mark.parametrize(
    ("true_ratio", "error"), [(1.257, 0.016), (1.298, 0.016), (1.110, 0.010), (2.0, 0.1)]
)
def test_lost_precision_as_it_was_measured(true_ratio: float, error: float) -> None:
    """An fp8 cache behind the back, one layer's scales 10 % off in a dense model, and twice the distance."""
    generator = random.Random(true_ratio)
    spread = error / true_ratio * math.sqrt(32)
    caught = 0
    for _ in range(RESAMPLES):
        mine = [math.exp(generator.gauss(math.log(true_ratio), spread)) for _ in range(32)]
        caught += ratio_of(mine, [1.0] * 32).exceeds(load_limit("ratio.bf16"))
    assert caught >= 0.95 * RESAMPLES
