"""`model.safetensors.index.json` into the files it names, and how many tensors each holds.

The index of a 397B checkpoint has 41 MB, which takes a JSON parser as long as reading all 51 headers.  A
large index that has as many entries as the headers beside it is believed to say what they say.  Otherwise
an index written as usual is checked and counted by its separators in half the parser's time; what is written
otherwise, or broken, goes to the parser, which says why.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from autolaunch.checkpoint.problems import CheckpointError, shown
from autolaunch.checkpoint.read import decoded, parse_object

_LARGE = 4 * 1024 * 1024  # bytes; below that, parsing takes no time
_MAP_START = re.compile(rb'"weight_map"\s*:\s*\{\s*"')
_SEPARATORS = re.compile(rb'"(\s*:\s*)"[^"]*"(\s*,\s*)"')


@dataclass(frozen=True, slots=True)
class Index:
    """What an index says."""

    counts: Mapping[str, int]
    """Tensors by the file that holds them."""
    total_size: int | None
    """Bytes as `metadata.total_size` has it."""
    pieces: list[str] = field(default_factory=list, repr=False)
    """Name and file of every tensor, with `between` between them; empty where the headers are believed."""
    between: str = "\0"

    def names_by_file(self) -> dict[str, list[str]]:
        """The names of the tensors by file."""
        return self.by_file(self.pieces)

    def by_file(self, pieces: Iterable[str]) -> dict[str, list[str]]:
        """The names in some of its pieces by file."""
        found: dict[str, list[str]] = {}
        for piece in pieces:
            name, _, file = piece.rpartition(self.between)
            found.setdefault(file, []).append(name)
        return found

    def check_distinct(self, title: str) -> None:
        """Raise when a name occurs twice; `title` names the index."""
        by_file = self.names_by_file().values()
        if len({name for names in by_file for name in names}) != sum(map(len, by_file)):
            raise CheckpointError(f"`{shown(title)}` names a tensor twice", hint="download the file again")


def parse_index(content: bytes, name: str) -> Index:
    """The index in `content`; CheckpointError when it is broken or names anything but files beside it."""
    found = _counted(content) or _parsed(decoded(content, name), name)
    if (
        len(content) < _LARGE
    ):  # where it takes no time; larger ones are checked when their names are asked for
        found.check_distinct(name)
    for file in found.counts:
        _check_name(file, name)
    return found


def agreeing(content: bytes, counts: Mapping[str, int]) -> Index | None:
    """A large index with as many entries as `counts`, the headers beside it, have; None means: parse it."""
    frame = _frame(content) if len(content) >= _LARGE else None
    if frame is None:
        return None
    start, close, rest = frame
    entries = sum(counts.values())
    found = content.count(b'.safetensors"', start, close), content.count(b'"', start, close)
    return Index(counts, _total_size(rest)) if found == (entries, 4 * entries - 1) else None


def _frame(content: bytes) -> tuple[int, int, Mapping[str, object]] | None:
    """Where the first name in `weight_map` starts and where the map ends, and the rest of the index."""
    start = _MAP_START.search(content)
    if start is None or not content.isascii() or any(one in content for one in b"\\\0\t\r"):
        return None
    close = content.find(b"}", start.end())
    try:
        rest = json.loads(content[: start.end() - 1] + content[close:])
    except (ValueError, RecursionError):
        return None
    if close < 0 or not isinstance(rest, dict) or rest.get("weight_map") != {}:
        return None
    return start.end(), close, rest


def _counted(content: bytes) -> Index | None:
    """The index cut at its separators; None where it does not look as usual."""
    frame = _frame(content)
    if frame is None:
        return None
    start, close, rest = frame
    separators = _SEPARATORS.match(content, content.find(b'"', start), close)
    end = content.rfind(b'"', start, close)
    if separators is None or content[end + 1 : close].strip():
        return None
    between, after = f'"{separators[1].decode()}"', f'"{separators[2].decode()}"'
    pieces = content[start:end].decode("ascii").split(after)
    # Every quote and every line break belongs to a separator: names and files hold none.
    breaks = between.count("\n") * len(pieces) + after.count("\n") * (len(pieces) - 1)
    if (content.count(b'"', start, end), content.count(b"\n", start, end)) != (4 * len(pieces) - 2, breaks):
        return None
    counts = _count_files(pieces, between)
    return None if counts is None else Index(counts, _total_size(rest), pieces, between)


def _count_files(pieces: list[str], between: str) -> Mapping[str, int] | None:
    """Tensors by file; None unless each of `pieces` is a name and a file."""
    width = len(pieces[0]) - pieces[0].find(between)
    tails = Counter(map(itemgetter(slice(-width, None)), pieces))
    if not all(tail.startswith(between) for tail in tails):  # the names of files are not all equally long
        tails = Counter(["".join(piece.partition(between)[1:]) for piece in pieces])
    counts = {tail[len(between) :]: count for tail, count in tails.items()}
    return None if any(not file or '"' in file for file in counts) else counts


def _parsed(text: str, name: str) -> Index:
    """The index as a JSON parser reads it."""
    value = parse_object(text, name, unique=True)
    weight_map = value.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise CheckpointError(
            f"`{shown(name)}` has no `weight_map` from tensor names to file names",
            hint="download the file again",
        )
    pieces = [f"{tensor}\0{file}" for tensor, file in weight_map.items()]
    return Index(Counter(weight_map.values()), _total_size(value), pieces, "\0")


def _total_size(value: Mapping[str, object]) -> int | None:
    """`metadata.total_size`, if it is a count of bytes; some writers make it a float."""
    metadata = value.get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    if isinstance(size, bool) or not isinstance(size, int | float) or not 0 < size < 10**18:
        return None  # `NaN` and `Infinity` end here too
    return int(size)


def _check_name(file: str, name: str) -> None:
    """Raise unless `file` is the plain name of a file in the folder of the index."""
    if file in {"", ".", ".."} or "/" in file or "\\" in file or "\0" in file:
        raise CheckpointError(
            f"`{shown(name)}` names a file outside its folder",
            because=(f"it says that tensors lie in `{shown(file)}`",),
            hint="get the model from where you trust it: an index names files beside it",
        )
