"""Keeps one engine's processes together and ends every one of them, whoever dies first.

    python -I -S guard.py --lifeline FD --status FD [--census FD] [--scratch DIR]... -- COMMAND...

COMMAND starts in a session of its own and is ended, with everything it ever started, as soon as it
ends by itself or the lifeline reads end-of-file, which it does when the last holder of its write end
is gone.  What is left of the tree falls to this process, for it is the tree's *subreaper*, and it
does not end before the kernel says that it has no child (ECHILD): so neither `setsid`, nor double
forks, nor a SIGKILL of anybody else lets a process of the engine get away.

Two processes do this, the outer one starting the inner: if one of them is killed, the other one ends
the tree.  Both live in sessions of their own and block every signal that can be blocked, because
SGLang's processes signal whoever their parent happens to be (SIGQUIT, when they fail) and, on request,
their whole process group (SIGKILL).

It writes lines of JSON to the status pipe.  The first, `{"exit": 1}`, comes as soon as COMMAND's own
process has ended (negative for a signal, null when nobody knows); the last, `{"exit": 1, "left": []}`,
when none of its processes is left.  Where a SIGKILL has not ended one for 20 s (it hangs in a driver,
say), `left` names it, and the guard goes on waiting.  The write end of the census pipe closes with the
last guard, so it tells "no engine is left" to whoever reads it.  Scratch folders that are not there yet
are made before COMMAND starts.  At the end they are removed, and so is shared memory that the tree had
mapped and nobody else uses.

NOTE: runs by path, in isolation, with the standard library only: of autolaunch nothing is imported but
`race/guarding`, for which the folder of the package is looked through last.
"""

# Every import delays the engine: no pathlib, json or dataclasses, which triple the start-up time.
# ruff: noqa: PTH100, PTH120, PTH123, PTH208

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time

if __name__ == "__main__":
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))  # which -I passes over
    _race = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(os.path.dirname(os.path.dirname(_race)))

from autolaunch.race.guarding.leftovers import SharedMemory, make_folders, remove_folders
from autolaunch.race.guarding.processes import descendants_of, groups_of, kill, read

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
STUCK_AFTER_S = 20.0
TRACKER_GRACE_S = 3.0
"""What a resource tracker gets to unlink the shared memory of the killed; it needs a few ms.

After that whole process groups are killed: one that forks itself away over and over has another PID before
the one that was seen can be killed, and a group is killed in one stroke.
"""
TRACKER = b"multiprocessing.resource_tracker"
OOM_SCORE = b"300"
"""Thousandths of the memory that an engine seems larger by when the kernel looks for something to kill."""

_libc = ctypes.CDLL(None, use_errno=True)


class Job:
    """What the command line asks for."""

    def __init__(self, argv: list[str]) -> None:
        """Read the options of `argv` and what follows its first `--`."""
        self.lifeline = self.status = self.census = -1
        self.scratch: list[str] = []
        self.shared = SharedMemory()
        """Made before the engine starts: what is there now is none of ours."""
        split = argv.index("--")
        self.command = argv[split + 1 :]
        for name, value in zip(argv[:split:2], argv[1:split:2], strict=True):
            if name == "--scratch":
                self.scratch.append(value)
            else:
                setattr(self, name.removeprefix("--"), int(value))


def main(argv: list[str]) -> int:
    """Guard the command of `argv`; returns 0 once none of its processes is left."""
    job = Job(argv)
    for fd in (job.lifeline, job.status, job.census):
        if fd >= 0:
            os.set_inheritable(fd, False)  # the engine must neither hold nor speak on any of them
    _become_guard()
    make_folders(job.scratch)
    outer_lives, held_by_outer = os.pipe()
    inner = os.fork()
    if inner == 0:
        os.close(held_by_outer)
        _become_guard()
        _be_inner(job, outer_lives)
        os._exit(0)
    _keep_only(job.status, job.census, held_by_outer)
    _be_outer(job, inner)
    return 0


def _become_guard() -> None:
    """A session of its own, deaf to signals, and heir to every orphan below."""
    if os.getpid() != os.getsid(0):
        os.setsid()
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would swallow exit statuses
    if _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def _keep_only(*fds: int) -> None:
    """Close what was passed for the engine: it must read end-of-file when the engine, not the guard, ends."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in fds:
            try:
                os.close(int(name))
            except OSError:
                continue  # the one that listed the folder


def _be_inner(job: Job, outer_lives: int) -> None:
    """Start the command, wait for its end or for the end of a lifeline, then end everything."""
    poll = select.poll()
    for lifeline in (job.lifeline, outer_lives):
        poll.register(lifeline, select.POLLIN)  # it carries no data: any event is its end
    engine = None
    if not poll.poll(0):
        engine = _start(job.command)
        _keep_only(job.lifeline, outer_lives, job.status, job.census)
        period_ms = _watch(poll, engine)
        while not poll.poll(period_ms) and not _has_ended(engine):
            continue
    code = _end_descendants(job, engine)
    remove_folders(job.scratch)
    _report(job, code, [])


def _be_outer(job: Job, inner: int) -> None:
    """Wait for the inner guard; whatever it left behind, because it was killed, is ended here."""
    _, wait_status = os.waitpid(inner, 0)
    _end_descendants(job, None)
    if wait_status != 0:
        remove_folders(job.scratch)
        _report(job, None, [])


def _watch(poll: select.poll, pid: int) -> int | None:
    """Have `poll` report the end of `pid`; else, where there are no pidfds, how often to look, in ms."""
    try:
        poll.register(os.pidfd_open(pid), select.POLLIN)
    except OSError:
        return 50
    return None


def _has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _start(command: list[str]) -> int:
    """Fork and exec `command` in its own session, with default signals, to die with this process."""
    guard = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard:  # it died before the line above
            os._exit(128 + signal.SIGKILL)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                continue  # the C library keeps a few to itself
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _be_modest()
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        os.write(2, f"autolaunch guard: cannot run {command[0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _be_modest() -> None:
    """No core files in the user's folder, and first to go where memory runs out."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    try:
        with open("/proc/self/oom_score_adj", "wb") as file:
            file.write(OOM_SCORE)
    except OSError:
        return  # a sandbox may forbid it


def _end_descendants(job: Job, engine: int | None) -> int | None:
    """SIGKILL and reap until the kernel knows no child of this process; the exit status of `engine`.

    Killed parents leave their children to this process, so each round sees what the last one hid.
    Resource trackers go last: they unlink the shared memory of processes that were killed.
    """
    code: int | None = None
    started_s = time.monotonic()
    reported = False
    pause_s = 0.001
    while True:
        waited_s = time.monotonic() - started_s
        descendants = descendants_of(os.getpid())
        job.shared.note(descendants)
        for pid in descendants:
            if waited_s > TRACKER_GRACE_S or TRACKER not in read(f"/proc/{pid}/cmdline"):
                kill(pid)
        if waited_s > TRACKER_GRACE_S:
            for group in groups_of(descendants):
                kill(-group)
        try:
            while True:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == engine:
                    code = os.waitstatus_to_exitcode(wait_status)
                    _report(job, code)
        except ChildProcessError:
            job.shared.unlink()
            return code
        if waited_s > STUCK_AFTER_S and not reported:
            reported = True
            _report(job, code, descendants)
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.1)


def _report(job: Job, code: int | None, left: list[int] | None = None) -> None:
    shown = "null" if code is None else code
    rest = "" if left is None else f', "left": {left}'
    try:
        os.write(job.status, f'{{"exit": {shown}{rest}}}\n'.encode())
    except OSError:
        return  # nobody is left to read it


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
