"""The conversation with an engine, against a fake SGLang that can misbehave at every stage."""

from __future__ import annotations

import ast
import contextlib
import itertools
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autolaunch.command import Command
from autolaunch.race import host_process
from autolaunch.race.engine import Engine, split_command
from autolaunch.race.outcomes import EngineFailed, Failure, RaceInterrupted
from tests.race.processes import Mark

Make = Callable[..., Engine]


def failure_of(engine: Engine, limit_s: float = 20.0, ask_limit_s: float = 20.0) -> Failure:
    """Start `engine`, which must fail before it is ready, or at its first question."""
    with pytest.raises(EngineFailed) as caught, engine:
        engine.wait_ready(limit_s)
        engine.ask("load", ask_limit_s, input_ids=[[1, 2, 3]], output_tokens=2, concurrency=1)
    return caught.value.failure


def open_descriptors() -> int:
    """How many descriptors this process has."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_healthy_engine_answers(fake_engine: Make, mark: Mark, tmp_path: Path) -> None:
    with fake_engine("well", "--api-key", "s3cret") as engine:
        ready = engine.wait_ready(20)
        assert ready.startup_s > 0
        assert ready.resolved["version"] == "0.0.fake"
        assert ready.resolved["plugins"] == ["plugins"], "plugins come before the arguments"
        assert ready.resolved["infinite"] == "inf"
        assert ready.resolved["odd"] == "<object>"
        assert "s3cret" not in str(ready.to_json())
        facts = dict(engine.facts)
        assert {"attempt", "generate", "profile", "score"} <= set(facts.pop("operations"))
        assert facts == {
            "device": "cuda",
            "vocab_size": 512,
            "context_len": 4096,
            "kv_tokens": 16384,
            "has_tokenizer": True,
        }
        assert engine.stage == "serve"
        assert engine.ask("tokenize", 5, texts=["ab"]) == [[97, 98]]
        answers = engine.ask("generate", 5, prompts=["a"], sampling={"max_new_tokens": 2}, logprobs=True)
        assert (answers[0]["output_ids"], answers[0]["logprobs"]) == ([98, 99], [-1.0, -1.0])
        assert engine.ask("score", 5, input_ids=[[5, 6, 7], [1, 2]], starts=[1, 1]) == [[-1.0, -1.0], [-1.0]]
        assert engine.ask("flush", 5) is True
        assert engine.ask("server_info", 5)["flushes"] == 1
        load = engine.ask("load", 5, input_ids=[[1]] * 6, output_tokens=10, concurrency=2)
        assert load["wall_s"] >= 3 * 0.02, "two at a time, 20 ms each"
        assert [request["completion_tokens"] for request in load["requests"]] == [10] * 6
    assert mark.pids() == {}
    assert engine.ending is not None
    assert engine.ending.left == ()
    log = engine.log.read_text()
    assert "stdin holds ''" in log
    assert [path.name for path in tmp_path.iterdir()] == ["logs"], "the scratch folder is gone"
    engine.close()


@pytest.mark.parametrize(
    ("behave", "stage", "kind", "exit_status", "reason"),
    [
        ("load-raise", "load", "memory", 1, "--mem-fraction-static"),
        ("load-kill", "load", "crash", -9, "ValueError: the kernel is not for this device"),
        ("load-kill-group", "load", "crash", -9, "was ended by SIGKILL"),
        ("serve-kill", "serve", "crash", -9, "ValueError: the kernel is not for this device"),
        ("serve-kill-group", "serve", "crash", -9, "was ended by SIGKILL"),
        ("serve-raise", "serve", "memory", None, "--mem-fraction-static"),
        ("serve-hang", "serve", "hang", None, "did not finish `load` within 1.0 s"),
        ("serve-close", "serve", "hang", None, "closed its control socket and went on"),
    ],
)
def test_faults(
    fake_engine: Make, mark: Mark, behave: str, stage: str, kind: str, exit_status: int | None, reason: str
) -> None:
    failure = failure_of(fake_engine(behave), ask_limit_s=1.0 if behave == "serve-hang" else 20.0)
    assert (failure.stage, failure.kind, failure.exit) == (stage, kind, exit_status)
    assert reason in failure.reason
    assert failure.log is not None
    assert mark.pids() == {}


def test_a_flag_sglang_does_not_know_is_rejected(fake_engine: Make, mark: Mark) -> None:
    failure = failure_of(fake_engine("well", "--no-such-flag", "1"))
    assert (failure.stage, failure.kind, failure.exit) == ("start", "rejected", 2)
    assert failure.reason == "this SGLang does not know `--no-such-flag 1`"
    assert failure.log_tail[-1].endswith("--no-such-flag 1")


def test_hang_at_start(fake_engine: Make, mark: Mark) -> None:
    started_s = time.monotonic()
    failure = failure_of(fake_engine("load-hang"), limit_s=1.5)
    assert (failure.stage, failure.kind) == ("load", "hang")
    assert failure.reason == "was not ready within 1.5 s"
    assert time.monotonic() - started_s < 15
    assert mark.pids() == {}


def test_engines_that_load_together_are_polled(fake_engine: Make, mark: Mark) -> None:
    well, broken, slow = fake_engine(), fake_engine("load-raise"), fake_engine("load-hang")
    for engine in (well, broken, slow):
        engine.start()
    waiting, found = {"well": well, "broken": broken}, {}
    deadline = time.monotonic() + 60
    while (waiting or slow.stage != "load") and time.monotonic() < deadline:
        for name, engine in list(waiting.items()):
            began_s = time.monotonic()
            try:
                found[name] = engine.poll_ready()
            except EngineFailed as error:
                found[name] = error.failure
            assert time.monotonic() - began_s < 5 or isinstance(found[name], Failure), "it never waits"
            if found[name] is not None:
                del waiting[name]
        assert slow.poll_ready() is None
        time.sleep(0.02)
    assert found["well"].resolved["version"] == "0.0.fake"
    assert found["broken"].kind == "memory"
    with pytest.raises(EngineFailed):
        broken.poll_ready()
    failure = slow.hangs("was not ready within 12 s").failure
    assert (failure.stage, failure.kind, failure.reason) == ("load", "hang", "was not ready within 12 s")
    assert well.ask("flush", 20) is True, "who was polled can be asked"
    for engine in (well, broken, slow):
        engine.let_go()
    for engine in (well, broken, slow):
        engine.close()
    assert mark.pids() == {}


def polled(engine: Engine, number: int, limit_s: float = 20.0) -> Any:
    """The answer to what was begun, looked for again and again."""
    deadline = time.monotonic() + limit_s
    while (answer := engine.poll(number)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return answer


def test_engines_work_at_the_same_time(fake_engine: Make) -> None:
    first, second = fake_engine(), fake_engine()
    for engine in (first, second):
        engine.start()
    for engine in (first, second):
        engine.wait_ready(20)
    prompts = [[1] * 40_000] * 8  # more than a socket takes at once
    begun, answers = {}, []
    for engine in (first, second):
        engine.begin("flush")
        begun[engine] = engine.begin("load", input_ids=prompts, output_tokens=1000, concurrency=8)
    deadline = time.monotonic() + 30
    while begun and time.monotonic() < deadline:
        for engine, number in list(begun.items()):
            if (answer := engine.poll(number)) is not None:
                answers.append(answer)
                del begun[engine]
    spans = [(answer["started_s"], answer["started_s"] + answer["wall_s"]) for answer in answers]
    assert max(start for start, _ in spans) < min(end for _, end in spans), "neither waited for the other"
    assert [len(answer["requests"]) for answer in answers] == [8, 8]
    assert first.ask("flush", 20) is True


@pytest.mark.parametrize(("behave", "kind"), [("serve-raise", "memory"), ("serve-kill", "crash")])
def test_what_fails_once_it_is_begun(behave: str, kind: str, fake_engine: Make) -> None:
    engine = fake_engine(behave)
    engine.start()
    engine.wait_ready(20)
    engine.begin("load", input_ids=[[1]], output_tokens=2, concurrency=1)
    number = engine.begin("flush")
    with pytest.raises(EngineFailed) as caught:
        polled(engine, number)
    assert (caught.value.failure.stage, caught.value.failure.kind) == ("serve", kind)
    for again in (lambda: engine.poll(number), lambda: engine.begin("flush")):
        with pytest.raises(EngineFailed) as same:
            again()
        assert same.value.failure is caught.value.failure


def test_one_that_is_held_waits(fake_engine: Make) -> None:
    """Its model may be made meanwhile."""
    held, other = fake_engine(held=True), fake_engine()
    held.start()
    other.start()
    other.wait_ready(20)
    time.sleep(0.5)
    assert held.poll_ready() is None
    assert held.stage == "start"
    held.release()
    assert held.wait_ready(20).resolved["version"] == "0.0.fake"
    assert held.ask("flush", 20) is True


def test_one_that_is_held_can_be_closed(fake_engine: Make, mark: Mark) -> None:
    held = fake_engine(held=True)
    held.start()
    held.close()
    assert mark.pids() == {}


def test_the_start_ends_when_the_engine_says_so(fake_engine: Make) -> None:
    """A launcher that was busy with another engine does not add to the start-up of this one."""
    engine = fake_engine()
    engine.start()
    time.sleep(2.0)
    ready = engine.poll_ready()
    assert ready is not None and ready.startup_s < 1.8


def test_an_engine_that_failed_is_not_asked_again(fake_engine: Make) -> None:
    with fake_engine("serve-hang") as engine:
        engine.wait_ready(20)
        failures = []
        for _ in range(2):
            with pytest.raises(EngineFailed) as caught:
                engine.ask("load", 0.5, input_ids=[[1]], output_tokens=1, concurrency=1)
            failures.append(caught.value.failure)
        assert failures[0] is failures[1]


def test_an_interpreter_that_is_not_there(fake_engine: Make, tmp_path: Path) -> None:
    engine = Engine(
        Command(("/does/not/exist", "-m", "sglang.launch_server")),
        (),
        log=tmp_path / "log",
        environ={"TMPDIR": str(tmp_path)},
        cwd=tmp_path,
    )
    failure = failure_of(engine)
    assert (failure.stage, failure.kind, failure.exit) == ("start", "crash", 127)
    assert "cannot run /does/not/exist" in failure.reason


def test_ticks_come_while_waiting_and_may_leave(fake_engine: Make, mark: Mark) -> None:
    ticks: list[float] = []

    def on_tick() -> None:
        ticks.append(time.monotonic())
        if len(ticks) == 4:
            raise RaceInterrupted

    with pytest.raises(RaceInterrupted), fake_engine("load-hang", on_tick=on_tick) as engine:
        engine.wait_ready(20)
    gaps = [later - earlier for earlier, later in itertools.pairwise(ticks)]
    assert all(0.15 < gap < 0.5 for gap in gaps)
    assert mark.pids() == {}


def test_a_large_request_passes_and_does_not_outlast_its_limit(fake_engine: Make) -> None:
    """The socket takes some 200 KB; the rest must neither block for ever nor get lost."""
    many = [list(range(500))] * 400
    with fake_engine() as engine:
        engine.wait_ready(20)
        scores = engine.ask("score", 20, input_ids=many, starts=[1] * len(many), concurrency=400)
        assert (len(scores), len(scores[0])) == (400, 499)
    with fake_engine("serve-hang") as engine:
        engine.wait_ready(20)
        assert engine._host._control is not None
        engine._host._control.send(
            {"id": 0, "op": "load", "args": {"input_ids": [[1]], "output_tokens": 1, "concurrency": 1}}
        )
        started_s = time.monotonic()
        with pytest.raises(EngineFailed):
            engine.ask("score", 1, input_ids=many, starts=[1] * len(many))
        assert time.monotonic() - started_s < 10, "and not for ever"


def test_the_overlay_wins_and_can_unset(fake_engine: Make, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text('["--enable-metrics", "--api-key", "s3cret"]')
    overlay = (
        "--port",
        "41000",
        "--no-enable-metrics",
        "--no-api-key",
        "--no-prefill-cuda-graph",
        "--no-such",
    )
    with fake_engine("well", "--config", str(config), "--port", "1", overlay=overlay) as engine:
        resolved = engine.wait_ready(20).resolved
    assert resolved["port"] == 41000
    assert resolved["enable_metrics"] is False
    assert resolved["api_key"] is None
    assert resolved["prefill_cuda_graph"] is False, "a twin that the parser has is left to it"


def test_the_parent_of_an_engine_may_be_signalled(fake_engine: Make) -> None:
    """SGLang's schedulers send SIGQUIT to their parent, which is the guard if the host is gone."""
    with fake_engine("serve-quit-parent") as engine:
        engine.wait_ready(20)
        for _ in range(3):
            engine.ask("load", 5, input_ids=[[1]], output_tokens=1, concurrency=1)


def test_what_is_asked_within_a_limit_shares_it(fake_engine: Make) -> None:
    with fake_engine() as engine:
        engine.wait_ready(20)
        with engine.within(0.5):
            engine.ask("flush", 20)
            started_s = time.monotonic()
            with pytest.raises(EngineFailed) as caught:
                engine.ask("load", 20, input_ids=[[1]], output_tokens=2000, concurrency=1)
        assert time.monotonic() - started_s < 10, "twenty are its own limit"
        assert caught.value.failure.kind == "hang"
    with fake_engine() as engine:
        engine.wait_ready(20)
        with engine.within(0.01):
            pass
        assert engine.ask("flush", 20) is True


def test_an_engine_knows_its_processes(fake_engine: Make, mark: Mark) -> None:
    engine = fake_engine()
    assert engine.pids == ()
    with engine:
        engine.wait_ready(20)
        living = mark.pids()
        assert len(living) >= 4 and set(living) <= set(engine.pids)
    assert engine.pids == ()


def test_an_attempt_that_is_refused_is_an_answer(fake_engine: Make) -> None:
    with fake_engine("serve-raise") as engine:
        engine.wait_ready(20)
        assert "attempt" in engine.facts["operations"]
        for _ in range(2):
            answer = engine.ask("attempt", 5, input_ids=[1], sampling={"max_new_tokens": 2})
            assert answer["error"].startswith("RuntimeError: Not enough memory")
        with pytest.raises(EngineFailed):
            engine.ask("load", 5, input_ids=[[1]], output_tokens=1, concurrency=1)


def test_killed_between_questions(fake_engine: Make, mark: Mark) -> None:
    with fake_engine() as engine:
        engine.wait_ready(20)
        hosts = [pid for pid, command in mark.pids().items() if "engine_host.py --control" in command]
        for pid in hosts:
            if "guard.py" not in mark.pids().get(pid, ""):
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineFailed) as caught:
            engine.ask("flush", 5)
        assert (caught.value.failure.kind, caught.value.failure.exit) == ("crash", -9)
    assert mark.pids() == {}


def test_no_descriptor_stays_open(fake_engine: Make) -> None:
    before = open_descriptors()
    with fake_engine() as engine:
        engine.wait_ready(20)
    assert open_descriptors() == before


def test_nothing_is_left_of_an_engine_that_cannot_be_started(tmp_path: Path) -> None:
    engine = Engine(
        Command(("python", "-m", "sglang.launch_server")),
        (),
        log=tmp_path / "log",
        environ={"TMPDIR": str(tmp_path)},
        cwd=tmp_path / "missing",
    )
    before = open_descriptors()
    with pytest.raises(OSError, match="missing"):
        engine.start()
    engine.close()
    assert open_descriptors() == before
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize("free", range(10))
def test_nothing_is_left_where_descriptors_run_out(fake_engine: Make, free: int, tmp_path: Path) -> None:
    engine = fake_engine()
    before = open_descriptors()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    next_fd = os.dup(0)
    os.close(next_fd)
    resource.setrlimit(resource.RLIMIT_NOFILE, (next_fd + free, limits[1]))
    try:
        with contextlib.suppress(OSError):
            engine.start()
        engine.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert open_descriptors() == before
    assert [path.name for path in tmp_path.iterdir() if path.name != "logs"] == []


@pytest.mark.parametrize("version", ["3.10", "3.12", "3.13"])
def test_sglang_may_have_another_python(fake_engine: Make, mark: Mark, version: str, tmp_path: Path) -> None:
    """The host is run by SGLang's interpreter, in which there is no autolaunch and nothing but Python."""
    python = shutil.which(f"python{version}")
    if python is None or subprocess.run([python, "-c", ""], check=False).returncode != 0:
        pytest.skip(f"no python{version}")
    engine = fake_engine("well")
    engine._python = python
    with engine:
        assert engine.wait_ready(20).resolved["version"] == "0.0.fake"
        assert engine.ask("score", 5, input_ids=[[1, 2, 3]], starts=[1]) == [[-1.0, -1.0]]
        load = engine.ask("load", 5, input_ids=[[1]] * 2, output_tokens=3, concurrency=2)
    assert len(load["requests"]) == 2


def test_only_launches_of_the_server_are_hosted() -> None:
    assert split_command(Command(("p", "-m", "sglang.launch_server", "--tp", "2"))) == ("p", ("--tp", "2"))
    with pytest.raises(ValueError, match="sglang serve"):
        split_command(Command(("sglang", "serve", "m")))


@pytest.mark.parametrize(
    "program",
    [
        host_process.ENGINE_HOST,
        host_process.ENGINE_HOST.with_name("operations.py"),
        Path(host_process.__file__).with_name("guard.py"),
        *Path(host_process.__file__).with_name("guarding").glob("*.py"),
    ],
)
def test_programs_are_written_for_old_interpreters(program: Path) -> None:
    ast.parse(program.read_text(), feature_version=(3, 10))
