"""What failed here, kept for every later start: each failure bound to what it was seen with.

`STORE/failures.toml`.  The first folder of a store is written, the others are only read.  Who can write the
file can keep a choice out of races and have it warned of, and nothing else: no flag in it is launched.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from autolaunch.profiles import files
from autolaunch.profiles.failed import LEARNED, Failed, Key, Recalled, Setting, applies, plain
from autolaunch.profiles.failures_file import (
    FILE,
    KEPT,
    MOST_VALUES,
    SIZE_LIMIT_BYTES,
    Content,
    Room,
    read,
    text_of,
)
from autolaunch.redact import redact, redact_choice

_FILES_THAT_COUNT = 2
"""All folders together may hold as much as so many full files: each start reads them all."""
_REASON_LIMIT = 300
_WORDS_LIMIT = 64


def recall(folders: Iterable[Path]) -> Recalled:
    """What failed before, by the files in `folders`; a file that is broken is a doubt and hides no other."""
    found: dict[tuple[Key, Setting], Failed] = {}
    doubts: list[str] = []
    room = Room(_FILES_THAT_COUNT * SIZE_LIMIT_BYTES, _FILES_THAT_COUNT * MOST_VALUES)
    for folder in folders:
        path = folder / FILE
        try:
            content = read(path, room)
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
        data = text_of(sorted(kept.values(), key=lambda one: one.date)[-KEPT:]).encode()
        files.sweep(folder)
        new = files.write_new(path, data)
        files.put(new, path)
    return True


def _again(earlier: Failed, later: Failed) -> Failed:
    """What was seen before, and now again; or only told again, as attempts are at every start."""
    if later.date <= earlier.date:
        return earlier
    return replace(later, times=min(earlier.times + 1, 1000))


def _present(path: Path) -> Content:
    """What `path` holds now; one that is broken is put aside, one of a later version is an OSError."""
    try:
        content = read(path, Room())
    except FileNotFoundError:
        return Content()
    except ValueError:
        path.replace(path.with_suffix(".corrupt"))
        return Content()
    if content.is_newer:
        raise OSError(errno.EPERM, "a later version of autolaunch keeps what failed here", str(path))
    return content


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
