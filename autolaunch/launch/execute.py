"""Turns the launcher's process into the command, as if a shell had started that instead.

Python changes two things of a process that an exec would hand on, and both are put back: it ignores
SIGPIPE and SIGXFSZ, and in the C locale it sets `LC_CTYPE`.  Descriptors need nothing: Python's own are
closed by the exec, inherited ones stay.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

from autolaunch.command import Command
from autolaunch.errors import EXIT_DONE, AutolaunchError

_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_COERCED_LOCALES = ("C.UTF-8", "C.utf8", "UTF-8")  # PEP 538


def become(command: Command, environ: Mapping[str, str] = os.environ) -> NoReturn:
    """Exec `command` with `environ` and its own additions; AutolaunchError if the kernel refuses.

    A signal that arrives meanwhile is neither lost nor handled here: it does to this process what it does
    to one that has just been exec'ed.
    """
    flush_stdio()
    environment = command.environment(starting_environment(environ))
    # Blocked, so that no signal ends in a Python handler whose turn would never come.
    mask = signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
    try:
        handlers = _reset_dispositions()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        os.execve(command.argv[0], command.argv, environment)  # noqa: S606  # no shell is meant
    except (OSError, ValueError) as error:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise AutolaunchError(
            f"could not execute `{command.argv[0]}`",
            because=(reason[0].lower() + reason[1:],),
            hint="name the Python that holds SGLang with `--python`",
        ) from error


def print_last(text: str) -> int:
    """Write `text` as the last of stdout, in the user's own encoding; AutolaunchError if that fails."""
    what = "could not write to stdout"
    if sys.stdout is None:
        raise AutolaunchError(what, because=("it is closed",))
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(os.fsencode(text if text.endswith("\n") else f"{text}\n"))
        sys.stdout.flush()
    except OSError as error:
        silence(sys.stdout)
        raise AutolaunchError(what, because=(error.strerror or str(error),)) from error
    return EXIT_DONE


def silence(stream: TextIO | None) -> None:
    """Let what `stream` still holds go nowhere, or Python would complain about it at its exit."""
    if stream is None:
        return
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def flush_stdio() -> None:
    """Write out what Python still holds for stdout and stderr; a reader that has gone loses it."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # broken pipe or full disk, closed, None
            stream.flush()


def starting_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` with the `LC_CTYPE`, or none, that was there before Python coerced the C locale."""
    environment = dict(environ)
    if environment.get("LC_CTYPE") in _COERCED_LOCALES:
        try:
            entries = Path("/proc/self/environ").read_bytes().split(b"\0")
        except OSError:
            return environment
        at_start = [entry for entry in entries if entry.startswith(b"LC_CTYPE=")]
        if at_start:
            environment["LC_CTYPE"] = os.fsdecode(at_start[0].partition(b"=")[2])
        else:
            del environment["LC_CTYPE"]
    return environment


def _reset_dispositions() -> dict[int, Any]:
    """Give every signal that Python handles or ignores for itself its default; return what they had.

    NOTE: signals that the caller chose to ignore (nohup, a shell's `&`) are left ignored.
    """
    handlers: dict[int, Any] = {}
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        if callable(handler) or (number in _IGNORED_BY_PYTHON and handler == signal.SIG_IGN):
            handlers[number] = handler
            signal.signal(number, signal.SIG_DFL)
    return handlers
