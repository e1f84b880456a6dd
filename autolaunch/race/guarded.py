"""A command under its guard: started, watched and ended with everything it ever started.

    this process ──lifeline──▶ guard ──▶ command ──▶ …
              ▲──────status─────┘

The lifeline's write end is held only here: when this process goes, in whatever way, the guard ends the
command's whole tree (see `race/guard.py`).
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autolaunch.race import guard
from autolaunch.race.guarding.leftovers import SCRATCH_PREFIX
from autolaunch.race.guarding.processes import descendants_of
from autolaunch.race.logs import hide_secrets

CLOSE_LIMIT_S = guard.STUCK_AFTER_S + 5.0
"""Longer than the guard waits before it reports what it cannot end."""
LONGEST_SCRATCH = 80
"""A Unix socket's path has 107 characters, and SGLang's own names in the folder take 12."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended."""

    exit: int | None
    """Exit status, negative for a signal; None when not even the guard knows."""
    left: tuple[int, ...] = ()
    """Processes that a SIGKILL did not end within 20 s, as when they hang in a driver."""


class Guarded:
    """One command under its guard; `end` leaves no process, no scratch folder and no secret in the log."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        environ: Mapping[str, str],
        cwd: Path,
        scratch: Path,
        pass_fds: tuple[int, ...] = (),
        census_fd: int | None = None,
    ) -> None:
        """Start `command` with nothing on stdin and its output appended to `log`.

        It inherits `pass_fds`; `census_fd` is held by the guard alone.  OSError when it cannot be started;
        `scratch` is removed by the guard, which also makes it where it is not there, and is the caller's as
        long as there is no guard.
        """
        self._scratch = scratch
        self._log, self._environ = log, environ
        self._exited: Ending | None = None
        self._ending: Ending | None = None
        self._ended = False
        self._line = b""
        lifeline, self._lifeline = os.pipe()
        try:
            self.status_fd, status = os.pipe()
        except OSError:
            os.close(lifeline)
            os.close(self._lifeline)
            raise
        options = ["--lifeline", str(lifeline), "--status", str(status), "--scratch", str(scratch)]
        held = [lifeline, status, *pass_fds]
        if census_fd is not None:
            options += ["--census", str(census_fd)]
            held.append(census_fd)
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", guard.__file__, *options, "--", *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=cwd,
                    env=dict(environ),
                    pass_fds=held,
                    start_new_session=True,
                )
        except OSError:
            os.close(self._lifeline)
            os.close(self.status_fd)
            raise
        finally:
            os.close(lifeline)
            os.close(status)

    @property
    def guard_pid(self) -> int:
        """Process id of the (outer) guard."""
        return self._process.pid

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the guard and of all below it that live now."""
        return (self.guard_pid, *descendants_of(self.guard_pid))

    def exited(self, wait_s: float = 0.0) -> Ending | None:
        """How the command's own process ended, or None if it has not within `wait_s`; others may live on."""
        return self._read_until(lambda: self._ending or self._exited, wait_s)

    def ending(self, wait_s: float = 0.0) -> Ending | None:
        """How it all ended, or None if something still lives after `wait_s` and may yet be ended."""
        return self._read_until(lambda: self._ending, wait_s)

    def _read_until(self, found: Callable[[], Ending | None], wait_s: float) -> Ending | None:
        """Read what the guard says until something is `found`."""
        deadline = time.monotonic() + wait_s
        poll = select.poll()
        poll.register(self.status_fd, select.POLLIN)
        while found() is None:
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                break
            data = os.read(self.status_fd, 65536)
            if not data and self._ending is None:  # both guards were killed at once; nobody knows more
                self._ending = Ending(exit=None)
            *lines, self._line = (self._line + data).split(b"\n")
            for line in map(json.loads, lines):
                if "left" in line:
                    self._ending = Ending(exit=line["exit"], left=tuple(line["left"]))
                else:
                    self._exited = Ending(exit=line["exit"])
        return found()

    def let_go(self) -> None:
        """Have the guard end the command, without waiting for it; `end` is still due."""
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def end(self) -> Ending:
        """End the command and wait until none of its processes is left; more than once does no harm."""
        self.let_go()
        if not self._ended:
            self._ended = True
            ending = self.ending(CLOSE_LIMIT_S)
            if ending is None:
                self._ending = Ending(exit=None, left=(self._process.pid,))
            elif not ending.left:
                self._process.wait(CLOSE_LIMIT_S)
            os.close(self.status_fd)
            shutil.rmtree(self._scratch, ignore_errors=True)  # the guard did, unless it was killed
            hide_secrets(self._log, self._environ)
        return self._ending or Ending(exit=None)


def temporary_folder(environ: Mapping[str, str]) -> str:
    """Where programs with `environ` put temporary files: `TMPDIR`, passed over where it cannot be used."""
    named = environ.get("TMPDIR")
    return named if named and os.access(named, os.W_OK | os.X_OK) else tempfile.gettempdir()


def make_scratch(environ: Mapping[str, str]) -> Path:
    """A new private folder for what an engine puts into its temporary folder, sockets included."""
    return Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=_scratch_parent(environ)))


def name_scratch(environ: Mapping[str, str]) -> Path:
    """The name of such a folder, which nobody can guess; the guard makes the folder, and removes it."""
    return Path(_scratch_parent(environ), SCRATCH_PREFIX + secrets.token_hex(6))


def _scratch_parent(environ: Mapping[str, str]) -> str:
    """The temporary folder of `environ`, unless names in it are too long for sockets."""
    parent = temporary_folder(environ)
    if len(parent) + len(SCRATCH_PREFIX) + 13 > LONGEST_SCRATCH and os.access("/tmp", os.W_OK):  # noqa: S108
        parent = "/tmp"  # noqa: S108 - the folder in it is private
    return parent
