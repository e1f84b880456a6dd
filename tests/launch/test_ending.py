"""How a server ended: what the kernel says, whoever reaped it, and what a witness sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from autolaunch.launch.watching import ending
from tests.launch.harness import wait_until
from tests.real_server import become_subreaper

ENDS = [
    ("os._exit(0)", "exit 0"),
    ("os._exit(3)", "exit 3"),
    ("os.kill(os.getpid(), 9)", "SIGKILL"),
    ("os.kill(os.getpid(), 15)", "SIGTERM"),
    ("os.kill(os.getpid(), 11)", "SIGSEGV"),
    ("os.kill(os.getpid(), 6)", "SIGABRT"),
    ("os.kill(os.getpid(), 40)", "signal 40"),
]


def started(code: str) -> tuple[subprocess.Popen[bytes], int]:
    """A process that runs `code` once it may, and its pidfd."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os, sys; sys.stdin.read(); {code}"], stdin=subprocess.PIPE
    )
    return process, os.pidfd_open(process.pid)


def end(process: subprocess.Popen[bytes]) -> None:
    """Let `process` do it; it stays a zombie."""
    assert process.stdin is not None
    process.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


@pytest.mark.parametrize(("code", "words"), ENDS)
def test_the_end_of_a_zombie_is_known(code: str, words: str) -> None:
    process, pid_fd = started(code)
    end(process)
    assert ending.how_it_ended(process.pid, -1) == words
    process.wait()
    os.close(pid_fd)


@pytest.mark.parametrize(("code", "words"), ENDS)
def test_the_end_of_one_that_was_reaped_is_known_where_the_kernel_keeps_it(code: str, words: str) -> None:
    process, pid_fd = started(code)
    end(process)
    process.wait()
    expected = words if kernel_keeps_ends() else ending.UNKNOWN
    assert ending.how_it_ended(process.pid, pid_fd, 0.1) == expected
    os.close(pid_fd)


def kernel_keeps_ends() -> bool:
    """Whether this kernel has PIDFD_INFO_EXIT, which came with 6.15."""
    return tuple(int(part) for part in os.uname().release.split(".")[:2]) >= (6, 15)


def test_without_anything_to_ask_it_is_unknown() -> None:
    process, pid_fd = started("os._exit(1)")
    end(process)
    process.wait()
    os.close(pid_fd)
    began_s = time.monotonic()
    assert ending.how_it_ended(process.pid, -1, 30) == ending.UNKNOWN
    assert time.monotonic() - began_s < 15, "nothing can come any more, so nothing is waited for"


# The witness --------------------------------------------------------------------------------------

WATCHER = """
import json, os, sys, time
sys.path.insert(0, {folder!r})
import ending
def note(fields): open({note!r} + ".new", "w").write(json.dumps(fields)); os.rename({note!r} + ".new", {note!r})
pid_fd = os.pidfd_open(os.getppid())
witness = ending.call_witness(os.getppid(), pid_fd, note)
{deeds}
open({note!r} + ".ready", "w").close()
time.sleep(600)
"""
SERVER = """
import os, signal, subprocess, sys, time
import psutil
watcher = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
while not os.path.exists(sys.argv[2] + ".ready"): time.sleep(0.01)
{deeds}
"""
KILL_ALL = "[one.kill() for one in psutil.Process().children(recursive=True)]; watcher.wait(); "


def witnessed(folder: Path, server: str, watcher: str = "") -> dict[str, Any] | None:
    """What a witness notes of a server that does `server`, whose watcher does `watcher`."""
    become_subreaper()
    older = {process.pid for process in psutil.Process().children(recursive=True)}
    note = str(folder / "note")
    code = WATCHER.format(folder=str(Path(ending.__file__).parent), note=note, deeds=watcher)
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER.format(deeds=server), code, note], start_new_session=True
    )
    process.wait(20)

    def gone() -> bool:
        left = [one for one in psutil.Process().children(recursive=True) if one.pid not in older]
        for one in left:
            if one.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(one.pid, os.WNOHANG)
        return not left

    wait_until(gone, 10, "the witness ended")
    path = Path(note)
    return json.loads(path.read_text()) if path.exists() else None


@pytest.mark.parametrize(
    ("deeds", "words"),
    [
        (KILL_ALL + "os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        (KILL_ALL + "sys.exit(1)", "exit 1"),
        (KILL_ALL + "signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), 2)", "SIGINT"),
    ],
)
def test_an_end_after_the_watchers_is_witnessed(deeds: str, words: str, tmp_path: Path) -> None:
    expected = words if kernel_keeps_ends() else ending.UNKNOWN
    assert witnessed(tmp_path, deeds) == {"ended": expected, "listened": False, "gave_up": True}


def test_a_socket_that_was_open_is_told(tmp_path: Path) -> None:
    seen = witnessed(tmp_path, KILL_ALL + "sys.exit(1)", "witness.server_listens()")
    assert seen is not None
    assert seen["listened"] is True


def test_a_watcher_that_is_done_needs_no_witness(tmp_path: Path) -> None:
    assert witnessed(tmp_path, "time.sleep(0.3); " + KILL_ALL + "sys.exit(1)", "witness.dismiss()") is None


TO_ALL = "signal.signal(2, signal.SIG_IGN); os.killpg(0, 2); time.sleep(0.3); "
DEAF = "import signal; signal.signal(2, signal.SIG_IGN)"
ENDS_WITH_THE_SERVER = """
import select, threading
def attend():
    select.select([pid_fd], [], [])
    note({"excuse": witness.excuse()})
    witness.dismiss()
    os._exit(0)
threading.Thread(target=attend).start()
"""


def test_what_is_sent_to_the_servers_group_is_an_excuse(tmp_path: Path) -> None:
    """As a terminal sends Ctrl-C, after which Python may exit with 1."""
    seen = witnessed(tmp_path, TO_ALL + KILL_ALL + "sys.exit(1)", DEAF)
    assert seen is not None
    assert (seen["gave_up"], seen["excuse"]) == (True, "SIGINT was sent to its process group")


def test_the_watcher_hears_of_it_before_it_writes(tmp_path: Path) -> None:
    """In one stroke with the end: who starts next reads the record at once."""
    seen = witnessed(tmp_path, TO_ALL + "sys.exit(1)", DEAF + ENDS_WITH_THE_SERVER)
    assert seen == {"excuse": "SIGINT was sent to its process group"}


def test_without_a_signal_there_is_no_excuse(tmp_path: Path) -> None:
    assert witnessed(tmp_path, "sys.exit(1)", ENDS_WITH_THE_SERVER) == {"excuse": None}


def test_a_killed_witness_excuses_nothing(tmp_path: Path) -> None:
    seen = witnessed(tmp_path, "os.killpg(0, 9)", "os.setpgid(0, 0)" + ENDS_WITH_THE_SERVER)
    assert seen == {"excuse": None}


def test_the_witness_is_no_descendant_and_holds_nothing_of_the_servers(tmp_path: Path) -> None:
    report = tmp_path / "report"
    look = (
        "time.sleep(0.3); mine = psutil.Process().children(recursive=True); assert len(mine) == 1, mine; "
        f"open({str(report)!r}, 'w').write('only the watcher'); " + KILL_ALL + "sys.exit(0)"
    )
    assert witnessed(tmp_path, look) is not None
    assert report.read_text() == "only the watcher"


def test_pid_1_and_those_without_a_pidfd_have_none() -> None:
    def note(_fields: dict[str, object]) -> None:
        raise AssertionError

    for pid, pid_fd in ((1, 99), (os.getpid(), -1)):
        witness = ending.call_witness(pid, pid_fd, note)
        assert witness.fd == -1
        witness.server_listens()
        assert witness.excuse() is None
        witness.dismiss()


def test_a_record_that_cannot_be_written_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "note.new").mkdir()  # where the note would be written
    assert witnessed(tmp_path, KILL_ALL + "sys.exit(1)") is None
