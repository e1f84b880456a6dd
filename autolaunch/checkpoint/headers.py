"""The header of one safetensors file into entries: 8 bytes of length, a JSON object, the data behind it.

Headers as they are written in practice are cut at their marks, which takes a third of the time of parsing
371,111 JSON objects and looking into each; whatever does not look exactly so is parsed, and the parser says
what is wrong with it.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from operator import sub
from pathlib import Path
from typing import Any, TypeGuard

from autolaunch.checkpoint.masks import (
    DTYPE,
    DTYPE_MARK,
    NAME_MARK,
    SHAPE_MARK,
    Bundle,
    MalformedEntriesError,
    bundles,
)
from autolaunch.checkpoint.problems import CheckpointError, shown
from autolaunch.checkpoint.read import (
    LARGE_LIMIT,
    check_size,
    decoded,
    lfs_pointer,
    open_regular,
    parse_object,
)

BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
"""Bits of one element, by the names of the safetensors format."""

LENGTH_BYTES = 8
_METADATA = '{"__metadata__":'
_OFFSETS_MARK = ',"data_offsets":['
_DROP_DIGITS = {ord(digit): None for digit in "0123456789"}


@dataclass(frozen=True, slots=True)
class RawHeader:
    """The header of one file, not looked into."""

    file: str
    title: str
    """What messages call the file."""
    content: bytes
    data_bytes: int
    """What is behind it."""


@dataclass(frozen=True, slots=True)
class Header:
    """What one safetensors file holds."""

    file: str
    bundles: list[Bundle]
    metadata: Mapping[str, str]
    data_bytes: int
    """Where the last tensor ends."""
    has_data: bool
    """False for a file that ends with its header."""
    count: int
    """Tensors."""


def load_header(path: Path) -> RawHeader:
    """The header of the file at `path`; CheckpointError when there is none."""
    stream, size = open_regular(path)
    with stream:
        try:
            length = header_length(stream.read(LENGTH_BYTES), size, str(path))
            content = stream.read(length)
        except OSError as error:
            raise CheckpointError(
                f"cannot read `{shown(str(path))}`", because=(str(error.strerror),)
            ) from error
    return RawHeader(path.name, str(path), content, size - LENGTH_BYTES - length)


def read_header(path: Path) -> Header:
    """What the file at `path` holds; CheckpointError says what is wrong with it."""
    return parse_header(load_header(path))


def header_length(start: bytes, size: int, name: str) -> int:
    """The length in bytes of the header of a file of `size` bytes that begins with `start`."""
    check_size(size, size, name)
    if start == b"version ":
        raise lfs_pointer(name)
    length: int = struct.unpack("<Q", start)[0] if len(start) == LENGTH_BYTES else 0
    if not 2 <= length <= size - LENGTH_BYTES:
        raise _broken(name, f"its header should take {length} bytes, and the file has {size}")
    if length > LARGE_LIMIT:
        raise _broken(name, f"its header should take {length} bytes, and at most {LARGE_LIMIT} are allowed")
    return length


def parse_header(raw: RawHeader) -> Header:
    """What the header tells, tensor by tensor; CheckpointError says what is wrong with it."""
    text = decoded(raw.content, raw.title)
    cut = _cut(text, raw.data_bytes)
    if cut is not None:
        entries, metadata, end = cut
        try:
            found = bundles(raw.file, entries)
        except MalformedEntriesError:
            pass  # the parser says what is wrong, or reads it
        else:
            if sum(tensor_bytes(one.dtype, one.shape) * one.part.count for one in found) == end:
                return _header(raw, found, metadata, end)
    entries, metadata, end = parse_entries(text, raw.data_bytes, raw.title)
    return _header(raw, bundles(raw.file, entries), metadata, end)


def _header(raw: RawHeader, found: list[Bundle], metadata: Mapping[str, str], end: int) -> Header:
    """A header whose tensors end at byte `end`."""
    count = sum(bundle.part.count for bundle in found)
    return Header(raw.file, found, metadata, end, raw.data_bytes > 0 or end == 0, count)


def tensor_bytes(dtype: str | None, shape: tuple[int, ...] | None) -> int:
    """Bytes of a tensor of a known dtype, otherwise 0."""
    return 0 if shape is None else (math.prod(shape) * BITS.get(dtype or "", 0) + 7) // 8


def _cut(text: str, data_bytes: int) -> tuple[list[str], Mapping[str, str], int] | None:
    """The header cut at its marks; None where it, or its offsets, are not as usual."""
    opened = header_body(text)
    if opened is None:
        return None
    metadata, body = opened
    # Cut at every `]`: an entry up to the end of its shape, then its offsets, and so on.
    pieces = f"{NAME_MARK}{body}".split("]")
    entries, offsets = pieces[0::2], "".join(pieces[1::2])
    # Nothing but numbers in the offsets, and as many quotes as entries have that hold no further string.
    if len(pieces) % 2 or body.count('"') != 10 * len(entries) - 1:
        return None
    if offsets.translate(_DROP_DIGITS) != f"{_OFFSETS_MARK}," * len(entries):
        return None
    end = _end_of_tiles(offsets.replace(_OFFSETS_MARK, ",")[1:].split(","))
    if end is None or (data_bytes and end != data_bytes):
        return None
    return entries, metadata, end


def _end_of_tiles(offsets: list[str]) -> int | None:
    """Where the data ends if every byte belongs to exactly one tensor, else None.

    `offsets` are start and end in turns, each of them digits or empty.
    """
    starts, ends = offsets[0::2], offsets[1::2]
    if starts[1:] == ends[:-1]:  # in the order of the file, as most writers put them
        return int(ends[-1]) if starts[0] == "0" and 0 < len(ends[-1]) < 19 else None
    if not all(0 < len(one) < 19 for one in offsets):
        return None
    first, last = list(map(int, starts)), list(map(int, ends))
    if min(map(sub, last, first)) < 0:
        return None
    first.sort()
    last.sort()
    return last[-1] if first[0] == 0 and first[1:] == last[:-1] else None


def header_body(text: str) -> tuple[Mapping[str, str], str] | None:
    """`__metadata__`, and the entries from the first name to the last offset; None for unusual headers."""
    text = text.rstrip(" ")
    metadata: Mapping[str, str] = {}
    start = 2
    if text.startswith(_METADATA):  # where writers put it
        try:
            value, start = json.JSONDecoder().raw_decode(text, len(_METADATA))
        except (ValueError, RecursionError):
            return None
        if not isinstance(value, dict) or text[start : start + 2] != ',"':
            return None
        metadata, start = _strings(value), start + 2
    elif not text.startswith('{"'):
        return None
    if not text.endswith("]}}") or text.find("\\", start) >= 0:
        return None
    return metadata, text[start:-3]


def _strings(metadata: Mapping[str, Any]) -> Mapping[str, str]:
    """What of `__metadata__` is as the format wants it."""
    return {key: value for key, value in metadata.items() if isinstance(value, str)}


def parse_entries(text: str, data_bytes: int, name: str) -> tuple[list[str], Mapping[str, str], int]:
    """The header by a JSON parser, entry by entry; CheckpointError names the first thing that is wrong."""
    header = parse_object(text, name, unique=True)
    metadata = header.pop("__metadata__", {})
    entries, places = [], []
    for tensor, fields in header.items():
        dtype, shape, start, end = _fields(fields, tensor, name)
        size = tensor_bytes(dtype, shape)
        if dtype in BITS and end - start != size:
            raise _broken(
                name, f"`{shown(tensor)}` is {dtype} {list(shape)}, {size} bytes, and has {end - start}"
            )
        entries.append(f"{NAME_MARK}{tensor}{DTYPE_MARK}{dtype}{SHAPE_MARK}{','.join(map(str, shape))}")
        places.append((start, end, tensor))
    reached = 0
    for start, end, tensor in sorted(places):
        if start != reached:
            what = (
                "overlaps the tensor before it"
                if start < reached
                else "does not begin where the one before it ends"
            )
            raise _broken(name, f"`{shown(tensor)}` {what}: it begins at byte {start}, not {reached}")
        reached = end
    if data_bytes and reached != data_bytes:
        what = "the file was cut off" if reached > data_bytes else "there is more behind them"
        raise _broken(name, f"its tensors take {reached} bytes and {data_bytes} are there: {what}")
    return entries, _strings(metadata) if isinstance(metadata, dict) else {}, reached


def _fields(fields: object, tensor: str, name: str) -> tuple[str, tuple[int, ...], int, int]:
    """dtype, shape, start and end of one tensor."""
    if isinstance(fields, dict):
        dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
        if (
            isinstance(dtype, str)
            and DTYPE.fullmatch(dtype)
            and _is_counts(shape)
            and _is_counts(offsets)
            and len(offsets) == 2
            and offsets[0] <= offsets[1]
        ):
            return dtype, tuple(shape), offsets[0], offsets[1]
    raise _broken(name, f"the entry of `{shown(tensor)}` has no valid dtype, shape and data_offsets")


def _is_counts(value: Any) -> TypeGuard[list[int]]:
    """Whether `value` is a list of numbers that bytes and sizes can be."""
    return isinstance(value, list) and all(type(one) is int and 0 <= one < 10**18 for one in value)


def _broken(name: str, because: str) -> CheckpointError:
    """The error about a weight file with a bad header."""
    return CheckpointError(
        f"`{shown(name)}` is not a whole safetensors file",
        because=(because,),
        hint="download the file again",
    )
