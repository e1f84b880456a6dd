"""Signals before the exec: what the user sees, and that no process is left."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.launch.harness import DRIVER, Launch, environment, wait_until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL])
@pytest.mark.parametrize("decision", ["hangs", "hangs_deaf", "guarded_hang"])
def test_a_signal_while_it_is_decided_ends_everything_by_that_signal(
    number: signal.Signals, decision: str, tmp_path: Path
) -> None:
    started = Launch(decision, tmp_path / "probe", env=environment(LIMIT="60"))
    started.wait_for("hanging")
    started.process.send_signal(number)
    outcome = started.wait()
    assert (outcome.code, outcome.server, outcome.stdout, outcome.stderr) == (-number, None, "", "")
    assert started.leftovers() == []
    if decision == "guarded_hang":
        assert started.wait_for("guard-ended")


def test_the_first_interrupt_asks_for_the_best_so_far(tmp_path: Path) -> None:
    started = Launch("interruptible", tmp_path / "probe")
    started.wait_for("racing")
    started.process.send_signal(signal.SIGINT)
    outcome = started.wait()
    assert (outcome.code, outcome.server) == (0, "choice")


def test_the_second_interrupt_ends_everything(tmp_path: Path) -> None:
    started = Launch("hangs", tmp_path / "probe", env=environment(LIMIT="60"))
    started.wait_for("hanging")
    started.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert started.process.poll() is None
    started.process.send_signal(signal.SIGINT)
    assert started.wait().code == -signal.SIGINT
    assert started.leftovers() == []


def test_an_interrupt_that_nothing_answers_has_a_limit(tmp_path: Path) -> None:
    env = environment(LIMIT="60", INTERRUPT_LIMIT="0.5")
    started = Launch("hangs", tmp_path / "probe", env=env)
    started.wait_for("hanging")
    started.process.send_signal(signal.SIGINT)
    outcome = started.wait(20)
    assert outcome.server == "original"
    assert "the stage `race` took longer than 0.5 s" in outcome.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_that_the_caller_ignores_ends_nothing(number: signal.Signals, tmp_path: Path) -> None:
    prefix = ["sh", "-c", f'trap "" {number.name[3:]}; exec "$@"', "sh"]
    started = Launch("hangs", tmp_path / "probe", env=environment(LIMIT="1"), prefix=prefix)
    started.wait_for("hanging")
    started.process.send_signal(number)
    started.process.send_signal(number)
    outcome = started.wait()
    assert (outcome.code, outcome.server) == (0, "original")


def test_ctrl_c_on_a_terminal_reaches_the_launcher_alone(tmp_path: Path) -> None:
    import pty

    target = tmp_path / "probe"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, str(DRIVER), "interruptible", str(target)], environment())
    wait_until(Path(f"{target}.racing").exists, 20, "the decision runs")
    os.write(terminal, b"\x03")
    wait_until(target.exists, 20, "the server started")
    assert '"choice"' in target.read_text()
    os.waitpid(pid, 0)
    os.close(terminal)


def test_a_deciding_process_that_is_killed_ends_in_the_original(tmp_path: Path) -> None:
    started = Launch("guarded_hang", tmp_path / "probe", env=environment(LIMIT="60"))
    deciding = int(started.wait_for("hanging").read_text())
    os.kill(deciding, signal.SIGKILL)
    outcome = started.wait()
    assert outcome.server == "original"
    assert "was ended by SIGKILL" in outcome.stderr
    assert started.leftovers() == []


def test_a_launcher_that_is_suspended_for_longer_than_the_limit_reads_what_came_meanwhile(
    tmp_path: Path,
) -> None:
    started = Launch("slow_choice", tmp_path / "probe")
    started.wait_for("deciding")
    started.process.send_signal(signal.SIGSTOP)
    time.sleep(2.5)
    started.process.send_signal(signal.SIGCONT)
    assert started.wait().server == "choice"


def test_time_for_which_all_of_it_was_frozen_does_not_count(tmp_path: Path) -> None:
    started = Launch("slow_choice", tmp_path / "probe")
    deciding = int(started.wait_for("deciding").read_text())
    for number in (signal.SIGSTOP, signal.SIGCONT):
        os.kill(started.process.pid, number)
        os.kill(deciding, number)
        time.sleep(3 if number is signal.SIGSTOP else 0)
    assert started.wait().server == "choice"


@pytest.mark.parametrize("seed", range(20))
def test_a_signal_at_any_moment_leaves_no_process(seed: int, tmp_path: Path) -> None:
    """From the start of Python to the middle of the server's life, at times drawn from the whole span."""
    draw = random.Random(seed)
    number = draw.choice([signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGQUIT])
    decision = draw.choice(["guarded_choice", "watched", "guarded_hang"])
    started = Launch(decision, tmp_path / "probe", "--sleep", "30", env=environment(LIMIT="60"))
    time.sleep(draw.uniform(0.0, 1.2))
    started.process.send_signal(number)
    assert started.wait(20).code == -number
    assert started.leftovers() == []


def may_unshare() -> bool:
    """Whether this machine lets us make a PID namespace."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return (
        shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0
    )


class TestAsPid1:
    """In a container the launcher is PID 1: default actions are spared it, and orphans fall to it."""

    PREFIX = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")

    @pytest.fixture(autouse=True)
    def needs_namespace(self) -> None:
        """Skips where PID namespaces are not permitted."""
        if not may_unshare():
            pytest.skip("PID namespaces are not permitted here")

    def inside(self, started: Launch) -> int:
        """The PID, seen from here, of PID 1 in there."""
        outer = psutil.Process(started.process.pid)
        wait_until(outer.children, 10, "unshare forked")
        return int(outer.children()[0].pid)

    @pytest.mark.parametrize("decision", ["guarded_choice", "guarded_hang", "keeps_pipe", "orphans"])
    def test_the_server_is_pid_1_with_no_child_and_no_zombie(self, decision: str, tmp_path: Path) -> None:
        target = tmp_path / "probe"
        started = Launch(decision, target, "--exit", "9", prefix=list(self.PREFIX))
        outcome = started.wait()
        assert outcome.code == 9
        assert outcome.probe is not None
        assert (outcome.probe["pid"], outcome.probe["ppid"]) == (1, 0)
        assert outcome.probe["children"] == {}

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
    def test_a_signal_ends_it_with_the_status_of_a_shell(
        self, number: signal.Signals, tmp_path: Path
    ) -> None:
        env = environment(LIMIT="60")
        started = Launch("guarded_hang", tmp_path / "probe", env=env, prefix=list(self.PREFIX))
        started.wait_for("hanging")
        os.kill(self.inside(started), number)
        assert started.wait().code == 128 + number
        assert started.leftovers() == []

    def test_two_interrupts_end_it_with_130(self, tmp_path: Path) -> None:
        env = environment(LIMIT="60")
        started = Launch("hangs", tmp_path / "probe", env=env, prefix=list(self.PREFIX))
        started.wait_for("hanging")
        pid = self.inside(started)
        os.kill(pid, signal.SIGINT)
        time.sleep(0.3)
        os.kill(pid, signal.SIGINT)
        assert started.wait().code == 130
