"""A model on the hub into a `RawCheckpoint` from its metadata alone: JSON files, index, and a few headers.

Nothing is written: what is fetched here is not in the cache afterwards, and SGLang downloads as always.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autolaunch.checkpoint.fetch import Fetch, FetchError
from autolaunch.checkpoint.file_names import CONFIG, HF_QUANT_CONFIG, INDEX, PICKLED
from autolaunch.checkpoint.headers import LENGTH_BYTES, Header, RawHeader, header_length, parse_header
from autolaunch.checkpoint.index import Index, parse_index
from autolaunch.checkpoint.problems import CheckpointError, NotInspected
from autolaunch.checkpoint.raw import RawCheckpoint, Weights, foreign, from_index, loaded_names, read_others
from autolaunch.checkpoint.read import LARGE_LIMIT, SMALL_LIMIT, decoded, parse_object
from autolaunch.checkpoint.tensors import Group, Tensors, grouped

_FIRST_BYTES = 1 << 18
"""Fetched of a weight file at first; most headers end before."""
_MOST_HEADERS = 8
"""Weight files of which the header is fetched; each costs two round trips."""


def read_hub(model: str, fetch: Fetch, *, path: str) -> RawCheckpoint | NotInspected:
    """The checkpoint `model` as the hub shows it; `path` is what the user called it."""
    try:
        sizes, commit = _listing(fetch, model)
        other = foreign(path, frozenset(sizes))
        if other is not None:
            return other
        if CONFIG not in sizes:
            return NotInspected("no-config", path, "the hub has it, without a config.json")
        config = _object(fetch, CONFIG, model)
        quantization = _object(fetch, HF_QUANT_CONFIG, model) if HF_QUANT_CONFIG in sizes else None
    except FetchError as error:
        return NotInspected(error.kind, path, error.reason)
    others, notes = read_others(sizes, lambda name: _other(fetch, name, model))
    weights = _read_weights(fetch, model, sizes)
    return RawCheckpoint(
        path=path,
        folder=None,
        source="hub-metadata",
        files=weights.files,
        config=config,
        hf_quant_config=quantization,
        other=others,
        tensors=weights.tensors,
        weight_bytes=weights.bytes,
        weight_bytes_from=weights.bytes_from,
        notes=(*notes, *weights.notes),
        revision=commit,
    )


def _listing(fetch: Fetch, model: str) -> tuple[dict[str, int], str | None]:
    """The files at the top level of the model with their sizes, and the commit they are of."""
    try:
        value = parse_object(decoded(fetch.listing(), model), model)
    except CheckpointError as error:
        raise FetchError("unreachable", "what answers there is no hub: it sends no list of files") from error
    files = value.get("siblings")
    if not isinstance(files, list):
        raise FetchError("unreachable", "what answers there is no hub: it sends no list of files")
    sizes = {}
    for file in files:
        name, size = (file.get("rfilename"), file.get("size")) if isinstance(file, dict) else (None, None)
        if isinstance(name, str) and "/" not in name:
            sizes[name] = size if type(size) is int and size > 0 else 0
    commit = value.get("sha")
    return dict(sorted(sizes.items())), commit if isinstance(commit, str) else None


def _object(fetch: Fetch, name: str, model: str) -> dict[str, Any]:
    """The JSON object in the file `name`."""
    title = f"{name} of {model}"
    return parse_object(decoded(fetch.file(name, SMALL_LIMIT), title), title)


def _other(fetch: Fetch, name: str, model: str) -> dict[str, Any]:
    """The JSON object in the file `name`, which may be missed: CheckpointError also where it was not sent."""
    try:
        return _object(fetch, name, model)
    except FetchError as error:
        raise CheckpointError(f"{name} was not read: {error.reason}") from error


def _read_weights(fetch: Fetch, model: str, sizes: Mapping[str, int]) -> Weights:
    """What index and headers tell; what could not be fetched is a note."""
    try:
        index = None
        if INDEX in sizes:
            index = parse_index(fetch.file(INDEX, LARGE_LIMIT), f"{INDEX} of {model}")
    except FetchError as error:
        found = Weights(notes=[f"its index was not read: {error.reason}"])
    else:
        found = (
            _from_index(fetch, model, index, sizes) if index is not None else _unindexed(fetch, model, sizes)
        )
    if not found.files:
        names = [name for name in sizes if name.endswith(".safetensors")]
        names = loaded_names(names) or [name for name in sizes if name.endswith(PICKLED)]
        found.files = tuple((name, sizes[name]) for name in names)
    if found.bytes is None and found.files:
        found.bytes, found.bytes_from = sum(size for _, size in found.files) or None, "files"
    return found


def _from_index(fetch: Fetch, model: str, index: Index, sizes: Mapping[str, int]) -> Weights:
    """The tensors an index names, with dtypes and shapes from the headers of a few files."""
    title = f"{INDEX} of {model}"
    names = from_index(index, title).tensors
    headers, notes = _headers(fetch, model, _covering(names.groups if names else ()), sizes)
    found = from_index(index, title, headers.values())
    found.files = tuple((name, sizes.get(name, 0)) for name in sorted(index.counts))
    found.notes += notes
    return found


def _unindexed(fetch: Fetch, model: str, sizes: Mapping[str, int]) -> Weights:
    """The tensors of a model without index."""
    names = loaded_names(list(sizes))
    headers, notes = _headers(fetch, model, names[:_MOST_HEADERS], sizes)
    found = Weights(files=tuple((name, sizes[name]) for name in names), notes=notes)
    if not names:
        found.notes.append("it has no safetensors files, so nothing is known of its tensors")
    if headers:
        groups = grouped(bundle for header in headers.values() for bundle in header.bundles)
        complete = len(headers) == len(names)
        found.tensors = Tensors(
            groups, complete, sum(one.data_bytes for one in headers.values()) if complete else None
        )
        found.bytes, found.bytes_from = found.tensors.total_bytes, "headers" if complete else None
        if not complete:
            found.notes.append(f"the headers of {len(headers)} of {len(names)} weight files were read")
    return found


def _headers(
    fetch: Fetch, model: str, names: Iterable[str], sizes: Mapping[str, int]
) -> tuple[dict[str, Header], list[str]]:
    """The headers of the files `names`, and why some are missing."""
    headers: dict[str, Header] = {}
    for name in names:
        title, size = f"{name} of {model}", sizes.get(name, 0)
        try:
            start = fetch.file(name, 0, 0, min(size, _FIRST_BYTES) or _FIRST_BYTES)
            length = header_length(start[:LENGTH_BYTES], size or LARGE_LIMIT, title)
            content = start[LENGTH_BYTES : LENGTH_BYTES + length]
            if len(content) < length:
                content += fetch.file(name, 0, LENGTH_BYTES + len(content), LENGTH_BYTES + length)
            behind = max(0, size - LENGTH_BYTES - length)
            headers[name] = parse_header(RawHeader(name, title, content, behind))
        except FetchError as error:
            return headers, [f"the header of {name} was not read: {error.reason}"]
    return headers, []


def _covering(groups: tuple[Group, ...]) -> list[str]:
    """Few files that hold every pattern, in its first and in its last layer."""
    wanted: dict[tuple[str, str], set[str]] = {}
    for group in sorted(groups, key=lambda one: -1 if one.layer is None else one.layer):
        wanted.setdefault((group.pattern, "first"), set(group.files))
        wanted[group.pattern, "last"] = set(group.files)
    chosen: list[str] = []
    while wanted and len(chosen) < _MOST_HEADERS:
        files = [file for files in wanted.values() for file in files]
        best = max(sorted(set(files)), key=files.count)
        chosen.append(best)
        wanted = {key: files for key, files in wanted.items() if best not in files}
    return chosen
