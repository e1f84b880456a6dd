"""Groups hundreds of thousands of tensor names in a few passes that run in C.

An *entry* is a tensor as it stands in a header up to the end of its shape, `},"NAME":{"dtype":"U8",…[8`,
or the name alone where only an index is known.  With every digit written as `0` all entries of a kind become
one *mask*; they have equal length and their numbers at equal places, so that a number is a slice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

NAME_MARK = '},"'
DTYPE_MARK = '":{"dtype":"'
SHAPE_MARK = '","shape":['

DTYPE = re.compile("[A-Z0-9_]{1,20}")
"""What a dtype of a header is spelled like."""

_SIZE = r"(?:0|[1-9][0-9]{0,17})"
_DIGITS = {ord(digit): "0" for digit in "123456789"}
# A number between dots counts layers or experts; `w1` and `scale_2` are words.
_NUMBER = re.compile(r"(?:(?<=\.)|\A)0{1,9}(?=\.|\Z)")
_FIELDS = re.compile(
    rf"{re.escape(DTYPE_MARK)}({DTYPE.pattern}){re.escape(SHAPE_MARK)}((?:{_SIZE}(?:,{_SIZE})*)?)", re.ASCII
)
_CHUNK = 16384  # entries that are masked at once: bounds the memory, costs no time

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Repeats:
    """That entries stand for more, which differ from them in one number alone."""

    position: int
    """Which number of the name; it is 0 in the entries."""
    times: int
    """It runs from 0 up to here."""


@dataclass(frozen=True, slots=True)
class Part:
    """Entries of one file and one mask that belong to one group."""

    file: str
    entries: Sequence[str]
    name: Span
    """Where the name stands."""
    spans: tuple[Span, ...]
    """Where the numbers in it stand."""
    repeats: Repeats | None = None

    @property
    def count(self) -> int:
        """How many tensors there are."""
        return len(self.entries) * (self.repeats.times if self.repeats else 1)

    def names(self) -> Iterator[str]:
        """The tensors' names."""
        start, stop = self.name
        if self.repeats is None:
            return (entry[start:stop] for entry in self.entries)
        first, behind = self.spans[self.repeats.position]
        numbers = range(self.repeats.times)
        return (f"{entry[start:first]}{n}{entry[behind:stop]}" for entry in self.entries for n in numbers)

    def begins_with(self, prefix: str) -> bool:
        """Whether any of the names begins with `prefix`."""
        first = self.entries[0][slice(*self.name)]
        if len(self.spans) < 2 or len(prefix) <= self.spans[1][0] - self.name[0]:  # so far all are the same
            return first.startswith(prefix)
        return any(name.startswith(prefix) for name in self.names())

    def numbers(self, position: int) -> frozenset[int]:
        """The distinct numbers at `position`, empty where the names have fewer."""
        if position >= len(self.spans):
            return frozenset()
        if self.repeats is not None and self.repeats.position == position:
            return frozenset(range(self.repeats.times))
        return frozenset(map(int, set(self.texts(position))))

    def texts(self, position: int) -> list[str]:
        """The number at `position` of each name, as text."""
        where = slice(*self.spans[position])
        return [entry[where] for entry in self.entries]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A part and what all its entries have in common."""

    pattern: str
    layer: int | None
    dtype: str | None
    shape: tuple[int, ...] | None
    part: Part


class MalformedEntriesError(ValueError):
    """Entries that are not what a header of the usual form gives: parse it to find out."""


def collapse(name: str) -> str:
    """`name` with every number between dots as `N`."""
    spans = [match.span() for match in _NUMBER.finditer(name.translate(_DIGITS))]
    return _replace(name, (0, len(name)), spans)


def bundles(file: str, entries: Sequence[str]) -> list[Bundle]:
    """The entries of a file by pattern, first number, dtype, shape; MalformedEntriesError if any is odd."""
    found = []
    for mask, same in _by_mask(entries).items():
        end = mask.rfind(DTYPE_MARK)
        name = (len(NAME_MARK), end) if end >= 0 else (0, len(mask))
        spans = tuple(
            (start + name[0], stop + name[0])
            for start, stop in (match.span() for match in _NUMBER.finditer(mask[slice(*name)]))
        )
        for alike in _by_key(same, mask, spans):
            first = alike[0]
            dtype, shape = (None, None) if end < 0 else _header_fields(first, end)
            layer = int(first[slice(*spans[0])]) if spans else None
            found.append(
                Bundle(_replace(first, name, spans), layer, dtype, shape, Part(file, alike, name, spans))
            )
    _check_distinct(found)
    return found


def _check_distinct(found: list[Bundle]) -> None:
    """Raise when two entries have one name."""
    alike: dict[tuple[str, int | None, Span], list[Part]] = {}
    for bundle in found:  # names of one pattern and layer can be equal only when they are equally long
        alike.setdefault((bundle.pattern, bundle.layer, bundle.part.name), []).append(bundle.part)
    for parts in alike.values():
        part = parts[0]
        if len(parts) == 1 and len(part.spans) == 2:  # its names differ in the second number alone
            distinct = len(set(part.texts(1)))
        else:
            distinct = len({name for part in parts for name in part.names()})
        if distinct != sum(len(part.entries) for part in parts):
            raise MalformedEntriesError("a name occurs twice")


def _by_mask(entries: Sequence[str]) -> dict[str, list[str]]:
    """The entries by their mask."""
    found: dict[str, list[str]] = {}
    for start in range(0, len(entries), _CHUNK):
        chunk = entries[start : start + _CHUNK]
        masks = "\n".join(chunk).translate(_DIGITS).split("\n")
        if len(masks) != len(chunk):  # a name holds a line break
            masks = [entry.translate(_DIGITS) for entry in chunk]
        for mask, entry in zip(masks, chunk, strict=True):
            same = found.get(mask)
            if same is None:
                found[mask] = [entry]
            else:
                same.append(entry)
    return found


def _by_key(entries: list[str], mask: str, spans: tuple[Span, ...]) -> list[list[str]]:
    """Entries of one mask by everything but the numbers after the first."""
    if len(spans) < 2:
        key: Callable[[str], Any] = str
    else:
        # The layer, and what else holds digits: everything that is not a number and differs within a mask.
        starts, ends = [0, *(stop for _, stop in spans)], [*(start for start, _ in spans), len(mask)]
        words = [_digits_within(mask, *span) for span in zip(starts, ends, strict=True)]
        key = itemgetter(*(slice(*span) for span in [spans[0], *words] if span is not None))
    found: dict[Any, list[str]] = {}
    for value, entry in zip(map(key, entries), entries, strict=True):
        alike = found.get(value)
        if alike is None:
            found[value] = [entry]
        else:
            alike.append(entry)
    return list(found.values())


def _digits_within(mask: str, start: int, stop: int) -> Span | None:
    """The shortest span that holds all digits of `mask` from `start` to `stop`."""
    first = mask.find("0", start, stop)
    return None if first < 0 else (first, mask.rfind("0", start, stop) + 1)


def _header_fields(entry: str, end: int) -> tuple[str, tuple[int, ...]]:
    """dtype and shape of an entry whose name ends at `end`."""
    fields = _FIELDS.fullmatch(entry, end)
    if fields is None or not entry.startswith(NAME_MARK):
        raise MalformedEntriesError(f"odd entry {entry}")
    return fields[1], tuple(map(int, fields[2].split(","))) if fields[2] else ()


def _replace(entry: str, name: Span, spans: Sequence[Span]) -> str:
    """The name in `entry` with `N` at each of `spans`."""
    pieces = []
    start = name[0]
    for span in spans:
        pieces += [entry[start : span[0]], "N"]
        start = span[1]
    return "".join([*pieces, entry[start : name[1]]])
