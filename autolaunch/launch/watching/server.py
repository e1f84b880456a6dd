"""The server as its watcher sees it: whether it lives, what it has started, and what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Collection

from autolaunch.launch.watching.processes import children_of, command_line_of, is_alive, stat_of

LOOK_EVERY_S = 0.5
TRACKER_GRACE_S = 1.0
"""What a resource tracker gets, to unlink the shared memory of those that were killed."""
NEWBORN_S = 0.2
"""From the server's end until what it started last has become what it was started for."""
STUCK_AFTER_S = 5.0
"""From then on a killed process sits in a driver, and nobody can do more."""


class Server:
    """The parent process, and everything it was ever seen to have started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._seen: dict[int, int] = {}
        self.look()
        try:
            self.pid_fd = os.pidfd_open(pid)
        except (OSError, AttributeError):  # an older kernel, a sandbox, an older build of Python
            self.pid_fd = -1

    def wait(self, limit_s: float | None) -> bool:
        """Whether the server ended within `limit_s`; None waits as long as it lives."""
        if self.pid_fd >= 0:
            return bool(select.select([self.pid_fd], [], [], limit_s)[0])
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while os.getppid() == self.pid:
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(LOOK_EVERY_S if deadline is None else min(LOOK_EVERY_S, max(0.0, limit_s or 0.0)))
        return True

    def look(self) -> list[int]:
        """The PIDs of the server and its descendants now, this process and its own not among them."""
        self._looked_ticks = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
        return [self.pid, *self._see([self.pid])]

    def _see(self, parents: Collection[int]) -> list[int]:
        """The descendants of `parents`, each remembered with its start time."""
        found, new = [], list(parents)
        while new:
            new = [child for parent in new for child in children_of(parent) if child != os.getpid()]
            for pid in new:
                stat = stat_of(pid)
                if stat is not None:
                    self._seen[pid] = stat[1]
            found += new
        return found

    def _see_newborn(self) -> None:
        """Remember what the server started after the last look: `multiprocessing` orphans of this session.

        They fell to the process that this one fell to, which may have children of its own; those are
        older, or not of that kind.
        """
        for pid in children_of(os.getppid()):
            stat = stat_of(pid)
            if (
                stat is not None
                and stat[1] >= self._looked_ticks
                and stat[2] == os.getsid(0)
                and b"multiprocessing" in command_line_of(pid)
            ):
                self._seen[pid] = stat[1]

    def left(self) -> list[int]:
        """The PIDs of those that were seen and still live."""
        return [pid for pid, ticks in self._seen.items() if is_alive(pid, ticks)]

    def clear_up(self) -> None:
        """SIGKILL what is left of everything that was seen; a number that is in use again is left alone."""
        started = time.monotonic()
        while True:
            waited = time.monotonic() - started
            self._see_newborn()
            left = self.left()
            self._see(left)  # whose children would be strangers once they are orphans
            if waited > STUCK_AFTER_S or (not left and waited > NEWBORN_S):
                return
            for pid in left:
                if waited > TRACKER_GRACE_S or b"resource_tracker" not in command_line_of(pid):
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
