"""Costs of windows by hand, the basis they are compared on, and ceilings."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolaunch.race.objective import Objective, Slo, describe, percentile
from tests.race.windows import traced, wall

THROUGHPUT, LATENCY = Objective("throughput"), Objective("latency")


def test_throughput_of_the_wall() -> None:
    assert THROUGHPUT.cost(wall(200)) == pytest.approx(1 / 200)
    assert THROUGHPUT.value(wall(200)) == pytest.approx(200)
    assert (THROUGHPUT.unit, THROUGHPUT.higher_is_better) == ("output_tok_per_s", True)


def test_latency_of_the_wall_is_the_whole_answer_of_the_length_wanted() -> None:
    window = replace(wall(96, concurrency=4), latencies_s=(1.0, 1.2), ttfts_s=(0.5, 0.5), prompts=4)
    tpot_ms = (500 + 700) / 2 / 23
    assert LATENCY.cost(window) == pytest.approx(500 + 23 * tpot_ms)
    assert LATENCY.cost(window, output_tokens=256) == pytest.approx(500 + 255 * tpot_ms)
    assert LATENCY.cost(replace(window, wanted_output_tokens=100)) == pytest.approx(500 + 99 * tpot_ms)
    assert LATENCY.cost(window, "wall") == pytest.approx(1100)
    assert LATENCY.value(window) == LATENCY.cost(window)
    assert (LATENCY.unit, LATENCY.higher_is_better) == ("latency_ms", False)


def test_a_traced_window_costs_what_the_whole_answer_would() -> None:
    window = traced(100, 1, full=9, concurrency=32, output_tokens=24, wanted=256)
    batch_ms = 900 + 255 * 9
    assert LATENCY.cost(window) == pytest.approx(batch_ms)
    assert THROUGHPUT.cost(window) == pytest.approx(batch_ms / 1000 / (32 * 256))
    assert THROUGHPUT.cost(window, "slice") == pytest.approx((100 + 255) / 1000 / (32 * 256))
    assert LATENCY.cost(replace(window, wanted_output_tokens=None)) == pytest.approx(900 + 23 * 9)


def test_drafts_spare_steps_and_the_prefix_cache_spares_prefill() -> None:
    window = traced(100, 1, full=9, wanted=256)
    assert LATENCY.cost(window, tokens_per_step=2.5) == pytest.approx(900 + 255 * 9 / 2.5)
    assert LATENCY.cost(window, cached_share=0.75) == pytest.approx(225 + 255 * 9)


@pytest.mark.parametrize("objective", [THROUGHPUT, LATENCY])
def test_what_shows_nothing_costs_without_end(objective: Objective) -> None:
    nothing = replace(wall(), wall_s=0.0, output_tokens=0, latencies_s=())
    assert objective.cost(nothing) == math.inf
    assert objective.cost(traced(full=None), "extrapolated") == math.inf
    assert objective.cost(wall(), "slice") == math.inf
    assert objective.shown(math.inf) in (0.0, math.inf)


def test_the_basis_is_what_no_window_lacks() -> None:
    whole, shallow, streamed, bare = traced(), traced(full=None), wall(ttft_s=0.1), wall()
    assert THROUGHPUT.basis([whole, whole]) == "extrapolated"
    assert THROUGHPUT.basis([whole, shallow]) == "slice"
    assert THROUGHPUT.basis([whole, bare]) == "wall"
    assert THROUGHPUT.basis([streamed, streamed]) == "streamed"
    assert THROUGHPUT.basis([streamed, bare]) == "wall"
    assert THROUGHPUT.basis([]) == "wall"


@pytest.mark.parametrize(
    ("basis", "layers", "total", "words"),
    [
        ("extrapolated", 4, 36, "GPU time on a slice of 4 of 36 layers, extrapolated"),
        ("slice", 4, 36, "GPU time on a slice of 4 of 36 layers, not extrapolated"),
        ("slice", 4, None, "GPU time on a slice of 4 layers, not extrapolated"),
        ("slice", None, None, "GPU time on a slice, not extrapolated"),
        ("extrapolated", 36, 36, "GPU time of the whole model"),
        ("streamed", None, None, "wall time"),
        ("wall", None, 36, "wall time"),
    ],
)
def test_where_figures_come_from(basis: str, layers: int | None, total: int | None, words: str) -> None:
    assert describe(basis, layers=layers, total_layers=total) == words  # type: ignore[arg-type]


def test_the_95th_percentile() -> None:
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([float(n) for n in range(1, 101)], 0.95) == 95
    assert percentile([float(n) for n in range(1, 21)], 0.95) == 19


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_one_of_the_values_and_exceeded_by_few(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9


def test_ceilings_hold_for_95_in_100_requests() -> None:
    objective = Objective.of("throughput", Slo(ttft_ms=200, tpot_ms=None))
    fine = replace(wall(), ttfts_s=(0.1,) * 19 + (9.0,), latencies_s=(10.0,) * 20)
    assert objective.breach([fine]) is None
    two_late = replace(fine, ttfts_s=(0.1,) * 18 + (0.25, 9.0))
    assert objective.breach([two_late]) == "p95 ttft 250 ms, above 200 ms"


def test_the_time_per_token_leaves_the_first_out() -> None:
    window = wall(96, concurrency=4, ttft_s=0.08)  # 24 tokens in one second
    assert Objective(slo_tpot_ms=40.0).breach([window]) is None
    assert Objective(slo_tpot_ms=39.9).breach([window]) == "p95 tpot 40 ms, above 39.9 ms"


def test_ceilings_on_a_slice_are_those_of_the_whole_depth() -> None:
    objective = Objective(slo_ttft_ms=800, slo_tpot_ms=10)
    assert objective.breach([traced(100, 1, full=9)]) == (
        "p95 ttft 900 ms by GPU time, extrapolated to the whole depth, above 800 ms"
    )
    assert Objective(slo_tpot_ms=4).breach([traced(100, 1, full=9)], tokens_per_step=3) is None


def test_what_a_window_cannot_tell_breaks_no_ceiling() -> None:
    objective = Objective(slo_ttft_ms=1, slo_tpot_ms=1)
    for window, why in (
        (traced(full=None), "the slice could not be extrapolated"),
        (wall(), "no first token was seen"),
    ):
        assert objective.breach([window]) is None
        assert objective.unknown([window]) == f"p95 ttft and tpot unknown: {why}"
    assert objective.unknown([traced()]) is None
    assert Objective().unknown([wall()]) is None
