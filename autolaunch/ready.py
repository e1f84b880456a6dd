"""Whether a server may get traffic, from what its watcher wrote down; for a readiness probe.

Where nothing was written down, because the original command was launched and nothing decided, the server is
asked itself, once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from autolaunch.launch.attempt_record import Attempt, is_held, lifeline_of, read_record
from autolaunch.launch.processes import children_of, command_line_of, start_ticks_of
from autolaunch.launch.watching.client import Client
from autolaunch.launch.watching.orders import DEFAULT_HOST, DEFAULT_PORT

SCHEMA: Final = "autolaunch.ready/1"
HEALTH_LIMIT_S: Final = 10.0
"""SGLang's `/health` takes a second, since it generates a token and looks for it once a second."""
_MOST_RECORDS = 64
"""The newest files that are looked through; a file is one command line."""

State = Literal["deciding", "starting", "verifying", "healthy", "verified", "warned", "quarantined", "gone"]
_READY: Final = frozenset({"healthy", "verified", "warned"})


@dataclass(frozen=True, slots=True)
class Readiness:
    """What a probe wants to know."""

    state: State
    """`healthy` for one that is not verified; `warned` where what is wrong with it changes nothing."""
    port: int
    reason: str = ""
    since: str | None = None
    """UTC, ISO 8601, where the record says."""
    source: Literal["record", "health"] = "record"

    @property
    def is_ready(self) -> bool:
        """Whether the server may get traffic."""
        return self.state in _READY

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps({"schema": SCHEMA, "ready": self.is_ready, **asdict(self)})

    def to_text(self) -> str:
        """One line."""
        words = f"{'ready' if self.is_ready else 'not ready'}: port {self.port} is {self.state}"
        since = f" since {self.since}" if self.since else ""
        line = f"{words}{since}{f'; {self.reason}' if self.reason else ''}"
        return " ".join("".join(one if one.isprintable() else " " for one in line).split())


def look(folder: Path, host: str | None = None, port: int | None = None) -> Readiness:
    """What is known of the server on `port`, by default of the one that was started last.

    `folder` holds the attempts (`Folders.attempts`).
    """
    running = [
        (attempt, record)
        for attempt, record in _attempts(folder)
        if attempt.running and attempt.port is not None
    ]
    found = max(
        (one for one in running if port in (None, one[0].port)), key=lambda one: one[0].started, default=None
    )
    if found is None:
        return _asked(host or DEFAULT_HOST, DEFAULT_PORT if port is None else port, "gone")
    return _of(*found, host)


def _attempts(folder: Path) -> Iterator[tuple[Attempt, Path]]:
    """The attempts in the newest records; what cannot be read is passed over."""

    def changed(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except OSError:
            return 0.0

    for path in sorted(folder.glob("*.json"), key=changed, reverse=True)[:_MOST_RECORDS]:
        try:
            attempts = read_record(path) or []
        except OSError:
            continue
        for attempt in attempts:
            yield attempt, path


def _of(attempt: Attempt, record: Path, host: str | None) -> Readiness:
    """What the record says of a server that runs."""
    port = attempt.port or DEFAULT_PORT
    told = attempt.verdict
    if attempt.phase == "race":
        return Readiness("deciding", port, since=attempt.started)
    if attempt.verified is not None:
        return Readiness("verified", port, since=attempt.verified)
    if told is not None and told.status in ("quarantined", "warned"):
        return Readiness("warned" if told.status == "warned" else "quarantined", port, told.reason)
    if attempt.healthy is not None and (told is not None or attempt.verify == "off"):
        return Readiness("healthy", port, told.reason if told else "", attempt.healthy)
    if is_held(lifeline_of(record, attempt.id)) or _has_watcher(attempt):
        if attempt.healthy is None:
            return Readiness("starting", port, since=attempt.started)
        return Readiness("verifying", port, since=attempt.healthy)
    told_since = next((one for one in read_record(record) or () if one.id == attempt.id), attempt)
    if told_since != attempt:  # the watcher was done between the two looks
        return _of(told_since, record, host)
    return _asked(host or attempt.host or DEFAULT_HOST, port, "starting")  # its watcher was killed


def _has_watcher(attempt: Attempt) -> bool:
    """Whether its watcher is among the server's children; a file system without locks shows no lifeline."""
    if start_ticks_of(attempt.pid) != attempt.start_ticks:
        return False  # of another PID namespace or host, where this number is somebody else's
    name = attempt.id.encode()
    return any(name in command_line_of(child).split(b"\0") for child in children_of(attempt.pid))


def _asked(host: str, port: int, otherwise: State) -> Readiness:
    """What the server itself says; whether it speaks TLS is not known here."""
    for tls in (False, True):
        if Client(host, port, tls=tls).is_healthy(HEALTH_LIMIT_S):
            return Readiness("healthy", port, source="health")
    return Readiness(otherwise, port, source="health")
