"""What the launcher does with signals between its fork and its exec.

Handlers only note what came; the loop that waits for the child is woken by a pipe.  A signal that the
caller had ignored (nohup, a shell's `&`) stays ignored.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Iterable
from typing import Any, NoReturn

from autolaunch.launch.execute import flush_stdio

_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class LauncherSignals:
    """Notes SIGTERM, SIGHUP, SIGQUIT and SIGINT from `hold` until `release`."""

    def __init__(self) -> None:
        self._saved: dict[signal.Signals, Any] = {}
        self._noted: list[signal.Signals] = []
        self._forwarded = 0
        self.wake_fd, self._wake_write_fd = (-1, -1)
        self._child_signal_pended = False

    def hold(self) -> None:
        """Begin to note signals; OSError when there is no descriptor left for it."""
        self.wake_fd, self._wake_write_fd = make_pipe()
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(self._wake_write_fd, False)
        self._child_signal_pended = signal.SIGCHLD in signal.sigpending()
        signal.set_wakeup_fd(self._wake_write_fd, warn_on_full_buffer=False)
        for number in (*_ENDING, signal.SIGINT):
            if signal.getsignal(number) != signal.SIG_IGN:
                self._saved[number] = signal.signal(number, self._note)
        if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
            # An ignored SIGCHLD takes dead children away before they can be asked how they ended.
            self._saved[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def _note(self, number: int, _frame: object) -> None:
        self._noted.append(signal.Signals(number))

    def drain(self) -> None:
        """Empty the pipe that woke the waiting loop."""
        with contextlib.suppress(BlockingIOError):
            while self.wake_fd >= 0 and os.read(self.wake_fd, 512):
                continue

    @property
    def ending(self) -> signal.Signals | None:
        """The first signal that this process must end by, if one came: any of three, or a second SIGINT."""
        interrupts = 0
        for number in self._noted:
            interrupts += number is signal.SIGINT
            if number is not signal.SIGINT or interrupts == 2:
                return number
        return None

    def take_interrupt(self) -> bool:
        """Whether a first SIGINT has come that the deciding process has not been told of."""
        untold = signal.SIGINT in self._noted and not self._forwarded
        self._forwarded |= untold
        return untold

    def release(self) -> None:
        """Give up every handler: from here a signal does what it does to a process just exec'ed.

        NOTE: SIGINT gets its default, not Python's KeyboardInterrupt, so that it ends this process at once.
        A caller must look at `ending` afterwards; no signal is lost between the two.
        """
        with blocked(signal.valid_signals()):
            for number, handler in self._saved.items():
                signal.signal(number, signal.SIG_DFL if callable(handler) else handler)
            self._saved.clear()
            if signal.SIGCHLD in signal.sigpending() and not self._child_signal_pended:
                signal.sigtimedwait({signal.SIGCHLD}, 0)  # of our own child, where the caller blocks it
            if self._wake_write_fd >= 0:
                signal.set_wakeup_fd(-1)
                os.close(self.wake_fd)
                os.close(self._wake_write_fd)
                self.wake_fd, self._wake_write_fd = (-1, -1)


class blocked:  # noqa: N801  # reads like the context managers of contextlib
    """Signals `numbers` wait while the body runs."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = numbers

    def __enter__(self) -> set[int | signal.Signals]:
        self._before: set[int | signal.Signals] = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)
        return self._before

    def __exit__(self, *_: object) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def end_by(number: signal.Signals) -> NoReturn:
    """End this process by signal `number`; with status 128 + `number` where the kernel spares it (PID 1)."""
    flush_stdio()
    signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def make_pipe() -> tuple[int, int]:
    """A pipe whose ends an exec closes, and which never takes the place of a closed stdin or stderr."""
    read_fd, write_fd = os.pipe()
    try:
        return _above_stdio(read_fd), _above_stdio(write_fd)
    except OSError:
        for fd in (read_fd, write_fd):
            with contextlib.suppress(OSError):
                os.close(fd)
        raise


def _above_stdio(fd: int) -> int:
    if fd > 2:
        return fd
    higher = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return higher
