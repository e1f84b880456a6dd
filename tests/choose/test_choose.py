"""Who is launched after a race, and what is said about everybody else."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from autolaunch.candidates.candidate import ORIGINAL, ORIGINAL_ID
from autolaunch.choose.choose import Choice, choose
from autolaunch.race.objective import Objective
from autolaunch.race.outcomes import Failure, GateReport, Window
from autolaunch.race.result import Acceptance, Trial
from autolaunch.race.workload import Workload
from tests.race.windows import noisy, result, traced, trial, wall

LATENCY = Objective("latency")
SLICE = "GPU time on a slice of 4 of 36 layers, extrapolated"


def rounds(
    step_ms: float = 1.0, *, noise: float = 0.003, seed: object = 0, **fields: Any
) -> tuple[Window, ...]:
    """Eight traced windows of one candidate."""
    return noisy(traced(step_ms=step_ms, **fields), 8, noise, seed)


def walls(tok_per_s: float, *, noise: float = 0.01, seed: object = 0) -> tuple[Window, ...]:
    """Eight windows of the wall."""
    return noisy(wall(tok_per_s), 8, noise, seed)


# The fastest that is sure -------------------------------------------------------------------------


def test_a_sure_gain_wins_and_is_told_with_its_noise_and_its_basis() -> None:
    choice = choose(result(trial("c0", rounds(1.2)), trial("c1", rounds(1.0, seed=1))))
    assert choice.candidate.id == "c1"
    assert choice.basis == SLICE
    assert choice.reason.startswith(
        "14 % more output tok/s than the original (14 to 15 % with the noise, 8 rounds; "
    )
    assert choice.reason.endswith(f"tok/s; {SLICE})")
    assert choice.lost == {}


def test_latency_is_told_as_latency() -> None:
    c0, c1 = trial("c0", rounds(1.2)), trial("c1", rounds(1.0, seed=1))
    choice = choose(result(c0, c1), LATENCY)
    assert choice.candidate.id == "c1"
    assert choice.reason.startswith(
        "13 % less latency than the original (12 to 13 % with the noise, 8 rounds; "
    )
    assert " ms; " in choice.reason


def test_the_workload_decides_between_prefill_and_decode() -> None:
    """Measured for block-FP8 experts: one backend is faster at prefill, the other at decode."""
    triton, deep_gemm = (
        lambda wanted: noisy(traced(29.7, 0.887, wanted=wanted, full=12), 8, 0.003, "triton"),
        lambda wanted: noisy(traced(25.3, 1.415, wanted=wanted, full=12), 8, 0.003, "deep_gemm"),
    )
    chosen = {
        wanted: choose(result(trial("c0", triton(wanted)), trial("c1", deep_gemm(wanted)))).candidate.id
        for wanted in (1, 512)
    }
    assert chosen == {1: "c1", 512: "c0"}


@pytest.mark.parametrize(("step_ms", "why"), [(0.985, "less than the 2 %"), (1.1, "less output tok/s")])
def test_a_small_gain_or_a_loss_is_no_reason_to_change(step_ms: float, why: str) -> None:
    choice = choose(result(trial("c0", rounds()), trial("c1", rounds(step_ms, noise=0.0005, seed=1))))
    assert choice.candidate == ORIGINAL
    assert why in choice.lost["c1"].reason
    assert choice.reason.startswith(
        "no challenger beat the original by more than the noise and 2 %; the best, c1: "
    )
    assert SLICE in choice.reason


@pytest.mark.parametrize(
    ("waited_ms", "objective", "left"),
    [
        (85, Objective(), "nothing"),
        (85, LATENCY, "nothing"),
        (60, Objective(), "1.6 %"),
        (50, Objective(), None),
    ],
)
def test_a_gain_on_the_gpu_must_outweigh_what_the_gpu_waits(
    waited_ms: float, objective: Objective, left: str | None
) -> None:
    """FlashInfer's attention beside fa3 on an H200, in=4096,out=16,concurrency=16, on 2026-12-01."""
    shape = {"full": 9.0, "concurrency": 16, "output_tokens": 80, "wanted": 16}
    fa3 = noisy(traced(1005 / 9, 6.0 / 9, waited_ms=47, **shape), 5, 0.001, "fa3")  # type: ignore[arg-type]
    flashinfer = noisy(
        traced(971 / 9, 6.17 / 9, waited_ms=waited_ms, **shape),  # type: ignore[arg-type]
        *(5, 0.001, "flashinfer"),
    )
    choice = choose(result(trial("c0", fa3), trial("c1", flashinfer)), objective)
    assert choice.candidate.id == ("c1" if left is None else "c0")
    if left is not None:
        words = f"and {left} is left where the time counts in which its GPU waits for the host"
        assert choice.lost["c1"].reason.endswith(words)


def test_noise_decides_for_the_original() -> None:
    choice = choose(result(trial("c0", walls(100, noise=0.3)), trial("c1", walls(108, noise=0.3, seed=2))))
    assert choice.candidate == ORIGINAL
    assert "no more than the noise" in choice.lost["c1"].reason


def test_noise_never_picks_what_is_slower() -> None:
    rng, picked = random.Random(3), 0
    for number in range(400):
        noise = rng.choice([0.01, 0.05, 0.15])
        field = [trial(f"c{n}", walls(100 - n, noise=noise, seed=(number, n))) for n in range(4)]
        picked += choose(result(*field)).candidate.id != ORIGINAL_ID
    assert picked <= 400 * 3 * 0.005


def test_among_equals_the_one_that_changes_least() -> None:
    many = trial("c1", rounds(0.7, seed=1), flags=("--a", "1", "--b", "2"))
    few = trial("c2", rounds(0.7, seed=2), flags=("--a", "1"))
    slow = trial("c3", rounds(0.9, seed=3), flags=("--d",))
    choice = choose(result(trial("c0", rounds()), many, few, slow))
    assert choice.candidate.id == "c2"
    assert "within the noise of c2" in choice.lost["c1"].reason
    assert choice.lost["c3"].reason.endswith("less than c2")


def test_a_better_one_wins_though_it_changes_more() -> None:
    many = trial("c1", rounds(0.6, seed=1), flags=("--a", "1", "--b", "2"))
    few = trial("c2", rounds(0.7, seed=2))
    assert choose(result(trial("c0", rounds()), many, few)).candidate.id == "c1"


def test_equals_that_met_in_too_few_rounds_are_compared_by_their_intervals() -> None:
    many = trial("c1", rounds(0.7, noise=0.02, seed=1)[:4], flags=("--a", "--b"))
    few = trial("c2", (wall(),) * 4 + rounds(0.7, noise=0.02, seed=2)[:4])
    c0 = trial("c0", rounds())
    assert choose(result(c0, many, few)).candidate in (ORIGINAL, many.candidate, few.candidate)


def test_a_window_that_the_prefix_cache_helped_shows_nothing() -> None:
    helped = tuple(replace(window, cached_tokens=window.input_tokens // 2) for window in walls(300))
    choice = choose(result(trial("c0", walls(100)), trial("c1", helped)))
    assert choice.candidate == ORIGINAL
    assert choice.lost["c1"].reason == "not measured over enough rounds of a final"
    reused = [replace(window, kind="conversations") for window in helped]
    assert choose(result(trial("c0", walls(100)), trial("c1", reused))).candidate.id == "c1"


# Bounds -------------------------------------------------------------------------------------------


def test_the_same_kernels_are_shown_and_never_chosen() -> None:
    choice = choose(result(trial("c0", rounds()), trial("c1", rounds(0.5, seed=1), merged_into="c0")))
    assert choice.candidate == ORIGINAL
    assert choice.lost["c1"].reason == "it ran the same kernels as c0"
    assert choice.gains["c1"].mean > 0.2
    assert "stayed within bounds" in choice.reason


@pytest.mark.parametrize(
    ("mine", "theirs", "lost"),
    [
        (None, 100_000, None),
        (100_000, None, None),
        (90_000, 100_000, None),
        (89_999, 100_000, "room for 89999 tokens at full depth, 90 % of the 100000 of c0"),
        (40_959, 41_000, "room for 40959 tokens at full depth, and the workload holds 40960"),
    ],
)
def test_memory(mine: int | None, theirs: int | None, lost: str | None) -> None:
    original = trial("c0", rounds(), kv_tokens=theirs)
    challenger = trial("c1", rounds(0.5, seed=1), kv_tokens=mine)
    workload = Workload(1024, 256, 32, rounds=1)
    choice = choose(result(original, challenger, workload=workload))
    assert choice.candidate.id == ("c1" if lost is None else "c0")
    if lost is not None:
        assert (choice.lost["c1"].kind, choice.lost["c1"].reason) == ("memory", lost)


def test_a_failed_one_is_lost_with_its_kind() -> None:
    failed = trial("c1", rounds(0.1), failure=Failure("gate", "garbage", "answers `!!!!`"))
    choice = choose(result(trial("c0", rounds()), failed))
    assert choice.candidate == ORIGINAL
    assert (choice.lost["c1"].kind, choice.lost["c1"].reason) == ("garbage", "failed at gate: answers `!!!!`")
    assert "c1" not in choice.gains


# Drafts -------------------------------------------------------------------------------------------


def drafting(acceptance: Acceptance | None, step_ms: float = 1.3, **fields: Any) -> Trial:
    """A candidate that drafts, each step of which takes longer."""
    return trial("c1", rounds(step_ms, seed=1, **fields), choice="NEXTN", acceptance=acceptance)


@pytest.mark.parametrize(
    ("acceptance", "winner", "why"),
    [
        (Acceptance("measured", 2.1, "the whole model"), "c1", None),
        (Acceptance("published", 1.5, "its family's range"), "c1", None),
        (Acceptance("published", 1.3), "c0", "no more than the noise"),
        (Acceptance("published", 1.1), "c0", "less output tok/s"),
        (Acceptance("measured", 1.05), "c0", "its drafts give 1.05 tokens a step, where no drafts give 1"),
        (Acceptance("cost only"), "c0", "only the cost, 1.30 times the original's step, is known"),
        (None, "c0", "only the cost, 1.30 times the original's step, is known"),
    ],
)
def test_drafts(acceptance: Acceptance | None, winner: str, why: str | None) -> None:
    choice = choose(result(trial("c0", rounds()), drafting(acceptance)))
    assert choice.candidate.id == winner
    if why is not None:
        assert why in choice.lost["c1"].reason
        assert choice.lost["c1"].kind == ("slow" if "its drafts give" in why else None)
    else:
        assert acceptance is not None
        assert f"{acceptance.tokens_per_step:.2f} tokens a step, {acceptance.label} by" in choice.reason


def test_drafts_must_win_at_every_concurrency() -> None:
    alone, busy = {"concurrency": 1}, {"concurrency": 32}

    def both(one: float, many: float, seed: int) -> tuple[Window, ...]:
        pairs = zip(rounds(one, seed=seed, **alone), rounds(many, seed=seed + 10, **busy), strict=True)
        return tuple(window for pair in pairs for window in pair)

    c0, worth = trial("c0", both(0.5, 1.0, 0)), Acceptance("published", 1.6)
    sure = trial("c1", both(0.6, 1.2, 1), choice="NEXTN", acceptance=worth)
    doubtful = trial("c1", both(0.6, 1.7, 1), choice="NEXTN", acceptance=worth)
    assert choose(result(c0, sure)).candidate.id == "c1"
    assert choose(result(c0, doubtful)).candidate.id == "c0"


def test_drafts_are_not_judged_on_a_slice_alone() -> None:
    worth = Acceptance("published", 3.0)
    choice = choose(result(trial("c0", rounds(full=None)), drafting(worth, full=None)))
    assert "not known from a slice" in choice.lost["c1"].reason


def test_drafts_that_cannot_be_extrapolated_do_not_lower_the_basis_of_the_others() -> None:
    choice = choose(result(trial("c0", rounds()), drafting(Acceptance("published", 3.0), full=None)))
    assert choice.lost["c1"].reason == "not measured over enough rounds of a final"
    assert choice.candidate == ORIGINAL


def test_drafts_on_the_wall_hold_their_acceptance() -> None:
    whole = trial("c1", walls(130, seed=1), choice="NEXTN", acceptance=Acceptance("measured", 2.0))
    choice = choose(result(trial("c0", walls(100)), whole))
    assert choice.candidate.id == "c1"
    assert 0.25 < choice.gains["c1"].mean < 0.35, "and not twice that"


# Starts -------------------------------------------------------------------------------------------


def over_starts(name: str, steps: Sequence[float], **fields: Any) -> Trial:
    """A trial with four rounds on each of its starts."""
    windows = [w for n, step in enumerate(steps) for w in rounds(step, seed=(name, n))[:4]]
    boots = tuple(n for n in range(len(steps)) for _ in range(4))
    return trial(name, windows, boot_of_round=boots, **fields)


def test_a_gain_must_hold_over_both_starts() -> None:
    c0 = over_starts("c0", [1.0, 1.0])
    held = choose(result(c0, over_starts("c1", [0.8, 0.82], boots_wanted=2)))
    assert held.candidate.id == "c1"
    assert "on 2 pairs of starts" in held.reason
    lucky = choose(result(c0, over_starts("c1", [0.7, 1.05], boots_wanted=2)))
    assert lucky.candidate == ORIGINAL
    assert "no more than the noise" in lucky.lost["c1"].reason


@pytest.mark.parametrize("wanted", [{"c0": 2}, {"c1": 2}])
def test_one_start_is_too_few_where_tactics_are_drawn(wanted: dict[str, int]) -> None:
    c0, c1 = (
        trial(name, rounds(step, seed=name), boots_wanted=wanted.get(name, 1))
        for name, step in (("c0", 1.0), ("c1", 0.7))
    )
    choice = choose(result(c0, c1))
    assert choice.candidate == ORIGINAL
    assert "draw their tactics at each start" in choice.lost["c1"].reason


# Ceilings -----------------------------------------------------------------------------------------


def test_who_breaks_a_ceiling_is_out() -> None:
    fast_but_late = trial("c1", rounds(0.5, prefill_ms=200, seed=1))
    choice = choose(result(trial("c0", rounds()), fast_but_late), Objective(slo_ttft_ms=1000))
    assert choice.candidate == ORIGINAL
    lost = choice.lost["c1"]
    assert lost.kind == "slow"
    assert lost.reason.startswith("it breaks `--slo`: p95 ttft 18")
    assert "extrapolated to the whole depth, above 1000 ms" in lost.reason


def test_one_that_keeps_what_the_original_breaks_is_chosen_though_it_is_slower() -> None:
    keeps = trial("c1", rounds(1.2, prefill_ms=50, seed=1))
    choice = choose(result(trial("c0", rounds()), keeps), Objective(slo_ttft_ms=500))
    assert choice.candidate.id == "c1"
    assert choice.reason.startswith("keeps `--slo`, where the original has p95 ttft 90")
    assert "less output tok/s" in choice.reason


def test_a_ceiling_kept_by_luck_is_no_reason() -> None:
    noisy_keeper = noisy(traced(99), 8, 0.005, 5)
    choice = choose(
        result(trial("c0", noisy(traced(100), 8, 0.02, 4)), trial("c1", noisy_keeper)),
        Objective(slo_ttft_ms=900),
    )
    assert choice.candidate == ORIGINAL
    assert choice.lost["c1"].reason == "it keeps `--slo` by no more than the noise"


def test_where_all_break_a_ceiling_it_decides_nothing() -> None:
    choice = choose(result(trial("c0", rounds()), trial("c1", rounds(0.5, seed=1))), Objective(slo_ttft_ms=5))
    assert choice.candidate.id == "c1"
    assert "nobody keeps `--slo`, the original has p95 ttft" in choice.reason


def test_a_ceiling_that_a_slice_cannot_tell_excludes_nobody_and_is_said() -> None:
    choice = choose(
        result(trial("c0", rounds(full=None)), trial("c1", rounds(0.5, full=None, seed=1))),
        Objective(slo_ttft_ms=5),
    )
    assert choice.candidate.id == "c1"
    assert choice.reason.endswith("`--slo`: p95 ttft unknown: the slice could not be extrapolated")
    assert "GPU time on a slice of 4 of 36 layers, not extrapolated;" not in choice.reason
    assert "GPU time on a slice of 4 of 36 layers, not extrapolated)" in choice.reason


def test_prefix_reuse_that_is_lost_is_charged() -> None:
    reused = Window(8, 8, 10_000, 100, 1.0, cached_tokens=8_000)
    lost = replace(reused, cached_tokens=0)
    c0 = trial("c0", rounds(prefill_ms=300), reuse=reused)
    assert (
        choose(result(c0, trial("c1", rounds(0.9, prefill_ms=300, seed=1), reuse=reused))).candidate.id
        == "c1"
    )
    assert (
        choose(result(c0, trial("c1", rounds(0.9, prefill_ms=300, seed=1), reuse=lost))).candidate.id == "c0"
    )


# Without the original -----------------------------------------------------------------------------


CRASH = Failure("load", "crash", "no kernel image")


@pytest.mark.parametrize(
    "make", [lambda step, **k: rounds(step, **k)[:1], lambda step, **_: (wall(100 / step),)]
)
def test_without_the_original_the_fastest_within_bounds(make: Any) -> None:
    c0 = trial("c0", failure=CRASH, ready=None, gate=None, screen=None)
    twin = trial("c1", make(0.5, seed=1), merged_into="c2")
    slow, fast = trial("c3", make(1.2, seed=3)), trial("c4", make(0.9, seed=4))
    draft = trial("c5", make(0.3, seed=5), choice="NEXTN", acceptance=Acceptance("cost only"))
    choice = choose(result(c0, twin, slow, fast, draft))
    assert choice.candidate.id == "c4"
    assert choice.reason == "the original command failed in its trial (crash at load: no kernel image)"
    assert {"c0", "c1", "c5"} <= set(choice.lost)


def test_without_the_original_one_that_was_compared_with_nothing_is_called_so() -> None:
    alone = trial("c1", rounds()[:1], gate=GateReport(True, "finite", label="ungated"))
    choice = choose(result(trial("c0", failure=CRASH), alone))
    assert choice.candidate.id == "c1"
    assert choice.reason.endswith("; ungated: there was nothing to compare the answers with")


@pytest.mark.parametrize(
    "failure",
    [
        Failure("load", "environment", "no cubins"),
        Failure("serve", "slow", "slow"),
        Failure("serve", "crash", "ended", exit=-9, said_error=False),
    ],
)
def test_a_failure_that_tells_nothing_of_the_server(failure: Failure) -> None:
    choice = choose(result(trial("c0", failure=failure), trial("c1", rounds()[:1])))
    assert choice.candidate == ORIGINAL
    assert "says nothing of the server" in choice.reason


# Nothing to choose from ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (choose(result()), "the budget ended before the original command was ready"),
        (choose(result(ended="interrupted")), "interrupted before any challenger was measured"),
        (choose(result(trial("c0", rounds()))), "no challenger reached the final"),
    ],
)
def test_without_a_final(choice: Choice, reason: str) -> None:
    assert (choice.candidate, choice.reason, choice.basis) == (ORIGINAL, reason, "")
