"""The file of what failed here: failures into TOML, and TOML that others may have written into failures.

A file is read within limits: none costs a start more than a moment, whoever wrote it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from autolaunch.candidates.candidate import FailureKind, Stage
from autolaunch.folders import FAILURES
from autolaunch.profiles import files
from autolaunch.profiles.failed import Failed, Setting, Where, convert, plain
from autolaunch.profiles.limits import fault_in, weigh
from autolaunch.tables import toml

SCHEMA: Final = "autolaunch.failures/1"
FILE: Final = FAILURES
KEPT: Final = 500
"""The newest that are kept."""
SIZE_LIMIT_BYTES: Final = 384 << 10
MOST_VALUES: Final = 30_000
"""Of one file; five hundred failures, each in a setting of its own, have about twenty thousand."""
_REFERENCE_LENGTH = 8


@dataclass(frozen=True, slots=True)
class _Row:
    """A failure as the file has it; its setting is named, since many share one."""

    setting: str
    flags: tuple[str, ...]
    kind: FailureKind
    stage: Stage
    reason: str
    where: Where
    date: str
    env: tuple[str, ...] = ()
    dimension: str = ""
    choice: str = ""
    beside: tuple[str, ...] = ()
    depth: str = ""
    times: int = 1


@dataclass(slots=True)
class Room:
    """What the files to come may hold, all together."""

    size_bytes: int = SIZE_LIMIT_BYTES
    values: int = MOST_VALUES

    def take(self, text: str, size_bytes: int) -> None:
        """Make `text` count; ValueError where no parser may see it."""
        self.size_bytes -= size_bytes
        if self.size_bytes < 0:
            raise ValueError("with the files before it, it is larger than all may be together")
        weight = weigh(text, MOST_VALUES)
        if weight.excess is not None:
            raise ValueError(weight.excess)
        self.values -= weight.values
        if self.values < 0:
            raise ValueError("with the files before it, it has more values than all may have together")


@dataclass(slots=True)
class Content:
    """A file that was read."""

    failures: list[Failed] = field(default_factory=list)
    skipped: int = 0
    """Rows that say nothing that can be understood."""
    is_newer: bool = False
    """Whether a later version wrote it, which must not be overwritten."""


def read(path: Path, room: Room) -> Content:
    """The failures in the file `path`; OSError or ValueError where it is none, or has no `room`."""
    data = files.read_bytes(path, SIZE_LIMIT_BYTES)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError("it is no text") from error
    room.take(text, len(data))
    try:
        table = toml.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no TOML: {plain(str(error))}") from error
    schema = table.get("schema")
    if schema != SCHEMA:
        if isinstance(schema, str) and schema.startswith(SCHEMA.rpartition("/")[0] + "/"):
            return Content(is_newer=True)
        raise ValueError(f"its schema is not `{SCHEMA}`")
    settings, rows = table.get("settings", {}), table.get("failure", [])
    if not isinstance(settings, dict) or not isinstance(rows, list):
        raise ValueError("`settings` are tables, and `failure` is a list of tables")
    content = Content()
    known: dict[str, Setting | None] = {}
    for row in rows[-KEPT:]:
        try:
            content.failures.append(_failed(row, settings, known))
        except ValueError:
            content.skipped += 1
    return content


def _failed(row: Any, settings: Mapping[str, Any], known: dict[str, Setting | None]) -> Failed:
    """The failure of one row; ValueError where it says none.

    `known` are the settings that were read already, each once, since many rows share one.
    """
    odd = fault_in(row) if isinstance(row, dict) else "it is no table"
    if odd is not None:
        raise ValueError(odd)
    found = convert(row, _Row, "a failure")
    name = found.setting
    if name not in known:
        known[name] = _setting(settings.get(name))
    setting = known[name]
    if setting is None:
        raise ValueError("its setting is missing")
    return Failed(
        flags=found.flags,
        kind=found.kind,
        stage=found.stage,
        reason=found.reason,
        where=found.where,
        date=found.date,
        setting=setting,
        env=tuple(_pair(one) for one in found.env),
        dimension=found.dimension,
        choice=found.choice,
        beside=tuple(_pair(one) for one in found.beside),
        depth=found.depth,
        times=found.times,
    )


def _setting(row: Any) -> Setting | None:
    """The setting that `row` says, if it says one."""
    if not isinstance(row, dict) or fault_in(row) is not None:
        return None
    try:
        return Setting.from_json(row)
    except ValueError:
        return None


def _pair(text: str) -> tuple[str, str]:
    """`name=value` in its parts."""
    name, _, value = text.partition("=")
    return name, value


def text_of(failures: Sequence[Failed]) -> str:
    """The file with `failures`, oldest first; the oldest are left out where it would be too large to read."""
    import tomli_w  # here, because only who writes needs it

    kept = list(failures)
    while True:
        settings: dict[str, dict[str, Any]] = {}
        rows = []
        for one in kept:
            name = _reference(one.setting)
            settings[name] = {
                key: value for key, value in one.setting.to_json().items() if value not in (None, "", [])
            }
            row = asdict(_row(one, name))
            rows.append({key: value for key, value in row.items() if value not in ("", ())})
        text = tomli_w.dumps({"schema": SCHEMA, "settings": dict(sorted(settings.items())), "failure": rows})
        fits = len(text.encode()) <= SIZE_LIMIT_BYTES and weigh(text, MOST_VALUES).excess is None
        if fits or not kept:
            return text
        kept = kept[len(kept) // 8 + 1 :]


def _row(one: Failed, setting: str) -> _Row:
    """`one` as the file has it."""
    return _Row(
        setting=setting,
        flags=one.flags,
        kind=one.kind,
        stage=one.stage,
        reason=one.reason,
        where=one.where,
        date=one.date,
        env=tuple(map("=".join, one.env)),
        dimension=one.dimension,
        choice=one.choice,
        beside=tuple(map("=".join, one.beside)),
        depth=one.depth,
        times=one.times,
    )


def _reference(setting: Setting) -> str:
    """The name of a setting within the file."""
    text = json.dumps(setting.to_json(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_REFERENCE_LENGTH]
