"""What a race saw, written line by line as it happens, so that an ending at any moment loses nothing.

One folder a race, `runs/<UTC time>-<pid>/`: `journal.jsonl` and one log an engine.  Every line is one
JSON object with `t` (UTC) and `event`; texts are redacted.  A line is one `write`, so a reader finds
whole lines only, but for the last after a power cut.  The logs are redacted when their engines end, or by
the next race where the launcher was killed before.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from autolaunch.cached_json import make_folder
from autolaunch.race.logs import hide_secrets
from autolaunch.redact import redact

FINISHED = ".finished"
"""A file in the folder of a race whose logs are without secrets."""
KEPT_RUNS = 30
"""Folders of races that stay, the newest included; the oldest go first."""
_NAME = re.compile(r"\d{8}T\d{6}-\d+", re.ASCII)


class Journal:
    """An append-only record of one race."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lost: str | None = None
        """Why the rest of the record is missing, if it is; the race goes on without it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(folder / "journal.jsonl", flags, 0o600)

    def log(self, name: str) -> Path:
        """Where the engine of candidate `name` writes what it prints."""
        return self.folder / f"{name}.log"

    def write(self, event: str, **fields: Any) -> None:
        """Append one event; what cannot be written, as on a full disk, is named once in `lost`."""
        row = {"t": datetime.now(UTC).isoformat(timespec="milliseconds"), "event": event, **fields}
        line = redact(json.dumps(row, default=str, ensure_ascii=False))
        if self.lost is not None:
            return
        try:
            os.write(self._fd, line.encode(errors="backslashreplace") + b"\n")
        except OSError as error:
            self.lost = f"`{event}` and what follows is not in the journal: {error}"

    def close(self) -> None:
        """End the record, once nothing writes to the logs beside it any more."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
            with contextlib.suppress(OSError):
                (self.folder / FINISHED).touch(mode=0o600)

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_journal(runs: Path) -> Journal:
    """A new journal below `runs`, or below the temporary folder where `runs` cannot be written."""
    name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}"
    try:
        folder = runs / name
        make_folder(runs)
        folder.mkdir(mode=0o700)
        journal = Journal(folder)
    except OSError:
        return Journal(Path(tempfile.mkdtemp(prefix=f"autolaunch-{name}-")))
    others = _other_runs(runs, folder)
    _remove(others[: 1 - KEPT_RUNS])
    for other in others[1 - KEPT_RUNS :]:
        _finish(other)
    return journal


def _other_runs(runs: Path, current: Path) -> list[Path]:
    """The folders of other races, oldest first; what has another name was put there by somebody else.

    Names begin with the time, so their order is the order of the races, unless the clock was set back.
    """
    with contextlib.suppress(OSError, RecursionError):
        return sorted(
            path
            for path in runs.iterdir()
            if _NAME.fullmatch(path.name) and path != current and path.is_dir() and not path.is_symlink()
        )
    return []


def _remove(folders: list[Path]) -> None:
    """Remove the folders of old races; one that cannot be removed is left."""
    import shutil

    with contextlib.suppress(RecursionError):
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def _finish(folder: Path) -> None:
    """Do for a race whose launcher was killed what it could not: hide secrets in its logs."""
    pid = int(folder.name.rpartition("-")[2])
    if (folder / FINISHED).exists() or Path(f"/proc/{pid}").exists():
        return
    with contextlib.suppress(OSError):
        for log in folder.glob("*.log"):
            if log.is_file() and not log.is_symlink():
                hide_secrets(log, os.environ)
        (folder / FINISHED).touch(mode=0o600)
