"""`scripts/measure-race`: its steps with scripted engines, and all of it on a stand-in for SGLang."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autolaunch.candidates.candidate import ORIGINAL, Candidate, FailureKind
from autolaunch.race.objective import Objective
from autolaunch.race.outcomes import EngineFailed, EngineReady, Failure, GateReport, RaceInterrupted, Window
from autolaunch.race.workload import Workload
from tests.benchmarks.race_schema import check_races
from tests.checkpoint.make_checkpoint import write_checkpoint
from tests.launch.harness import HERE as LAUNCH
from tests.launch.harness import PROBE
from tests.loading import load_script
from tests.real_server import ROOT
from tests.tune.harness import CONFIG
from tests.tune.harness import HERE as TUNE

RACE = ROOT / "tests" / "race" / "fake_sglang"
OTHERS = tuple(Candidate(f"c{n}", (f"--flag-{n}",)) for n in (1, 2, 3))
FIELD = (ORIGINAL, *OTHERS)


NEIGHBOURS = ("whole_model", "race_case", "timed_start")


@pytest.fixture
def script() -> Iterator[ModuleType]:
    """The script as a module, its neighbours fresh."""
    for name in NEIGHBOURS:
        sys.modules.pop(name, None)
    yield load_script("scripts/measure-race")
    for name in NEIGHBOURS:
        sys.modules.pop(name, None)


@pytest.fixture
def whole_model(script: ModuleType) -> ModuleType:
    """The neighbour that runs engines."""
    return sys.modules["whole_model"]


@pytest.fixture
def race_case(script: ModuleType) -> ModuleType:
    """The neighbour that knows cases."""
    return sys.modules["race_case"]


@dataclass
class Bench:
    """Scripted engines: how fast each is, how it fails, and what was done in which order."""

    speeds: dict[str, float] = field(default_factory=dict)
    failures: dict[str, list[Failure]] = field(default_factory=dict)
    hangs: dict[str, FailureKind] = field(default_factory=dict)
    gates: dict[str, GateReport] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    up: list[str] = field(default_factory=list)
    stop_after: int = 1 << 30


class ScriptedEngine:
    """Stands in for `Engine`."""

    def __init__(self, name: str, bench: Bench) -> None:
        self.name, self.bench = name, bench

    def start(self) -> None:
        self.bench.up.append(self.name)
        self.bench.log.append(f"start {self.name}")

    def wait_ready(self, limit_s: float) -> EngineReady:
        if failures := self.bench.failures.get(self.name):
            raise EngineFailed(failures.pop(0))
        return EngineReady(10.0, {})

    def let_go(self) -> None:
        self.bench.log.append(f"let go {self.name}")

    def close(self) -> None:
        if self.name in self.bench.up:
            self.bench.up.remove(self.name)


class WarmedUp:
    """Stands in for `WarmUp` where an engine has nothing to compile."""

    def finish(self, limit_s: float) -> None:
        """Wait for nothing."""


@pytest.fixture
def bench(whole_model: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Scripted engines in the place of real ones."""
    bench = Bench()

    def window(engine: ScriptedEngine, workload: Workload, seed: int, limit_s: float) -> Window:
        bench.log.append(f"window {engine.name} {workload.input_tokens}")
        if hangs := bench.hangs.get(engine.name):
            raise EngineFailed(Failure("serve", hangs, f"did not finish within {limit_s:.0f} s"))
        if sum(line.startswith("window") for line in bench.log) > bench.stop_after:
            raise RaceInterrupted
        rate = bench.speeds.get(engine.name, 100.0) + seed % 3
        return Window(4, 4, 256, round(1000 * rate), 1000.0)

    def check(engine: ScriptedEngine, reference: Any, **_: Any) -> GateReport:
        bench.log.append(f"gate {engine.name} {reference}")
        return bench.gates.get(engine.name, GateReport(True, "agrees", mean_abs_logprob_delta=0.02))

    monkeypatch.setattr(whole_model.Whole, "engine", lambda self, one, company: ScriptedEngine(one.id, bench))
    monkeypatch.setattr(whole_model.measure, "measure_window", window)
    monkeypatch.setattr(whole_model.warm_up_windows, "warm_up", lambda engine, workload: WarmedUp())
    monkeypatch.setattr(whole_model.gate, "check", check)
    monkeypatch.setattr(whole_model.gate, "take_reference", lambda engine, **_: f"by {engine.name}")
    return bench


def new_case(script: ModuleType, **race: float) -> dict[str, Any]:
    """A case of four candidates, of which the race knows what `race` says."""
    rows = [script.new_row(one.id, list(one.flags)) for one in FIELD]
    for one in rows:
        one["race"] = race.get(one["id"])
    return {
        "candidates": rows,
        "exhaustive_s": None,
        "default": "c0",
        "pick": "c1",
        "higher_is_better": True,
    }


def run(whole_model: ModuleType, *cases: dict[str, Any], together: int = 2, **plan: Any) -> bool:
    """Measure `cases`, one a workload; whether they are complete."""
    jobs = [
        whole_model.Job(case, Workload(input_tokens=16 * number), Objective())
        for number, case in enumerate(cases, 1)
    ]
    whole = whole_model.Whole(
        None,
        None,
        jobs,
        logs=Path(),
        environ={},
        deadline=time.monotonic() + 60,
        max_total_tokens=1,
        say=lambda text: None,
    )
    batches = whole_model.plan_batches(jobs, FIELD, together, **plan)
    complete: bool = whole_model.measure_all(whole, batches)
    return complete


def row(case: dict[str, Any], name: str) -> dict[str, Any]:
    """The candidate `name`."""
    found: dict[str, Any] = next(one for one in case["candidates"] if one["id"] == name)
    return found


def lines(bench: Bench, word: str) -> list[str]:
    """What was done of a kind."""
    return [line for line in bench.log if line.startswith(word)]


def test_engines_start_once_and_are_timed_for_every_workload(
    script: ModuleType, whole_model: ModuleType, race_case: ModuleType, bench: Bench
) -> None:
    bench.speeds = {"c1": 200.0}
    cases = new_case(script), new_case(script)
    assert run(whole_model, *cases)
    assert bench.up == []
    assert lines(bench, "start") == [f"start c{n}" for n in range(4)]
    assert lines(bench, "gate") == [f"gate c{n} by c0" for n in (1, 2, 3)]
    for case in cases:
        assert [len(one["windows"]) for one in case["candidates"]] == [3] * 4
        assert row(case, "c1")["whole"] == 201.0
        assert row(case, "c0")["whole"] == 101.0
        assert row(case, "c0")["gate"] == "reference"
        assert race_case.noise_of(case) == pytest.approx(1 / 101)
        assert set(case["whole_runs"]) == {"c0 c1", "c2 c3"}
        assert case["exhaustive_s"] is not None


def test_windows_take_turns(script: ModuleType, whole_model: ModuleType, bench: Bench) -> None:
    """After the first window, which settles how long the others are, each goes first once."""
    case = new_case(script)
    assert run(whole_model, case)
    first = [line.split()[1] for line in lines(bench, "window")][1:7]
    assert first == ["c0", "c1", "c1", "c0", "c0", "c1"]


def test_what_is_there_is_not_measured_again(
    script: ModuleType, whole_model: ModuleType, bench: Bench
) -> None:
    cases = new_case(script), new_case(script)
    bench.stop_after = 17
    assert not run(whole_model, *cases)
    assert bench.up == []
    assert cases[1]["exhaustive_s"] is None
    kept = [[list(one["windows"]) for one in case["candidates"]] for case in cases]
    assert [len(one) for one in kept[0]] == [3, 3, 1, 2]
    bench.stop_after = 1 << 30
    bench.log.clear()
    assert run(whole_model, *cases)
    now = [[one["windows"] for one in case["candidates"]] for case in cases]
    assert [
        [one[: len(old)] for one, old in zip(*pair, strict=True)] for pair in zip(now, kept, strict=True)
    ] == kept
    assert lines(bench, "start") == ["start c2", "start c3"]
    assert lines(bench, "gate") == ["gate c2 None", "gate c3 None"]
    bench.log.clear()
    assert run(whole_model, *cases)
    assert bench.log == []


@pytest.mark.parametrize("together", [1, 3, 9])
def test_no_more_are_started_together_than_asked(
    together: int, script: ModuleType, whole_model: ModuleType, bench: Bench
) -> None:
    case = new_case(script)
    most = 0
    start = ScriptedEngine.start

    def counted(engine: ScriptedEngine) -> None:
        nonlocal most
        start(engine)
        most = max(most, len(bench.up))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedEngine, "start", counted)
        assert run(whole_model, case, together=together)
    assert most == min(together, 4)


def test_want_of_memory_in_company_is_tried_alone(
    script: ModuleType, whole_model: ModuleType, bench: Bench
) -> None:
    oom = Failure("load", "oom", "CUDA out of memory")
    bench.failures = {"c1": [oom], "c2": [oom, oom]}
    case = new_case(script)
    assert run(whole_model, case, together=4)
    assert row(case, "c1")["whole"] is not None and row(case, "c1")["failure"] is None
    assert row(case, "c2")["failure"]["kind"] == "oom"
    assert bench.log.count("start c1") == bench.log.count("start c2") == 2


def test_a_failure_has_a_stage_and_no_figure(
    script: ModuleType, whole_model: ModuleType, bench: Bench
) -> None:
    bench.failures = {"c3": [Failure("capture", "crash", "no attribute `runner`")]}
    bench.gates = {"c2": GateReport(False, "answers `!!!!`", kind="garbage")}
    cases = new_case(script), new_case(script)
    assert run(whole_model, *cases)
    for case in cases:
        assert row(case, "c3")["failure"] == {
            "stage": "capture",
            "kind": "crash",
            "reason": "no attribute `runner`",
        }
        assert row(case, "c2")["failure"]["stage"] == "gate"
        assert row(case, "c2")["whole"] is None
    bench.log.clear()
    assert run(whole_model, *cases)
    assert bench.log == [], "a failure is not tried again"


def test_what_never_started_in_the_race_is_not_started(
    script: ModuleType, whole_model: ModuleType, bench: Bench
) -> None:
    """Unless it may have been for want of time or room, or is asked for."""
    case = new_case(script, c0=100.0)
    row(case, "c1")["race_failure"] = {"stage": "load", "kind": "crash", "reason": "no such module"}
    row(case, "c2")["race_failure"] = {"stage": "start", "kind": "oom", "reason": "out of memory"}
    row(case, "c3")["race_failure"] = {"stage": "gate", "kind": "garbage", "reason": "!!!!"}
    assert run(whole_model, case)
    assert "start c1" not in bench.log
    assert row(case, "c1")["failure"]["reason"] == "no such module"
    assert row(case, "c1")["failure_from"] == "race"
    assert row(case, "c2")["whole"] is not None and row(case, "c3")["whole"] is not None
    assert run(whole_model, case, retry_failed=True)
    assert row(case, "c1")["whole"] is not None and row(case, "c1")["failure"] is None


def test_the_plainly_slow_get_one_window_at_the_end(
    script: ModuleType, whole_model: ModuleType, bench: Bench
) -> None:
    case = new_case(script, c0=100.0, c1=49.0, c2=120.0, c3=30.0)
    bench.hangs = {"c3": "hang"}
    bench.speeds = {"c1": 40.0}
    assert run(whole_model, case)
    assert lines(bench, "start") == ["start c0", "start c2", "start c1", "start c3"]
    assert row(case, "c1")["short"] and len(row(case, "c1")["windows"]) == 1
    assert row(case, "c1")["whole"] is not None
    assert row(case, "c3")["whole"] is None
    assert row(case, "c3")["failure"]["kind"] == "slow"
    assert row(case, "c2")["failure"] is None and len(row(case, "c2")["windows"]) == 3


def test_who_is_not_slow_after_all_gets_all_windows(
    script: ModuleType, whole_model: ModuleType, bench: Bench
) -> None:
    case = new_case(script, c0=100.0, c1=49.0)
    bench.speeds = {"c1": 150.0}
    assert run(whole_model, case)
    assert len(row(case, "c1")["windows"]) == 3
    assert not row(case, "c1")["short"]


def test_who_dies_for_one_workload_is_started_again_for_the_other(
    script: ModuleType, whole_model: ModuleType, bench: Bench
) -> None:
    cases = new_case(script), new_case(script)
    bench.hangs = {"c1": "crash"}
    clear = lambda text: text.startswith("c1 once more") and bench.hangs.clear()  # noqa: E731
    jobs = [whole_model.Job(case, Workload(), Objective()) for case in cases]
    whole = whole_model.Whole(
        None, None, jobs, Path(), environ={}, deadline=time.monotonic() + 60, max_total_tokens=1, say=clear
    )
    assert whole_model.measure_all(whole, [FIELD])
    assert row(cases[0], "c1")["failure"]["kind"] == "crash"
    assert row(cases[1], "c1")["failure"] is None
    assert len(row(cases[1], "c1")["windows"]) == 3


def test_when_the_original_fails_the_others_are_ungated(
    script: ModuleType, whole_model: ModuleType, bench: Bench
) -> None:
    bench.failures = {"c0": [Failure("load", "crash", "no")]}
    case = new_case(script)
    assert run(whole_model, case)
    assert "gate c1 None" in bench.log
    assert row(case, "c1")["whole"] is not None


def test_a_time_that_is_up_starts_nothing(script: ModuleType, whole_model: ModuleType, bench: Bench) -> None:
    case = new_case(script)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_model.time, "monotonic", lambda: 1e12)
        jobs = [whole_model.Job(case, Workload(), Objective())]
        whole = whole_model.Whole(
            None, None, jobs, Path(), environ={}, deadline=0.0, max_total_tokens=1, say=lambda text: None
        )
        assert not whole_model.measure_all(whole, [FIELD])
    assert bench.log == []


def test_a_summary_tells_ranks_pick_and_regret(script: ModuleType, race_case: ModuleType) -> None:
    case = new_case(script, c0=100.0, c1=120.0)
    case |= {"model": "tiny", "flags": [], "workload": "in=1,out=2", "metric": "output_tok_per_s"}
    case |= {"cache_state": "warm", "race_s": 60.0, "plain_cold_start_s": 50.0, "race_ended": "done"}
    for one, figure in zip(case["candidates"], (1000.0, 900.0, 990.0), strict=False):
        one |= {"windows": [figure - 10, figure, figure + 10], "whole": figure}
    row(case, "c3")["race_failure"] = {"stage": "load", "kind": "crash", "reason": "no"}
    case["noise"] = race_case.noise_of(case)
    text = list(race_case.summary(case))
    assert text[1] == " 1 c0   whole 1000 (1.000) ±1.0 % race 100 (1.000) original"
    assert [line[:6].split() for line in text[1:5]] == [["1", "c0"], ["2", "c2"], ["3", "c1"], ["-", "c3"]]
    assert "race: crash at load: no" in text[4]
    assert text[-1].startswith(
        "pick c1 rank 3 of 3; regret 10.0 % ± 1.1; against c0 -10.0 %; race 60.0 s (done)"
    )
    assert text[-1].endswith("race/plain 1.20")


def test_a_cold_case_takes_over_the_whole_model_of_the_warm_one(
    script: ModuleType, race_case: ModuleType
) -> None:
    names = {"model": "tiny", "flags": [], "workload": "in=1,out=2", "metric": "output_tok_per_s"}
    warm = new_case(script) | names | {"cache_state": "warm"}
    row(warm, "c1").update(windows=[1.0, 2.0, 3.0], whole=2.0)
    cold = new_case(script) | names | {"cache_state": "cold"}
    race_case.borrow({"cases": [warm, cold]}, cold)
    assert row(cold, "c1")["whole"] == 2.0
    assert row(cold, "c2")["whole"] is None
    assert cold["whole_from"] == "warm"


@pytest.fixture
def both_fakes(tmp_path: Path) -> Path:
    """One package that can do both: be hosted by an engine host, and be a server."""
    folder = tmp_path / "sglang-of-both"
    shutil.copytree(RACE, folder)
    for name in ("launch_server.py", "version.py"):
        shutil.copy(LAUNCH / "fake_sglang" / "sglang" / name, folder / "sglang" / name)
    arguments = (LAUNCH / "fake_sglang" / "sglang" / "srt" / "server_args.py").read_text()
    arguments += (
        "\n\ndef prepare_server_args(argv):\n"
        "    parser = argparse.ArgumentParser()\n"
        "    ServerArgs.add_cli_args(parser)\n"
        "    parsed = parser.parse_args(argv)\n"
        "    parsed.behave = 'load-raise' if parsed.disable_radix_cache else 'well'\n"
        "    parsed.skip_tokenizer_init = parsed.enable_metrics = False\n"
        "    return parsed\n"
    )
    (folder / "sglang" / "srt" / "server_args.py").write_text(arguments)
    return folder


def test_all_steps_on_a_stand_in(script: ModuleType, both_fakes: Path, tmp_path: Path) -> None:
    """Once with too little time, then to the end; the file is a benchmark file, and makes a table."""
    model = write_checkpoint(tmp_path / "model", [("model.norm.weight", "BF16", (64,))], config=CONFIG)
    output = tmp_path / "race-here.json"
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [TUNE / "planted", both_fakes])),
        "PLANT_RACE": "wins",
        "FAKE_STATE": str(tmp_path / "state.json"),
        "FAKE_PROBE": str(PROBE),
    }
    line = [sys.executable, ROOT / "scripts" / "measure-race", model, "--output", output]
    line += ["--work", tmp_path / "work", "--together", "2", "--no-gate", "--window", "0.05"]
    line += ["--workload", "in=16,out=4,concurrency=2", "--workload", "in=4,out=16,concurrency=2"]
    line += ["--name", "tiny", "--journals", tmp_path / "kept"]

    def go(*more: str) -> tuple[int, list[dict[str, Any]], str]:
        command = [*line, *more, "--", "--attention-backend", "torch_native"]
        done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert "Traceback" not in done.stderr, done.stderr
        cases = []
        if output.exists():
            document = json.loads(output.read_text())
            check_races(document)
            cases = document["cases"]
        return done.returncode, cases, done.stdout

    code, cases, text = go("--list")
    assert (code, cases) == (script.EXIT_COMPLETE, [])
    assert "whole: c0 c1" in text and "plain start" in text
    code, cases, _ = go("--deadline", "0")
    assert code == script.EXIT_UNFINISHED
    assert len(cases) == 2
    assert {(one["race_s"], one["pick"], one["exhaustive_s"]) for one in cases} == {(None, None, None)}
    code, cases, _ = go("--steps", "race")
    assert code == script.EXIT_COMPLETE
    for case in cases:
        assert case["pick"] == "c1"
        assert [one["race"] is not None for one in case["candidates"]] == [True, True, False]
        assert case["candidates"][2]["race_failure"]["kind"] == "crash"
        assert case["race_own_s"] == 12.0
    assert len(list((tmp_path / "kept").glob("tiny-warm-race-*.tar.xz"))) == 2
    code, cases, text = go()
    assert code == script.EXIT_COMPLETE
    assert text.count("pick c1 rank") == 2
    for case in cases:
        assert [one["id"] for one in case["candidates"]] == ["c0", "c1", "c2"]
        assert [one["flags"] for one in case["candidates"]][1:] == [
            ["--disable-overlap-schedule"],
            ["--disable-radix-cache"],
        ]
        assert [len(one["windows"]) for one in case["candidates"]] == [3, 3, 0]
        assert case["candidates"][2]["failure"]["stage"] == "load"
        assert case["plain_cold_start_s"] > 0
        assert case["exhaustive_s"] > 0
        assert case["noise"] is not None
        assert case["model"] == "tiny"
        assert case["flags"] == ["--attention-backend", "torch_native"]
    assert str(tmp_path) not in output.read_text()
    before = cases
    code, cases, _ = go()
    assert (code, cases) == (script.EXIT_COMPLETE, before), "nothing is measured twice"
    code, cases, _ = go("--again", "plain")
    assert code == script.EXIT_COMPLETE
    assert cases[0]["plain_cold_start_s"] > 0
    table = load_script("scripts/make-race-table").table([json.loads(output.read_text())])
    assert "| tiny --attention-backend torch_native | none |" in table
    code, cases, _ = go("--cache-state", "cold", "--steps", "race")
    assert code == script.EXIT_COMPLETE
    assert [one["cache_state"] for one in cases] == ["warm", "warm", "cold", "cold"]
    assert cases[3]["candidates"][0]["whole"] == cases[1]["candidates"][0]["whole"]


def test_a_rehearsal_runs_once_a_machine(script: ModuleType, both_fakes: Path, tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path / "model", [("model.norm.weight", "BF16", (64,))], config=CONFIG)
    paths = os.pathsep.join(map(str, [TUNE / "planted", both_fakes]))
    environ = {**os.environ, "PYTHONPATH": paths, "PLANT_RACE": "wins"}
    line = [sys.executable, ROOT / "scripts" / "measure-race", model, "--output", tmp_path / "race-x.json"]
    line += ["--work", tmp_path / "work", "--steps", "race", "--workload", "in=16,out=4,concurrency=2"]
    line += ["--rehearse", "--", "--attention-backend", "torch_native"]
    done = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("rehearsal in=16") == done.stderr.count("race in=16") == 1
    done = subprocess.run(
        [*line[:-3], "--again", "race", *line[-3:]], env=environ, capture_output=True, text=True
    )
    assert "rehearsal" not in done.stderr and "race in=16" in done.stderr


def test_cold_is_cold(script: ModuleType, tmp_path: Path) -> None:
    timed_start = sys.modules["timed_start"]
    (tmp_path / "model.safetensors").write_bytes(b"x" * 10_000)
    environ = {"TRITON_CACHE_DIR": "/mine", "OTHER": "kept"}
    with timed_start.cache_state("warm", environ, tmp_path) as found:
        assert found == environ
    with timed_start.cache_state("cold", environ, tmp_path) as found:
        assert found["OTHER"] == "kept"
        places = {found[name] for name in timed_start.CACHES}
        assert not any(Path(place).exists() for place in places)
        folder = Path(found["TRITON_CACHE_DIR"]).parent
        assert folder.is_dir() and "/mine" not in places
    assert not folder.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [(["/nowhere", "--output", "x"], "is no folder"), ([".", "--output", "x", "--steps", "run"], "no step")],
)
def test_a_wrong_line_is_a_usage_error(
    words: list[str], said: str, script: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        script.parse(words)
    assert error.value.code == 2
    assert said in capsys.readouterr().err
