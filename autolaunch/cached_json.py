"""JSON objects in files that anybody may break: the user's cache, and the snapshots that are bundled.

A file that is corrupt, or is none, is as good as absent: what it held can be made again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

UNREADABLE: Final = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""What reading a file raises that something else has written; JSON errors are ValueErrors."""

_SIZE_LIMIT_BYTES = 8 << 20  # a flag catalogue is about 60 KiB


def read_object(path: Path, schema: str | None = None) -> dict[str, Any] | None:
    """The JSON object of `schema`, or of any, in the file `path`; None when there is no such thing."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > _SIZE_LIMIT_BYTES:
            return None
        row = json.loads(path.read_bytes())
    except UNREADABLE:
        return None
    return row if isinstance(row, dict) and (schema is None or row.get("schema") == schema) else None


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Make `path` and what it lies in, where they are not there; OSError when that fails."""
    try:
        path.mkdir(mode, parents=True, exist_ok=True)
    except RecursionError as error:  # folders in folders, deeper than Python calls
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(path)) from error


def write_object(
    path: Path, row: Mapping[str, Any], default: Callable[[object], object] | None = None
) -> None:
    """Replaces `path` in one step, so that no reader sees half a file; OSError when that fails.

    `default` makes JSON of what is none, as in `json.dumps`.
    """
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(row, default=default), encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def same_content(digests: Mapping[str, str], folder: Path) -> bool:
    """Whether the files of `folder` are those with these SHA-256 `digests`."""
    try:
        return all(
            hashlib.sha256((folder / path).read_bytes()).hexdigest() == digest
            for path, digest in digests.items()
        )
    except OSError:
        return False
