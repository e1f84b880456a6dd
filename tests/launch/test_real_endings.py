"""How a real SGLang ends before health, and what the next start is told: its own fault, or somebody's wish."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autolaunch.candidates.candidate import Candidate
from autolaunch.command import Command
from autolaunch.launch import attempts
from autolaunch.launch.instructions import watcher_argv
from autolaunch.launch.mistrust import end_of, verdict
from autolaunch.launch.watching.orders import Orders
from tests.conftest import SmallModel
from tests.launch.harness import wait_until
from tests.real_server import SMALL_SERVER_FLAGS, RealServer, server_environment

pytestmark = [pytest.mark.sglang, pytest.mark.slow]

CHOICE = Candidate("c1", ("--attention-backend", "planted"))
Start = Callable[..., tuple[RealServer, Callable[[], attempts.Attempt]]]


@pytest.fixture(autouse=True)
def deaf_to_orphans() -> Iterator[None]:
    """A scheduler of SGLang's sends SIGQUIT to its parent when it fails, whoever has adopted it by then."""
    before = signal.signal(signal.SIGQUIT, lambda *_: None)
    yield
    signal.signal(signal.SIGQUIT, before)


@pytest.fixture
def start(
    sglang_python: str,
    small_model: SmallModel,
    free_port: int,
    tmp_path: Path,
    start_server: Callable[..., RealServer],
) -> Start:
    """Starts SGLang for the small model with a watcher beside it, as after the exec."""

    def begin(*flags: str) -> tuple[RealServer, Callable[[], attempts.Attempt]]:
        argv = [
            *(sglang_python, "-m", "sglang.launch_server", "--model-path", str(small_model)),
            *(*SMALL_SERVER_FLAGS, "--port", str(free_port), *flags),
        ]
        command = Command(tuple(argv))
        ticket = attempts.begin(tmp_path / "attempts", command, pid=2**22 + 1, verify="on")  # nobody's
        attempts.record_choice(ticket, command, CHOICE)
        orders = Orders(port=free_port, flags=CHOICE.flags)
        *watcher, descriptor = watcher_argv(attempts.Ticket(ticket.record, ticket.attempt, 0), orders)
        told = tmp_path / "orders"
        told.write_bytes(os.read(int(descriptor), 1 << 20))
        os.close(int(descriptor))
        words = shlex.join(watcher).replace("--pid 0", "--pid $$")
        # The shell keeps SIGINT and SIGQUIT from what it puts in the background, the launcher SIGHUP too.
        script = f"(trap '' HUP; exec {words} 3 3<{told}) & exec {shlex.join(argv)}"
        server = start_server(["sh", "-c", script], port=free_port, environ=server_environment())

        def seen() -> attempts.Attempt:
            return attempts.history(tmp_path / "attempts", command)[-1]

        return server, seen

    return begin


@pytest.mark.parametrize(
    ("flags", "status"),
    [
        (("--attention-backend", "fa3"), "failed"),  # its scheduler fails, and it kills all of its own
        (("--attention-backend", "trtllm_mha"), "failed"),  # it is refused by checks in the main process
        (("--attention-backend", "no-such-backend"), "failed"),  # it is refused by its parser
        (("--tp", "2"), "failed"),
    ],
)
def test_a_choice_that_cannot_run_has_failed(flags: tuple[str, ...], status: str, start: Start) -> None:
    server, seen = start(*flags)
    server.wait_exit(120)
    wait_until(lambda: seen().ended is not None, 10, "somebody saw how it ended")
    assert seen().healthy is None
    assert end_of(seen()) == "own", seen()
    assert [one.status for one in verdict([seen()]).mistrusted] == [status]
    assert server.leftovers() == []


@pytest.mark.parametrize("moment_s", [2.0, 6.0, 10.0])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_people_end_is_a_wish(number: signal.Signals, moment_s: float, start: Start) -> None:
    server, seen = start()
    time.sleep(moment_s)
    if number == signal.SIGINT:
        os.killpg(server.pid, number)  # as a terminal does
    else:
        server.send(number)
    server.wait_exit(30)
    wait_until(lambda: seen().ended is not None, 10, "somebody saw how it ended")
    assert (seen().healthy, end_of(seen())) == (None, "wish"), seen()
    assert verdict([seen()]).mistrusted == ()
    assert server.leftovers() == []


def test_nobody_can_say_who_kills(start: Start) -> None:
    server, seen = start()
    time.sleep(8)
    server.send(signal.SIGKILL)
    server.wait_exit(10)
    wait_until(lambda: seen().ended is not None, 10, "the watcher saw it")
    assert (seen().ended, seen().gave_up, end_of(seen())) == ("SIGKILL", False, "unclear")
    assert [one.status for one in verdict([seen()]).mistrusted] == ["suspect"]
    assert server.leftovers() == []


def test_a_server_that_is_stopped_once_it_is_healthy_is_no_suspect(start: Start) -> None:
    server, seen = start()
    server.wait_healthy()
    server.stop(signal.SIGTERM)
    assert verdict([seen()]).mistrusted == ()
    assert server.leftovers() == []


def test_a_ctrl_c_while_its_first_answers_are_judged_says_nothing_against_it(start: Start) -> None:
    server, seen = start()
    server.wait_healthy()
    os.killpg(server.pid, signal.SIGINT)
    server.wait_exit(60)
    assert verdict([seen()]).mistrusted == ()
    assert server.leftovers() == []
