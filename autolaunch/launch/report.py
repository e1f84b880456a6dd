"""What the deciding process and the launcher say to each other, as one JSON object a line.

The deciding process (see `supervise`) holds a `Reporter`: it names the stage it enters and how long that
may take, and at its end delivers one `Decision`, or the `Fault` that kept it from one.  The launcher reads
with an `Inbox`, which believes nothing: whatever does not make sense is a fault too.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from autolaunch.command import Command
from autolaunch.errors import EXIT_FAILED, AutolaunchError

LONGEST_STAGE_S = 30 * 24 * 3600.0
_LONGEST_LINE_BYTES = 8 << 20  # the kernel takes at most a few MiB of argv and environment
_MOST_BYTES = 4 * _LONGEST_LINE_BYTES
_MOST_LINES = 10_000


@dataclass(frozen=True, slots=True)
class Decision:
    """What the launcher shall become."""

    command: Command
    """Candidate 0 or the winner."""
    reason: str = ""
    """One line for the user, said just before the exec; empty says nothing."""
    watch: tuple[str, ...] | None = None
    """The argv of the watcher (`instructions.watcher_argv`), or None where nothing was raced or chosen."""
    document: str = ""
    """What a dry run prints in the place of the command; empty for the command."""


@dataclass(frozen=True, slots=True)
class StageEntered:
    """The deciding process began stage `name` and must end it within `limit_s` seconds."""

    name: str
    limit_s: float


@dataclass(frozen=True, slots=True)
class Fault:
    """Why there is no decision, in the four parts of a message (`errors.render_message`)."""

    what: str
    because: tuple[str, ...] = ()
    evidence: str | None = None
    hint: str | None = None
    exit_code: int = EXIT_FAILED

    @classmethod
    def of(cls, error: AutolaunchError) -> Fault:
        """The same message as `error`."""
        return cls(error.what, error.because, error.evidence, error.hint, error.exit_code)


class NonsenseError(Exception):
    """The deciding process wrote something that no working one writes."""


class Reporter:
    """The deciding process's only link to the launcher; single-threaded like everything around it."""

    def __init__(self, report_fd: int, census_fd: int, top_pid: int) -> None:
        self._report_fd = report_fd
        self._interrupted = False
        self.current_stage = "start"
        """The stage that was begun last, for messages."""
        self.census_fd = census_fd
        """Write end of the census pipe, for every guard to inherit: end of file says that none is left."""
        self.top_pid = top_pid
        """The process that becomes the server; attempt records and the watcher name it."""

    @property
    def interrupted(self) -> bool:
        """Whether the user pressed Ctrl-C: stop measuring and deliver the best so far."""
        return self._interrupted

    def interrupt(self, *_: object) -> None:
        """Note a Ctrl-C; made to be a signal handler."""
        self._interrupted = True

    def stage(self, name: str, limit_s: float) -> None:
        """Say that `name` begins and ends within `limit_s` seconds; past that the original is started."""
        self.current_stage = name
        self._send({"stage": name, "limit_s": limit_s})

    def deliver(self, outcome: Decision | Fault, *, watched: bool) -> None:
        """Send the last word; with `watched` this process is about to become the watcher."""
        if isinstance(outcome, Fault):
            fault = {name: getattr(outcome, name) for name in Fault.__slots__}
            self._send({"fault": fault})
        else:
            command = outcome.command
            self._send(
                {
                    "argv": command.argv,
                    "env": command.env,
                    "reason": outcome.reason,
                    "watch": outcome.watch if watched else None,
                    "document": outcome.document,
                }
            )

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode() + b"\n"  # ASCII: bytes that are no UTF-8 travel as surrogates
        while data:
            data = data[os.write(self._report_fd, data) :]


class Inbox:
    """Bytes of the report pipe in, messages out."""

    def __init__(self) -> None:
        self._rest = b""
        self._bytes = self._lines = 0

    @property
    def has_half_a_line(self) -> bool:
        """Whether the last message so far lacks its end."""
        return bool(self._rest)

    def feed(self, data: bytes) -> Iterator[StageEntered | Decision | Fault]:
        """The messages that `data` completes; NonsenseError for what is none, or too much."""
        self._bytes += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._lines += len(lines)
        if self._bytes > _MOST_BYTES or self._lines > _MOST_LINES or len(self._rest) > _LONGEST_LINE_BYTES:
            raise NonsenseError(f"{self._bytes} bytes in {self._lines} lines")
        for line in lines:
            try:
                yield _understand(json.loads(line))
            except (ValueError, TypeError, KeyError, RecursionError) as error:
                raise NonsenseError(f"{line[:60]!r}") from error


def _understand(message: Any) -> StageEntered | Decision | Fault:
    """The value that `message` describes; ValueError, TypeError or KeyError if it describes none."""
    if not isinstance(message, dict):
        raise TypeError("not an object")
    if "stage" in message:
        limit_s = float(message["limit_s"])
        if math.isnan(limit_s):
            raise ValueError("not a limit")
        return StageEntered(_text(message["stage"]), min(max(limit_s, 0.0), LONGEST_STAGE_S))
    if "fault" in message:
        fault = message["fault"]
        return Fault(
            what=_text(fault["what"]),
            because=_texts(fault["because"]),
            evidence=fault["evidence"] and _text(fault["evidence"]),
            hint=fault["hint"] and _text(fault["hint"]),
            exit_code=int(fault["exit_code"]),
        )
    argv, env = _texts(message["argv"]), tuple((_text(k), _text(v)) for k, v in message["env"])
    if not argv or any("\0" in word for word in argv):
        raise ValueError("not an argv")
    if any(not name or "=" in name or "\0" in name + value for name, value in env):
        raise ValueError("not an environment")
    watch = None if message["watch"] is None else _texts(message["watch"])
    return Decision(Command(argv, env), _text(message["reason"]), watch, _text(message.get("document", "")))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise TypeError("not a list")
    return tuple(_text(item) for item in value)
