"""A folder with a model into a `RawCheckpoint`, from its JSON files, its index and its headers."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from autolaunch.checkpoint.alike import alike_headers
from autolaunch.checkpoint.file_names import CONFIG, HF_QUANT_CONFIG, INDEX, PICKLED, PICKLED_INDEX
from autolaunch.checkpoint.headers import Header, RawHeader, load_header, parse_header
from autolaunch.checkpoint.index import Index, agreeing, parse_index
from autolaunch.checkpoint.problems import CheckpointError, NoSuchModelError, NotInspected, shown
from autolaunch.checkpoint.raw import (
    RawCheckpoint,
    Source,
    Weights,
    foreign,
    from_index,
    loaded_names,
    read_others,
)
from autolaunch.checkpoint.read import LARGE_LIMIT, read_file, read_object
from autolaunch.checkpoint.tensors import Tensors, grouped
from autolaunch.units import format_bytes

MAX_SHARDS = 4096
MAX_HEADER_BYTES = 128 * 1024 * 1024
"""Of all files together; the largest checkpoint known has 52 MB."""

# As in `model-00001-of-00051.safetensors`.
_NUMBERED = re.compile(r"-[0-9]{5}-of-([0-9]{5})\.safetensors$")
_WEIGHTS = (".safetensors", ".gguf", *PICKLED)
# Pickled files that hold no weights.
_NO_WEIGHTS = ("training_args", "optimizer", "scheduler", "rng_state")


def read_folder(
    folder: Path, *, path: str, source: Source = "folder", revision: str | None = None
) -> RawCheckpoint | NotInspected:
    """The checkpoint in `folder`; `path` is what the user called it."""
    sizes = list_files(folder)
    other = foreign(path, frozenset(sizes))
    if other is not None:
        return other
    if CONFIG not in sizes:
        raise _no_config(folder, sizes)
    config = read_object(folder / CONFIG)
    quantization = read_object(folder / HF_QUANT_CONFIG) if HF_QUANT_CONFIG in sizes else None
    others, notes = read_others(sizes, lambda name: read_object(folder / name))
    with _without_collector():
        # SGLang completes what the cache lacks; a folder it takes as it is.
        weights = _read_weights(folder, sizes, may_lack=source == "hf-cache")
    return RawCheckpoint(
        path=path,
        folder=folder,
        source=source,
        files=weights.files,
        config=config,
        hf_quant_config=quantization,
        other=others,
        tensors=weights.tensors,
        weight_bytes=weights.bytes,
        weight_bytes_from=weights.bytes_from,
        notes=(*notes, *weights.notes),
        revision=revision,
    )


def list_files(folder: Path) -> dict[str, int]:
    """The files in `folder` by name, with the sizes of weight files (0 for others and for dead links)."""
    sizes = {}
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                sizes[entry.name] = _size(entry) if entry.name.endswith(_WEIGHTS) else 0
    except OSError as error:
        raise NoSuchModelError(
            f"cannot read the folder `{shown(str(folder))}`",
            because=(f"the system says: {error.strerror}",),
            hint="pass a folder with config.json in it, or a model id such as `Qwen/Qwen3-8B`",
        ) from error
    return dict(sorted(sizes.items()))


def _read_weights(folder: Path, sizes: Mapping[str, int], *, may_lack: bool) -> Weights:
    """The tensors of the weight files in `folder`, of which some may still have to be downloaded."""
    shards = loaded_names(list(sizes))
    if INDEX not in sizes:
        if not shards:
            return _pickled(folder, sizes)
        return _from_headers(_read_headers(folder, shards), None, sizes)
    content, title = read_file(folder / INDEX, LARGE_LIMIT), str(folder / INDEX)
    # In most folders the index names every shard, so the headers can be read before it is known.
    broken: dict[str, CheckpointError] = {}
    headers = _read_headers(folder, shards, broken)
    index = agreeing(content, {name: header.count for name, header in headers.items()})
    index = index or parse_index(content, title)
    absent = sorted(name for name in index.counts if name not in sizes)
    if absent and (may_lack or not shards):
        found = from_index(index, title, headers.values())
        found.files = tuple((name, sizes[name]) for name in sorted(index.counts) if name in sizes)
        found.notes.append(
            f"{len(absent)} of the {len(index.counts)} weight files that {INDEX} names are not here"
        )
        return found
    if absent:
        raise _lacking(folder, index, absent)
    named_only = [name for name in sorted(index.counts) if name not in headers]  # broken or consolidated ones
    found = _from_headers({**headers, **_read_headers(folder, named_only)}, index, sizes)
    found.notes += [
        f"{shown(name)}, which {INDEX} does not name, was not read: {error.what}"
        for name, error in broken.items()
    ]
    return found


def _from_headers(headers: Mapping[str, Header], index: Index | None, sizes: Mapping[str, int]) -> Weights:
    """What the headers of all weight files tell; SGLang loads those that `index` names, or all."""
    named = sorted(index.counts) if index is not None else list(headers)
    found = Weights(files=tuple((name, sizes[name]) for name in named))
    loaded = {name: headers[name] for name in named}
    found.tensors = Tensors(
        grouped(bundle for header in headers.values() for bundle in header.bundles),
        complete=True,
        total_bytes=sum(header.data_bytes for header in loaded.values()),
        unindexed=frozenset(headers) - frozenset(named),
        metadata=next((header.metadata for header in headers.values()), {}),
    )
    found.bytes, found.bytes_from = found.tensors.total_bytes, "headers"
    found.notes += _oddities(headers, index)
    return found


def _read_headers(
    folder: Path, names: list[str], broken: dict[str, CheckpointError] | None = None
) -> dict[str, Header]:
    """The headers of the files `names`, many but not endless; bad ones go to `broken` if it is given."""
    if len(names) > MAX_SHARDS:
        raise CheckpointError(
            f"`{shown(str(folder))}` holds {len(names)} weight files",
            because=(f"at most {MAX_SHARDS} are read",),
            hint="merge them into fewer files",
        )
    raw: list[RawHeader] = []
    taken = 0
    for name in names:
        try:
            raw.append(load_header(folder / name))
        except CheckpointError as error:
            if broken is None:
                raise
            broken[name] = error
            continue
        taken += len(raw[-1].content)
        if taken > MAX_HEADER_BYTES:
            raise CheckpointError(
                f"the weight files in `{shown(str(folder))}` have more header than model",
                because=(f"more than {format_bytes(MAX_HEADER_BYTES)} of it",),
                hint="check where the model comes from",
            )
    headers = alike_headers(raw)
    if headers is not None:
        return headers
    headers = {}
    for one in raw:
        try:
            headers[one.file] = parse_header(one)
        except CheckpointError as error:
            if broken is None:
                raise
            broken[one.file] = error
    return headers


def _pickled(folder: Path, sizes: Mapping[str, int]) -> Weights:
    """Names by an index, and sizes, of a folder without safetensors files; nothing is unpickled."""
    files = tuple(
        (name, size)
        for name, size in sizes.items()
        if name.endswith(PICKLED) and not name.startswith(_NO_WEIGHTS)
    )
    if not files:
        return Weights(notes=["there are no weight files, so nothing is known of its tensors"])
    note = f"its weights are pickled ({shown(files[0][0])}), and autolaunch opens no pickles"
    found = Weights(notes=[note])
    if PICKLED_INDEX in sizes:
        path = folder / PICKLED_INDEX
        found = from_index(parse_index(read_file(path, LARGE_LIMIT), str(path)), str(path))
        found.notes.append(note)
    found.files = files
    found.bytes, found.bytes_from = sum(size for _, size in files), "files"
    return found


def _lacking(folder: Path, index: Index, absent: list[str]) -> CheckpointError:
    """The error about files that the index names and that are not there."""
    more = f" and {len(absent) - 1} more are" if len(absent) > 1 else " is"
    return CheckpointError(
        f"`{shown(str(folder))}` lacks weight files",
        because=(f"{INDEX} names {len(index.counts)} files", f"`{shown(absent[0])}`{more} not there"),
        hint="finish the download",
    )


def _oddities(headers: Mapping[str, Header], index: Index | None) -> Iterator[str]:
    """What headers and index together show that somebody should know."""
    empty = [header for header in headers.values() if not header.has_data]
    if empty:
        yield f"{len(empty)} of {len(headers)} weight files end with their header: their data is missing"
    if index is None:
        numbered = [match for match in map(_NUMBERED.search, headers) if match]
        total = max((int(match[1]) for match in numbered), default=0)
        if len(numbered) < total:
            missing = total - len(numbered)
            yield f"{missing} of the {total} files that the names of its weight files count are not here"
        return
    differing = [name for name, count in index.counts.items() if headers[name].count != count]
    if differing:
        yield (
            f"{INDEX} says that `{shown(differing[0])}` holds {index.counts[differing[0]]} tensors,"
            f" and it holds {headers[differing[0]].count}: the headers count"
        )


def _no_config(folder: Path, sizes: Mapping[str, int]) -> CheckpointError:
    """The error about a folder that holds no model."""
    if "adapter_config.json" in sizes:
        return NoSuchModelError(
            f"`{shown(str(folder))}` holds a LoRA adapter, not a model",
            because=("it has adapter_config.json and no config.json",),
            hint="name the base model, and the adapter with `--lora-paths`",
        )
    what = "is empty" if not sizes else "holds no config.json"
    return NoSuchModelError(
        f"`{shown(str(folder))}` {what}",
        because=(f"it holds {len(sizes)} other files",) if sizes else (),
        hint="pass the folder with the config.json of the model",
    )


def _size(entry: os.DirEntry[str]) -> int:
    """Size in bytes of a file, 0 where the link leads nowhere."""
    try:
        return entry.stat().st_size
    except OSError:
        return 0  # reading it will say why


@contextmanager
def _without_collector() -> Iterator[None]:
    """Half a million strings are no garbage: looking for cycles among them takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
