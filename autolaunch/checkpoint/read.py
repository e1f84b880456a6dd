"""Reads small files of a checkpoint within limits: regular files, JSON objects, never more than agreed.

Whatever lies in a model folder was put there by somebody else: a FIFO, a device, 200 MB of brackets and a
Git LFS pointer all end in one CheckpointError.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from autolaunch.checkpoint.problems import CheckpointError, shown
from autolaunch.units import format_bytes

SMALL_LIMIT = 16 * 1024 * 1024
"""Bytes; the largest config.json known (a quantization list for every expert) has 2 MB."""
MOST_NESTED = 100
"""Levels of JSON; a configuration has about five."""
LARGE_LIMIT = 100_000_000
"""Bytes of an index or of one header; the safetensors library refuses longer headers too."""

_LFS_POINTER = b"version https://git-lfs"
_HINT_DOWNLOAD = "download the file again"


def open_regular(path: Path) -> tuple[BinaryIO, int]:
    """`path` opened for reading, and its size in bytes; CheckpointError unless it is a regular file."""
    try:
        # Looked at before it is opened: opening some devices has effects, opening a FIFO waits for ever.
        mode = path.stat().st_mode
        if stat.S_ISREG(mode):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            stream = os.fdopen(descriptor, "rb")
            status = os.fstat(stream.fileno())
            if stat.S_ISREG(status.st_mode):
                return stream, status.st_size
            stream.close()
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"cannot read `{shown(str(path))}`",
            because=(_why(error),),
            hint="check that it exists and its rights",
        ) from error
    raise CheckpointError(
        f"cannot read `{shown(str(path))}`",
        because=("it is not a regular file",),
        hint="put the file of the model there",
    )


def read_file(path: Path, limit: int = SMALL_LIMIT) -> bytes:
    """The content of `path`; CheckpointError when it is empty, longer than `limit` or a Git LFS pointer."""
    stream, size = open_regular(path)
    with stream:
        check_size(size, limit, str(path))
        try:
            content = stream.read(limit + 1)  # it may have grown since
        except OSError as error:
            raise CheckpointError(f"cannot read `{shown(str(path))}`", because=(_why(error),)) from error
    check_size(len(content), limit, str(path))
    if content.startswith(_LFS_POINTER):
        raise lfs_pointer(str(path))
    return content


def check_size(size: int, limit: int, name: str) -> None:
    """Raise unless a file of `size` bytes is neither empty nor above `limit`."""
    if size == 0:
        raise CheckpointError(f"`{shown(name)}` is empty", hint=_HINT_DOWNLOAD)
    if size > limit:
        raise CheckpointError(
            f"`{shown(name)}` is too large to be what its name says",
            because=(f"it has {format_bytes(size)}, and at most {format_bytes(limit)} are read",),
            hint=_HINT_DOWNLOAD,
        )


def lfs_pointer(name: str) -> CheckpointError:
    """The error about what Git leaves in the place of a large file that was not fetched."""
    return CheckpointError(
        f"`{shown(name)}` is a Git LFS pointer, not the file itself",
        because=("the repository was cloned without its large files",),
        hint="run `git lfs pull` in the model folder",
    )


def decoded(content: bytes, name: str) -> str:
    """`content` as text; CheckpointError unless it is UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _not_json(name, f"byte {error.start} is not UTF-8") from error


def parse_object(text: str, name: str, *, unique: bool = False) -> dict[str, Any]:
    """The JSON object in `text`; `NaN` and `Infinity` are read as Python's json does.

    `unique` forbids that a key occurs twice in an object; otherwise the last one counts.
    """
    try:
        value = json.loads(text, object_pairs_hook=_unique if unique else None)
    except json.JSONDecodeError as error:
        raise _not_json(name, f"line {error.lineno} column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise _not_json(name, "it is nested too deeply") from error
    except ValueError as error:  # a number of thousands of digits
        raise _not_json(name, shown(str(error))) from error
    if not unique and _is_deep(value):  # an index or a header is looked into entry by entry
        raise _not_json(name, "it is nested too deeply")
    if not isinstance(value, dict):
        raise CheckpointError(
            f"`{shown(name)}` does not hold a JSON object",
            because=(f"it holds {_kind_of(value)}",),
            hint=_HINT_DOWNLOAD,
        )
    return value


def read_object(path: Path, limit: int = SMALL_LIMIT) -> dict[str, Any]:
    """The JSON object in the file `path`."""
    return parse_object(decoded(read_file(path, limit), str(path)), str(path))


def _is_deep(value: object) -> bool:
    """Whether `value` is nested deeper than any configuration, and than those who copy it may go."""
    level = [value]
    for _ in range(MOST_NESTED):
        level = [
            child
            for one in level
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of `pairs`; ValueError names a key that occurs twice."""
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key `{twice}` occurs twice in one object")
    return value


def _not_json(name: str, because: str) -> CheckpointError:
    """The error about a file that no JSON parser reads."""
    return CheckpointError(f"`{shown(name)}` is not JSON", because=(because,), hint=_HINT_DOWNLOAD)


def _kind_of(value: object) -> str:
    """A JSON value in words, without its content."""
    names = {list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def _why(error: Exception) -> str:
    """What the system says about a file, without the path that the message names already."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"the system says: {shown(text)}"
