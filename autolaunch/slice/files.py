"""Weight files into what is done with each: linked where an engine may read it as it is, else copied in part.

A file may not be linked when a tensor in it gets a new name, or when it holds deeper layers too and the
loader would fail at them or take them for heads.  It had better not be when most of it is of no use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autolaunch.checkpoint.raw import RawCheckpoint
from autolaunch.checkpoint.tensors import Tensors
from autolaunch.slice.part import Part
from autolaunch.slice.problems import NoSlice
from autolaunch.slice.shards import Shard, files_of_tensors, read_shard
from autolaunch.units import format_bytes

Kind = Literal["view", "copied", "synthetic"]

MUCH_BYTES = 2 * 1024**3
"""A file with more than this that is of no use, twice as much as what is, is copied in part."""


@dataclass(frozen=True, slots=True)
class Files:
    """Where the tensors of a slice come from."""

    kind: Kind
    tensors: Mapping[str, str]
    """The file of each, under the slice's names."""
    weight_bytes: int
    copied: tuple[str, ...] = ()
    copied_bytes: int = 0


def files_at_hand(raw: RawCheckpoint, part: Part, *, skips: bool, limit: int) -> Files | NoSlice | None:
    """What is done with weight files that are there; None where some are not.

    `skips` says that the loader passes over deeper layers, `limit` how many bytes may be copied.
    CheckpointError says what is wrong with a file.
    """
    folder = raw.folder
    if folder is None or raw.tensors is None:
        return None
    names = [name for name, _ in raw.files if name.endswith(".safetensors")]
    if not all((folder / name).is_file() for name in names):
        return None
    by_tensor = files_of_tensors(folder, names)
    if part.mtp:
        by_tensor |= _forgotten(folder, raw.tensors, part, by_tensor)
    taken: dict[str, dict[str, str]] = {}
    for name, file in by_tensor.items():
        new = part.new_name(name)
        if new is not None:
            taken.setdefault(file, {})[name] = new
    if not all((folder / file).is_file() for file in taken):
        return None
    shards = {file: read_shard(folder / file) for file in sorted(taken)}
    if not all(shard.has_data for shard in shards.values()):
        return None
    for file, wanted in taken.items():
        lacking = wanted.keys() - shards[file].tensors.keys()
        if lacking:
            return NoSlice(f"`{file}` does not hold `{min(lacking)}`, and the index says it does")
    sizes = {file: _bytes_of(wanted, shards[file]) for file, wanted in taken.items()}
    copied = _copied(part, taken, shards, sizes, skips=skips, limit=limit)
    if isinstance(copied, NoSlice):
        return copied
    return Files(
        kind="copied" if copied else "view",
        tensors={new: file for file, wanted in taken.items() for new in wanted.values()},
        weight_bytes=sum(sizes.values()),
        copied=copied,
        copied_bytes=sum(sizes[file] for file in copied),
    )


def files_to_make(tensors: Tensors, part: Part) -> Files | NoSlice:
    """The files of weights that are not at hand, named as those of the whole."""
    found: dict[str, str] = {}
    size = 0
    for group in tensors.groups:
        for piece in group.parts:
            for name in piece.names():
                new = part.new_name(name)
                if new is None:
                    continue
                if group.bytes is None:
                    return NoSlice(
                        "its weights are not at hand, and not enough is known of them to make others",
                        (f"nothing tells dtype and shape of `{name}`",),
                    )
                found[new] = piece.file
                size += group.bytes // group.count
    return Files("synthetic", found, size)


def _forgotten(folder: Path, tensors: Tensors, part: Part, known: Mapping[str, str]) -> dict[str, str]:
    """Heads in files that the index does not name, which SGLang reads all the same for some classes."""
    apart = {file for group in tensors.groups for file in group.files} & tensors.unindexed
    missing = part.heads - known.keys()
    return {
        name: file for file in sorted(apart) for name in read_shard(folder / file).tensors if name in missing
    }


def _copied(
    part: Part,
    taken: Mapping[str, Mapping[str, str]],
    shards: Mapping[str, Shard],
    sizes: Mapping[str, int],
    *,
    skips: bool,
    limit: int,
) -> tuple[str, ...] | NoSlice:
    """The files that must not be linked, and those that had better not and are within the limit."""
    # A draft takes every name that begins with the number of its layer, `layers.4` of `layers.40` too.
    skips = skips and not (part.mtp and part.numbered)
    must, better = [], []
    for file, wanted in taken.items():
        others = shards[file].tensors.keys() - wanted.keys()
        useless = _bytes_of(others, shards[file])
        if any(name != new for name, new in wanted.items()) or (
            not skips and any(map(part.is_deeper, others))
        ):
            must.append(file)
        elif useless > MUCH_BYTES and useless > 2 * sizes[file]:
            better.append(file)
    needed = sum(sizes[file] for file in must)
    if needed > limit:
        return NoSlice(
            f"{format_bytes(needed)} would have to be copied, and the limit is {format_bytes(limit)}",
            ("its weight files hold deeper layers too, which the engine must not see",),
        )
    for file in sorted(better, key=lambda one: sizes[one]):
        needed += sizes[file]
        if needed <= limit:
            must.append(file)
    return tuple(sorted(must))


def _bytes_of(names: Mapping[str, str] | set[str], shard: Shard) -> int:
    """Bytes of the tensors `names` of one file."""
    return sum(shard.tensors[name].bytes for name in names)
