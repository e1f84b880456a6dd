"""Looks into one routed expert for all where a checkpoint has so many that they are most of its tensors.

Of the 371,111 tensors of Qwen3.5-397B-A17B-NVFP4, 1,658 belong to no routed expert or to the first one of a
layer.  Only these are looked into; the others are taken to be like the first of their layer, and that is
checked: how many they are, that every layer has the last one, and, with headers, how many bytes all tensors
take have to follow from it.  Where they do not, or something is unusual, everything is read one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from autolaunch.checkpoint.headers import BITS, Header, RawHeader, header_body, tensor_bytes
from autolaunch.checkpoint.index import Index
from autolaunch.checkpoint.masks import NAME_MARK, Bundle, MalformedEntriesError, Repeats, bundles

LARGE = 4 * 1024 * 1024
"""Bytes of all headers; below, reading everything takes no time."""
LARGE_INDEX = 30_000
"""Tensors of an index; likewise."""

_ROUTED = ".experts."
_FIRST = ".experts.0."
_ENTRY_END = ']},"'
_SHAPE_END = '],"data_offsets":['


def alike_headers(raw: Sequence[RawHeader]) -> dict[str, Header] | None:
    """What these headers hold; None means: read them one by one."""
    if sum(len(one.content) for one in raw) < LARGE:
        return None
    headers, texts = [], []
    for one in raw:
        try:
            text = one.content.decode("utf-8")
            header = _sampled(one, text)
        except ValueError:  # of bytes that are no text, entries that are none, and numbers that are none
            return None
        if header is None:
            return None
        headers.append(header)
        texts.append(text)
    found = [bundle for header in headers for bundle in header.bundles]
    times = _times(found, sum(header.count for header in headers), texts)
    if times is None or not all(bundle.dtype in BITS for bundle in found):
        return None
    spread = [replace(header, bundles=_spread(header.bundles, times)) for header in headers]
    taken = sum(
        tensor_bytes(bundle.dtype, bundle.shape) * bundle.part.count
        for header in spread
        for bundle in header.bundles
    )
    if taken != sum(header.data_bytes for header in headers):
        return None
    return {header.file: header for header in spread}


def alike_names(index: Index) -> list[Bundle] | None:
    """The tensors that a large index names; None means: read them one by one."""
    if len(index.pieces) < LARGE_INDEX:
        return None
    by_file = sorted(index.by_file(_without_most_experts(index.pieces)).items())
    try:
        found = [bundle for file, names in by_file for bundle in bundles(file, names)]
    except MalformedEntriesError:
        return None
    times = _times(found, len(index.pieces), index.pieces)
    return None if times is None else _spread(found, times)


def _sampled(raw: RawHeader, text: str) -> Header | None:
    """The header with no more than the first expert of each layer; None where it does not look as usual."""
    opened = header_body(text)
    if opened is None:
        return None
    metadata, body = opened
    pieces = body.split(_ENTRY_END)
    entries = []
    for piece in _without_most_experts(pieces):
        start, mark, _ = piece.partition(_SHAPE_END)
        if not mark:
            return None
        entries.append(f"{NAME_MARK}{start}")
    end = raw.data_bytes or int(pieces[-1].rpartition(",")[2])
    found = bundles(raw.file, entries)
    return Header(raw.file, found, metadata, end, raw.data_bytes > 0, len(pieces))


def _without_most_experts(pieces: Iterable[str]) -> list[str]:
    """The pieces that name no routed expert, or the first."""
    return [piece for piece in pieces if _ROUTED not in piece or _FIRST in piece]


def _times(found: Iterable[Bundle], entries: int, texts: Iterable[str]) -> int | None:
    """How many experts there are if all layers have equally many and nothing else was left out, else None."""
    looked_into, first = 0, 0
    for bundle in found:
        looked_into += bundle.part.count
        if _expert_position(bundle) is not None:
            first += bundle.part.count
    if first == 0 or entries == looked_into or (entries - looked_into) % first:
        return None
    times = (entries - looked_into) // first + 1
    last = f"{_ROUTED}{times - 1}."
    return times if sum(text.count(last) for text in texts) == first else None


def _spread(found: Iterable[Bundle], times: int) -> list[Bundle]:
    """The bundles of first experts standing for `times` experts each, the others as they are."""
    spread = []
    for bundle in found:
        position = _expert_position(bundle)
        if position is not None:
            bundle = replace(bundle, part=replace(bundle.part, repeats=Repeats(position, times)))
        spread.append(bundle)
    return spread


def _expert_position(bundle: Bundle) -> int | None:
    """Which number of the names counts experts, where they belong to the first expert of a layer."""
    entry = bundle.part.entries[0]
    for position, (start, stop) in enumerate(bundle.part.spans):
        # The first number of names stands for the layer and is the same in all of them.
        if position > 0 and entry[start:stop] == "0" and entry.endswith(_ROUTED, 0, start):
            return position
    return None
