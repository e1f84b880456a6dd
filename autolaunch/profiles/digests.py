"""What a checkpoint's files are, as digests, without reading a weight: configuration, index, headers, sizes.

A header or an index of many megabytes is read once: its digest is kept in the cache folder by size, times and
inode, and asked again only where one of these changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from autolaunch.cached_json import UNREADABLE, read_object, write_object
from autolaunch.checkpoint.file_names import (
    CONFIG,
    HF_QUANT_CONFIG,
    INDEX,
    OTHER_FILES,
    PICKLED,
    PICKLED_INDEX,
    SAFETENSORS,
)
from autolaunch.checkpoint.problems import CheckpointError
from autolaunch.checkpoint.read import LARGE_LIMIT, open_regular

SCHEMA: Final = "autolaunch.digests/1"
_QUANTIZATION = (HF_QUANT_CONFIG, *(name for name in OTHER_FILES if name.startswith("quant")))
_WEIGHTS = (SAFETENSORS, ".gguf", *PICKLED)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LENGTH_BYTES = 8  # in front of a header
_LENGTH = 32  # hexadecimal digits of what is kept: 128 bits
_PIECE = 1 << 20  # bytes that are read at once
_MOST_FILES = 10_000


def checkpoint_fields(folder: Path, cache: Path | None) -> dict[str, str] | None:
    """The fields `checkpoint.…` of the checkpoint in `folder`; None where it holds no weights to read.

    `cache` is the user's cache folder; it need not exist, nor be writable.
    """
    try:
        names = sorted(entry.name for entry in os.scandir(folder))
    except OSError:
        return None
    weights = [name for name in names if name.endswith(_WEIGHTS)][:_MOST_FILES]
    if not weights:
        return None
    known = _Digests(folder, cache)
    there = set(names)
    try:
        fields = {
            "checkpoint.config": known.all_of(name for name in (CONFIG,) if name in there),
            "checkpoint.quantization": known.all_of(name for name in _QUANTIZATION if name in there),
            "checkpoint.index": known.all_of(name for name in (INDEX, PICKLED_INDEX) if name in there),
            "checkpoint.headers": known.all_of(name for name in weights if name.endswith(SAFETENSORS)),
            "checkpoint.files": _digest(f"{name}\0{known.size(name)}" for name in weights),
        }
    except (OSError, CheckpointError):
        return None
    known.keep()
    if folder.parent.name == "snapshots" and _COMMIT.fullmatch(folder.name):
        fields["checkpoint.commit"] = folder.name
    return {name: value for name, value in fields.items() if value}


class _Digests:
    """Digests of the files of one folder, some of them known from an earlier start."""

    def __init__(self, folder: Path, cache: Path | None) -> None:
        self.folder = folder
        name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:24]
        self.path = None if cache is None else cache / "checkpoints" / f"{name}.json"
        self.before = _rows(self.path)
        self.now: dict[str, list[Any]] = {}

    def all_of(self, names: Iterable[str]) -> str:
        """One digest of several files with their names; empty where there is none."""
        return _digest(f"{name}\0{self.of(name)}" for name in names)

    def of(self, name: str) -> str:
        """The digest of what is read of one file."""
        state = self._state(name)
        row = self.before.get(name)
        if row is None or row[:-1] != state:
            row = [*state, _digest_of(self.folder / name)]
        self.now[name] = row
        return str(row[-1])

    def size(self, name: str) -> int:
        """Bytes of one file."""
        row = self.now.get(name)
        return int(row[0]) if row is not None else (self.folder / name).stat().st_size

    def keep(self) -> None:
        """Write down what had to be read."""
        if self.path is not None and self.now != self.before:
            with suppress(OSError):  # a read-only home only costs the time to read again
                write_object(
                    self.path, {"schema": SCHEMA, "folder": os.fspath(self.folder), "files": self.now}
                )

    def _state(self, name: str) -> list[Any]:
        """What changes with a file's content; its time of change too, as others may be set back."""
        status = (self.folder / name).stat()
        return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _rows(path: Path | None) -> Mapping[str, list[Any]]:
    """What an earlier start kept; nothing where it cannot be read."""
    if path is None:
        return {}
    row = read_object(path, SCHEMA)
    try:
        files = {} if row is None else row["files"]
        return {name: values for name, values in files.items() if _is_row(values)}
    except UNREADABLE:
        return {}


def _is_row(values: object) -> bool:
    """Whether `values` are a file's state and its digest."""
    return isinstance(values, list) and len(values) == 5 and isinstance(values[-1], str)


def _digest_of(path: Path) -> str:
    """A digest of a small file or an index, and of the header alone where the file holds weights."""
    stream, size = open_regular(path)
    with stream:
        left = _header_bytes(stream, size) if path.suffix == SAFETENSORS else min(size, LARGE_LIMIT)
        stream.seek(0)
        digest = hashlib.sha256()
        while left > 0 and (piece := stream.read(min(left, _PIECE))):
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()[:_LENGTH]


def _header_bytes(stream: BinaryIO, size: int) -> int:
    """How many bytes the length and the header take; what is no header is read as far as a header may go."""
    start = stream.read(_LENGTH_BYTES)
    length = struct.unpack("<Q", start)[0] if len(start) == _LENGTH_BYTES else LARGE_LIMIT
    return int(min(size, _LENGTH_BYTES + min(length, LARGE_LIMIT)))


def _digest(parts: Iterable[str]) -> str:
    """One digest of several texts; empty where there is none."""
    lines = [part.encode(errors="surrogateescape") for part in parts]
    return hashlib.sha256(b"\n".join(lines)).hexdigest()[:_LENGTH] if lines else ""
