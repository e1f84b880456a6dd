"""The process of an engine host, from the outside: started under its guard, told, listened to, ended.

It speaks JSON over a socket (`race.control`); that it is over, its guard says (`race.guarded`).  Whatever it
fails of is put into one `Failure`.  What is said, and for how long it is waited, is for `race.engine`.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autolaunch.candidates.candidate import Stage
from autolaunch.race import failures
from autolaunch.race.control import Control
from autolaunch.race.guarded import Ending, Guarded, name_scratch
from autolaunch.race.outcomes import EngineFailed, Failure
from autolaunch.race.overlay import trial_environment

LAST_WORDS_S = 3.0
"""What a host that reported an error, or hung up, is given to end by itself."""
ENGINE_HOST = Path(__file__).with_name("child") / "engine_host.py"

Wanted = Callable[[Mapping[str, Any]], bool]
"""Whether a message is the one that is waited for."""


class HostProcess:
    """One process and all below it; once `close` was called no process, socket or temporary file is left."""

    def __init__(
        self,
        python: str,
        *,
        log: Path,
        environ: Mapping[str, str],
        cwd: Path,
        census_fd: int | None,
        company: bool,
        sglang: str | None,
    ) -> None:
        """A host in `python`; nothing is started yet.  The rest is as for an `Engine`."""
        self._python, self._environ, self._cwd = python, environ, cwd
        self._census_fd, self._company, self._sglang = census_fd, company, sglang
        self._log = log
        self.stage: Stage = "start"
        """How far it got, by what it says or was asked."""
        self.started_s = 0.0
        self.ending: Ending | None = None
        """How it ended, once it has been closed."""
        self._guarded: Guarded | None = None
        self._control: Control | None = None
        self._failure: Failure | None = None

    def start(self) -> None:
        """Start the guard, which starts the host; returns at once.

        OSError when not even that is possible: no memory, no process, no folder for the log.
        """
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as undo:
            scratch = name_scratch(self._environ)  # made by the guard, so that no kill can come between
            undo.callback(shutil.rmtree, scratch, ignore_errors=True)
            control = self._control = Control()
            undo.callback(control.close)
            self.started_s = time.monotonic()
            self._guarded = Guarded(
                [self._python, str(ENGINE_HOST), "--control", str(control.host_fd)],
                log=self._log,
                environ=trial_environment(self._environ, scratch, company=self._company, sglang=self._sglang),
                cwd=self._cwd,
                scratch=scratch,
                pass_fds=(control.host_fd,),
                census_fd=self._census_fd,
            )
            undo.pop_all()
        control.listen(self._guarded.status_fd)

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of all that belongs to it; none before it is started and after it was closed."""
        return self._guarded.pids if self._guarded is not None else ()

    def let_go(self) -> None:
        """Begin to end it, so that several end at the same time; `close` is still due."""
        if self._guarded is not None:
            self._guarded.let_go()

    def close(self) -> None:
        """End it and wait until none of its processes is left; more than once does no harm."""
        if self._guarded is not None:
            self.ending = self._guarded.end()
            self._guarded = None
        if self._control is not None:
            self._control.close()
            self._control = None

    def must_be_sound(self) -> None:
        """EngineFailed where it failed before: the same failure once more."""
        if self._failure is not None:
            raise EngineFailed(self._failure)

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send `message` with the next exchanges; to one that was closed, nothing."""
        if self._control is not None:
            self._control.send(message)

    def exchange(self, wait_s: float) -> None:
        """Send and receive, waiting at most `wait_s`; EngineFailed where the host hangs up and lives on."""
        if self._control is None or not self._control.exchange(wait_s):
            return
        # All that can still come is the word of the guard.
        if self._guarded is not None and self._guarded.exited(LAST_WORDS_S) is None:
            raise self.failed(hung="closed its control socket and went on")

    def send_all(self, limit_s: float) -> None:
        """Go on sending until all is sent, for at most `limit_s`; EngineFailed as for `exchange`."""
        until = time.monotonic() + limit_s
        while self._control is not None and self._control.unsent and time.monotonic() < until:
            self.exchange(max(0.0, until - time.monotonic()))

    def look(self, wanted: Wanted) -> dict[str, Any] | None:
        """The first message that has come and is `wanted`; EngineFailed on an error or an end."""
        ending = self._guarded.exited() if self._guarded else Ending(exit=None)
        if self._control is not None and ending is not None:
            self._control.drain()
        received = self._control.received() if self._control is not None else []
        for message in received:
            if message.get("event") == "stage":
                self.stage = message["stage"]
            elif message.get("event") == "error":
                raise self.failed(event=message)
            elif "error" in message:
                raise self.failed(event=message["error"])
            elif wanted(message):
                return message
        if ending is not None:
            raise self.failed(exit_status=ending.exit)
        return None

    def failed(
        self,
        *,
        event: Mapping[str, Any] | None = None,
        exit_status: int | None = None,
        hung: str | None = None,
    ) -> EngineFailed:
        """The failure that what happened amounts to; it is the last one, for nothing is asked after it."""
        if event is not None and "event" in event and self._guarded is not None:
            ending = self._guarded.exited(LAST_WORDS_S)
            exit_status = ending.exit if ending is not None else None
        self._failure = failures.classify(
            stage=self.stage,
            exit_status=exit_status,
            lines=failures.read_log(self._log),
            event=event,
            hung=hung,
            log=str(self._log),
        )
        return EngineFailed(self._failure)
