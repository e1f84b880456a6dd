"""The deciding child as the launcher sees it: forked, listened to, limited, ended, cleared away."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable

from autolaunch.launch.deciding import run_deciding_process
from autolaunch.launch.execute import flush_stdio
from autolaunch.launch.processes import (
    children_of,
    command_line_of,
    has_ended,
    how_it_ended,
    reap_orphans,
)
from autolaunch.launch.report import (
    LONGEST_STAGE_S,
    Decision,
    Fault,
    Inbox,
    NonsenseError,
    Reporter,
    StageEntered,
)
from autolaunch.launch.signals import LauncherSignals, blocked, make_pipe
from autolaunch.units import format_duration

START_LIMIT_S = 60.0
"""From the fork to the first stage: imports, which a slow file system can make long."""
INTERRUPT_LIMIT_S = 30.0
"""From the first Ctrl-C to the decision: the end of one window and of the engines."""
SETTLE_LIMIT_S = 10.0
"""From the decision to the end of the deciding process, or to its new life as the watcher."""
CENSUS_LIMIT_S = 60.0
"""For the guards to end their engines; freeing hundreds of gigabytes takes the kernel many seconds."""
ORPHAN_LIMIT_S = 1.0
"""For orphans that fell to this process to be gone; what lives longer is not the launcher's."""
_LOOK_EVERY_S = 1.0  # a kernel without pidfds shows an end that closes no pipe only to those who look
_SUSPENDED_S = 1.0


class Ended(Exception):  # noqa: N818  # not an error: somebody wants this process to end
    """The launcher received a signal that it must end by."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.signal = number


class Child:
    """One deciding process, from `fork` on."""

    def __init__(self, signals: LauncherSignals) -> None:
        self.pid = 0
        self._report_fd = self._census_fd = self._pid_fd = -1
        self._signals = signals
        self._others: set[int] = set()
        self._stage = "start"
        self._inbox = Inbox()
        self._reaped = True
        self.engines_left = False
        """Whether a guard did not end in time, so that an engine may still hold memory."""

    def fork(self, decide: Callable[[Reporter], Decision], *, dry_run: bool) -> None:
        """Start the process; OSError when there are no processes or descriptors left."""
        self._report_fd, report_write_fd = make_pipe()
        self._census_fd, census_write_fd = make_pipe()
        os.set_blocking(self._report_fd, False)
        self._others = set(children_of(os.getpid()))
        flush_stdio()  # or both processes would write what is buffered
        top_pid = os.getpid()
        with blocked(signal.valid_signals()) as mask:
            self.pid = os.fork()
            if self.pid == 0:
                os.close(self._report_fd)
                os.close(self._census_fd)
                reporter = Reporter(report_write_fd, census_write_fd, top_pid)
                run_deciding_process(decide, reporter, mask, dry_run=dry_run)
            self._reaped = False
        os.close(report_write_fd)
        os.close(census_write_fd)
        with contextlib.suppress(OSError):  # it does the same; the group must exist before either goes on
            os.setpgid(self.pid, self.pid)
        with contextlib.suppress(
            OSError, AttributeError
        ):  # an older kernel, a sandbox, an older Python build
            self._pid_fd = os.pidfd_open(self.pid)

    def wait_for_outcome(self) -> Decision | Fault:
        """What the deciding process delivers, or why nothing came; Ended when a signal says so."""
        try:
            return self._listen()
        except NonsenseError as error:
            return self._fault(f"reported nonsense: {error}")

    def _listen(self) -> Decision | Fault:
        limit_s, longest_s = START_LIMIT_S, LONGEST_STAGE_S
        deadline = time.monotonic() + limit_s
        poll = self._poll(self._report_fd, self._pid_fd)
        while True:
            wait_s = max(0.0, min(deadline - time.monotonic(), _LOOK_EVERY_S))
            asked = time.monotonic()
            poll.poll(int(wait_s * 1000) + 1)
            overslept_s = time.monotonic() - asked - wait_s
            if overslept_s > _SUSPENDED_S:
                deadline += overslept_s  # this process, or its whole container, was stopped
            self._obey_signals()
            if self._signals.take_interrupt():
                os.kill(self.pid, signal.SIGINT)
                limit_s = longest_s = INTERRUPT_LIMIT_S
                deadline = min(deadline, time.monotonic() + limit_s)
            ended = self.has_ended()  # asked before the last look into the pipe, so that nothing is missed
            data = self._read()
            outcome: Decision | Fault | None = None
            for message in self._inbox.feed(data or b""):
                if isinstance(message, StageEntered):
                    self._stage, limit_s = message.name, min(message.limit_s, longest_s)
                    deadline = time.monotonic() + limit_s
                else:
                    outcome = message  # a later one says that the watcher did not start
            if outcome is not None:
                return outcome
            if data == b"" or (ended and data is None):
                return self._fault(self._how_it_ended())
            if time.monotonic() > deadline:
                return self._fault(f"took longer than {format_duration(limit_s)}")

    def _poll(self, *fds: int) -> select.poll:
        """A poll for `fds`, where there are any, and for signals."""
        poll = select.poll()
        for fd in (*fds, self._signals.wake_fd):
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        return poll

    def _read(self) -> bytes | None:
        """What the pipe holds now; None for nothing yet, empty for its end."""
        try:
            return os.read(self._report_fd, 1 << 16)
        except BlockingIOError:
            return None

    def settle(self, outcome: Decision | Fault) -> Decision | Fault:
        """Wait until the deciding process is over or has become the watcher, and no engine is left.

        Afterwards this process has no child but those it was started with and, perhaps, the watcher.
        """
        if isinstance(outcome, Decision) and outcome.watch is not None:
            outcome = self._until_watching(outcome)
        watched = isinstance(outcome, Decision) and outcome.watch is not None
        if not watched:
            self._kill()  # it has said its last word
        self._await_census()
        if watched:
            reap_orphans(self._others | {self.pid}, ORPHAN_LIMIT_S)
        else:
            self._clear_away()
        return outcome

    def _until_watching(self, decision: Decision) -> Decision | Fault:
        """`decision`, once the process has exec'ed the watcher; a Fault if that did not happen.

        The pipe closes in an exec and in a death alike; only after an exec is there the new command line.
        """
        command_line = b"".join(os.fsencode(word) + b"\0" for word in decision.watch or ())
        deadline = time.monotonic() + SETTLE_LIMIT_S
        poll = self._poll(self._report_fd)
        while time.monotonic() < deadline:
            poll.poll(500)
            self._obey_signals()
            data = self._read()
            try:
                for message in self._inbox.feed(data or b""):
                    if isinstance(message, Fault):
                        return message
            except NonsenseError as error:
                return self._fault(f"reported nonsense: {error}")
            if data == b"":
                if command_line_of(self.pid) == command_line:
                    return decision
                if self.has_ended():
                    break
                time.sleep(0.001)
        return self._fault("delivered a decision, but did not become the watcher")

    def end(self) -> None:
        """Kill the deciding process, see its engines end and leave nothing, deaf to further signals."""
        if self.pid == 0:
            return  # it never began
        self._kill()
        self._await_census(obey_signals=False)
        self._clear_away()

    def has_ended(self) -> bool:
        """Whether the process is over; it stays a zombie, so that its PID stays its own."""
        return self._reaped or has_ended(self.pid)

    def _kill(self) -> None:
        """SIGKILL the deciding process alone: the guards see that, and must live to end their engines."""
        if not self._reaped:
            os.kill(self.pid, signal.SIGKILL)

    def _await_census(self, *, obey_signals: bool = True) -> None:
        """Wait until the census pipe has no writer, which is when the last guard has ended."""
        deadline = time.monotonic() + CENSUS_LIMIT_S
        poll = self._poll(self._census_fd)  # nothing is ever written there
        while time.monotonic() < deadline:
            ready = {fd for fd, _ in poll.poll(1000)}
            self._signals.drain()
            if obey_signals:
                self._obey_signals()
            if self._census_fd in ready:
                return
        self.engines_left = True

    def _clear_away(self) -> None:
        """Kill what the deciding process left in its group, then let it go."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)  # it is still a zombie at least, so the number is its own
        if not self._reaped:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self._reaped = True
        reap_orphans(self._others, ORPHAN_LIMIT_S)

    def _obey_signals(self) -> None:
        self._signals.drain()
        if self._signals.ending is not None:
            raise Ended(self._signals.ending)

    def _fault(self, what: str) -> Fault:
        return Fault(f"the stage `{self._stage}` {what}")

    def _how_it_ended(self) -> str:
        """Words for an end without a decision."""
        for _ in range(20):
            if self.has_ended():
                half = ", in the middle of a report" if self._inbox.has_half_a_line else ""
                return f"{how_it_ended(self.pid)}{half}"
            time.sleep(0.05)  # the pipe closes just before the end can be seen
        return "stopped reporting"
