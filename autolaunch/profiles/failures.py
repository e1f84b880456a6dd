"""What failed here, kept for every later start: each failure bound to what it was seen with.

`STORE/failures.toml`.  The first folder of a store is written, the others are only read.  Who can write the
file can keep a choice out of races and have it warned of, and nothing else: no flag in it is launched.
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import tomli

from autolaunch.candidates.candidate import FailureKind, Stage
from autolaunch.folders import FAILURES
from autolaunch.profiles import files
from autolaunch.profiles.failed import (
    LEARNED,
    Failed,
    Key,
    Recalled,
    Setting,
    Where,
    applies,
    convert,
    plain,
)
from autolaunch.profiles.limits import fault_in, weigh
from autolaunch.redact import redact, redact_choice

SCHEMA: Final = "autolaunch.failures/1"
FILE: Final = FAILURES
KEPT: Final = 500
"""The newest that are kept."""
SIZE_LIMIT_BYTES: Final = 384 << 10
_MOST_VALUES = 30_000
"""Of one file; five hundred failures, each in a setting of its own, have about twenty thousand."""
_FILES_THAT_COUNT = 2
"""All folders together may hold as much as so many full files: each start reads them all."""
_REASON_LIMIT = 300
_WORDS_LIMIT = 64
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
class _Room:
    """What the files to come may hold, all together."""

    size_bytes: int = SIZE_LIMIT_BYTES
    values: int = _MOST_VALUES

    def take(self, text: str, size_bytes: int) -> None:
        """Make `text` count; ValueError where no parser may see it."""
        self.size_bytes -= size_bytes
        if self.size_bytes < 0:
            raise ValueError("with the files before it, it is larger than all may be together")
        weight = weigh(text, _MOST_VALUES)
        if weight.excess is not None:
            raise ValueError(weight.excess)
        self.values -= weight.values
        if self.values < 0:
            raise ValueError("with the files before it, it has more values than all may have together")


@dataclass(slots=True)
class _Content:
    """A file that was read."""

    failures: list[Failed] = field(default_factory=list)
    skipped: int = 0
    """Rows that say nothing that can be understood."""
    is_newer: bool = False
    """Whether a later version wrote it, which must not be overwritten."""


def recall(folders: Iterable[Path]) -> Recalled:
    """What failed before, by the files in `folders`; a file that is broken is a doubt and hides no other."""
    found: dict[tuple[Key, Setting], Failed] = {}
    doubts: list[str] = []
    room = _Room(_FILES_THAT_COUNT * SIZE_LIMIT_BYTES, _FILES_THAT_COUNT * _MOST_VALUES)
    for folder in folders:
        path = folder / FILE
        try:
            content = _read(path, room)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            words = error.strerror if isinstance(error, OSError) else str(error)
            doubts.append(f"what failed before is not known from `{path}`: {words}")
            continue
        if content.skipped:
            doubts.append(f"{content.skipped} rows of `{path}` cannot be understood")
        for one in content.failures:
            found.setdefault((one.key, one.setting), one)
    return Recalled(tuple(sorted(found.values(), key=lambda one: one.date, reverse=True)), tuple(doubts))


def remember(folder: Path, failures: Sequence[Failed], sound: Collection[tuple[Key, Setting]] = ()) -> bool:
    """Keep `failures` in `folder`, and forget those of `sound` starts; whether anything changed.

    On disk before this returns.  OSError where it cannot be written; what was there then stays.
    """
    news = [_fit(one) for one in failures if one.kind in LEARNED]
    if not news and not sound:
        return False
    path = folder / FILE
    if not news and not path.exists():
        return False
    files.make_private(folder)
    with files.locked(folder):
        content = _present(path)
        kept = {(one.key, one.setting): one for one in content.failures}
        before = dict(kept)
        for was, one in list(kept.items()):
            if any(one.key == key and applies(one, setting) for key, setting in sound):
                del kept[was]
        for one in news:
            earlier = kept.pop((one.key, one.setting), None)
            kept[one.key, one.setting] = one if earlier is None else _again(earlier, one)
        if kept == before:
            return False
        data = _text(sorted(kept.values(), key=lambda one: one.date)[-KEPT:]).encode()
        files.sweep(folder)
        new = files.write_new(path, data)
        files.put(new, path)
    return True


def _again(earlier: Failed, later: Failed) -> Failed:
    """What was seen before, and now again; or only told again, as attempts are at every start."""
    if later.date <= earlier.date:
        return earlier
    return replace(later, times=min(earlier.times + 1, 1000))


# The file ---------------------------------------------------------------------------------------


def _present(path: Path) -> _Content:
    """What `path` holds now; one that is broken is put aside, one of a later version is an OSError."""
    try:
        content = _read(path, _Room())
    except FileNotFoundError:
        return _Content()
    except ValueError:
        path.replace(path.with_suffix(".corrupt"))
        return _Content()
    if content.is_newer:
        raise OSError(errno.EPERM, "a later version of autolaunch keeps what failed here", str(path))
    return content


def _read(path: Path, room: _Room) -> _Content:
    """The failures in the file `path`; OSError or ValueError where it is none, or has no `room`."""
    data = files.read_bytes(path, SIZE_LIMIT_BYTES)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError("it is no text") from error
    room.take(text, len(data))
    try:
        table = tomli.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no TOML: {plain(str(error))}") from error
    schema = table.get("schema")
    if schema != SCHEMA:
        if isinstance(schema, str) and schema.startswith(SCHEMA.rpartition("/")[0] + "/"):
            return _Content(is_newer=True)
        raise ValueError(f"its schema is not `{SCHEMA}`")
    settings, rows = table.get("settings", {}), table.get("failure", [])
    if not isinstance(settings, dict) or not isinstance(rows, list):
        raise ValueError("`settings` are tables, and `failure` is a list of tables")
    content = _Content()
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


def _fit(one: Failed) -> Failed:
    """`one` as it may be written: no secret, no control character, nothing that fills the file."""
    flags, env = redact_choice(one.flags[:_WORDS_LIMIT], one.env[:_WORDS_LIMIT])
    return replace(
        one,
        flags=tuple(plain(word) for word in flags),
        env=tuple((plain(name), plain(value)) for name, value in env),
        reason=plain(redact(one.reason), _REASON_LIMIT),
        depth=plain(one.depth),
        setting=replace(
            one.setting,
            given=tuple(plain(redact(text)) for text in one.setting.given[:_WORDS_LIMIT]),
            gpu=plain(one.setting.gpu),
            architecture=plain(one.setting.architecture),
        ),
    )


def _text(failures: Sequence[Failed]) -> str:
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
        fits = len(text.encode()) <= SIZE_LIMIT_BYTES and weigh(text, _MOST_VALUES).excess is None
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
