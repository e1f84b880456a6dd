"""Weight files into the places of their tensors, and chosen tensors of one file into a new file."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autolaunch.checkpoint.file_names import INDEX
from autolaunch.checkpoint.headers import LENGTH_BYTES, load_header, parse_entries
from autolaunch.checkpoint.index import parse_index
from autolaunch.checkpoint.problems import CheckpointError
from autolaunch.checkpoint.read import LARGE_LIMIT, decoded, open_regular, parse_object, read_file

_PIECE = 16 * 1024 * 1024  # bytes that are read at once


@dataclass(frozen=True, slots=True)
class Stored:
    """Where one tensor lies in its file."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    """Bytes from the beginning of the file."""
    end: int

    @property
    def bytes(self) -> int:
        """How many bytes it takes."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Shard:
    """One safetensors file."""

    tensors: Mapping[str, Stored]
    has_data: bool
    """False for a file that ends with its header."""


def read_shard(path: Path) -> Shard:
    """The tensors of the file at `path`; CheckpointError says what is wrong with it."""
    raw = load_header(path)
    text = decoded(raw.content, raw.title)
    parse_entries(text, raw.data_bytes, raw.title)  # says what is wrong; what follows relies on it
    data = LENGTH_BYTES + len(raw.content)
    entries = parse_object(text, raw.title, unique=True)
    entries.pop("__metadata__", None)
    tensors = {
        name: Stored(entry["dtype"], tuple(entry["shape"]), *(data + one for one in entry["data_offsets"]))
        for name, entry in entries.items()
    }
    needs_data = any(one.bytes for one in tensors.values())
    return Shard(tensors, raw.data_bytes > 0 or not needs_data)


def files_of_tensors(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """The file of every tensor: by the index of `folder`, or by the headers of its weight files `names`."""
    index = folder / INDEX
    if index.exists():
        by_file = parse_index(read_file(index, LARGE_LIMIT), str(index)).names_by_file()
        return {tensor: file for file, tensors in by_file.items() for tensor in tensors}
    return {tensor: name for name in names for tensor in read_shard(folder / name).tensors}


def copy_tensors(source: Path, target: Path, wanted: Mapping[str, str]) -> int:
    """Write a new file `target` with tensors of `source`; `wanted` has their new names by the old ones.

    The tensors stay in the order of the source, whose writer has aligned them.  Returns the bytes written;
    OSError where the disk is full or `target` exists, CheckpointError where `source` is not what it was.
    """
    shard = read_shard(source)
    lacking = wanted.keys() - shard.tensors.keys()
    if lacking:
        raise CheckpointError(f"`{source.name}` no longer holds `{min(lacking)}`")
    chosen = sorted(wanted, key=lambda name: (shard.tensors[name].start, shard.tensors[name].end))
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name in chosen:
        one = shard.tensors[name]
        header[wanted[name]] = {
            "dtype": one.dtype,
            "shape": list(one.shape),
            "data_offsets": [end, end + one.bytes],
        }
        end += one.bytes
    content = json.dumps(header, separators=(",", ":")).encode()
    content += b" " * (-len(content) % 8)
    # NOTE: O_EXCL and O_NOFOLLOW: nothing that exists is ever written to, least of all through a link.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(target, flags, 0o600)
    stream, _ = open_regular(source)
    with stream, os.fdopen(descriptor, "wb") as out:
        out.write(struct.pack("<Q", len(content)) + content)
        for name in chosen:
            one = shard.tensors[name]
            stream.seek(one.start)
            left = one.bytes
            while left:
                piece = stream.read(min(left, _PIECE))
                if not piece:
                    raise CheckpointError(f"`{source.name}` became shorter while it was copied")
                out.write(piece)
                left -= len(piece)
    return LENGTH_BYTES + len(content) + end
