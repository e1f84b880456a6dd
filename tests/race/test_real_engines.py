"""Real SGLang on the CPU: every kind of candidate ends where it must, and nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from autolaunch.command import Command
from autolaunch.race import gate
from autolaunch.race.engine import Engine
from autolaunch.race.measure import measure_conversations, measure_window
from autolaunch.race.outcomes import EngineFailed, EngineReady, Failure
from autolaunch.race.overlay import trial_overlay
from autolaunch.race.traced import measure_traced
from autolaunch.race.warm_up_windows import warm_up
from autolaunch.race.workload import Conversation, Turn, Workload
from autolaunch.request.catalogue import load_catalogue
from autolaunch.request.command_line import Pin
from autolaunch.request.interpreter import find_interpreter
from tests.conftest import SmallModel
from tests.race.processes import Mark
from tests.real_server import ROOT, find_free_port, server_environment

pytestmark = pytest.mark.sglang

START_LIMIT_S = 180.0
INTERPRETED = (("TRITON_INTERPRET", "1"),)
VERSIONS_FOLDER = os.environ.get("AUTOLAUNCH_TEST_SGLANG_DIR", "")
VERSIONS = ("0.5.14", "0.5.17", "0.5.20", "0.5.23")


class Bench:
    """Makes engines of the small model, all with one mark and one temporary folder."""

    def __init__(self, python: str, model: SmallModel, folder: Path) -> None:
        """Engines under `python`, with their logs in `folder`."""
        self.python, self.model, self.folder = python, model, folder
        self.mark = Mark()
        self.temporary = folder / "t"
        self.temporary.mkdir()
        self.count = 0
        self.port = 0

    def command(self, *flags: str, env: tuple[tuple[str, str], ...] = ()) -> Command:
        """The launch of the small model with `flags`."""
        base = (self.python, "-m", "sglang.launch_server", "--model-path", str(self.model), "--device", "cpu")
        return Command(base + flags, env)

    def environ(self, pythonpath: str | None = None) -> dict[str, str]:
        """A marked environment with a temporary folder of its own."""
        environ = self.mark.environ(server_environment({"TMPDIR": str(self.temporary)}))
        if pythonpath is not None:
            environ["PYTHONPATH"] = pythonpath
        return environ

    def overlay(
        self, pins: dict[str, Pin] | None = None, environ: dict[str, str] | None = None
    ) -> tuple[str, ...]:
        """What a race would add."""
        interpreter = find_interpreter(self.python, environ or self.environ(), self.folder)
        self.port = find_free_port()
        return trial_overlay(
            pins or {},
            load_catalogue(interpreter, self.folder / "cache"),
            port=self.port,
            nccl_port=find_free_port(),
            max_total_tokens=16384,
        )

    def engine(
        self,
        *flags: str,
        env: tuple[tuple[str, str], ...] = (),
        pins: dict[str, Pin] | None = None,
        pythonpath: str | None = None,
    ) -> Engine:
        """An engine with `flags`, not yet started."""
        self.count += 1
        environ = self.environ(pythonpath)
        return Engine(
            self.command(*flags, env=env),
            self.overlay(pins, environ),
            log=self.folder / f"{self.count}.log",
            environ=environ,
            cwd=self.folder,
        )

    def failure(self, *flags: str, env: tuple[tuple[str, str], ...] = ()) -> Failure:
        """How an engine with `flags` fails, which it must, before or in its first window."""
        with pytest.raises(EngineFailed) as caught, self.engine(*flags, env=env) as engine:
            engine.wait_ready(START_LIMIT_S)
            warm_up(engine, Workload()).finish(120)
        return caught.value.failure


@pytest.fixture(scope="module")
def bench(
    sglang_python: str, small_model: SmallModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    """The engines of this module; at the end no process and no temporary file of theirs may be left."""
    shared_memory = set(Path("/dev/shm").iterdir())
    bench = Bench(sglang_python, small_model, tmp_path_factory.mktemp("e"))
    yield bench
    left = bench.mark.pids()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == {}
    assert [path for path in bench.temporary.iterdir() if not path.name.startswith("torchinductor")] == []
    # A scheduler that kills itself leaves SGLang's own load file, as after a plain launch.
    appeared = {path.name for path in set(Path("/dev/shm").iterdir()) - shared_memory}
    assert {name for name in appeared if not name.startswith("sglang_loads_")} == set()


@pytest.fixture(scope="module")
def original(bench: Bench) -> Iterator[tuple[Engine, EngineReady, gate.Reference]]:
    """Candidate 0, ready, warm, and taken as the gate's reference."""
    with bench.engine() as engine:
        ready = engine.wait_ready(START_LIMIT_S)
        yield engine, ready, gate.take_reference(engine)


Original = tuple[Engine, EngineReady, gate.Reference]


def test_the_original_answers_what_it_was_taught(original: Original, bench: Bench) -> None:
    engine, ready, _ = original
    assert ready.resolved["attention_backend"] == "torch_native"
    assert ready.resolved["max_total_num_tokens"] == 16384
    assert engine.facts["vocab_size"] > 0
    prompts = list(bench.model.continuations)
    sampling = {"temperature": 0.0, "max_new_tokens": 64}
    answers = engine.ask("generate", 60, prompts=prompts, sampling=sampling, concurrency=4)
    assert [answer["text"].strip() for answer in answers] == [
        text.strip() for text in bench.model.continuations.values()
    ]


def test_windows_are_fresh_and_whole(original: Original) -> None:
    engine, _, _ = original
    workload = Workload()
    warm_up(engine, workload).finish(120)
    windows = [measure_window(engine, workload, seed) for seed in range(4)]
    assert all(window.cached_tokens == 0 for window in windows)
    assert all(window.output_tokens == workload.prompts * workload.output_tokens for window in windows)
    assert all(window.output_tok_per_s > 10 for window in windows)
    again = measure_window(engine, workload, seed=0)
    assert again.cached_tokens == 0, "the cache is emptied before each window"


def test_first_tokens_come_before_whole_answers(original: Original) -> None:
    engine, _, _ = original
    window = measure_window(engine, Workload(), seed=10)
    pairs = list(zip(window.ttfts_s, window.latencies_s, strict=True))
    assert len(pairs) == Workload().prompts
    assert all(0 < first_s < 0.9 * whole_s for first_s, whole_s in pairs)
    batch = measure_window(engine, Workload(concurrency=4, rounds=1, output_tokens=60), seed=11)
    assert batch.output_tokens == 240, "past SGLang's own interval of 50 tokens"
    assert len(batch.ttfts_s) == 4


def test_turns_reuse_what_was_said_before(original: Original) -> None:
    """Counted by SGLang itself: all of the former turns but the last token, which has no entry yet."""
    engine, _, _ = original
    turns = (Turn("The capital of France is", 8), Turn(" and of Italy", 8), Turn(" and", 4))
    workload = Workload(concurrency=2, rounds=1, conversations=(Conversation(turns), Conversation(turns[:1])))
    window = measure_conversations(engine, workload, seed=0)
    assert window.prompts == 4
    assert window.output_tokens == 28
    assert 20 < window.cached_tokens < window.input_tokens


def test_a_cpu_has_no_gpu_times(original: Original, tmp_path: Path) -> None:
    """SGLang's scheduler dies when it shall profile GPU kernels without a GPU, so it is not asked."""
    engine, _, _ = original
    workload = Workload(input_tokens=16, output_tokens=4, concurrency=2, rounds=1)
    with pytest.raises(EngineFailed, match="runs on a CPU") as caught:
        measure_traced(engine, workload, 12, folder=tmp_path, layers=2, total_layers=2)
    assert caught.value.failure.kind == "environment"
    assert measure_window(engine, workload, seed=13).clean


def test_the_most_probable_tokens(original: Original) -> None:
    engine, _, _ = original
    engine.ask("flush", 20)
    (plain,) = engine.ask("score", 20, input_ids=[[5, 6, 7, 8]], starts=[1])
    engine.ask("flush", 20)
    (scored,) = engine.ask("score", 20, input_ids=[[5, 6, 7, 8]], starts=[1], top=3)
    assert scored["logprobs"] == pytest.approx(plain)
    assert [len(place) for place in scored["top"]] == [3, 3, 3]
    assert all(place == sorted(place, key=lambda entry: -entry[0]) for place in scored["top"])


def test_nobody_can_reach_a_trial(original: Original, bench: Bench) -> None:
    """No server port and no metrics port: what listens is the rank's own meeting point, at most."""
    listening = set()
    for pid in bench.mark.pids():
        for connection in psutil.Process(pid).net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN:
                listening.add((connection.laddr.ip, connection.laddr.port))
    assert bench.port not in {port for _, port in listening}
    assert len(listening) <= 2, listening


def test_candidates_that_change_the_scheduler_pass(bench: Bench, original: Original) -> None:
    with bench.engine("--disable-overlap-schedule", "--disable-radix-cache") as engine:
        ready = engine.wait_ready(START_LIMIT_S)
        report = gate.check(engine, original[2])
        window = measure_window(engine, Workload(), seed=1)
    assert ready.resolved["disable_overlap_schedule"] is True
    assert report.passed, report
    assert report.mean_abs_logprob_delta is not None
    assert report.mean_abs_logprob_delta < 0.05
    assert window.clean


def test_a_silently_replaced_choice_is_seen_and_secrets_stay_outside(
    bench: Bench, original: Original
) -> None:
    """One engine for two things, since each costs twenty seconds."""
    flags = ("--attention-backend", "intel_amx", "--api-key", "s3cret-key", "--enable-metrics")
    pins = {
        "api_key": Pin("--api-key", "api_key", "--api-key", ("s3cret-key",), "command line"),
        "enable_metrics": Pin("--enable-metrics", "enable_metrics", "--enable-metrics", (), "command line"),
    }
    with bench.engine(*flags, pins=pins) as engine:
        ready = engine.wait_ready(START_LIMIT_S)
        assert "s3cret-key" not in " ".join(bench.mark.pids().values()), "command lines can be read by all"
        report = gate.check(engine, original[2])
    assert ready.resolved["attention_backend"] == "torch_native"
    assert report.passed, report
    assert ready.resolved["enable_metrics"] is False
    assert "s3cret-key" not in json.dumps(ready.to_json())
    assert "s3cret-key" not in engine.log.read_text()


@pytest.mark.slow
def test_wrong_answers_are_stopped_by_the_gate(bench: Bench, original: Original) -> None:
    """Interpreted Triton kernels are wrong in bfloat16, and so slow that the gate must end early."""
    with bench.engine("--attention-backend", "triton", env=INTERPRETED) as engine:
        engine.wait_ready(START_LIMIT_S)
        report = gate.check(engine, original[2])
    assert (report.passed, report.kind) == (False, "garbage")
    assert report.mean_abs_logprob_delta is not None
    assert report.mean_abs_logprob_delta > 2 * gate.LIMIT


@pytest.mark.slow
def test_a_slow_candidate_with_right_answers_passes(bench: Bench, original: Original) -> None:
    with bench.engine("--attention-backend", "flex_attention", env=INTERPRETED) as engine:
        ready = engine.wait_ready(START_LIMIT_S)
        report = gate.check(engine, original[2])
    assert ready.resolved["attention_backend"] == "flex_attention"
    assert report.passed, report


@pytest.mark.parametrize(
    ("flags", "stage", "kind", "exit_status", "reason"),
    [
        (
            ("--attention-backend", "warp9"),
            "start",
            "rejected",
            2,
            "no choice `warp9` for `--attention-backend`",
        ),
        (("--model-path", "/does/not/exist"), "load", "environment", 1, "the model cannot be read"),
        (("--attention-backend", "fa3"), "load", "rejected", -9, "requires SM>=80"),
        (("--page-size", "16"), "load", None, -9, "page"),
        (("--attention-backend", "triton"), "serve", "crash", -9, "Triton finds no GPU"),
    ],
)
def test_failing_candidates(
    bench: Bench, flags: tuple[str, ...], stage: str, kind: str | None, exit_status: int, reason: str
) -> None:
    failure = bench.failure(*flags)
    assert (failure.stage, failure.exit) == (stage, exit_status), failure
    assert kind in (None, failure.kind), failure
    assert reason in failure.reason
    assert failure.log_tail


@pytest.mark.slow
@pytest.mark.parametrize("moment_s", [1.0, 5.0, 8.0, 11.0, None])
def test_sigkill_of_the_parent(bench: Bench, moment_s: float | None) -> None:
    """From the first import to a window that is being timed (None); at 12 s a plain SGLang leaves three."""
    job = {
        "argv": bench.command().argv,
        "overlay": bench.overlay(),
        "log": str(bench.folder / f"killed-{moment_s}.log"),
        "cwd": str(bench.folder),
    }
    mark = Mark()
    environ = mark.environ(bench.environ()) | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.race.engine_parent", json.dumps(job)],
        env=environ,
        cwd=ROOT,
        stdout=subprocess.PIPE,
    ) as parent:
        if moment_s is None:
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"ready\n"
            time.sleep(0.3)
        else:
            time.sleep(moment_s)
        alive = mark.pids()
        parent.kill()
    assert len(alive) >= 4, "parent, two guards, engine host"
    assert mark.wait_gone(5) == {}


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_other_versions_are_hosted_alike(bench: Bench, version: str) -> None:
    package = Path(VERSIONS_FOLDER) / f"sglang-{version}"
    if not VERSIONS_FOLDER or not package.is_dir():
        pytest.skip(f"no sglang-{version}/ in AUTOLAUNCH_TEST_SGLANG_DIR")
    with bench.engine(pythonpath=str(package)) as engine:
        ready = engine.wait_ready(START_LIMIT_S)
        assert ready.resolved["version"] == version
        assert ready.resolved["max_total_num_tokens"] == 16384
        report = gate.check(engine, gate.take_reference(engine))
        assert report.passed, report
        assert measure_window(engine, Workload(), seed=1).clean
