"""One trial engine, from the outside: started, waited for, asked, ended.

Requests go one at a time to the engine host (`race/child/engine_host.py`), whose process is a `HostProcess`.
There are no threads; while something is waited for, `on_tick` is called about five times a second and may
raise to leave.  Of several engines that start at once, each is asked with `poll_ready`, which never waits;
of several that work at once, each is told with `begin` and asked with `poll`.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from autolaunch.candidates.candidate import Stage
from autolaunch.command import Command
from autolaunch.race.guarded import Ending
from autolaunch.race.host_process import HostProcess, Wanted
from autolaunch.race.outcomes import EngineFailed, EngineReady
from autolaunch.redact import without_credentials
from autolaunch.request.entry import LAUNCH_SERVER
from autolaunch.units import format_duration

TICK_S = 0.2
"""Between two calls of `on_tick`, at the least."""
SEND_S = 0.05
"""What a look at an engine may take where it has not been sent all; prompts are larger than a socket."""

Tick = Callable[[], None]
"""Called while something is waited for; may raise to leave."""


class Engine:
    """A context manager round one engine; leaving it leaves no process, socket or temporary file."""

    def __init__(
        self,
        command: Command,
        overlay: tuple[str, ...],
        *,
        log: Path,
        environ: Mapping[str, str],
        cwd: Path,
        census_fd: int | None = None,
        on_tick: Tick | None = None,
        company: bool = False,
        sglang: str | None = None,
        held: bool = False,
    ) -> None:
        """An engine for `command`, as it would be exec'ed, plus `overlay`; nothing is started yet.

        `environ` is what the command would inherit; the variables of the command are added here, and keys
        for HTTP are kept from it.  The output of the engine and of its guard is appended to `log`.
        `company` says that others share its GPUs; `sglang` is the version, which decides where compiled
        kernels are kept.  One that is `held` imports SGLang and goes on when it is let, with `release`.
        """
        python, self._tokens = split_command(command)
        self._host = HostProcess(
            python,
            log=log,
            environ=command.environment(environ),
            cwd=cwd,
            census_fd=census_fd,
            company=company,
            sglang=sglang,
        )
        self._on_tick = on_tick or (lambda: None)
        self._held = held
        self.overlay = overlay
        self.log = log
        self.facts: Mapping[str, Any] = {}
        """What the engine says beside its server info: `vocab_size`, `context_len`, `has_tokenizer`."""
        self._ticked_s = 0.0
        self._requests = 0
        self._deadline_s = math.inf

    def start(self) -> None:
        """Start the guard, which starts the engine; returns at once.

        OSError when not even that is possible: no memory, no process, no folder for the log.
        """
        self._host.start()
        argv = list(without_credentials(self._tokens))
        self._host.tell({"argv": argv, "overlay": list(self.overlay), "held": self._held})
        self._host.exchange(0)

    def release(self) -> None:
        """Let an engine that is held go on."""
        self._host.tell({"go": True})
        self._host.exchange(0)

    def wait_ready(self, limit_s: float) -> EngineReady:
        """Wait until the engine answers; EngineFailed says at which stage it ended instead."""
        return self._ready(self._await(limit_s, _is_ready, "was not ready"))

    def poll_ready(self) -> EngineReady | None:
        """Whether the engine answers by now, without waiting; EngineFailed where it has ended instead."""
        self._host.must_be_sound()
        self._host.exchange(0)
        message = self._host.look(_is_ready)
        return None if message is None else self._ready(message)

    def _ready(self, message: Mapping[str, Any]) -> EngineReady:
        """What the event `ready` says; its own time stamp counts, for nobody may have listened."""
        self._host.stage = "serve"
        self.facts = message["engine"]
        ready_s = message.get("ready_s") or time.monotonic()
        return EngineReady(startup_s=ready_s - self._host.started_s, resolved=message["resolved"])

    def ask(self, op: str, limit_s: float, *, at: Stage = "serve", **args: Any) -> Any:
        """Have the engine do `op` and return its answer; EngineFailed when it does not within `limit_s`.

        `at` is the stage of such a failure.  An engine that failed once is not asked again: the same failure
        is raised.
        """
        number = self.begin(op, at=at, **args)
        limit_s = min(limit_s, max(0.0, self._deadline_s - time.monotonic()))
        return self._await(limit_s, _answers(number), f"did not finish `{op}`")["value"]

    def begin(self, op: str, *, at: Stage = "serve", **args: Any) -> int:
        """Have the engine do `op` once it has done all before; returns at once, with a number for `poll`.

        Of what is begun together, only the last answer can be had.
        """
        self._host.must_be_sound()
        self._host.stage = at
        self._requests += 1
        self._host.tell({"id": self._requests, "op": op, "args": args})
        return self._requests

    def poll(self, number: int) -> Any | None:
        """The answer to what was begun as `number`, or None where it is not there yet.

        No operation that is begun answers None.  EngineFailed where the engine failed in that, or before.
        """
        self._host.must_be_sound()
        self._host.exchange(0)
        self._host.send_all(SEND_S)
        message = self._host.look(_answers(number))
        return None if message is None else message["value"]

    def hangs(self, what: str) -> EngineFailed:
        """The failure of an engine that whoever polled it does not wait for any longer, as `what` says."""
        return self._host.failed(hung=what)

    @contextlib.contextmanager
    def within(self, limit_s: float) -> Iterator[None]:
        """All that is asked while this lasts may take `limit_s` together; then the engine has failed."""
        self._deadline_s = time.monotonic() + limit_s
        try:
            yield
        finally:
            self._deadline_s = math.inf

    @property
    def stage(self) -> Stage:
        """How far it got."""
        return self._host.stage

    @property
    def ending(self) -> Ending | None:
        """How it ended, once it has been closed."""
        return self._host.ending

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of all that belongs to it; none before it is started and after it was closed."""
        return self._host.pids

    def let_go(self) -> None:
        """Begin to end the engine, so that several end at the same time; `close` is still due."""
        self._host.let_go()

    def close(self) -> None:
        """End the engine and wait until none of its processes is left; more than once does no harm."""
        self._host.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _await(self, limit_s: float, wanted: Wanted, what: str) -> dict[str, Any]:
        """The next message that is `wanted`; EngineFailed on an error, an end, or after `limit_s`."""
        deadline = time.monotonic() + limit_s
        while True:
            message = self._host.look(wanted)
            if message is not None:
                return message
            now = time.monotonic()
            if now >= deadline:
                raise self._host.failed(hung=f"{what} within {format_duration(limit_s)}")
            if now - self._ticked_s >= TICK_S:
                self._ticked_s = now
                self._on_tick()
            self._host.exchange(min(deadline - now, TICK_S))


def _answers(number: int) -> Wanted:
    """Whether a message is the answer to request `number`."""
    return lambda message: message.get("id") == number


def _is_ready(message: Mapping[str, Any]) -> bool:
    """Whether the engine host says that its engine answers."""
    return message.get("event") == "ready"


def split_command(command: Command) -> tuple[str, tuple[str, ...]]:
    """The interpreter and SGLang's tokens of `command`; ValueError when it launches something else."""
    python, *rest = command.argv
    length = len(LAUNCH_SERVER)
    if tuple(rest[:length]) != LAUNCH_SERVER:
        raise ValueError(f"not `PYTHON {' '.join(LAUNCH_SERVER)} …`: {command.shell()}")
    return python, tuple(rest[length:])
