"""The order of a race, its budget, its interruptions, and that no engine is left: with scripted engines."""

from __future__ import annotations

import contextlib
import io
import json
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.candidates.generate import Field
from autolaunch.choose.choose import choose
from autolaunch.detect.gpus import Gpu
from autolaunch.detect.nvml import Device, Reading, Tenant
from autolaunch.race import judge as judge_module
from autolaunch.race import yardstick as yardstick_module
from autolaunch.race.company import ONE_BY_ONE, Company
from autolaunch.race.final import MAX_ROUNDS
from autolaunch.race.gpu_memory import GpuMemory, KvBudget
from autolaunch.race.journal import Journal
from autolaunch.race.outcomes import EngineFailed, EngineReady, Failure, GateReport, GpuTimes, Window
from autolaunch.race.progress import Progress
from autolaunch.race.race import Race
from autolaunch.race.result import RaceResult, Trial, decodes_in_graphs
from autolaunch.race.setting import RaceSetting
from autolaunch.race.workload import Workload
from autolaunch.race.yardstick import WallYardstick


class Clock:
    """A clock that only moves when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@dataclass
class Script:
    """How a scripted engine behaves."""

    startup_s: float = 20.0
    tok_per_s: float = 100.0
    noise: float = 0.0
    resolved: dict[str, Any] = field(default_factory=dict)
    start_failure: Failure | None = None
    crowded_failure: Failure | None = None
    """How it fails where more than `room` engines are up."""
    room: int = 1
    gate: GateReport | None = None
    gate_after: GateReport | None = None
    window_failure_at: int | None = None
    seed: int = 0
    warm_up_s: float = 0.0
    gate_s: float = 0.0
    window_s: float = 1.0
    wrong_window: str | None = None
    """What is wrong with its log-probabilities in the shape of a window."""
    ends_by_structure: bool = False
    """Whether a request with a JSON schema ends it."""


class ScriptedEngine:
    """Stands in for `Engine`: is ready when its time has come, fails where its script says."""

    up: list[str] = []
    events: list[str] = []
    log = Path("/does/not/exist")
    overlay: tuple[str, ...] = ()
    facts: dict[str, Any] = {}

    def __init__(self, name: str, script: Script, clock: Clock, on_tick: Callable[[], None]) -> None:
        self.name, self.script, self.clock, self.on_tick = name, script, clock, on_tick
        self.windows = 0
        self.checks = 0
        self.started_s = 0.0
        self.limit_s = math.inf
        self.random = random.Random(f"{name} {script.seed}")

    def start(self) -> None:
        self.up.append(self.name)
        self.events.append(f"start {self.name}")
        self.started_s = self.clock.now

    def poll_ready(self) -> EngineReady | None:
        if self.clock.now - self.started_s < self.script.startup_s:
            return None
        if self.script.start_failure:
            raise EngineFailed(self.script.start_failure)
        if self.script.crowded_failure and len(self.up) > self.script.room:
            raise EngineFailed(self.script.crowded_failure)
        self.events.append(f"ready {self.name}")
        return EngineReady(self.script.startup_s, self.script.resolved)

    def release(self) -> None:
        self.events.append(f"release {self.name}")

    def hangs(self, what: str) -> EngineFailed:
        return EngineFailed(Failure("start", "hang", what))

    @property
    def pids(self) -> tuple[int, ...]:
        """Its number."""
        return (int(self.name[1:]),)

    @contextlib.contextmanager
    def within(self, limit_s: float) -> Iterator[None]:
        """All of it within `limit_s`."""
        self.limit_s = limit_s
        yield

    def take(self, seconds: float) -> None:
        """Be busy for `seconds`, or for as long as it may."""
        self.clock.now += min(seconds, self.limit_s)
        if seconds > self.limit_s:
            raise EngineFailed(Failure("serve", "hang", f"did not finish within {self.limit_s} s"))

    def let_go(self) -> None:
        """Ends with `close`."""

    def close(self) -> None:
        if self.name in self.up:
            self.up.remove(self.name)
            self.events.append(f"close {self.name}")


class ScriptedWarmUp:
    """Is over when its time has come, whatever happens beside it."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.engine, self.began_s = engine, engine.clock.now

    def poll(self, limit_s: float) -> Window | None:
        took_s = self.engine.clock.now - self.began_s
        if took_s > limit_s:
            raise EngineFailed(Failure("serve", "hang", f"did not finish `load` within {limit_s} s"))
        return Window(4, 4, 256, 100, 0.25) if took_s >= self.engine.script.warm_up_s else None


class Reference:
    """What the scripted gate compares with."""

    doubt: str | None = None
    prompts = ((1, 2),)

    def __init__(self, script: Script) -> None:
        self.script = script

    def to_json(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock, and the gate and the stopwatch of scripted engines."""
    clock = Clock()
    ScriptedEngine.up.clear()
    ScriptedEngine.events.clear()

    def window(engine: ScriptedEngine, workload: Workload, seed: int, limit_s: float = 60.0) -> Window:
        assert len(ScriptedEngine.up) >= 1
        engine.on_tick()
        engine.windows += 1
        ScriptedEngine.events.append(f"window {engine.name}")
        if engine.script.window_failure_at == engine.windows:
            raise EngineFailed(Failure("serve", "crash", "died under load"))
        rate = engine.script.tok_per_s * (1 + engine.random.uniform(-1, 1) * engine.script.noise)
        clock.now += engine.script.window_s
        return Window(4, 4, 256, round(rate * 1000), 1.0)

    def check(engine: ScriptedEngine, reference: object, truth: object = None, **more: object) -> GateReport:
        ScriptedEngine.events.append(f"check {engine.name}{' by the truth' if truth else ''}")
        engine.checks += 1
        engine.take(engine.script.gate_s)
        script = engine.script
        return (script.gate_after if engine.checks > 1 else None) or script.gate or GateReport(True, "agrees")

    def warm_up(engine: ScriptedEngine, workload: Workload) -> ScriptedWarmUp:
        ScriptedEngine.events.append(f"warm {engine.name}")
        return ScriptedWarmUp(engine)

    def take_reference(engine: ScriptedEngine, **more: object) -> Reference:
        ScriptedEngine.events.append(f"reference {engine.name}")
        engine.take(engine.script.gate_s)
        return Reference(engine.script)

    def check_window(engine: ScriptedEngine, *about: object) -> str | None:
        return engine.script.wrong_window

    def take_truth(engine: ScriptedEngine, reference: Reference, **more: object) -> Reference:
        ScriptedEngine.events.append(f"ask {engine.name}")
        return reference

    def judge_original(reference: Reference, *about: object, **more: object) -> GateReport:
        return reference.script.gate or GateReport(True, "it is the original")

    def why_unstructured(engine: ScriptedEngine, *about: object) -> str | None:
        ScriptedEngine.events.append(f"structure {engine.name}")
        if engine.script.ends_by_structure:
            raise EngineFailed(Failure("gate", "crash", "Unsupported device: cpu"))
        return None

    monkeypatch.setattr(yardstick_module.measure, "measure_window", window)
    monkeypatch.setattr(yardstick_module.warm_up_windows, "warm_up", warm_up)
    monkeypatch.setattr(judge_module.gate, "take_reference", take_reference)
    monkeypatch.setattr(judge_module.gate, "check_window", check_window)
    monkeypatch.setattr(judge_module.gate, "take_truth", take_truth)
    monkeypatch.setattr(judge_module.gate, "judge_original", judge_original)
    monkeypatch.setattr(judge_module.gate, "check", check)
    monkeypatch.setattr(judge_module.gate, "settle", lambda reference, reports: {})
    monkeypatch.setattr(judge_module, "why_unstructured", why_unstructured)
    return clock


def challengers(count: int) -> tuple[Candidate, ...]:
    """`c0` and `count` others."""
    others = [
        Candidate(f"c{n}", (f"--flag-{n}",), dimension=f"--flag-{n}", choice="on")
        for n in range(1, count + 1)
    ]
    return (ORIGINAL, *others)


def run(
    clock: Clock,
    tmp_path: Path,
    scripts: dict[str, Script],
    *,
    candidates: tuple[Candidate, ...] | None = None,
    budget_s: float = 180.0,
    interrupt_at: float = 1e9,
    memory: Callable[[], int] = lambda: 1 << 40,
    **more: Any,
) -> RaceResult:
    """Race the scripts and check what must hold of every race."""
    runners = candidates or challengers(len(scripts) - 1)

    def script_of(name: str) -> Script:
        """A further start of a candidate has a name with a number, and a script of its own if need be."""
        return scripts.get(name) or scripts[name.partition("-")[0]]

    with Journal(tmp_path) as journal:
        result = Race(
            Field(runners, ()),
            lambda one, on_tick: ScriptedEngine(one.id, script_of(one.id), clock, on_tick),  # type: ignore[arg-type,return-value]
            RaceSetting(
                Workload(), budget_s, clock=clock, sleep=clock.sleep, memory_available=memory, **more
            ),
            journal=journal,
            progress=Progress(io.StringIO(), clock),
            interrupted=lambda: clock.now >= interrupt_at,
        ).run()
    assert ScriptedEngine.up == [], "no engine outlives a race"
    named = {trial.candidate.label for trial in result.trials} | {one.label for one in result.dropped}
    assert {one.label for one in runners} <= named, "nothing vanishes"
    for line in (tmp_path / "journal.jsonl").read_text().splitlines():
        assert json.loads(line)["event"]
    return result


def trial(result: RaceResult, name: str) -> Trial:
    """The trial of candidate `name`."""
    return next(one for one in result.trials if one.candidate.id == name)


def test_a_faster_challenger_wins(clock: Clock, tmp_path: Path) -> None:
    result = run(
        clock,
        tmp_path,
        {"c0": Script(), "c1": Script(tok_per_s=130, noise=0.02), "c2": Script(tok_per_s=101)},
    )
    choice = choose(result)
    assert choice.candidate.id == "c1"
    assert 0.25 < choice.gains["c1"].mean < 0.35
    assert "% more output tok/s" in choice.reason


def test_rounds_are_interleaved_and_every_finalist_leads(clock: Clock, tmp_path: Path) -> None:
    result = run(clock, tmp_path, {"c0": Script(), "c1": Script(), "c2": Script()})
    final = [line.split()[1] for line in ScriptedEngine.events if line.startswith("window")][
        4:
    ]  # after the calibration and three screens
    assert final[:9] == ["c0", "c1", "c2", "c1", "c2", "c0", "c2", "c0", "c1"]
    assert {len(one.rounds) for one in result.trials} == {MAX_ROUNDS}


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_a_tie_and_ties_go_to_the_original(seed: int, clock: Clock, tmp_path: Path) -> None:
    names = {"c0": Script(noise=0.15, seed=seed), "c1": Script(tok_per_s=100.5, noise=0.15, seed=seed)}
    assert choose(run(clock, tmp_path, names)).candidate == ORIGINAL


def test_a_small_sure_gain_is_not_enough(clock: Clock, tmp_path: Path) -> None:
    assert choose(run(clock, tmp_path, {"c0": Script(), "c1": Script(tok_per_s=101.9)})).candidate == ORIGINAL


def test_a_slow_one_is_screened_out(clock: Clock, tmp_path: Path) -> None:
    result = run(clock, tmp_path, {"c0": Script(), "c1": Script(tok_per_s=50), "c2": Script(tok_per_s=120)})
    slow = trial(result, "c1")
    assert slow.failure is not None and (slow.failure.stage, slow.failure.kind) == ("serve", "slow")
    assert slow.rounds == ()
    assert choose(result).candidate.id == "c2"


def test_a_failed_one_has_a_stage_and_a_reason_and_never_wins(clock: Clock, tmp_path: Path) -> None:
    crash = Failure("load", "crash", "the scheduler died", exit=-9)
    garbage = GateReport(False, "answers `!!!!`", kind="garbage")
    result = run(
        clock,
        tmp_path,
        {
            "c0": Script(),
            "c1": Script(start_failure=crash, tok_per_s=900),
            "c2": Script(gate=garbage, tok_per_s=900),
        },
    )
    assert trial(result, "c1").failure == crash
    failed = trial(result, "c2").failure
    assert failed is not None and (failed.stage, failed.kind, failed.reason) == (
        "gate",
        "garbage",
        "answers `!!!!`",
    )
    assert choose(result).candidate == ORIGINAL


def test_wrong_answers_under_load_are_seen_after_the_final(clock: Clock, tmp_path: Path) -> None:
    late = GateReport(False, "not finite at 4 at once", kind="garbage")
    result = run(clock, tmp_path, {"c0": Script(), "c1": Script(tok_per_s=200, gate_after=late)})
    failed = trial(result, "c1").failure
    assert failed is not None and failed.kind == "garbage"
    assert choose(result).candidate == ORIGINAL


def test_one_that_dies_in_the_final_is_out(clock: Clock, tmp_path: Path) -> None:
    result = run(clock, tmp_path, {"c0": Script(), "c1": Script(tok_per_s=200, window_failure_at=4)})
    assert trial(result, "c1").failure is not None
    assert choose(result).candidate == ORIGINAL


def test_when_the_original_fails_a_healthy_one_is_better(clock: Clock, tmp_path: Path) -> None:
    crash = Failure("load", "crash", "kernel image is invalid")
    result = run(
        clock,
        tmp_path,
        {"c0": Script(start_failure=crash), "c1": Script(tok_per_s=50), "c2": Script(tok_per_s=60)},
    )
    choice = choose(result)
    assert choice.candidate.id == "c2"
    assert "the original command failed in its trial" in choice.reason


def test_when_all_fail_the_original_is_launched(clock: Clock, tmp_path: Path) -> None:
    crash = Failure("load", "crash", "no")
    choice = choose(
        run(clock, tmp_path, {"c0": Script(start_failure=crash), "c1": Script(start_failure=crash)})
    )
    assert choice.candidate == ORIGINAL
    assert "no other did better" in choice.reason


def test_a_silent_fallback_is_named(clock: Clock, tmp_path: Path) -> None:
    mine = Candidate(
        "c1", ("--attention-backend", "intel_amx"), choice="intel_amx", resolved_as="attention_backend"
    )
    native = {"attention_backend": "torch_native"}
    result = run(
        clock,
        tmp_path,
        {"c0": Script(resolved=native), "c1": Script(resolved=native)},
        candidates=(ORIGINAL, mine),
    )
    failed = trial(result, "c1").failure
    assert failed is not None and failed.kind == "silent_fallback"
    assert failed.reason == "SGLang took `torch_native` instead of `intel_amx` without saying so"


def test_what_the_original_resolves_to_is_not_tried_again(clock: Clock, tmp_path: Path) -> None:
    mine = Candidate("c1", ("--attention-backend", "fa3"), choice="fa3", resolved_as="attention_backend")
    result = run(
        clock,
        tmp_path,
        {"c0": Script(resolved={"attention_backend": "fa3"}), "c1": Script()},
        candidates=(ORIGINAL, mine),
    )
    assert [one.reason for one in result.dropped] == ["the original command already resolves to `fa3`"]


def test_the_budget_leaves_late_ones_untried(clock: Clock, tmp_path: Path) -> None:
    result = run(clock, tmp_path, {f"c{n}": Script() for n in range(6)}, budget_s=80)
    assert clock.now <= 80
    assert len(result.trials) >= 2
    assert all("of the budget were left" in one.reason for one in result.dropped) and result.dropped
    assert trial(result, "c0").rounds


def test_a_budget_that_ends_in_the_first_start(clock: Clock, tmp_path: Path) -> None:
    result = run(clock, tmp_path, {"c0": Script(startup_s=500), "c1": Script()}, budget_s=60)
    assert result.ended == "budget"
    choice = choose(result)
    assert (choice.candidate, choice.reason) == (
        ORIGINAL,
        "the budget ended before the original command was ready",
    )


def test_a_challenger_that_hangs_is_a_hang(clock: Clock, tmp_path: Path) -> None:
    result = run(
        clock,
        tmp_path,
        {"c0": Script(startup_s=5), "c1": Script(startup_s=10**6), "c2": Script(tok_per_s=150)},
    )
    failed = trial(result, "c1").failure
    assert failed is not None and failed.kind == "hang"
    assert choose(result).candidate.id == "c2"


@pytest.mark.parametrize("moment", [0, 20.5, 21.5, 42.5, 44.5, 50.5])
def test_an_interruption_keeps_what_was_measured(moment: float, clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(), "c1": Script(tok_per_s=150)}
    result = run(clock, tmp_path, scripts, interrupt_at=moment)
    if moment < 50:
        assert result.ended == "interrupted"
    wanted = "c1" if all(len(one.rounds) >= 4 for one in result.trials) and len(result.trials) == 2 else "c0"
    assert choose(result).candidate.id == wanted


def test_memory_that_is_not_there(clock: Clock, tmp_path: Path) -> None:
    readings = iter([10 << 30, 6 << 30])  # the original's engine takes 4 GiB; 1 GiB is left after it
    result = run(clock, tmp_path, {"c0": Script(), "c1": Script()}, memory=lambda: next(readings, 1 << 30))
    assert [(one.kind, one.reason) for one in result.dropped] == [
        ("memory", "1.0 GiB of memory are free and 4.8 GiB needed")
    ]


def test_a_fault_of_our_own_leaves_no_engine(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_module.gate, "check", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(clock, tmp_path, {"c0": Script(), "c1": Script()})
    assert ScriptedEngine.up == []


def test_an_environment_that_fails_says_nothing_of_the_server(clock: Clock, tmp_path: Path) -> None:
    away = Failure("load", "environment", "the cubins could not be fetched")
    choice = choose(run(clock, tmp_path, {"c0": Script(start_failure=away), "c1": Script()}))
    assert choice.candidate == ORIGINAL
    assert "says nothing of the server" in choice.reason


def test_a_challenger_that_nothing_was_compared_with_must_still_look_right(
    clock: Clock, tmp_path: Path
) -> None:
    crash = Failure("load", "crash", "no kernel image")
    garbage = GateReport(False, "answers `!!!!`", kind="garbage", label="ungated")
    alone = GateReport(True, "finite and no loop", label="ungated")
    result = run(
        clock,
        tmp_path,
        {
            "c0": Script(start_failure=crash),
            "c1": Script(gate=garbage, tok_per_s=900),
            "c2": Script(gate=alone),
        },
    )
    choice = choose(result)
    assert choice.candidate.id == "c2"
    assert "ungated" in choice.reason


def test_an_engine_that_cannot_be_started_is_out_alone(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(engine: ScriptedEngine) -> None:
        if engine.name == "c1":
            raise OSError(28, "No space left on device")
        engine.up.append(engine.name)
        engine.started_s = engine.clock.now

    monkeypatch.setattr(ScriptedEngine, "start", start)
    result = run(clock, tmp_path, {"c0": Script(), "c1": Script(), "c2": Script(tok_per_s=150)})
    failed = trial(result, "c1").failure
    assert failed is not None and (failed.kind, failed.stage) == ("environment", "start")
    assert choose(result).candidate.id == "c2"


def test_a_candidate_interrupted_while_it_starts_is_named(clock: Clock, tmp_path: Path) -> None:
    result = run(clock, tmp_path, {"c0": Script(), "c1": Script()}, interrupt_at=22.5)
    assert [(one.label, one.reason) for one in result.dropped] == [
        ("--flag-1", "the race ended (interrupted) before it was timed")
    ]


def test_an_original_that_was_killed_from_outside_is_launched_all_the_same(
    clock: Clock, tmp_path: Path
) -> None:
    killed = Failure("serve", "crash", "ended by SIGKILL", exit=-9, said_error=False)
    choice = choose(run(clock, tmp_path, {"c0": Script(start_failure=killed), "c1": Script()}))
    assert choice.candidate == ORIGINAL


# In company -----------------------------------------------------------------------------------------


FOUR_AT_ONCE = Company(at_once=4, together=8, reason="a test")
CROWDED = Failure("load", "oom", "the GPU ran out of memory")


def events(kind: str) -> list[str]:
    """The events that begin with `kind`."""
    return [one for one in ScriptedEngine.events if one.startswith(kind)]


def test_a_wave_starts_at_once_and_nothing_is_timed_while_it_loads(clock: Clock, tmp_path: Path) -> None:
    scripts = {f"c{n}": Script(startup_s=20 + 5 * n, tok_per_s=100 + n) for n in range(4)}
    run(clock, tmp_path, scripts, company=FOUR_AT_ONCE)
    log = ScriptedEngine.events
    assert log[:4] == ["start c0", "start c1", "start c2", "start c3"]
    assert log.index("check c1") < log.index("ready c2"), "gated while others load"
    assert max(log.index(f"ready c{n}") for n in range(4)) < log.index("window c0")
    assert max(log.index(f"check c{n}") for n in range(1, 4)) < log.index("window c0")


def test_starting_together_takes_as_long_as_the_slowest(clock: Clock, tmp_path: Path) -> None:
    result = run(clock, tmp_path, {f"c{n}": Script() for n in range(4)}, company=FOUR_AT_ONCE)
    assert result.race_s < 20 + 5 + 5 * 8 * 4


def test_challengers_wait_for_the_reference(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(startup_s=50), "c1": Script(startup_s=10), "c2": Script(startup_s=20)}
    run(clock, tmp_path, scripts, company=FOUR_AT_ONCE)
    log = [one for one in ScriptedEngine.events if not one.startswith(("start", "window"))]
    assert log[:6] == ["ready c1", "warm c1", "ready c2", "warm c2", "ready c0", "warm c0"]
    assert log[6:9] == ["reference c0", "check c1", "check c2"]


SLOW = Script(startup_s=5, tok_per_s=400, warm_up_s=52, gate_s=9)


def test_a_slow_warm_up_is_not_waited_for_when_the_others_are_through(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(warm_up_s=0.9), "c1": SLOW, "c2": Script(startup_s=22, tok_per_s=140)}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, budget_s=100)
    (dropped,) = result.dropped
    words = (
        "its warm-up was not done after 17 s, when the others were checked; a larger `--budget` waits longer"
    )
    assert (dropped.label, dropped.reason) == ("--flag-1", words)
    assert clock.now < 60
    assert len(trial(result, "c2").rounds) >= 4
    assert choose(result).candidate.id == "c2"


def test_a_slow_warm_up_has_a_limit_by_that_of_the_original(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(warm_up_s=0.9), "c1": Script(warm_up_s=500)}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, budget_s=400)
    failed = trial(result, "c1").failure
    assert failed is not None and (failed.stage, failed.kind) == ("serve", "slow")
    assert failed.reason == "its warm-up was not done after 2 min 00 s, where that of c0 took 0.9 s"


@pytest.mark.parametrize(("budget_s", "passes"), [(100, False), (400, True)])
def test_what_may_compile_has_time_that_nobody_needs(
    budget_s: float, passes: bool, clock: Clock, tmp_path: Path
) -> None:
    scripts = {"c0": Script(warm_up_s=0.9), "c1": Script(warm_up_s=35, tok_per_s=140)}
    scripts |= {f"c{n}": Script(startup_s=20 + n, tok_per_s=80 + n) for n in range(2, 5)}
    company = Company(at_once=8, together=8)
    result = run(clock, tmp_path, scripts, company=company, budget_s=budget_s)
    assert ([one.label for one in result.dropped] == []) == passes
    assert (choose(result).candidate.id == "c1") == passes


def test_warm_ups_go_on_beside_each_other_and_beside_what_loads(clock: Clock, tmp_path: Path) -> None:
    """As on an H200 on 2026-12-01: one that compiled for 25 s kept five others waiting."""
    scripts = {f"c{n}": Script(warm_up_s=25, startup_s=50 - n) for n in range(4)}
    run(clock, tmp_path, scripts, company=FOUR_AT_ONCE)
    begun = [event for event in ScriptedEngine.events if event.startswith(("warm", "check", "reference"))]
    assert begun[:5] == ["warm c3", "warm c2", "warm c1", "warm c0", "reference c0"]
    assert clock.now < 50 + 25 + 40, "three warm-ups one after another would take 50 s more"


def test_an_original_that_compiles_gives_the_others_time_too(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(warm_up_s=30), "c1": Script(warm_up_s=50, tok_per_s=140), "c2": Script()}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE)
    assert trial(result, "c1").failure is None
    assert choose(result).candidate.id == "c1"


def test_a_slow_gate_has_a_limit_too(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(gate_s=0.8), "c1": replace(SLOW, warm_up_s=0, gate_s=23), "c2": Script()}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE)
    failed = trial(result, "c1").failure
    assert failed is not None and (failed.stage, failed.kind) == ("serve", "slow")
    assert failed.reason == "its gate was not done after 10 s, where that of c0 took 0.8 s"


def test_structure_is_asked_for_last_and_fails_nobody(clock: Clock, tmp_path: Path) -> None:
    """SGLang 0.5.14 and 0.5.17 end on a CPU when a request names a JSON schema."""
    scripts = {"c0": Script(ends_by_structure=True), "c1": Script(tok_per_s=150, ends_by_structure=True)}
    result = run(clock, tmp_path, scripts)
    assert choose(result).candidate.id == "c1"
    assert [one.failure for one in result.trials] == [None, None]
    for one in result.trials:
        assert one.gate is not None
        assert "ended the engine: Unsupported device: cpu" in one.gate.details["structured"]
    asked = [event for event in ScriptedEngine.events if not event.startswith("close")]
    assert asked[-2:] == ["structure c0", "structure c1"]


def test_a_failure_of_its_own_is_no_slowness(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedEngine, "take", lambda engine, seconds: engine.clock.sleep(seconds))
    monkeypatch.setattr(judge_module.gate, "check", raising(Failure("gate", "crash", "died")))
    result = run(clock, tmp_path, {"c0": Script(), "c1": SLOW}, company=FOUR_AT_ONCE)
    failed = trial(result, "c1").failure
    assert failed is not None and (failed.kind, failed.reason) == ("crash", "died")


def raising(failure: Failure) -> Callable[..., None]:
    """What fails like that, whatever it is asked."""

    def fail(*about: object, **more: object) -> None:
        raise EngineFailed(failure)

    return fail


def test_who_warmed_up_slowly_is_timed_last(clock: Clock, tmp_path: Path) -> None:
    scripts = {name: Script(warm_up_s=seconds) for name, seconds in zip("012", (3, 5, 1), strict=True)}
    run(clock, tmp_path, {f"c{name}": script for name, script in scripts.items()}, company=FOUR_AT_ONCE)
    assert events("window")[:4] == ["window c0", "window c0", "window c2", "window c1"]


@pytest.mark.parametrize(
    ("resolved", "known"),
    [
        ({}, None),
        ({"disable_cuda_graph": True}, False),
        ({"disable_cuda_graph": False}, True),
        ({"disable_cuda_graph": False, "cuda_graph_config": {"decode": {"backend": "disabled"}}}, False),
        ({"cuda_graph_config": {"decode": {"backend": "full"}}}, True),
    ],
)
def test_whether_an_engine_captured_graphs(resolved: dict[str, Any], known: bool | None) -> None:
    assert decodes_in_graphs(EngineReady(1.0, resolved)) is known
    assert decodes_in_graphs(None) is None


def test_slow_ones_do_not_eat_the_final(clock: Clock, tmp_path: Path) -> None:
    """As on an H200 on 2026-12-01: the original was ready after 113 s of 150, two slow ones before it."""
    ready = {"c0": 113, "c1": 115, "c2": 300, "c3": 66, "c4": 114, "c6": 300, "c7": 67}
    scripts = {name: Script(startup_s=startup_s, warm_up_s=0.9) for name, startup_s in ready.items()}
    scripts["c1"].tok_per_s = 120
    scripts["c3"].warm_up_s, scripts["c3"].gate_s = 52, 9
    scripts["c7"].warm_up_s, scripts["c7"].gate_s = 32, 23
    for name, script in scripts.items():
        backend = "disabled" if name in ("c3", "c7") else "full"
        script.resolved = {"cuda_graph_config": {"decode": {"backend": backend}}}
    runners = tuple(one for one in challengers(7) if one.id in ready)
    yardstick = WallYardstick(Workload())
    yardstick.noise = 0.0
    result = run(
        clock,
        tmp_path,
        scripts,
        candidates=runners,
        company=Company(at_once=12, together=12),
        budget_s=150,
        yardstick=yardstick,
    )
    assert [len(trial(result, name).rounds) >= 4 for name in ("c0", "c1", "c4")] == [True] * 3
    assert choose(result).candidate.id == "c1"
    assert clock.now < 155


def test_those_that_are_ready_do_not_cost_the_final_either(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(), "c1": Script(tok_per_s=140), "c2": Script(warm_up_s=9), "c3": Script()}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, budget_s=40)
    words = "ready, but the final of others needed the 20 s that were left of the budget"
    assert [(one.label, one.reason) for one in result.dropped] == [("--flag-2", words)]
    assert choose(result).candidate.id == "c1"


def test_a_window_that_would_cost_the_final_is_not_taken(clock: Clock, tmp_path: Path) -> None:
    scripts = {f"c{n}": Script(window_s=3.0, warm_up_s=n / 10, tok_per_s=100 + 10 * n) for n in range(5)}
    company = Company(at_once=8, together=8)
    result = run(clock, tmp_path, scripts, company=company, budget_s=66)
    reasons = [one.reason for one in result.dropped]
    assert reasons and all(one.endswith("needed for the final") for one in reasons)
    assert min(len(one.rounds) for one in result.trials) >= 4
    assert clock.now <= 66 + 5


@pytest.mark.parametrize(("name", "winner"), [("c0", "c1"), ("c1", "c0")])
def test_numbers_are_looked_at_in_the_shape_of_a_window(
    name: str, winner: str, clock: Clock, tmp_path: Path
) -> None:
    scripts = {"c0": Script(), "c1": Script(tok_per_s=140)}
    scripts[name].wrong_window = "log-probabilities are not finite in 3 of 4 continuations, 4 at once"
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE)
    failed = trial(result, name).failure
    assert failed is not None and (failed.stage, failed.kind) == ("gate", "garbage")
    assert failed.reason.startswith("in a timed window's shape: log-probabilities are not finite")
    assert choose(result).candidate.id == winner


def test_those_that_failed_have_a_voice_too(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, GateReport] = {}
    wrong = GateReport(False, "the others agree with each other", kind="garbage")

    def settle(reference: Reference, reports: dict[str, GateReport]) -> dict[str, GateReport]:
        asked.update(reports)
        return {"c0": wrong, "c1": wrong}

    monkeypatch.setattr(judge_module.gate, "settle", settle)
    far = GateReport(False, "far from candidate 0", kind="garbage")
    scripts = {"c0": Script(), "c1": Script(gate=far), "c2": Script(gate=far)}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE)
    assert {"c1", "c2"} <= set(asked)
    assert [getattr(trial(result, name).failure, "reason", None) for name in ("c0", "c1")] == [
        wrong.reason,
        far.reason,
    ]


def test_without_the_original_the_first_healthy_one_is_the_reference(clock: Clock, tmp_path: Path) -> None:
    crash = Failure("load", "crash", "no kernel image")
    scripts = {"c0": Script(start_failure=crash), "c1": Script(startup_s=10), "c2": Script(startup_s=30)}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE)
    assert [trial(result, name).gate is not None for name in ("c1", "c2")] == [True, True]
    assert choose(result).candidate.id in ("c1", "c2")


def test_the_slow_starter_of_a_wave_is_measured_by_the_first(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(startup_s=18), "c1": Script(startup_s=10**6), "c2": Script(tok_per_s=140)}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, budget_s=600)
    failed = trial(result, "c1").failure
    assert failed is not None and (failed.kind, failed.reason) == ("hang", "was not ready within 72 s")
    assert choose(result).candidate.id == "c2"


def test_the_original_has_the_whole_budget_to_start(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(startup_s=150), "c1": Script(startup_s=10, tok_per_s=140)}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, budget_s=300)
    assert trial(result, "c0").failure is None
    assert choose(result).candidate.id == "c1"


def test_the_budget_does_not_wait_for_the_last_one(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(), "c1": Script(tok_per_s=140), "c2": Script(startup_s=10**6)}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, budget_s=60)
    assert [one.reason for one in result.dropped] == [
        "not ready after 30 s, when the others were; a larger `--budget` waits longer"
    ]
    assert choose(result).candidate.id == "c1", "what was ready is measured all the same"


def test_out_of_memory_in_company_is_tried_again_alone(clock: Clock, tmp_path: Path) -> None:
    scripts = {
        "c0": Script(),
        "c1": Script(crowded_failure=CROWDED, room=2, tok_per_s=150),
        "c2": Script(tok_per_s=90),
        "c3": Script(start_failure=Failure("load", "crash", "no")),
    }
    scripts["c1-2"] = Script(tok_per_s=150)
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, candidates=challengers(3))
    assert trial(result, "c1").failure is None
    assert choose(result).candidate.id == "c1"
    assert events("start") == ["start c0", "start c1", "start c2", "start c3", "start c1-2"]
    journal = (tmp_path / "journal.jsonl").read_text()
    assert '"event": "crowded"' in journal


def test_out_of_memory_beside_others_twice_is_not_its_failure(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(), "c1": Script(crowded_failure=CROWDED, room=0), "c2": Script(tok_per_s=150)}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE)
    assert [(one.label, one.kind, one.stage) for one in result.dropped] == [("--flag-1", "memory", "load")]
    assert "twice: the GPU ran out of memory" in result.dropped[0].reason
    assert choose(result).candidate.id == "c2"


def test_an_original_without_room_starts_the_race_anew_one_by_one(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(crowded_failure=CROWDED, room=1), "c1": Script(tok_per_s=150), "c2": Script()}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, budget_s=400)
    assert trial(result, "c0").failure is None
    assert events("start")[3:] == ["start c0-2", "start c1", "start c2"]
    assert choose(result).candidate.id == "c1"


def test_the_truth_is_asked_once_and_ended_before_anything_is_timed(clock: Clock, tmp_path: Path) -> None:
    def open_truth(on_tick: Callable[[], None]) -> Any:
        engine = ScriptedEngine("truth", Script(startup_s=30), clock, on_tick)
        return engine, lambda: ScriptedEngine.events.append("weights")

    scripts = {"c0": Script(startup_s=10), "c1": Script(startup_s=10), "c2": Script(startup_s=40)}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, open_truth=open_truth)
    log = ScriptedEngine.events
    assert log[:6] == ["start c0", "start c1", "start c2", "start truth", "weights", "release truth"]
    assert log.index("ready c1") < log.index("ask truth") < log.index("check c1 by the truth")
    assert log.index("close truth") < log.index("ready c2") < log.index("window c0")
    assert trial(result, "c0").gate is not None
    assert "check c1" not in log


@pytest.mark.parametrize(
    "script",
    [
        Script(start_failure=Failure("load", "crash", "no")),
        Script(startup_s=10**6),
        Script(crowded_failure=CROWDED, room=0),
    ],
)
def test_without_the_truth_the_race_goes_on(script: Script, clock: Clock, tmp_path: Path) -> None:
    def open_truth(on_tick: Callable[[], None]) -> Any:
        return ScriptedEngine("truth", script, clock, on_tick), lambda: None

    scripts = {"c0": Script(), "c1": Script(tok_per_s=150)}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, open_truth=open_truth)
    assert choose(result).candidate.id == "c1"
    assert "truth-lost" in (tmp_path / "journal.jsonl").read_text()


def test_a_truth_without_weights_is_ended_and_the_race_goes_on(clock: Clock, tmp_path: Path) -> None:
    def open_truth(on_tick: Callable[[], None]) -> Any:
        return ScriptedEngine("truth", Script(), clock, on_tick), raising(
            Failure("load", "environment", "no disk")
        )

    scripts = {"c0": Script(), "c1": Script(tok_per_s=150)}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, open_truth=open_truth)
    assert choose(result).candidate.id == "c1"
    assert ScriptedEngine.events[3:4] == ["close truth"]
    assert "no disk" in (tmp_path / "journal.jsonl").read_text()


def test_at_most_three_finalists_where_windows_tell_them_apart(clock: Clock, tmp_path: Path) -> None:
    scripts = {f"c{n}": Script(tok_per_s=100 + 10 * n) for n in range(7)}
    yardstick = WallYardstick(Workload())
    yardstick.noise = 0.0
    company = Company(at_once=8, together=8)
    result = run(clock, tmp_path, scripts, company=company, yardstick=yardstick, budget_s=400)
    assert [one.candidate.id for one in result.trials if one.rounds] == ["c0", "c4", "c5", "c6"]
    assert all(one.failure is None and one.screen for one in result.trials)
    assert choose(result).candidate.id == "c6"


@pytest.mark.parametrize(("noise", "stays"), [(0.25, True), (0.0, False)])
def test_who_goes_on_depends_on_how_well_windows_tell_apart(
    noise: float, stays: bool, clock: Clock, tmp_path: Path
) -> None:
    scripts = {"c0": Script(), "c1": Script(tok_per_s=80), "c2": Script(tok_per_s=120)}
    yardstick = WallYardstick(Workload())
    yardstick.noise = noise
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, yardstick=yardstick)
    failed = trial(result, "c1").failure
    assert (failed is None) == stays
    if failed is not None:
        assert failed.reason == "0.80 times the original's throughput in the better of two windows"


def test_waves_leave_room_and_the_best_stay(clock: Clock, tmp_path: Path) -> None:
    scripts = {f"c{n}": Script(tok_per_s=100 + 10 * n) for n in range(7)}
    company = Company(at_once=4, together=4)
    ups: list[int] = []
    real = ScriptedEngine.start
    try:
        ScriptedEngine.start = lambda self: (real(self), ups.append(len(self.up)))[0]  # type: ignore[method-assign]
        result = run(clock, tmp_path, scripts, company=company, budget_s=600)
    finally:
        ScriptedEngine.start = real  # type: ignore[method-assign]
    assert max(ups) <= 4
    assert choose(result).candidate.id == "c6"


def test_where_two_do_not_fit_each_takes_its_rounds_alone(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(), "c1": Script(tok_per_s=150, noise=0.01), "c2": Script(tok_per_s=90)}
    result = run(clock, tmp_path, scripts, company=Company(at_once=1, together=1), budget_s=300)
    log = ScriptedEngine.events
    assert log.index("close c0") < log.index("start c1")
    assert log.index("close c1") < log.index("start c2")
    assert {name: len(trial(result, name).rounds) for name in scripts} == {"c0": 8, "c1": 4, "c2": 4}
    assert choose(result).candidate.id == "c1"


def test_where_two_do_not_fit_tactics_are_drawn_twice_all_the_same(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(), "c1": Script(tok_per_s=150, resolved=DRAWN), "c1-2": Script(tok_per_s=149)}
    alone = Company(at_once=1, together=1)
    result = run(clock, tmp_path, scripts, candidates=challengers(1), company=alone, budget_s=300)
    assert trial(result, "c1").boot_of_round == (0, 0, 0, 0, 1, 1, 1, 1)
    assert events("start") == ["start c0", "start c1", "start c1-2"]
    assert choose(result).candidate.id == "c1"


def test_the_same_kernels_are_one_candidate(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = yardstick_module.measure.measure_window

    def traced(engine: Any, workload: Workload, seed: int, limit_s: float = 60.0) -> Window:
        kernels = "a" if engine.name in ("c0", "c1") else engine.name
        times = GpuTimes(1.0, 0.1, 24, 3.0, 4, prefill_signature=kernels, decode_signature=kernels)
        return replace(plain(engine, workload, seed, limit_s=limit_s), gpu=times)

    monkeypatch.setattr(yardstick_module.measure, "measure_window", traced)
    scripts = {"c0": Script(), "c1": Script(tok_per_s=150), "c2": Script(), "c3": Script()}
    mine = replace(challengers(1)[1], id="c3", flags=("--mine",), origin="user")
    result = run(clock, tmp_path, scripts, candidates=(*challengers(2), mine), company=FOUR_AT_ONCE)
    assert trial(result, "c1").merged_into == "c0"
    assert trial(result, "c1").failure is None and trial(result, "c1").rounds == ()
    assert [trial(result, name).merged_into for name in ("c2", "c3")] == [None, None]
    assert len(trial(result, "c2").rounds) == MAX_ROUNDS


DRAWN = {"moe_runner_backend": "flashinfer_trtllm", "version": "0.5.23"}


def test_where_tactics_are_drawn_at_start_finalists_start_twice(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(), "c1": Script(tok_per_s=150, resolved=DRAWN), "c2": Script(tok_per_s=120)}
    scripts["c1-2"] = Script(tok_per_s=90, resolved=DRAWN)
    result = run(clock, tmp_path, scripts, candidates=challengers(2), company=FOUR_AT_ONCE, budget_s=400)
    mine, others = trial(result, "c1"), trial(result, "c2")
    assert (mine.boots_wanted, mine.boots) == (2, 2)
    assert mine.boot_of_round == (*[0] * MAX_ROUNDS, *[1] * 4)
    assert (others.boots_wanted, others.boots) == (1, 1)
    assert len(others.rounds) == len(mine.rounds)
    assert choose(result).candidate.id == "c2", "the gain of c1 was a lucky draw"
    starts = [json.loads(one) for one in (tmp_path / "journal.jsonl").read_text().splitlines()]
    again = [one for one in starts if one["event"] == "start" and one["start"] == 2]
    assert [(one["id"], one["env"]) for one in again] == [("c1", {"SGLANG_FLASHINFER_AUTOTUNE_CACHE": "0"})]


def test_who_is_behind_after_the_first_start_has_no_second(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(), "c1": Script(tok_per_s=90, resolved=DRAWN)}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, budget_s=400)
    assert trial(result, "c1").boots == 1
    assert choose(result).candidate == ORIGINAL


def test_an_original_that_draws_starts_twice_too(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(resolved=DRAWN), "c1": Script(tok_per_s=150), "c0-2": Script(tok_per_s=151)}
    result = run(clock, tmp_path, scripts, candidates=challengers(1), company=FOUR_AT_ONCE, budget_s=400)
    assert (trial(result, "c0").boots, trial(result, "c1").boots) == (2, 1)
    assert choose(result).candidate == ORIGINAL, "its second draw is better than the challenger"


def test_a_budget_too_small_for_a_second_start_is_said(clock: Clock, tmp_path: Path) -> None:
    scripts = {"c0": Script(), "c1": Script(tok_per_s=150, resolved=DRAWN)}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, budget_s=50)
    assert trial(result, "c1").boots < trial(result, "c1").boots_wanted
    assert "one-start" in (tmp_path / "journal.jsonl").read_text()
    assert choose(result).candidate == ORIGINAL


@pytest.mark.parametrize("moment", range(0, 90, 6))
def test_an_interruption_in_company_leaves_nothing(moment: int, clock: Clock, tmp_path: Path) -> None:
    scripts = {f"c{n}": Script(startup_s=20 + 5 * n, tok_per_s=100 + n) for n in range(5)}
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, interrupt_at=moment)
    assert result.ended == "interrupted"


def test_memory_of_the_gpus_is_awaited_between_waves_and_at_the_end(clock: Clock, tmp_path: Path) -> None:
    """An engine holds 10 GiB while it is up and for 3 s after."""
    gone: list[float] = []

    def read() -> Reading:
        held = 10 * (len(ScriptedEngine.up) + sum(1 for at in gone if clock.now < at + 3)) << 30
        return Reading(
            (Device(0, uuid="GPU-1", memory_bytes=140 << 30, memory_free_bytes=(139 << 30) - held),)
        )

    real = ScriptedEngine.close

    def close(engine: ScriptedEngine) -> None:
        if engine.name in engine.up:
            gone.append(clock.now)
        real(engine)

    memory = GpuMemory([Gpu(0, "H200", 90, uuid="GPU-1")], read=read, clock=clock, sleep=clock.sleep)
    scripts = {f"c{n}": Script(tok_per_s=100 + 10 * n) for n in range(6)}
    try:
        ScriptedEngine.close = close  # type: ignore[method-assign]
        run(clock, tmp_path, scripts, company=Company(at_once=4, together=4), gpu_memory=memory, budget_s=600)
    finally:
        ScriptedEngine.close = real  # type: ignore[method-assign]
    waits = [json.loads(one) for one in (tmp_path / "journal.jsonl").read_text().splitlines()]
    waits = [one for one in waits if one["event"] == "gpu-memory"]
    assert [one["when"] for one in waits][-1] == "end"
    assert "between" in [one["when"] for one in waits]
    assert all(2.5 < one["waited_s"] < 4 and not one["missing"] for one in waits)


@pytest.mark.parametrize(("told", "tokens"), [(True, [100_000, 80_000, 100_000]), (False, [None] * 3)])
def test_trials_say_how_many_tokens_the_server_would_hold(
    told: bool,
    tokens: list[int | None],
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read() -> Reading:
        counts = {0: 9 << 30, 1: (9 << 30) + 20_000 * 1000, 2: 8 << 30}
        tenants = tuple(Tenant(pid, count if told else None) for pid, count in counts.items())
        free = 100 << 30
        return Reading((Device(0, uuid="GPU-1", memory_free_bytes=free, tenants=tenants),))

    monkeypatch.setattr(ScriptedEngine, "facts", {"kv_tokens": 16384})
    memory = GpuMemory([Gpu(0, "H200", 90, uuid="GPU-1")], read=read, clock=clock, sleep=clock.sleep)
    scripts = {"c0": Script(), "c1": Script(), "c2": Script()}
    kv = KvBudget(tokens=100_000, token_bytes=1000, trial_token_bytes=100)
    result = run(clock, tmp_path, scripts, company=FOUR_AT_ONCE, gpu_memory=memory, kv=kv)
    assert [trial(result, name).kv_tokens for name in scripts] == tokens


def test_one_by_one_is_what_a_cpu_does() -> None:
    assert (ONE_BY_ONE.at_once, ONE_BY_ONE.together, ONE_BY_ONE.in_turn) == (1, None, False)


def test_a_first_batch_that_is_never_answered_may_be_the_workloads_fault(
    clock: Clock, tmp_path: Path
) -> None:
    script = Script(warm_up_s=math.inf)
    found = trial(run(clock, tmp_path, {"c0": script}, yardstick=WallYardstick(Workload(9, 9, 9))), "c0")
    assert found.failure is not None
    assert found.failure.reason == (
        "did not finish `load` within 120.0 s: the workload `in=9,out=9,concurrency=9` may be too large for the "
        "budget; `--workload` takes a smaller one"
    )
