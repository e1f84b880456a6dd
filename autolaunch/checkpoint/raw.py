"""What is read of a checkpoint, wherever it lies, and what the names of its files tell."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from autolaunch.checkpoint.alike import alike_names
from autolaunch.checkpoint.file_names import CONFIG, OTHER_FILES, PIPELINE_FILES
from autolaunch.checkpoint.headers import Header
from autolaunch.checkpoint.index import Index
from autolaunch.checkpoint.masks import bundles
from autolaunch.checkpoint.problems import CheckpointError, NotInspected
from autolaunch.checkpoint.tensors import Tensors, grouped, sampled

Source = Literal["folder", "hf-cache", "hub-metadata"]
WeightBytesFrom = Literal["headers", "index", "files"]


@dataclass(frozen=True, slots=True)
class RawCheckpoint:
    """What JSON files and safetensors headers of a checkpoint say, not yet interpreted."""

    path: str
    """The model as the user named it."""
    folder: Path | None
    """Where its files lie; None for hub metadata."""
    source: Source
    files: tuple[tuple[str, int], ...]
    """Weight files that SGLang would load, with their sizes in bytes."""
    config: Mapping[str, Any]
    """config.json; an object, nothing inside it is checked."""
    hf_quant_config: Mapping[str, Any] | None
    other: Mapping[str, Mapping[str, Any]]
    """Other small JSON files by name: generation_config.json, quantize_config.json, …"""
    tensors: Tensors | None
    """None: no list of tensors could be read (no index, no safetensors file)."""
    weight_bytes: int | None
    weight_bytes_from: WeightBytesFrom | None
    notes: tuple[str, ...] = ()
    """What is odd about the files, one sentence each without full stop."""
    revision: str | None = None
    """The commit on the hub, where known."""


@dataclass(slots=True)
class Weights:
    """What is known of the weights of one checkpoint while it is read."""

    files: tuple[tuple[str, int], ...] = ()
    tensors: Tensors | None = None
    bytes: int | None = None
    bytes_from: WeightBytesFrom | None = None
    notes: list[str] = field(default_factory=list)


def read_others(
    names: Collection[str], read: Callable[[str], Mapping[str, Any]]
) -> tuple[dict[str, Mapping[str, Any]], list[str]]:
    """Those of OTHER_FILES that are among `names`, by `read`, and a note for each that is broken."""
    others: dict[str, Mapping[str, Any]] = {}
    notes: list[str] = []
    for name in OTHER_FILES:
        if name in names:
            try:
                others[name] = read(name)
            except CheckpointError as error:
                notes.append("; ".join((error.what, *error.because)))
    return others, notes


def foreign(path: str, names: frozenset[str]) -> NotInspected | None:
    """Why a model with these files is one that autolaunch does not read, or None."""
    if CONFIG not in names and any(name in names for name in PIPELINE_FILES):
        return NotInspected(
            "diffusion", path, "it is a diffusion pipeline, of which autolaunch knows nothing"
        )
    consolidated = any(name.startswith("consolidated") and name.endswith(".safetensors") for name in names)
    own = any(name.startswith("model") and name.endswith(".safetensors") for name in names)
    if (consolidated and not own) or (CONFIG not in names and "params.json" in names):
        return NotInspected(
            "mistral",
            path,
            "it is in Mistral's own format (params.json, consolidated.safetensors)",
            hint="use a copy with config.json and model.safetensors to have it inspected",
        )
    if any(name.endswith(".gguf") for name in names) and not any(
        name.endswith(".safetensors") for name in names
    ):
        return NotInspected("gguf", path, "its weights are GGUF files, which autolaunch does not read")
    return None


def loaded_names(names: list[str]) -> list[str]:
    """Of the safetensors files of a model without index, those that SGLang loads."""
    shards = [name for name in names if name.endswith(".safetensors")]
    own = [name for name in shards if not name.startswith("consolidated")]
    return own or shards


def from_index(index: Index, title: str, headers: Iterable[Header] = ()) -> Weights:
    """What an index tells where not all of its files are at hand; `title` names it in messages.

    Dtypes and shapes come from `headers`, those of the same layer or else of the nearest.
    """
    found = alike_names(index)
    if found is None:
        index.check_distinct(title)
        by_file = sorted(index.names_by_file().items())
        found = [bundle for file, names in by_file for bundle in bundles(file, names)]
    known = grouped(bundle for header in headers for bundle in header.bundles)
    tensors = Tensors(sampled(grouped(found), known), complete=False, total_bytes=index.total_size)
    return Weights(
        files=tuple((name, 0) for name in sorted(index.counts)),
        tensors=tensors,
        bytes=index.total_size,
        bytes_from="index" if index.total_size is not None else None,
    )
