"""The watcher: what it believes, what it writes, and that it never outlives or holds up the server."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autolaunch.candidates.candidate import Candidate
from autolaunch.command import Command
from autolaunch.launch import attempts
from autolaunch.launch.attempt_record import before_of, is_held
from autolaunch.launch.instructions import watcher_argv
from autolaunch.launch.watching import health
from autolaunch.launch.watching.client import Client
from autolaunch.launch.watching.health import Health, wait_until_healthy
from autolaunch.launch.watching.orders import Orders
from autolaunch.launch.watching.server import Server
from tests.launch.harness import HERE, wait_until
from tests.real_server import become_subreaper

COMMAND = Command(("/usr/bin/python3", "-m", "sglang.launch_server", "--model-path", "org/model"))
CHOICE = Candidate("c1", ("--disable-overlap-schedule",))


class Watched:
    """A fake server with the watcher as its child, as after the exec."""

    def __init__(
        self,
        folder: Path,
        port: int,
        *words: str,
        host: str = "127.0.0.1",
        ssl: bool = False,
        server: str = "fake_server.py",
        orders: Orders | None = None,
    ) -> None:
        self.folder = folder
        orders = replace(orders or Orders(flags=CHOICE.flags), host=host, port=port, tls=ssl)
        nobody = 2**22 + 1
        ticket = attempts.begin(folder, COMMAND, pid=nobody, host=host, port=port, verify=orders.verify)
        attempts.record_choice(ticket, COMMAND, CHOICE)
        self.ticket = ticket
        argv = watcher_argv(attempts.Ticket(ticket.record, ticket.attempt, 0), orders)
        watcher = shlex.join(argv)
        server = shlex.join([sys.executable, str(HERE / server), str(port), *words])
        # The shell keeps SIGINT and SIGQUIT from what it puts in the background, the launcher SIGHUP too.
        watcher = f"(trap '' HUP; exec {watcher})"
        script = f"{watcher.replace('--pid 0', '--pid $$')} & exec {server}"
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["sh", "-c", script], stdout=log, stderr=log, start_new_session=True, pass_fds=[int(argv[-1])]
            )
        os.close(int(argv[-1]))
        wait_until(self._find, 10, "the watcher runs")

    def _find(self) -> bool:
        for child in psutil.Process(self.process.pid).children():
            if any(word.endswith("watch.py") for word in child.cmdline()):
                self.watcher = child
                return True
        return False

    @property
    def attempt(self) -> attempts.Attempt:
        """What the record says."""
        return attempts.history(self.folder, COMMAND)[-1]

    @property
    def is_healthy(self) -> bool:
        """Whether the record says so."""
        return self.attempt.healthy is not None

    def wait_healthy(self) -> None:
        """Wait for the record to say so."""
        wait_until(lambda: self.is_healthy, 20, f"recorded as healthy; {self.log.read_text()}")

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the server; the watcher must follow at once."""
        self.process.send_signal(number)
        self.process.wait(20)
        wait_until(lambda: not is_alive(self.watcher), 5, "the watcher ended with the server")


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def watch(tmp_path: Path, free_port: int) -> Iterator[Callable[..., Watched]]:
    """Starts `Watched`, and leaves nothing of it."""
    started: list[Watched] = []

    def start(*words: str, **options: object) -> Watched:
        started.append(Watched(tmp_path, free_port, *words, **options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for one in started:
        for process in (
            psutil.Process(one.process.pid).children(recursive=True) if one.process.poll() is None else []
        ):
            process.kill()
        one.process.kill()
        one.process.wait()


def test_a_healthy_server_is_recorded_once_and_the_watcher_then_holds_its_lifeline_alone(
    watch: Callable[..., Watched],
) -> None:
    watched = watch("--after", "1")
    alive = watched.ticket.record.with_name(f"{watched.ticket.record.stem}.{watched.ticket.attempt}.alive")
    wait_until(alive.exists, 5, "the lifeline is there")
    wait_until(lambda: not before_of(watched.ticket.record).exists(), 5, "the record is on disk")
    assert not watched.is_healthy
    watched.wait_healthy()
    wait_until(lambda: "healthy, " in watched.log.read_text(), 5, "it says so")
    assert watched.log.read_text().startswith("autolaunch: the server is healthy, ")
    fds = Path(f"/proc/{watched.watcher.pid}/fd")
    wait_until(lambda: str((fds / "2").readlink()) == "/dev/null", 5, "stderr is given up")
    held = {str(fd.readlink()) for fd in fds.iterdir()}
    assert held - {"anon_inode:[pidfd]"} == {"/dev/null", str(alive)}
    assert is_held(alive)
    assert Path(f"/proc/{watched.watcher.pid}/cwd").readlink() == Path("/")
    assert os.getpgid(watched.watcher.pid)
    watched.end(signal.SIGTERM)
    assert not alive.exists()
    assert attempts.verdict(attempts.history(watched.folder, COMMAND)).suspects == frozenset()


@pytest.mark.parametrize("status", ["503", "500", "302"])
def test_another_status_is_not_health(status: str, watch: Callable[..., Watched]) -> None:
    watched = watch("--status", status)
    with pytest.raises(AssertionError):
        wait_until(lambda: watched.is_healthy, 2, "never")
    watched.end()
    assert attempts.verdict(attempts.history(watched.folder, COMMAND)).suspects == {CHOICE.flags}


def test_another_server_on_the_port_proves_nothing(watch: Callable[..., Watched], free_port: int) -> None:
    other = subprocess.Popen([sys.executable, str(HERE / "fake_server.py"), str(free_port)])
    try:
        watched = watch("--after", "600")
        with pytest.raises(AssertionError):
            wait_until(lambda: watched.is_healthy, 2.5, "never")
        watched.end()
    finally:
        other.kill()
        other.wait()


class Ended(Server):
    """A server that ended within the watcher's first wait, and what it had started."""

    def __init__(self, *left: int) -> None:
        self.pid = 2**22 + 1  # nobody's
        self._left = list(left)

    def wait(self, limit_s: float | None) -> bool:
        """At once."""
        return True

    def look(self) -> list[int]:
        """What is seen of it."""
        return [self.pid]

    def left(self) -> list[int]:
        """What it left."""
        return self._left


def test_a_server_that_ends_at_once_since_its_port_is_taken_has_an_excuse(free_port: int) -> None:
    client, orders = Client("127.0.0.1", free_port, tls=False), Orders(port=free_port)

    def ended() -> Health:
        return wait_until_healthy(Ended(), client, orders, lambda: None)

    assert ended() == Health(None, listened=False, occupied=False)
    with socket.create_server(("127.0.0.1", free_port)):
        assert ended() == Health(None, listened=False, occupied=True)


def test_what_an_ended_server_left_listening_is_no_excuse(
    free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = iter([False, True])  # it bound its port after the first look
    monkeypatch.setattr(health, "is_taken", lambda _port: next(taken))
    with socket.create_server(("127.0.0.1", free_port)):
        client, orders = Client("127.0.0.1", free_port, tls=False), Orders(port=free_port)
        found = wait_until_healthy(Ended(os.getpid()), client, orders, lambda: None)
    assert not found.occupied


def test_a_server_that_ended_before_its_watcher_looked_has_that_excuse_too(
    tmp_path: Path, free_port: int
) -> None:
    def watched() -> attempts.Attempt:
        ticket = attempts.begin(tmp_path, COMMAND, pid=2**22 + 1)
        argv = watcher_argv(ticket, Orders(port=free_port))
        assert subprocess.run(argv, timeout=60, pass_fds=[int(argv[-1])]).returncode == 0
        os.close(int(argv[-1]))
        return attempts.history(tmp_path, COMMAND)[-1]

    assert watched().excuse is None
    with socket.create_server(("127.0.0.1", free_port)):
        assert watched().excuse == "another process listened on its port"


def test_a_descendant_may_be_the_one_that_listens(watch: Callable[..., Watched]) -> None:
    watched = watch("--grandchild-listens")
    watched.wait_healthy()


@pytest.mark.parametrize(
    ("listen", "told"), [("0.0.0.0", "0.0.0.0"), ("::", "::"), ("127.0.0.1", "localhost"), ("127.0.0.1", "")]
)
def test_every_address_is_reached(listen: str, told: str, watch: Callable[..., Watched]) -> None:
    if listen == "::" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    watch("--host", listen, host=told).wait_healthy()


def test_tls_is_spoken_without_asking_for_a_certificate(
    watch: Callable[..., Watched], tmp_path: Path
) -> None:
    key = tmp_path / "key.pem"
    make = (
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=test -keyout {key} -out {tmp_path}/cert"
    )
    if subprocess.run(make.split(), capture_output=True).returncode != 0:
        pytest.skip("no openssl here")
    key.write_text(key.read_text() + (tmp_path / "cert").read_text())
    watch("--ssl", str(key), ssl=True).wait_healthy()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_what_a_server_leaves_that_ends_before_health_is_ended(
    number: signal.Signals, watch: Callable[..., Watched]
) -> None:
    watched = watch("--child", "--after", "600")
    server = psutil.Process(watched.process.pid)
    wait_until(lambda: len(server.children()) == 2, 10, "the helper runs")
    (helper,) = (child for child in server.children() if child.pid != watched.watcher.pid)
    time.sleep(1)  # the watcher looks twice a second
    watched.end(number)
    wait_until(lambda: not is_alive(helper), 5, "the helper was ended")


def sleepers() -> set[int]:
    """PIDs of the helpers that belong to this test, orphans included."""
    children = psutil.Process().children(recursive=True)
    lines = {process.pid: process.cmdline() for process in children if is_alive(process)}
    return {pid for pid, line in lines.items() if line and "time.sleep(600)" in line[-1]}


def test_what_a_server_starts_in_its_last_moment_is_ended_and_nothing_else(
    watch: Callable[..., Watched],
) -> None:
    become_subreaper()
    code = "import multiprocessing, time; time.sleep(600)"
    bystander = subprocess.Popen([sys.executable, "-c", code])
    try:
        watched = watch("--last-words")
        assert watched.process.wait(20) == -signal.SIGKILL
        wait_until(lambda: not is_alive(watched.watcher), 5, "the watcher ended")
        wait_until(lambda: sleepers() == {bystander.pid}, 1, "only the bystander is left")
    finally:
        bystander.kill()
        bystander.wait()
        for pid in sleepers():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def test_after_health_the_server_looks_after_its_own(watch: Callable[..., Watched]) -> None:
    watched = watch("--child")
    watched.wait_healthy()
    (helper,) = (c for c in psutil.Process(watched.process.pid).children() if c.pid != watched.watcher.pid)
    watched.end(signal.SIGKILL)
    assert is_alive(helper)
    helper.kill()


def test_what_is_meant_for_the_terminal_does_not_end_the_watcher(watch: Callable[..., Watched]) -> None:
    watched = watch("--after", "2")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        watched.watcher.send_signal(number)
    watched.wait_healthy()


def test_a_watcher_whose_server_is_gone_ends_at_once(tmp_path: Path) -> None:
    ticket = attempts.begin(tmp_path, COMMAND, pid=1)
    argv = watcher_argv(attempts.Ticket(ticket.record, ticket.attempt, 1), Orders(port=1))
    assert subprocess.run(argv, timeout=10, pass_fds=[int(argv[-1])]).returncode == 0
    os.close(int(argv[-1]))


def test_a_record_that_cannot_be_written_is_said_once_and_tried_again(
    watch: Callable[..., Watched], tmp_path: Path
) -> None:
    watched = watch("--after", "1")
    watched.ticket.record.unlink()
    wait_until(lambda: "could not record in" in watched.log.read_text(), 20, "it complains")
    watched.end()


def test_a_record_of_a_newer_version_keeps_what_is_not_understood(watch: Callable[..., Watched]) -> None:
    watched = watch("--after", "1.5")
    data = json.loads(watched.ticket.record.read_text())
    data["attempts"][0]["later"] = {"x": 1}
    watched.ticket.record.write_text(json.dumps(data))
    watched.wait_healthy()
    assert json.loads(watched.ticket.record.read_text())["attempts"][0]["later"] == {"x": 1}
