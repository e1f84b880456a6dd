"""A race into a profile: who has which place, what is kept of whom, and that it survives being written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.choose.choose import choose
from autolaunch.profiles.document import from_toml, to_toml
from autolaunch.profiles.from_race import Raced, profile_of
from autolaunch.profiles.profile import Fingerprint
from autolaunch.race.objective import Objective
from autolaunch.race.outcomes import Failure, Window
from autolaunch.race.result import Acceptance, RaceResult, Trial
from autolaunch.race.workload import Workload

CRASH = Failure("load", "crash", "no kernel")
NOW: Fingerprint = {"platform": "cpu", "model.name": "model", "parallel.tp": 1}


def trial(number: int, speed: float | Failure, **more: object) -> Trial:
    """Candidate `number` with six even rounds at `speed` tokens a second, or its failure."""
    one = ORIGINAL if number == 0 else Candidate(f"c{number}", (f"--flag-{number}", "x"), choice="x")
    if isinstance(speed, Failure):
        return Trial(one, failure=speed)
    windows = tuple(Window(4, 4, 256, 96, 96 / speed + place / 1e5) for place in range(6))
    return replace(Trial(one, screen=windows[0], rounds=windows), **more)  # type: ignore[arg-type]


def raced(*trials: Trial) -> Raced:
    """A whole race."""
    result = RaceResult(trials, (), "done", 42.0)
    return Raced(result, choose(result, Objective()), Workload(), Objective(), "whole")


def places(*trials: Trial) -> dict[str, int | None]:
    """The rank of each candidate."""
    kept = profile_of(raced(*trials), model="model", fingerprint=NOW, origin="tune")
    return {one.chosen.id: one.rank for one in kept.entrants}


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ([trial(0, 100.0), trial(1, 130.0), trial(2, 120.0)], {"c0": None, "c1": 1, "c2": 2}),
        (
            [trial(0, 100.0), trial(1, 110.0), trial(2, 140.0), trial(3, 120.0), trial(4, 90.0)],
            {"c0": None, "c1": 3, "c2": 1, "c3": 2, "c4": None},
        ),
        ([trial(0, 100.0), trial(1, 90.0), trial(2, CRASH)], {"c0": None, "c1": None, "c2": None}),
        (
            [trial(0, 100.0), trial(1, 130.0), trial(2, 130.0, merged_into="c1"), trial(3, CRASH)],
            {"c0": None, "c1": 1, "c2": None, "c3": None},
        ),
        ([trial(0, CRASH), trial(1, 50.0), trial(2, 60.0)], {"c0": None, "c1": 2, "c2": 1}),
    ],
)
def test_places_are_for_those_that_surely_beat_the_original(
    trials: list[Trial], expected: dict[str, int | None]
) -> None:
    assert places(*trials) == expected


def test_a_candidate_out_of_bounds_has_no_place_however_fast() -> None:
    small = trial(1, 200.0, kv_tokens=10)
    assert places(trial(0, 100.0, kv_tokens=5000), small, trial(2, 120.0, kv_tokens=5000)) == {
        "c0": None,
        "c1": None,
        "c2": 1,
    }


def test_what_is_kept() -> None:
    worth = Acceptance("published", 1.7, "a table")
    kept = profile_of(
        raced(trial(0, 100.0), trial(1, 130.0, acceptance=worth), trial(2, 120.0), trial(3, CRASH)),
        model="model",
        fingerprint=NOW,
        origin="serve",
        warnings=("mind the cache",),
    )
    assert (kept.origin, kept.status, kept.warnings) == ("serve", "fresh", ("mind the cache",))
    assert kept.chosen.flags == ("--flag-1", "x")
    assert "30 % more output tok/s" in kept.reason
    measured = kept.measured
    assert measured.value == pytest.approx(130, rel=0.01)
    assert measured.original_value == pytest.approx(100, rel=0.01)
    assert measured.gain is not None and measured.gain["mean"] == pytest.approx(0.3, rel=0.01)
    assert (measured.depth, measured.ended, measured.race_s) == ("whole", "done", 42.0)
    assert (measured.acceptance_length, measured.acceptance_source) == (1.7, "published: a table")
    original, winner, second, failed = kept.entrants
    assert (winner.lost, winner.failure) == ("", None)
    assert original.lost == "the choice is better"
    assert second.lost.startswith("20 % more output tok/s than the original")
    assert (failed.failure, failed.stage, failed.lost, failed.value) == ("crash", "load", "no kernel", None)
    assert kept.workload["words"] == "in=64,out=24,concurrency=4"
    assert kept.objective == {"name": "throughput", "unit": "output_tok_per_s", "higher_is_better": True}
    assert [one.chosen.id for one in kept.next_best] == ["c2"]


def test_it_survives_being_written() -> None:
    kept = profile_of(
        raced(trial(0, 100.0), trial(1, 130.0), trial(2, CRASH)), model="m", fingerprint=NOW, origin="tune"
    )
    again = from_toml(to_toml(kept).encode(), where="here")
    assert again.chosen == kept.chosen
    assert again.entrants == kept.entrants
    assert again.measured == kept.measured
    assert dict(again.workload) == dict(kept.workload)


def test_who_only_the_slice_saw_is_kept_without_a_place() -> None:
    before = raced(trial(0, 100.0), trial(1, 130.0), trial(2, 120.0), trial(3, 110.0))
    after = replace(raced(trial(0, 100.0), trial(1, 90.0), trial(2, 115.0)), on_slice=before)
    kept = profile_of(after, model="model", fingerprint=NOW, origin="tune")
    assert {one.chosen.id: one.rank for one in kept.entrants} == {"c0": None, "c1": None, "c2": 1, "c3": None}


def test_ceilings_are_kept_where_there_are_some() -> None:
    race = replace(raced(trial(0, 100.0), trial(1, 130.0)), objective=Objective("latency", slo_ttft_ms=200.0))
    kept = profile_of(race, model="model", fingerprint=NOW, origin="tune")
    assert kept.objective == {
        "name": "latency",
        "unit": "latency_ms",
        "higher_is_better": False,
        "slo_ttft_ms": 200.0,
    }
