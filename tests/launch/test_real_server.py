"""The same promises on a real SGLang: the process, its signals, its exit code, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import SmallModel
from tests.launch.harness import wait_until
from tests.launch.test_signals import may_unshare
from tests.real_server import SMALL_SERVER_FLAGS, RealServer, server_environment

pytestmark = [pytest.mark.sglang, pytest.mark.slow]

ONE_OPEN = ("--attention-backend", "torch_native", "--disable-radix-cache")
"""Pins that leave one dimension to the race, so that two engines are enough."""


@pytest.fixture(autouse=True)
def deaf_to_orphans() -> Iterator[None]:
    """A scheduler of SGLang's sends SIGQUIT to its parent when it fails, whoever has adopted it by then."""
    before = signal.signal(signal.SIGQUIT, lambda *_: None)
    yield
    signal.signal(signal.SIGQUIT, before)


@pytest.fixture
def argv(sglang_python: str, small_model: SmallModel, free_port: int) -> list[str]:
    """`autolaunch serve` for the small model, without options of its own."""
    return [
        *(sys.executable, "-m", "autolaunch", "serve", str(small_model), "--python", sglang_python),
        *(*SMALL_SERVER_FLAGS, "--port", str(free_port)),
    ]


def listener(port: int) -> int:
    """The PID of the process that listens on `port`."""
    (pid,) = {
        link.pid
        for link in psutil.net_connections("tcp4")
        if link.laddr.port == port and link.status == psutil.CONN_LISTEN
    }
    return int(pid or 0)


def environ_of(pid: int) -> dict[str, str]:
    """The environment that process `pid` was exec'ed with."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


def answers_right(server: RealServer, model: SmallModel) -> bool:
    """Whether the server says what the small model was taught."""
    question, answer = next(iter(model.answers.items()))
    return server.chat(question) == answer


def test_a_raced_server_is_the_process_that_was_started(
    argv: list[str],
    small_model: SmallModel,
    free_port: int,
    start_server: Callable[..., RealServer],
    isolated_home: Path,
) -> None:
    stdin, writer = os.pipe()
    os.write(writer, b"for the server alone")
    environ = server_environment({"MARKER": "here"})
    server = start_server([*argv, *ONE_OPEN, "--budget", "4m"], port=free_port, environ=environ, stdin=stdin)
    server.wait_healthy(360)
    assert answers_right(server, small_model)
    assert listener(free_port) == server.pid
    command = psutil.Process(server.pid).cmdline()
    assert command[1:3] == ["-m", "sglang.launch_server"]
    assert environ_of(server.pid) == environ
    assert os.readlink(f"/proc/{server.pid}/fd/0") == os.readlink(f"/proc/self/fd/{stdin}")  # noqa: PTH115
    assert os.read(stdin, 64) == b"for the server alone"
    assert "autolaunch: racing the original command and 1 others" in server.output()
    (record,) = isolated_home.glob("state/attempts/*.json")
    wait_until(lambda: json.loads(record.read_text())["attempts"][-1]["healthy"], 30, "recorded as healthy")
    assert server.stop(signal.SIGTERM) == 0
    assert server.leftovers() == []
    os.close(stdin)
    os.close(writer)


def test_sigint_is_the_servers(
    argv: list[str], small_model: SmallModel, free_port: int, start_server: Callable[..., RealServer]
) -> None:
    server = start_server([*argv, "--tune", "off"], port=free_port)
    server.wait_healthy()
    assert answers_right(server, small_model)
    # A plain SGLang 0.5.21 gives either, depending on which of uvicorn's handlers comes first (2026-11-30).
    assert server.stop(signal.SIGINT) in (1, -signal.SIGINT)
    assert "KeyboardInterrupt" in server.output()
    assert server.leftovers() == []


def test_as_pid_1_sigterm_ends_it_in_order(
    argv: list[str], small_model: SmallModel, free_port: int, start_server: Callable[..., RealServer]
) -> None:
    if not may_unshare():
        pytest.skip("PID namespaces are not permitted here")
    prefix = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    server = start_server([*prefix, *argv, "--budget", "1s"], port=free_port)
    server.wait_healthy()
    assert answers_right(server, small_model)
    (inner,) = psutil.Process(server.pid).children()
    assert listener(free_port) == inner.pid
    status = Path(f"/proc/{inner.pid}/status").read_text()
    assert "NSpid:\t" + f"{inner.pid}\t1\n" in status
    inner.send_signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    assert server.leftovers() == []


def test_the_exit_code_is_the_servers(argv: list[str], sglang_python: str) -> None:
    """SGLang's own parser speaks, not autolaunch's."""
    done = subprocess.run(
        [*argv, "--tune", "off", "--attention-backend", "nonsense"],
        env=server_environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "argument --attention-backend: invalid choice: 'nonsense'" in done.stderr


MOMENTS = [
    *[("3m", moment_s) for moment_s in (0.1, 0.6, 2.0, 5.0, 9.0, 13.0)],  # engines of the race
    *[("1s", moment_s) for moment_s in (4.0, 8.0, 12.0, 15.0)],  # the server itself, on its way to health
]


@pytest.mark.parametrize(("budget", "moment_s"), MOMENTS)
def test_sigterm_at_ten_moments_from_argv_to_health_leaves_no_process(
    budget: str,
    moment_s: float,
    argv: list[str],
    free_port: int,
    start_server: Callable[..., RealServer],
) -> None:
    """A plain SGLang that is ended 12 s after its start leaves its scheduler, detokenizer and tracker."""
    server = start_server([*argv, "--budget", budget], port=free_port)
    time.sleep(moment_s)
    assert server.stop(signal.SIGTERM) in (-signal.SIGTERM, 0)
    assert server.leftovers() == []
