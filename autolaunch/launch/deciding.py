"""The life of the deciding process: from the fork to its decision, and on as the watcher.

It has a process group of its own, so that Ctrl-C reaches the launcher alone; it reads nothing from the
server's stdin, writes nothing to its stdout, and dies with the launcher.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from autolaunch.errors import EXIT_FAILED, AutolaunchError
from autolaunch.launch.execute import flush_stdio, starting_environment
from autolaunch.launch.report import Decision, Fault, Reporter
from autolaunch.redact import redact

_PR_SET_PDEATHSIG = 1


def run_deciding_process(
    decide: Callable[[Reporter], Decision],
    reporter: Reporter,
    mask: set[int | signal.Signals],
    *,
    dry_run: bool,
) -> NoReturn:
    """Call `decide` and deliver what comes of it; called in the forked child, with every signal blocked.

    `mask` is the signal mask from then on.
    """
    try:
        _leave_the_launcher_alone(reporter)
        _set_signals(reporter)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        outcome = _outcome_of(decide, reporter)
        flush_stdio()
        _deliver(outcome, reporter, may_watch=not dry_run)
        os._exit(0)
    except BaseException:  # noqa: BLE001  # nothing may return into the launcher's code in this process
        with contextlib.suppress(BaseException):
            import traceback

            traceback.print_exc()
    finally:
        os._exit(EXIT_FAILED)


def die_with_parent(parent: int) -> None:
    """Have the kernel SIGKILL this process when its parent ends, and end now if that already happened."""
    _set_death_signal(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def _set_death_signal(number: int) -> None:
    import ctypes  # here, because the launcher's own process never needs it

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def _leave_the_launcher_alone(reporter: Reporter) -> None:
    """Own group, no stdin, stdout turned to stderr; a descriptor that the caller closed becomes a sink."""
    die_with_parent(reporter.top_pid)
    os.setpgid(0, 0)
    null = os.open(os.devnull, os.O_RDWR)
    try:
        os.fstat(2)
    except OSError:
        os.dup2(null, 2)
    os.dup2(null, 0)
    os.dup2(2, 1)
    if null > 2:
        os.close(null)


def _set_signals(reporter: Reporter) -> None:
    """Undo the launcher's own handlers; what the user asked to be ignored stays ignored."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT):
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, reporter.interrupt)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # a background group may write to its terminal
    signal.signal(signal.SIGTTIN, signal.SIG_IGN)


def _outcome_of(decide: Callable[[Reporter], Decision], reporter: Reporter) -> Decision | Fault:
    """What `decide` returned, or what it raised, as a value."""
    try:
        decision = decide(reporter)
    except AutolaunchError as error:
        return Fault.of(error)
    except BaseException as error:  # noqa: BLE001  # promise 3: any fault ends in the original command
        stage = reporter.current_stage
        return Fault(f"the stage `{stage}` raised {_describe(error)}", evidence=_place(error))
    if not isinstance(decision, Decision):
        return Fault(f"the stages ended in a `{type(decision).__name__}` and no decision")
    return decision


def _describe(error: BaseException) -> str:
    """`KeyError: 'x'` on one line, redacted, as long as a person reads."""
    text = " ".join(redact(str(error)).split())
    return f"`{type(error).__name__}`" + (f": {text[:300]}" if text else "")


def _place(error: BaseException) -> str | None:
    """Where `error` left this package: `race/race.py:120 in run_race`."""
    import traceback  # here, because it takes a while and is hardly ever needed

    package = Path(__file__).parents[1]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(package) and path != Path(__file__):
            return f"autolaunch/{path.relative_to(package)}:{frame.lineno} in {frame.name}"
    return None


def _deliver(outcome: Decision | Fault, reporter: Reporter, *, may_watch: bool) -> None:
    """Send the last word, and become the watcher if it names one."""
    watch = outcome.watch if isinstance(outcome, Decision) and may_watch else None
    if watch is None:
        reporter.deliver(outcome, watched=False)
        return
    _reap()
    # The watcher outlives the launcher's last moments: what would end it between here and its own
    # first lines is ignored, and it watches its parent itself (see `watch`).
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    reporter.deliver(outcome, watched=True)
    _set_death_signal(0)
    try:
        os.execve(watch[0], watch, starting_environment(os.environ))  # noqa: S606  # no shell is meant
    except OSError as error:
        reporter.deliver(Fault(f"the watcher did not start: {error.strerror}"), watched=False)


def _reap() -> None:
    """Wait for every child that has ended, or the watcher would keep them as zombies."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
