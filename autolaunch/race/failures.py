"""Turns the end of a trial engine into a failure: which stage, which kind, and why, from rows of facts.

The log is read from its *first* error on: what follows is mostly other processes noticing.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from autolaunch.candidates.candidate import FailureKind, Stage
from autolaunch.race.outcomes import Failure
from autolaunch.redact import redact
from autolaunch.tables import load_rows

TAIL_LINES = 40
READ_BYTES = 1 << 20
ARGPARSE_EXIT = 2
"""What argparse ends with where it refuses a command line."""
REASON_LENGTH = 300

_ERROR_LINE = re.compile(
    r"Traceback \(most recent call last\)|\b\w*(Error|Exception)\b: |: error: |Fatal Python error"
    r"|terminate called|^autolaunch guard: "
)
_MESSAGE_LINE = re.compile(r"(\w+\.)*\w*(Error|Exception|Interrupt|Exit|Failure|Timeout)\b")
_FRAME_LINE = re.compile(r'\s+File "(?:.*/)?(?P<file>[^"/]+)", line \d+, in (?P<function>\S+)')
_CAPTURE_BEGIN = re.compile(r"Capture .*graph begin")
_CAPTURE_END = re.compile(r"Capture .*graph end")


@dataclass(frozen=True, slots=True)
class Row:
    """One known way to end; see `data/failures.toml`."""

    id: str
    pattern: re.Pattern[str]
    kind: FailureKind
    reason: str
    example: str


@cache
def known_endings() -> tuple[Row, ...]:
    """The rows of `data/failures.toml`, in their order."""
    return tuple(
        Row(
            id=row["id"],
            pattern=re.compile(row["pattern"]),
            kind=row["kind"],
            reason=row["reason"],
            example=row["example"],
        )
        for row in load_rows("failures", "failure")
    )


def classify(
    *,
    stage: Stage,
    exit_status: int | None,
    lines: Sequence[str],
    event: Mapping[str, Any] | None = None,
    hung: str | None = None,
    log: str | None = None,
) -> Failure:
    """The failure of an engine that was at `stage`.

    `lines` is its log, `event` what it reported about itself (`type`, `message`), `hung` what it did not do
    in time.  An engine that hung is a hang, whatever its log says.
    """
    stage = _refine(stage, lines)
    tail = log_tail(lines)
    if hung is not None:
        return Failure(stage, "hang", hung, exit_status, tail, log)
    said = [*_first_error(lines), *_event_lines(event)]
    for row in known_endings():
        for line in said:
            match = row.pattern.search(line)
            if match:
                found = {name: text or "" for name, text in match.groupdict().items()}
                reason = row.reason.format_map({"line": line.strip(), **found})
                return Failure(stage, row.kind, _clean(reason), exit_status, tail, log, rule=row.id)
    kind: FailureKind = "rejected" if exit_status == ARGPARSE_EXIT and stage == "start" else "crash"
    reason = _clean(_unknown(said, exit_status))
    return Failure(stage, kind, reason, exit_status, tail, log, said_error=bool(said))


def log_tail(lines: Sequence[str]) -> tuple[str, ...]:
    """At most 40 lines from the first error on, or the last ones if there is none; secrets removed.

    Of a longer traceback its first half and its end are kept, for the message is there.
    """
    error = _first_error(lines) or lines[-TAIL_LINES:]
    if len(error) > TAIL_LINES:
        end = next((n for n, line in enumerate(error[1:], 1) if _MESSAGE_LINE.match(line)), TAIL_LINES - 1)
        if end < TAIL_LINES:
            error = error[:TAIL_LINES]
        else:
            half = TAIL_LINES // 2
            error = [*error[:half], "…", *error[end - half + 2 : end + 1]]
    return tuple(redact(line) for line in error)


def read_log(path: Path) -> list[str]:
    """Lines of the log, at most its first and last megabyte; none where it cannot be read."""
    try:
        with path.open("rb") as file:
            data = file.read(READ_BYTES)
            size = file.seek(0, 2)
            if size > READ_BYTES:
                file.seek(max(READ_BYTES, size - READ_BYTES))
                data += b"\n" + file.read()
    except OSError:
        return []
    return data.decode("utf-8", "replace").splitlines()


def describe_exit(status: int | None) -> str:
    """`ended with exit status 1`, `was ended by SIGKILL`; a sentence without a subject."""
    if status is None:
        return "ended, nobody knows how"
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _refine(stage: Stage, lines: Sequence[str]) -> Stage:
    """`capture` instead of `load` while the log says that graphs are being captured."""
    if stage != "load":
        return stage
    begun = sum(1 for line in lines if _CAPTURE_BEGIN.search(line))
    ended = sum(1 for line in lines if _CAPTURE_END.search(line))
    return "capture" if begun > ended else stage


def _first_error(lines: Sequence[str]) -> Sequence[str]:
    """The lines from the first error on; none if there is no error."""
    first = next((number for number, line in enumerate(lines) if _ERROR_LINE.search(line)), len(lines))
    return lines[first:]


def _event_lines(event: Mapping[str, Any] | None) -> list[str]:
    if event is None or event.get("type") in (None, "SystemExit"):
        return []
    return [f"{event['type']}: {line}" for line in str(event.get("message", "")).splitlines() or [""]]


def _unknown(said: Sequence[str], exit_status: int | None) -> str:
    """One sentence for an end that no row knows: the first error's message, else the exit."""
    if said and "Traceback (most recent call last)" not in said[0]:
        return said[0].strip()
    frame = None
    for line in said:
        frame = _FRAME_LINE.match(line) or frame
        if _MESSAGE_LINE.match(line):
            message = line.strip()
            if ":" not in message and frame is not None:  # a bare exception says nothing but where
                message += f" in {frame['function']} ({frame['file']})"
            return message
    if exit_status == -signal.SIGKILL:
        return "was ended by SIGKILL and had reported no error; the machine may be out of memory"
    return describe_exit(exit_status)


def _clean(reason: str) -> str:
    reason = redact(reason).rstrip(". ")
    return reason if len(reason) <= REASON_LENGTH else reason[: REASON_LENGTH - 1] + "…"
