"""`--tune full`: a race on a slice, then its best on the whole model, with scripted races."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.candidates.generate import Field
from autolaunch.command import Command
from autolaunch.folders import Folders
from autolaunch.invocation import Invocation, Understood
from autolaunch.launch.attempts import Fallback
from autolaunch.options.options import ServeOptions
from autolaunch.race.outcomes import Failure, Window
from autolaunch.race.progress import Progress
from autolaunch.race.result import Ended, RaceResult, Trial
from autolaunch.request.interpreter import Interpreter
from autolaunch.serve.asked import Asked
from autolaunch.slice.plan import SlicePlan
from autolaunch.tune import racing
from autolaunch.tune.ground import Ground
from autolaunch.tune.measuring import Measured, measure
from autolaunch.tune.racing import Plan
from tests.explain.cases import QWEN_397B, ask, write_model

CRASH = Failure("load", "crash", "no room")
Speeds = dict[str, float | Failure]


@dataclass
class Races:
    """Scripted races, one after the other, and what they were about."""

    scripts: list[tuple[Speeds, Ended]]
    plans: list[Plan] = field(default_factory=list)
    budgets: list[float] = field(default_factory=list)

    def race(self, invocation: Invocation, understood: object, plan: Plan, *_: object) -> RaceResult:
        """The next race: each candidate with its tokens a second, or its failure."""
        speeds, ended = self.scripts[len(self.plans)]
        self.plans.append(plan)
        self.budgets.append(invocation.options.budget_s)
        trials = tuple(
            trial(one, speeds[one.id]) for one in plan.field.candidates if speeds.get(one.id) is not None
        )
        return RaceResult(trials, plan.field.dropped, ended, 50.0)


def trial(candidate: Candidate, speed: float | Failure) -> Trial:
    """Six even rounds, or a failure."""
    if isinstance(speed, Failure):
        return Trial(candidate, failure=speed)
    windows = tuple(Window(4, 4, 256, 96, 96 / speed + number / 1e5) for number in range(6))
    return Trial(candidate, screen=windows[0], rounds=windows)


class Reporter:
    """A reporter nobody listens to."""

    census_fd = 0
    interrupted = False

    def stage(self, name: str, limit_s: float) -> None:
        """Nothing."""


@pytest.fixture
def full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Measured, Races]]:
    """Measures `c0` and three others by scripted races."""
    assessment = ask(write_model(QWEN_397B, tmp_path), "--tp", "8", gpu="RTX PRO 6000", gpus=8)
    others = [Candidate(f"c{n}", (f"--flag-{n}",), dimension=f"--flag-{n}", choice="on") for n in (1, 2, 3)]
    plan = SlicePlan(
        None, "view", 4, 60, 4, (0, 1, 2, 3), {}, {}, weight_bytes=1, mtp=False, reason="", layer_bytes=1
    )

    def run(
        *scripts: tuple[Speeds, Ended], tune: Any = "full", whole: bool = False
    ) -> tuple[Measured, Races]:
        races = Races(list(scripts))
        monkeypatch.setattr(racing, "race", races.race)
        interpreter = Interpreter(sys.executable, tmp_path, "0.5.23", "this environment")
        invocation = Invocation(
            "serve", (), ServeOptions(tune=tune, budget_s=120.0), interpreter, Command(("python",)), {}, tmp_path,
            Folders(tmp_path, tmp_path, tmp_path),
        )  # fmt: skip
        asked = Asked(
            invocation,
            Understood(assessment.request, assessment.catalogue),
            assessment.machine,
            Fallback(False, frozenset(), ""),
            Field((ORIGINAL, *others), ()),
            assessment,
        )
        ground = Ground(plan=None if whole else plan)
        return measure(asked, ground, Progress(), Reporter()), races  # type: ignore[arg-type]

    return run


def test_the_whole_model_has_the_last_word(full: Callable[..., tuple[Measured, Races]]) -> None:
    slices: Speeds = {"c0": 100.0, "c1": 130.0, "c2": 120.0, "c3": 110.0}
    measured, races = full((slices, "done"), ({"c0": 100.0, "c1": 101.0, "c2": 115.0}, "done"))
    assert [one.id for one in races.plans[1].field.candidates] == ["c0", "c1", "c2"]
    assert races.plans[1].ground.plan is None
    assert races.plans[1].ground.company.at_once == 1
    assert races.budgets == [120.0, 70.0]
    assert measured.choice.candidate.id == "c2"
    assert "wall time" in measured.choice.reason
    assert measured.on_slice is not None and measured.on_slice.choice.candidate.id == "c1"
    assert len(measured.on_slice.result.trials) == 4


def test_who_fails_on_the_whole_model_is_not_launched(full: Callable[..., tuple[Measured, Races]]) -> None:
    slices: Speeds = {"c0": 100.0, "c1": 130.0, "c2": 100.5, "c3": CRASH}
    measured, races = full((slices, "done"), ({"c0": 100.0, "c1": CRASH, "c2": 100.2}, "done"))
    assert [one.id for one in races.plans[1].field.candidates] == ["c0", "c1", "c2"]
    assert measured.choice.candidate == ORIGINAL


@pytest.mark.parametrize(("shown", "ended"), [({}, "budget"), ({"c0": 100.0}, "budget"), ({}, "interrupted")])
def test_without_a_word_of_the_whole_model_the_slice_stands(
    shown: Speeds, ended: Ended, full: Callable[..., tuple[Measured, Races]]
) -> None:
    measured, _ = full(({"c0": 100.0, "c1": 130.0}, "done"), (shown, ended))
    assert measured.choice.candidate.id == "c1"
    assert measured.result.ended == ended
    assert "; the whole model decided nothing (" in measured.choice.reason


@pytest.mark.parametrize(
    ("slices", "ended", "why"),
    [
        ({"c0": 100.0, "c1": CRASH}, "done", "no challenger was compared with the original on the slice"),
        ({"c0": 100.0, "c1": 130.0}, "interrupted", "interrupted"),
    ],
)
def test_nothing_is_repeated_where_there_is_nothing_to_repeat(
    slices: Speeds, ended: Ended, why: str, full: Callable[..., tuple[Measured, Races]]
) -> None:
    measured, races = full((slices, ended))
    assert len(races.plans) == 1
    assert f"the whole model decided nothing ({why})" in measured.choice.reason


@pytest.mark.parametrize("case", [{"tune": "quick"}, {"tune": "auto"}, {"whole": True}])
def test_only_full_repeats_and_only_a_slice(
    case: dict[str, Any], full: Callable[..., tuple[Measured, Races]]
) -> None:
    measured, races = full(({"c0": 100.0, "c1": 130.0}, "done"), **case)
    assert len(races.plans) == 1
    assert (measured.choice.candidate.id, measured.on_slice) == ("c1", None)


def test_what_the_machine_alone_is_to_blame_for_tells_nothing() -> None:
    environment = replace(CRASH, kind="environment")

    def tells(*shown: float | Failure) -> bool:
        trials = tuple(trial(Candidate(f"c{number}"), one) for number, one in enumerate(shown))
        result = RaceResult(trials, (), "done", 1.0)
        return Measured(None, result, None).tells  # type: ignore[arg-type]

    assert not tells()
    assert not tells(environment, environment)
    assert tells(environment, CRASH)
    assert tells(100.0, environment)
