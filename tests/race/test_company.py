"""How many engines load together, and what a race of them would take."""

from __future__ import annotations

import pytest

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.race.company import ENGINE_RESERVE_BYTES, FILL, GIB, ONE_BY_ONE, Company, plan_company


def field(count: int) -> tuple[Candidate, ...]:
    """`count` candidates."""
    return (ORIGINAL, *(Candidate(f"c{n}") for n in range(1, count)))


def plan(
    count: int = 12,
    *,
    weights_gib: float = 2.0,
    kv_gib: float = 1.0,
    free_gib: tuple[float, ...] = (139.0,),
    cores: int = 16,
    **more: object,
) -> Company:
    """A plan by round numbers."""
    return plan_company(
        field(count),
        slice_bytes=int(weights_gib * GIB),
        kv_bytes=int(kv_gib * GIB),
        free_gpu_bytes=[int(one * GIB) for one in free_gib],
        cores=cores,
        **more,  # type: ignore[arg-type]
    )


def test_without_gpus_engines_start_one_after_another() -> None:
    assert plan(free_gib=()) == ONE_BY_ONE
    assert ONE_BY_ONE.waves(3) == (1, 1, 1)
    assert not ONE_BY_ONE.shared


def test_a_slice_on_one_large_gpu_loads_at_once() -> None:
    company = plan()
    assert company.at_once == 12
    assert company.together == int(139 * GIB * FILL) // (3 * GIB + ENGINE_RESERVE_BYTES) == 13
    assert company.waves(12) == (12,)
    assert company.reason == (
        "12 at once: 13 engines of 9.0 GiB fit into 118.1 GiB of each GPU, and 16 cores start 14 at once"
    )


def test_what_is_given_away_leaves_a_tenth_for_the_last() -> None:
    """SGLang takes its fraction of what is free when an engine starts, and others count against it."""
    company = plan(count=40, cores=200)
    used = company.at_once * (3 * GIB + ENGINE_RESERVE_BYTES)
    assert used <= 0.9 * 139 * GIB


def test_the_gpu_with_the_least_free_memory_decides() -> None:
    assert plan(free_gib=(139, 40), tp=2) == plan(free_gib=(40, 139), tp=2)
    assert plan(free_gib=(139, 40), tp=2).together == 3


@pytest.mark.parametrize(("cores", "at_once"), [(1, 1), (2, 1), (4, 3), (8, 7), (16, 12)])
def test_cores(cores: int, at_once: int) -> None:
    assert plan(cores=cores).at_once == at_once


def test_ranks_need_cores_and_from_four_on_load_alone() -> None:
    assert plan(free_gib=(139, 139), cores=8, tp=2).at_once == 5
    company = plan(free_gib=(139,) * 4, cores=64, tp=4)
    assert (company.at_once, company.together, company.in_turn) == (1, 13, False)
    assert company.shared, "the second engine finds the first one there"
    assert "every engine has 4 ranks" in company.reason


def test_the_host_needs_memory_too() -> None:
    company = plan(host_free_bytes=32 * GIB)
    assert company.at_once == 5
    assert company.reason.endswith("32.0 GiB of the host's memory hold 5")


def test_whole_models_load_alone_and_may_not_fit_beside_each_other() -> None:
    company = plan(weights_gib=100, whole=True)
    assert (company.at_once, company.together, company.in_turn, company.shared) == (1, 1, True, False)
    assert plan(weights_gib=16, whole=True).together == 5
    assert plan(weights_gib=16, whole=True).at_once == 1
    assert plan(weights_gib=400).together == 1, "one at least, to hear what SGLang says of it"


def test_the_truth_takes_places_in_the_first_wave() -> None:
    company = plan(count=13, truth_bytes=8 * GIB, cores=12)
    assert (company.at_once, company.truth_slots) == (10, 2)
    assert company.waves(13) == (8, 5)
    assert plan(count=2, cores=1, truth_bytes=8 * GIB).truth_slots == 0


def test_later_waves_have_the_room_that_finalists_leave() -> None:
    company = Company(at_once=6, together=6)
    assert company.waves(12, kept=4) == (6, 2, 2, 2)
    assert company.waves(12) == (6, 6)
    assert sum(company.waves(7, kept=4)) == 7


def test_a_race_is_as_long_as_its_waves() -> None:
    together, apart = plan(), ONE_BY_ONE
    assert together.expected_s(12, 16) < 250
    assert apart.expected_s(12, 16) > 480
    assert together.expected_s(12, 16) < together.expected_s(12, 4)
    assert ONE_BY_ONE.expected_s(2, 2) == pytest.approx(2 * 40 + 3 * (4 + 16))
