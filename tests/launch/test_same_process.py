"""What the launcher becomes cannot be told from what a plain exec of the same command gives."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from autolaunch.command import Command
from autolaunch.errors import AutolaunchError
from autolaunch.launch.execute import become, starting_environment
from tests.launch.harness import DRIVER, PROBE, environment, wait_until

WRAPPERS = {
    "plain": "",
    "nohup": "signal.signal(signal.SIGHUP, signal.SIG_IGN)",
    "background": "[signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, signal.SIGQUIT)]",
    "deaf": "[signal.signal(n, signal.SIG_IGN) for n in (signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD)]",
    "blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGTERM, signal.SIGCHLD])",
    "pending": """
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
        os.kill(os.getpid(), signal.SIGUSR2)
    """,
    "descriptors": """
        os.set_inheritable(os.dup2(os.open("/dev/null", os.O_RDONLY), 7), True)
        os.set_inheritable(os.dup2(os.open("/etc/passwd", os.O_RDONLY), 42), True)
    """,
    "no stdin": "os.close(0)",
    "no stdio": "os.closerange(0, 3)",
    "limits": """
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (77, 99))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.nice(3), os.umask(0o027), os.chdir("/usr")
    """,
    "session": "os.setsid()",
    "group": "os.setpgid(0, 0)",
    "alarm": "signal.setitimer(signal.ITIMER_REAL, 500), signal.setitimer(signal.ITIMER_PROF, 600)",
    "subreaper": "import ctypes; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)",
    "no new privileges": "import ctypes; ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)",
    "dies with parent": "import ctypes; ctypes.CDLL(None).prctl(1, 10, 0, 0, 0)",
    "has a child": """
        if os.fork() == 0:
            os.execv("/bin/sleep", ["sleep", "3"])
    """,
    "has a zombie": """
        if os.fork() == 0:
            os._exit(0)
        import time; time.sleep(0.1)
    """,
    "odd environment": "os.environb[b'ODD'] = b'\\xff\\xfe=\\x01'; os.environ['EMPTY'] = ''",
    "C locale": "[os.environ.pop(n, None) for n in ('LC_ALL', 'LC_CTYPE', 'LANG')]",
    "POSIX locale": "os.environ.pop('LC_ALL', None); os.environ['LC_CTYPE'] = 'POSIX'",
}
PREAMBLE = "import os, signal, sys\n"
EXEC = "\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\nos.execv(sys.argv[1], sys.argv[1:])\n"


def state_of(wrapper: str, argv: list[str], target: Path, **options: Any) -> dict[str, Any]:
    """What the probe says after `wrapper` prepared a process and exec'ed `argv` in it."""
    script = PREAMBLE + textwrap.dedent(WRAPPERS[wrapper]) + EXEC
    log = target.with_suffix(".log")
    with log.open("wb") as stderr:  # no pipe: the sleeping child would keep it open
        process = subprocess.Popen(
            [sys.executable, "-c", script, *argv],
            env={"PYTHONWARNINGS": "error", **environment()},
            stdin=subprocess.DEVNULL,
            stderr=stderr,
            **options,
        )
    assert process.wait(timeout=60) == 5, log.read_text()
    state: dict[str, Any] = json.loads(target.read_text())
    assert state["pid"] == process.pid
    return state


def comparable(state: dict[str, Any], pid: int) -> dict[str, Any]:
    """`state` without what differs between any two runs: numbers of processes and of pipes."""
    text = json.dumps({key: value for key, value in state.items() if key not in ("words", "children")})
    data: dict[str, Any] = json.loads(text)
    for key in ("pid", "pgid", "sid"):
        data[key] = "self" if data[key] == pid else data[key]
    data["timers"] = [[round(value / 60) for value in timer] for timer in data["timers"]]
    data["fds"] = {
        number: "pipe" if "pipe:" in what else what.replace("[plain]", "")
        for number, what in data["fds"].items()
    }
    data["children"] = list(state["children"].values())
    return data


@pytest.mark.parametrize("decision", ["choice", "hangs", "watched"])
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_server_is_the_process_that_a_plain_exec_gives(
    wrapper: str, decision: str, tmp_path: Path
) -> None:
    target = tmp_path / "probe"
    word = "original" if decision == "hangs" else "choice"
    plain = state_of(wrapper, [sys.executable, str(PROBE), str(target), word, "--exit", "5"], target)
    ours = state_of(wrapper, [sys.executable, str(DRIVER), decision, str(target), "--exit", "5"], target)
    assert ours["words"] == plain["words"]
    a, b = comparable(plain, plain["pid"]), comparable(ours, ours["pid"])
    watchers = [line for line in b["children"] if "pidfd_open" in line]
    assert len(watchers) == (decision == "watched")
    b["children"] = [line for line in b["children"] if line not in watchers]
    if decision != "hangs":
        b["environ"].remove("CHOSEN=1")
        del b["python_environ"]["CHOSEN"]
    assert b == a


@pytest.mark.parametrize("decision", ["choice", "hangs", "watched"])
def test_the_server_keeps_the_terminal_and_its_foreground(decision: str, tmp_path: Path) -> None:
    target = tmp_path / "probe"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            sys.executable, [sys.executable, str(DRIVER), decision, str(target)], environment(LIMIT="0.2")
        )
    wait_until(target.exists, 20, "the probe wrote")
    os.waitpid(pid, 0)
    os.close(terminal)
    state = json.loads(target.read_text())
    assert (state["pid"], state["pgid"], state["sid"]) == (pid, pid, pid)
    assert int(state["tpgid"]) == pid
    assert int(state["tty"]) != 0


def raw_status(argv: list[str], prepare: str = "") -> dict[str, str]:
    """`/proc/self/status` as the exec'ed program finds it, before any Python changes it again."""
    script = (
        f"import os, signal, sys\n{prepare}\n"
        "from autolaunch.command import Command\nfrom autolaunch.launch.execute import become\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "become(Command(tuple(sys.argv[1:])))"
    )
    text = subprocess.run(
        [sys.executable, "-c", script, *argv], env=environment(), check=True, capture_output=True, text=True
    ).stdout
    return dict(line.split(":\t", 1) for line in text.splitlines())


def test_no_disposition_of_python_is_handed_on() -> None:
    status = raw_status(["/bin/cat", "/proc/self/status"])
    assert int(status["SigIgn"], 16) == 0
    assert int(status["SigBlk"], 16) == 0


def test_ignored_signals_stay_ignored() -> None:
    status = raw_status(["/bin/cat", "/proc/self/status"], "signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    assert int(status["SigIgn"], 16) == 1 << (signal.SIGHUP - 1)


def test_a_signal_that_came_before_the_exec_is_not_lost() -> None:
    script = textwrap.dedent("""
        import os, signal
        from autolaunch.command import Command
        from autolaunch.launch import execute
        signal.signal(signal.SIGTERM, lambda *_: None)
        reset = execute._reset_dispositions
        def reset_under_fire():
            os.kill(os.getpid(), signal.SIGTERM)  # blocked at this moment
            return reset()
        execute._reset_dispositions = reset_under_fire
        execute.become(Command(("/bin/sleep", "0")))
    """)
    done = subprocess.run([sys.executable, "-c", script], env=environment())
    assert done.returncode == -signal.SIGTERM


def test_what_was_printed_comes_out_once_and_first() -> None:
    script = (
        "import sys\nfrom autolaunch.command import Command\nfrom autolaunch.launch.execute import become\n"
        "sys.stdout.write('before ')\nbecome(Command(('/bin/echo', 'after')))"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True)
    assert done.stdout == "before after\n"


@pytest.mark.parametrize(
    ("argv", "env", "reason"),
    [
        (("/nowhere/python",), (), "no such file or directory"),
        (("/etc/passwd",), (), "permission denied"),
        (("/bin/true", "a\0b"), (), "embedded null byte"),
        (("/bin/true",), (("a=b", "c"),), "illegal environment variable name"),
    ],
)
def test_a_refused_exec_names_the_interpreter_and_changes_nothing(
    argv: tuple[str, ...], env: tuple[tuple[str, str], ...], reason: str
) -> None:
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with pytest.raises(AutolaunchError) as caught:
        become(Command(argv, env))
    assert f"could not execute `{argv[0]}`" in str(caught.value)
    assert f"because {reason}" in str(caught.value)
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before


def test_a_locale_that_the_user_set_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert starting_environment({"LC_CTYPE": "de_DE.UTF-8"}) == {"LC_CTYPE": "de_DE.UTF-8"}
    script = "import os; from autolaunch.launch.execute import *; print(starting_environment(os.environ)['LC_CTYPE'])"
    env = {**environment(), "LC_CTYPE": "C.UTF-8"}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "C.UTF-8\n"
