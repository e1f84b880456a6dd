"""Runs the decision in a child, and turns this process into what it decided, or into the original.

The launcher forks a *deciding* child and does nothing but wait for it, so a raise, an exit, a hang or a
crash in any stage still ends in the original command, and the process that becomes the server never
opened a library, a thread, a lock or a socket.  Before any exec it sees to it that no trial engine is
left: each engine has a guard, every guard holds the write end of the *census* pipe, and end of file there
means that there is none.

Signals: SIGTERM, SIGHUP and SIGQUIT end the decision, its engines, then this process, by the same signal.
The first SIGINT asks for the best so far, the second is like SIGTERM.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from autolaunch.command import Command
from autolaunch.errors import AutolaunchError, render_message, visible
from autolaunch.launch.child import Child, Ended
from autolaunch.launch.execute import become, print_last
from autolaunch.launch.report import Decision, Fault, Reporter
from autolaunch.launch.signals import LauncherSignals, end_by
from autolaunch.redact import redact

__all__ = ["Decision", "Reporter", "supervise"]

Say = Callable[[str], None]
_HINT = "`--plain` starts the original command without deciding anything"


def say_to_stderr(message: str) -> None:
    """Write `message` as lines of its own to stderr."""
    if sys.stderr is not None:
        sys.stderr.write(message + "\n")
        sys.stderr.flush()


def supervise(
    decide: Callable[[Reporter], Decision],
    original: Command,
    *,
    strict: bool,
    dry_run: bool,
    say: Say = say_to_stderr,
    show: Callable[[Command], str] = Command.shell,
) -> int:
    """Run `decide` in a child and exec its command, or `original` with a warning if it comes to nothing.

    Returns an exit status only where nothing is exec'ed: 0 after a `dry_run` that wrote the decision's
    document, or the command as `show` has it, to stdout; an error's own under `strict`.  Raises
    AutolaunchError when not even `original` can be exec'ed.
    """
    signals = LauncherSignals()
    child = Child(signals)
    outcome: Decision | Fault
    try:
        signals.hold()
        child.fork(decide, dry_run=dry_run)
        outcome = child.settle(child.wait_for_outcome())
    except Ended as end:
        _end(end.signal, child)
    except Exception as error:  # noqa: BLE001  # promise 3 holds for faults of the launcher itself, too
        outcome = _own_fault(error)
        _abandon(child)
    try:
        signals.release()
    except Exception as error:  # noqa: BLE001  # as above
        outcome = _own_fault(error)
        _abandon(child)
    if signals.ending is not None:
        _end(signals.ending, child)
    # From here signals have their defaults, so a reader of stderr that does not read holds up nobody's
    # SIGTERM.
    if child.engines_left:
        _say(say, render_message("warning", "a trial engine has not ended; it may still hold memory"))
    if isinstance(outcome, Fault) and strict:
        _say(say, _render("error", outcome.what, outcome))
        return outcome.exit_code
    command = _announce(outcome, original, say)
    if dry_run:
        return print_last((isinstance(outcome, Decision) and outcome.document) or show(command))
    return _start(command, command if strict else original, child, say)


def _announce(outcome: Decision | Fault, original: Command, say: Say) -> Command:
    """Say what is about to be started and why; return it."""
    if isinstance(outcome, Decision):
        if outcome.reason:
            _say(say, visible(outcome.reason))
        return outcome.command
    _say(say, _render("warning", f"{outcome.what}; starting the original command", outcome))
    return original


def _render(level: str, what: str, fault: Fault) -> str:
    return render_message(level, what, fault.because, fault.evidence, fault.hint or _HINT)


def _start(command: Command, otherwise: Command, child: Child, say: Say) -> NoReturn:
    """Exec `command`; if the kernel refuses that, `otherwise`."""
    try:
        become(command)
    except AutolaunchError as error:
        _abandon(child)  # the watcher, which would wait for nothing
        if command == otherwise:
            raise
        _say(say, render_message("warning", f"{error.what}; starting the original command", error.because))
    become(otherwise)


def _say(say: Say, message: str) -> None:
    """Say `message`, secrets hidden; a closed or full stderr must not keep the server from starting."""
    with contextlib.suppress(Exception):
        say(redact(message))


def _own_fault(error: Exception) -> Fault:
    return Fault(f"the launcher failed with `{type(error).__name__}`: {redact(str(error))}")


def _abandon(child: Child) -> None:
    """End the deciding process and its engines, as well as that is still possible."""
    with contextlib.suppress(Exception):
        child.end()


def _end(number: signal.Signals, child: Child) -> NoReturn:
    """End everything that was started, then this process by the signal that asked for it."""
    _abandon(child)
    end_by(number)
