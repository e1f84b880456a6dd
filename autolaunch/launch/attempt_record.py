"""The file in which the attempts of one command line are kept: how it is read, written and locked.

The protocol: a lock on the file beside it, then a new file in the place of the old.  A start does not wait
until that is on disk, which behind a model that was just downloaded takes as long as the start itself; its
watcher does, beside the server.  Until then what was on disk before stays beside it, as `.before`, for a
machine that crashes meanwhile and a file system that then has an empty file.

NOTE: the watcher runs alone and imports nothing of this, so `Record` in `watching/record.py` repeats
`locked`, `write_record`, `put_on_disk` and `lifeline_of` on purpose, but writes straight to the disk: nobody
waits for it.  Who changes one side changes both.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shlex
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from autolaunch.command import Command
from autolaunch.launch.processes import boot_id, pid_namespace, start_ticks_of
from autolaunch.redact import redact_argv

SCHEMA = "autolaunch.attempts/1"
LOCK_LIMIT_S = 5.0
_ID = re.compile(r"[0-9a-f]{1,32}")
"""It is a part of a file's name."""
_HIGHEST_PID, _HIGHEST_PORT, _MOST_TICKS = (1 << 31) - 1, (1 << 16) - 1, (1 << 63) - 1
_SIZE_LIMIT_BYTES = 16 << 20  # forty attempts, each with flags as long as a command line allows


@dataclass(frozen=True, slots=True)
class Answers:
    """What the watcher thinks of a server's answers."""

    status: str
    """`verified`, `quarantined` for garbage and the like, `warned` where that changes nothing, `unasked`."""
    reason: str = ""
    kind: str = ""
    """A failure kind (`candidates.candidate`) where something is wrong: `garbage`, `silent_fallback`."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One launch: which process, with which choice, and whether it was seen healthy."""

    id: str
    started: str
    """UTC, ISO 8601; no start is judged by it, since clocks are set."""
    pid: int
    start_ticks: int
    boot_id: str
    pid_namespace: str
    phase: Literal["race", "launch"]
    """`race` until the choice is recorded, `launch` after."""
    candidate_flags: tuple[str, ...] = ()
    candidate_env: tuple[tuple[str, str], ...] = ()
    origin: str = "original"
    host: str = ""
    port: int | None = None
    """Where its server listens, as typed; None where that is not known."""
    verify: str = "off"
    """What was asked of the watcher after health: `on`, `warn` or `off`, which asks nothing of the server."""
    profile: str | None = None
    """The name of the profile that the choice came from or was kept as."""
    setting: dict[str, Any] | None = None
    """What a failure of it would be bound to, as `tune.learning` makes it: versions, machine, model."""
    healthy: str | None = None
    """When the watcher saw it healthy, as `started`."""
    verified: str | None = None
    """When the watcher had heard sound answers, as `started`."""
    verdict: Answers | None = None
    """What the watcher thinks of the answers; None before it knows."""
    ended: str | None = None
    """How it ended, where the watcher saw that before it was done: `exit 1`, `SIGKILL`, `unknown`."""
    listened: bool = False
    """Whether its socket was open when it ended: who is ended then may say so by its exit status."""
    gave_up: bool = False
    """Whether the server killed the watcher first, as SGLang does with all of its own when it gives up."""
    excuse: str | None = None
    """Why its end says nothing of the choice, in words: somebody else had its port, for example."""
    forgiven: bool = False
    """Whether somebody had its choice measured again since."""
    running: bool = False
    """Whether the process still lives, seen when the record was read; not recorded."""

    @property
    def is_choice(self) -> bool:
        """Whether something else than the original was launched."""
        return bool(self.candidate_flags or self.candidate_env)


def read_record(record: Path) -> list[Attempt] | None:
    """The attempts in `record`; None if it does not exist or is not to be understood."""
    try:
        content = _content(record)
        if not content.strip(b"\0"):  # a machine crashed before it was on disk
            content = _content(before_of(record))
        data = json.loads(content)
        if data["schema"] != SCHEMA:
            return None
        attempts = [_attempt(item) for item in data["attempts"]]
        return [replace(attempt, running=_is_running(attempt, record)) for attempt in attempts]
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno != errno.ELOOP:  # nobody's disk is at fault where a link leads to itself
            raise
        return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _content(path: Path) -> bytes:
    """What the file `path` holds; ValueError where it is none, or too large."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > _SIZE_LIMIT_BYTES:
        raise ValueError("reading a pipe or a device would not end")
    return path.read_bytes()


def _attempt(item: dict[str, Any]) -> Attempt:
    """The attempt that `item` describes; fields of a newer version are passed over.

    What only tells of a server and is of another kind counts as absent.  Where that is so of what says which
    process it was, where, or with which choice, nothing in the record can be relied on: ValueError.
    """
    values = {field.name: item[field.name] for field in fields(Attempt) if field.name in item}
    if not isinstance(item["candidate_flags"], list) or not isinstance(item["candidate_env"], list):
        raise ValueError("a choice is a list of flags and one of variables")
    values["candidate_flags"] = tuple(str(word) for word in item["candidate_flags"])
    values["candidate_env"] = tuple((str(name), str(value)) for name, value in item["candidate_env"])
    if not isinstance(values.get("setting"), dict):
        values["setting"] = None
    for name in ("profile", "healthy", "verified", "ended", "excuse"):
        if not isinstance(values.get(name), str):
            values[name] = None
    if item.get("verdict") is not None:
        told = {field.name: str(item["verdict"].get(field.name, "")) for field in fields(Answers)}
        values["verdict"] = Answers(**told)
    attempt = Attempt(**values)
    if not _is_plausible(attempt):
        raise ValueError("a field of an attempt is of another kind")
    return attempt


def _is_plausible(attempt: Attempt) -> bool:
    """Whether every field is of its kind, whoever wrote it; those that may be absent have been seen to."""
    texts = (
        *(attempt.id, attempt.started, attempt.boot_id, attempt.pid_namespace),
        *(attempt.phase, attempt.origin, attempt.host, attempt.verify),
    )
    numbers = (
        (attempt.pid, 1, _HIGHEST_PID),
        (attempt.start_ticks, 0, _MOST_TICKS),
        (0 if attempt.port is None else attempt.port, 0, _HIGHEST_PORT),
    )
    return (
        all(isinstance(text, str) for text in texts)
        and _ID.fullmatch(attempt.id) is not None
        and attempt.phase in ("race", "launch")
        and all(type(value) is int and least <= value <= most for value, least, most in numbers)
        and all(type(it) is bool for it in (attempt.listened, attempt.gave_up, attempt.forgiven))
    )


def write_record(record: Path, original: Command, attempts: Sequence[Attempt]) -> None:
    """Put a new record in the place of the old one, which no reader sees half of; `put_on_disk` is next."""
    items = [asdict(attempt) for attempt in attempts]
    for item in items:
        del item["running"]
    data = {"schema": SCHEMA, "command": shlex.join(redact_argv(original.argv)), "attempts": items}
    new = record.with_name(f"{record.stem}.{os.getpid()}.new")
    try:
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="ascii") as file:
            json.dump(data, file, indent=1)
        with suppress(OSError):  # none yet, or one that is on disk and older; or no links here
            before_of(record).hardlink_to(record)
        new.replace(record)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def put_on_disk(record: Path) -> None:
    """Have `record` on disk before this returns, since launches crash machines; OSError when that fails."""
    with record.open("rb") as file:
        os.fsync(file.fileno())
        if os.path.samestat(os.fstat(file.fileno()), record.stat()):  # nobody has put another in its place
            before_of(record).unlink(missing_ok=True)


def put_aside(record: Path) -> None:
    """Keep what is no record beside its place, whatever it is, in the place of what was there before."""
    try:
        record.replace(record.with_suffix(".corrupt"))
    except OSError:  # what was there is a folder, or this one is
        record.replace(record.with_name(f"{record.stem}.{os.urandom(4).hex()}.corrupt"))


def before_of(record: Path) -> Path:
    """What was in the place of `record`, for as long as it is not on disk."""
    return record.with_suffix(".before")


@contextmanager
def locked(record: Path) -> Iterator[None]:
    """Hold the lock beside `record`; TimeoutError, an OSError, if somebody else does for too long."""
    deadline = time.monotonic() + LOCK_LIMIT_S
    handle = os.open(record.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another launcher holds the lock of {record}") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(handle)  # NOTE: the file stays; removing it would let two processes lock two files


def _is_running(attempt: Attempt, record: Path) -> bool:
    """Whether the process of `attempt` lives; in another PID namespace or on another host, its watcher."""
    if (attempt.boot_id, attempt.pid_namespace) == (boot_id(), pid_namespace()):
        return start_ticks_of(attempt.pid) == attempt.start_ticks
    return is_held(lifeline_of(record, attempt.id))


def lifeline_of(record: Path, attempt: str) -> Path:
    """The file that the watcher of `attempt` keeps locked as long as it lives."""
    return record.with_name(f"{record.stem}.{attempt}.alive")


def is_held(path: Path) -> bool:
    """Whether some process, on any host that shares the folder, holds a lock on `path`."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: who else asks is no holder
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks: the safe answer is that it is over
        return False
    finally:
        os.close(handle)
    return False


def sweep(record: Path) -> None:
    """Remove what the dead left beside `record`, whose lock the caller holds."""
    for path in record.parent.glob(f"{record.stem}.*.new"):
        path.unlink(missing_ok=True)
    for path in record.parent.glob(f"{record.stem}.*.alive"):
        if not is_held(path):
            path.unlink(missing_ok=True)
