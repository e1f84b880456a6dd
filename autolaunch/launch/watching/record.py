"""Writes into the attempt record and into the profile what the watcher sees.

The record and its lock are those of `attempt_record.py`, which this repeats on purpose: who changes one side
changes both.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from autolaunch.launch.watching.ending import UNNOTED

if TYPE_CHECKING:
    from autolaunch.launch.watching.orders import Orders
    from autolaunch.launch.watching.verifying import Finding

LOCK_LIMIT_S = 10.0
LIFELINE_LIMIT_S = 2.0
"""Who asks whether this attempt lives has its lifeline for a moment."""
RECORD_EVERY_S = 30.0
"""Between two tries to write the record, where a disk is full for example."""
LOOK_EVERY_S = 0.1
"""How soon the server's end is seen while its profile is marked."""
PROFILE_LIMIT_S = 60.0
"""For a Python to start and to write one file, on a slow disk and behind others that hold its lock."""

SIZE_LIMIT_BYTES = 16 << 20
"""As the launcher's: what is larger is no record."""

Fields = Mapping[str, object]


def now() -> str:
    """UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_file(path: Path) -> bytes:
    """What the file `path` holds; OSError or ValueError where it is none, or too large: a pipe never ends."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_size > SIZE_LIMIT_BYTES:
            raise ValueError("it is no file, or too large")
        return file.read()


def lock(handle: int, limit_s: float) -> None:
    """Lock the file `handle` for this process alone; OSError where somebody else has it for longer."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


class Record:
    """One attempt in its file."""

    def __init__(self, path: Path, attempt: str, say: Callable[[str], None]) -> None:
        self._path = path
        self._attempt = attempt
        self._say = say
        self._complained = False

    def note(self, fields: Fields) -> None:
        """Set `fields` of the attempt: under the lock, by a new file in the place of the old."""
        handle = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            lock(handle, LOCK_LIMIT_S)
            data = json.loads(read_file(self._path))
            for item in data["attempts"]:
                if item["id"] == self._attempt:
                    item.update(fields)
            self._replace(data)
        finally:
            os.close(handle)

    def _replace(self, data: object) -> None:
        new = self._path.with_name(f"{self._path.stem}.{os.getpid()}.new")
        try:
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "w", encoding="ascii") as file:
                json.dump(data, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
        except OSError:
            new.unlink(missing_ok=True)
            raise

    def settle(self) -> threading.Thread:
        """Have the record on disk, which the launcher left to this process; where that fails, it is said.

        Done by a thread: behind a download that takes seconds, in which the server is watched all the same.
        """
        thread = threading.Thread(target=self._put_on_disk, daemon=True)
        thread.start()
        return thread

    def _put_on_disk(self) -> None:
        try:
            handle = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                os.fsync(handle)
                if os.path.samestat(os.fstat(handle), self._path.stat()):
                    self._path.with_suffix(".before").unlink(missing_ok=True)
            finally:
                os.close(handle)
        except OSError as error:
            self._complain(error)

    def try_to_note(self, fields: Fields) -> bool:
        """Whether `fields` are noted now; the first time they are not, it is said."""
        try:
            self.note(fields)
        except UNNOTED as error:
            self._complain(error)
            return False
        return True

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            self._say(f"could not record in {self._path} what became of the server: {error}")
            self._complained = True

    def keep_noting(self, fields: Fields, ended_within: Callable[[float], bool]) -> None:
        """Note `fields`, however often it takes, as long as the server lives."""
        while not self.try_to_note(fields):
            if ended_within(RECORD_EVERY_S):
                return

    @contextlib.contextmanager
    def lifeline(self) -> Iterator[None]:
        """Hold a lock that tells other PID namespaces and hosts that this attempt lives."""
        path = self._path.with_name(f"{self._path.stem}.{self._attempt}.alive")
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):  # a full disk, or a file system without locks
                lock(stack.enter_context(path.open("w")).fileno(), LIFELINE_LIMIT_S)
            yield
            path.unlink(missing_ok=True)


def fields_of(finding: Finding) -> Fields:
    """What the attempt gets to know of `finding`."""
    verdict = {"status": finding.status, "reason": finding.reason, "kind": finding.kind}
    return {"verdict": verdict, **({"verified": now()} if finding.status == "verified" else {})}


def mark_profile(orders: Orders, finding: Finding, ended_within: Callable[[float], bool]) -> str | None:
    """Let the profile know of `finding`; why that was not possible, or None.

    A store is TOML with a schema, which only autolaunch's own Python writes.  Where it fails, the attempt
    record has it, and the next start reads that; so nobody who reads the server's stderr waits for it longer
    than the server lives.
    """
    import subprocess  # as in `health.bring_in`

    profile = orders.profile
    if profile is None or finding.status not in ("verified", "quarantined"):
        return None
    asked = {
        "folders": profile.folders,
        "name": profile.name,
        "status": finding.status,
        "reason": finding.reason,
        "acceptance_length": finding.acceptance_length,
        "resolved": dict(finding.resolved),
        "chosen": {"flags": orders.flags, "env": dict(orders.env)},
    }
    failed = f"the profile {profile.name} could not be marked"
    try:
        program = subprocess.Popen(
            [sys.executable, "-I", profile.program],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        return f"{failed}: {error}"
    told: list[bytes] = []
    text = json.dumps(asked).encode()
    thread = threading.Thread(target=lambda: told.append(program.communicate(text)[1]), daemon=True)
    thread.start()
    deadline = time.monotonic() + PROFILE_LIMIT_S
    while thread.is_alive():
        thread.join(LOOK_EVERY_S)
        ended = ended_within(0)
        if thread.is_alive() and (ended or time.monotonic() > deadline):
            program.kill()
            thread.join()
            return f"{failed}: {'the server ended' if ended else f'not within {PROFILE_LIMIT_S:.0f} s'}"
    if program.returncode == 0:
        return None
    words = b"".join(told).decode(errors="replace").strip().removeprefix("autolaunch: ")
    return words[-300:] or f"{failed}: exit {program.returncode}"
