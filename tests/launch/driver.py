"""The process that a test starts in place of `autolaunch serve`: the launcher with a scripted decision.

    python driver.py DECISION FILE [--strict] [--dry-run] [WORDS for the probe...]

The server is `probe.py`, which writes FILE; the original says `original`, the choice says `choice`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from autolaunch.command import Command
from autolaunch.errors import AutolaunchError
from autolaunch.launch.supervise import Decision, Reporter, supervise

HERE = Path(__file__).parent
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
own = {"--strict", "--dry-run"}
name, target, *words = sys.argv[1:]
rest = [word for word in words if word not in own]
ORIGINAL = Command((sys.executable, str(HERE / "probe.py"), target, "original", *rest))
CHOICE = Command((sys.executable, str(HERE / "probe.py"), target, "choice", *rest), (("CHOSEN", "1"),))
DECISION = Decision(CHOICE, "the choice is faster")


def note(what: str) -> None:
    new = Path(f"{target}.{what}.new")
    new.write_text(str(os.getpid()))
    new.rename(f"{target}.{what}")  # whoever waits for the file finds it whole


def write(reporter: Reporter, data: bytes) -> None:
    while data:
        data = data[os.write(reporter._report_fd, data) :]


def choice(reporter: Reporter) -> Decision:
    reporter.stage("race", 30)
    return DECISION


def chatty(reporter: Reporter) -> Decision:
    print("this is for stderr", flush=True)  # before the line of the process below
    subprocess.run(["echo", "and this"], check=False)
    assert os.read(0, 1) == b""
    return DECISION


def raises(reporter: Reporter) -> Decision:
    reporter.stage("detect", 30)
    return {}["nothing"]


def explains(reporter: Reporter) -> Decision:
    raise AutolaunchError("no luck", because=("the dice fell badly",), evidence="dice", hint="throw again")


def exits(reporter: Reporter) -> Decision:
    sys.exit(7)


def interrupts(reporter: Reporter) -> Decision:
    raise KeyboardInterrupt


def recurses(reporter: Reporter) -> Decision:
    return recurses(reporter)


def exits_at_once(reporter: Reporter) -> Decision:
    os._exit(7)


def segfaults(reporter: Reporter) -> Decision:
    ctypes.string_at(0)
    raise AssertionError


def hangs(reporter: Reporter) -> Decision:
    note("hanging")
    reporter.stage("race", float(os.environ.get("LIMIT", "0.5")))
    time.sleep(600)
    raise AssertionError


def hangs_deaf(reporter: Reporter) -> Decision:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    return hangs(reporter)


def stops(reporter: Reporter) -> Decision:
    reporter.stage("race", 0.5)
    os.kill(os.getpid(), signal.SIGSTOP)
    raise AssertionError


def floods(reporter: Reporter) -> Decision:
    reporter.stage("race", 30)
    while True:
        write(reporter, b"x" * 65536)


def floods_with_stages(reporter: Reporter) -> Decision:
    while True:
        reporter.stage("race", 30)


def half_a_line(reporter: Reporter) -> Decision:
    write(reporter, b'{"argv": ["/bin/tr')
    os._exit(0)


def nonsense(reporter: Reporter) -> Decision:
    write(reporter, b"\x00\xff{]\n")
    return hangs(reporter)


def wrong_shape(reporter: Reporter) -> Decision:
    write(reporter, b'{"argv": "/bin/true", "env": [], "reason": "", "watch": null}\n')
    return hangs(reporter)


def no_pipe(reporter: Reporter) -> Decision:
    os.close(reporter._report_fd)
    time.sleep(600)
    raise AssertionError


def wrong_type(reporter: Reporter) -> Decision:
    return "faster"  # type: ignore[return-value]


def bad_interpreter(reporter: Reporter) -> Decision:
    return Decision(Command(("/nowhere/python", "-m", "sglang.launch_server")))


def too_long(reporter: Reporter) -> Decision:
    return Decision(Command((*CHOICE.argv, *["x" * 100_000] * 70)))


def slow_choice(reporter: Reporter) -> Decision:
    reporter.stage("race", 1.5)
    note("deciding")
    time.sleep(1)
    return DECISION


def orphans(reporter: Reporter) -> Decision:
    """Leaves two generations behind, one of which ends by itself and one of which does not."""
    subprocess.run([sys.executable, "-c", "import subprocess; subprocess.Popen(['sleep', '0.1'])"])
    subprocess.run([sys.executable, "-c", "import subprocess; subprocess.Popen(['sleep', '600'])"])
    return DECISION


def keeps_pipe(reporter: Reporter) -> Decision:
    """A grandchild holds the report pipe; the deciding process dies."""
    subprocess.Popen(SLEEP, pass_fds=[reporter._report_fd])
    os._exit(5)


def leaves_process(reporter: Reporter) -> Decision:
    subprocess.Popen(SLEEP)
    return DECISION


def guarded(reporter: Reporter) -> None:
    """Something like a guard: own session, holds the census, ends when the lifeline does, and not at once."""
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, False)
    code = (
        f"import os, time; os.read({read_end}, 1); time.sleep(0.5); "
        f"open({target + '.guard-ended'!r}, 'w').close()"
    )
    subprocess.Popen(
        [sys.executable, "-c", code],
        pass_fds=[read_end, reporter.census_fd],
        start_new_session=True,
    )
    time.sleep(0.2)
    os.dup(write_end)


def guarded_choice(reporter: Reporter) -> Decision:
    guarded(reporter)
    return DECISION


def guarded_hang(reporter: Reporter) -> Decision:
    guarded(reporter)
    return hangs(reporter)


def interruptible(reporter: Reporter) -> Decision:
    reporter.stage("race", 30)
    note("racing")
    while not reporter.interrupted:
        time.sleep(0.05)
    return DECISION


def watched(reporter: Reporter) -> Decision:
    """Becomes a watcher that ends with its parent, as the real one does, also where that is gone already."""
    code = (
        "import os, select, sys; fd = os.pidfd_open(os.getppid()); "
        "os.getppid() != int(sys.argv[1]) or select.select([fd], [], [])"
    )
    return Decision(CHOICE, watch=(sys.executable, "-I", "-S", "-c", code, str(reporter.top_pid)))


def watched_bad_interpreter(reporter: Reporter) -> Decision:
    return Decision(bad_interpreter(reporter).command, watch=watched(reporter).watch)


def watched_by_nobody(reporter: Reporter) -> Decision:
    return Decision(CHOICE, watch=("/nowhere/python", "watch.py"))


def watched_briefly(reporter: Reporter) -> Decision:
    """The deciding process dies where it should have become the watcher."""
    os.execve = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    return Decision(CHOICE, watch=("/bin/true",))


def broken_launcher(reporter: Reporter) -> Decision:
    return DECISION


if name == "broken_launcher":
    import autolaunch.launch.child as child

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    setattr(child.Child, os.environ["BREAK"], broken)
if "NO_PIDFD" in os.environ:
    del os.pidfd_open
if limit := os.environ.get("INTERRUPT_LIMIT"):
    import autolaunch.launch.child as child

    child.INTERRUPT_LIMIT_S = float(limit)
if name == "broken_fork":
    os.fork = broken_fork = lambda: (_ for _ in ()).throw(BlockingIOError(11, "no more processes"))
    name = "choice"
if name == "nonexistent_original":
    ORIGINAL = Command(("/nowhere/python",))
    name = "raises"

if __name__ == "__main__":
    try:
        code = supervise(globals()[name], ORIGINAL, strict="--strict" in words, dry_run="--dry-run" in words)
    except AutolaunchError as error:
        print(error, file=sys.stderr)
        code = error.exit_code
    sys.exit(code)
