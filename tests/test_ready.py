"""`autolaunch ready`: what a probe is told, in every state of a server."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autolaunch.candidates.candidate import Candidate
from autolaunch.command import Command
from autolaunch.launch import attempts
from autolaunch.launch.attempt_record import Answers, Attempt, is_held, lifeline_of, locked, write_record
from autolaunch.launch.watching.record import Record
from autolaunch.ready import Readiness, look
from tests.launch.harness import HERE, environment, wait_until

COMMAND = Command(("/usr/bin/python3", "-m", "sglang.launch_server", "--model-path", "org/model"))
CHOICE = Candidate("c1", ("--disable-overlap-schedule",))
THEN = "2026-12-01T00:00:00+00:00"


class Start:
    """A start of this very process, whose record says what it is told to."""

    def __init__(
        self, folder: Path, port: int, *, command: Command = COMMAND, pid: int | None = None
    ) -> None:
        self.folder = folder
        self._command = command
        self.ticket = attempts.begin(
            folder, command, pid=os.getpid() if pid is None else pid, host="127.0.0.1", port=port, verify="on"
        )

    def says(self, **fields: Any) -> None:
        """Let the record say `fields` of it."""
        attempts.record_choice(self.ticket, self._command, CHOICE)
        with locked(self.ticket.record):
            known = attempts.history(self.folder, self._command)
            told = [replace(one, **fields) if one.id == self.ticket.attempt else one for one in known]
            write_record(self.ticket.record, self._command, told)

    def watch(self) -> None:
        """Hold the watcher's lifeline, in a process that lives as long as this one."""
        path = lifeline_of(self.ticket.record, self.ticket.attempt)
        code = (
            "import fcntl, sys, time; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX);"
            " print('held', flush=True); sys.stdin.read()"
        )
        self.watcher = subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.watcher.stdout is not None
        self.watcher.stdout.readline()


@pytest.fixture
def start(tmp_path: Path, free_port: int) -> Iterator[Start]:
    """A start whose watcher lives."""
    one = Start(tmp_path / "attempts", free_port)
    one.watch()
    yield one
    one.watcher.communicate()


STATES = [
    ({}, "starting", False),
    ({"healthy": THEN}, "verifying", False),
    ({"healthy": THEN, "verify": "off"}, "healthy", True),
    ({"healthy": THEN, "verdict": Answers("unasked", "an embedding model")}, "healthy", True),
    ({"healthy": THEN, "verified": THEN, "verdict": Answers("verified")}, "verified", True),
    ({"healthy": THEN, "verdict": Answers("warned", "loops", "garbage")}, "warned", True),
    ({"healthy": THEN, "verdict": Answers("quarantined", "loops", "garbage")}, "quarantined", False),
]


@pytest.mark.parametrize(
    ("fields", "state", "is_ready"), STATES, ids=[row[1] + str(at) for at, row in enumerate(STATES)]
)
def test_each_state(fields: dict[str, Any], state: str, is_ready: bool, start: Start, free_port: int) -> None:
    start.says(**fields)
    for found in (look(start.folder), look(start.folder, port=free_port)):
        assert (found.state, found.is_ready, found.source, found.port) == (
            state,
            is_ready,
            "record",
            free_port,
        )


def test_a_watcher_is_known_by_its_argv_where_files_cannot_be_locked(tmp_path: Path, free_port: int) -> None:
    """A server that answers is not ready before its watcher has judged it."""
    one = Start(tmp_path / "attempts", free_port)
    one.says()
    argv = [sys.executable, "-c", "import sys; sys.stdin.read()", "--attempt", one.ticket.attempt]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as watcher:
        found = look(one.folder)
        watcher.communicate()
    assert (found.state, found.source) == ("starting", "record")
    assert look(one.folder).source == "health"  # nobody watches it any more


def test_a_start_that_decides(start: Start) -> None:
    found = look(start.folder)
    assert (found.state, found.is_ready) == ("deciding", False)


def test_the_newest_start_that_runs_is_meant(start: Start, free_port: int) -> None:
    start.says(healthy=THEN, verified=THEN, started="2026-01-01T00:00:00+00:00")
    other = Start(start.folder, free_port, command=Command(("/usr/bin/python3", "other")))
    assert look(start.folder, port=free_port).state == "deciding"
    other.says(port=free_port + 1, healthy=THEN, verify="off")
    assert look(start.folder, port=free_port).state == "verified"
    assert look(start.folder).port == free_port + 1


def test_who_asks_is_taken_for_no_watcher(tmp_path: Path) -> None:
    lifeline = tmp_path / "a.b.alive"
    lifeline.touch()
    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(lambda _: is_held(lifeline), range(400)))


def test_a_watcher_gets_its_lifeline_however_often_others_ask(tmp_path: Path) -> None:
    for number in range(50):
        record = tmp_path / f"{number}.json"
        path = lifeline_of(record, "b")
        path.touch()
        with ThreadPoolExecutor(2) as pool:
            asking = [pool.submit(lambda path=path: [is_held(path) for _ in range(20)]) for _ in range(2)]
            with Record(record, "b", print).lifeline():
                wait(asking)
                assert is_held(path)


def test_what_is_no_record_is_passed_over(start: Start) -> None:
    (start.folder / "a.json").write_text("{")
    (start.folder / "b.json").mkdir()
    (start.folder / "c.json").symlink_to("c.json")
    start.says(healthy=THEN, verified=THEN)
    assert look(start.folder).state == "verified"


@pytest.mark.parametrize(
    ("name", "value"), [("started", None), ("started", 5), ("port", "evil"), ("host", 5), ("id", "a\0b")]
)
def test_a_record_whose_fields_are_of_another_kind_is_passed_over(
    name: str, value: Any, start: Start, free_port: int
) -> None:
    start.says(healthy=THEN, verified=THEN)
    data = json.loads(start.ticket.record.read_text())
    data["attempts"][0][name] = value
    (start.folder / "odd.json").write_text(json.dumps(data))
    assert look(start.folder).state == "verified"
    start.ticket.record.unlink()
    found = look(start.folder, port=free_port)
    assert (found.state, found.source, found.port) == ("gone", "health", free_port)


def test_what_a_person_reads_is_one_line_of_letters() -> None:
    found = Readiness("quarantined", 1, "a\x1b[31m \n\ud83d b")
    assert found.to_text() == "not ready: port 1 is quarantined; a [31m b"


def test_a_server_that_is_gone(tmp_path: Path, free_port: int) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    one = Start(tmp_path, free_port, pid=process.pid)
    one.says(healthy=THEN, verified=THEN)
    assert look(tmp_path, port=free_port).state == "verified"
    process.communicate(b"\n")
    found = look(tmp_path, port=free_port)
    assert (found.state, found.is_ready, found.source) == ("gone", False, "health")


@pytest.fixture
def plain(free_port: int, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    """A server of which nothing is recorded."""
    server = subprocess.Popen([sys.executable, str(HERE / "fake_server.py"), str(free_port)])
    yield
    server.kill()
    server.wait()


def test_where_nothing_is_recorded_the_server_is_asked(plain: None, tmp_path: Path, free_port: int) -> None:
    wait_until(lambda: look(tmp_path / "none", port=free_port).is_ready, 20, "it is healthy")
    found = look(tmp_path / "none", port=free_port)
    assert (found.state, found.source) == ("healthy", "health")


def test_one_whose_watcher_was_killed_is_asked_too(plain: None, tmp_path: Path, free_port: int) -> None:
    one = Start(tmp_path, free_port)
    one.says(healthy=THEN)
    wait_until(lambda: look(tmp_path).is_ready, 20, "it is healthy")
    found = look(tmp_path)
    assert (found.state, found.source) == ("healthy", "health")


def run(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "autolaunch", "ready", *words],
        env=environment(AUTOLAUNCH_HOME=str(home)),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_command_says_it_by_its_exit_code(tmp_path: Path, free_port: int) -> None:
    folder = tmp_path / "state" / "attempts"
    one = Start(folder, free_port)
    one.says(healthy=THEN, verified=THEN)
    done = run("--port", str(free_port), home=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"ready: port {free_port} is verified since {THEN}\n")
    one.says(verified=None, verdict=Answers("quarantined", "4 of 4 answers are `!!!!`", "garbage"))
    done = run("--port", str(free_port), "--format", "json", home=tmp_path)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "schema": "autolaunch.ready/1",
        "ready": False,
        "state": "quarantined",
        "port": free_port,
        "reason": "4 of 4 answers are `!!!!`",
        "since": None,
        "source": "record",
    }
    assert run("--port", "0", home=tmp_path).returncode == 2


def test_it_is_quick(tmp_path: Path, free_port: int) -> None:
    """Within 0.2 s of what a Python takes to start, imports included; a probe may come every second."""
    folder = tmp_path / "state" / "attempts"
    one = Start(folder, free_port)
    one.says(healthy=THEN, verified=THEN)
    for number in range(50):
        other = Start(
            folder, free_port + 1, command=Command(("/usr/bin/python3", str(number))), pid=2**22 + 1
        )
        assert isinstance(attempts.history(folder, COMMAND)[-1], Attempt), other

    def seconds(*argv: str) -> float:
        """Of a processor, which others that use the machine add nothing to."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *argv], env=environment(AUTOLAUNCH_HOME=str(tmp_path)), check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    bare = min(seconds("-c", "pass") for _ in range(5))
    asked = min(seconds("-m", "autolaunch", "ready", "--port", str(free_port)) for _ in range(5))
    assert asked - bare < 0.2
