"""A checkpoint into the plan of a slice: its first layers at full width, and where each of their tensors is.

A plan is a *view* when every weight file it needs is linked, *copied* when some are copied in part, and
*synthetic* when the weights are not at hand, so that somebody has to make them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.checkpoint.config import Config, language_config
from autolaunch.checkpoint.layers import with_class_defaults
from autolaunch.checkpoint.problems import CheckpointError
from autolaunch.checkpoint.raw import RawCheckpoint
from autolaunch.checkpoint.tensors import Tensors
from autolaunch.slice.config_cut import cut_config, renumber, unknown_lists
from autolaunch.slice.families import family_of
from autolaunch.slice.files import Files, Kind, files_at_hand, files_to_make
from autolaunch.slice.kinds import Repeat, find_repeat, kinds_of, whole_periods
from autolaunch.slice.part import DECODER_LAYER, Part, part_of
from autolaunch.slice.problems import NoSlice
from autolaunch.units import format_bytes

__all__ = ["COPY_LIMIT_BYTES", "NoSlice", "SlicePlan", "plan_slice"]

COPY_LIMIT_BYTES = 32 * 1024**3
"""More is not copied unless the caller says so."""


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """What a slice holds, and where that comes from."""

    source: Path | None
    """The folder of the checkpoint; None for hub metadata."""
    kind: Kind
    layers: int
    total_layers: int
    period: int
    """Layers after which the pattern repeats; 0 where none does."""
    kept: tuple[int, ...]
    config: Mapping[str, Any]
    """The whole of the slice's config.json."""
    tensors: Mapping[str, str]
    """The file of each tensor, under the slice's names; files are called as in the checkpoint."""
    weight_bytes: int
    """Of all its tensors."""
    mtp: bool
    """Whether it holds the heads."""
    reason: str
    layer_bytes: int
    """Of one decoder layer, in the mean over the last period."""
    copied: tuple[str, ...] = ()
    """Files of which tensors are copied; the others are linked."""
    copied_bytes: int = 0
    renamed: Mapping[str, str] = field(default_factory=dict)
    """What tensors with a new name are called in the checkpoint."""
    hf_quant_config: Mapping[str, Any] | None = None
    """hf_quant_config.json where it cannot stay as it is."""
    kinds: tuple[str, ...] = field(default=(), repr=False)
    """The kind of every layer of the whole."""
    whole: Tensors | None = field(default=None, repr=False, compare=False)
    """The tensors of the whole."""

    def origin(self, name: str) -> str:
        """What the checkpoint calls the slice's tensor `name`."""
        return self.renamed.get(name, name)


def plan_slice(
    raw: RawCheckpoint,
    checkpoint: Checkpoint,
    *,
    mtp: bool,
    sglang: str,
    layers: int | None = None,
    copy_limit_bytes: int = COPY_LIMIT_BYTES,
) -> SlicePlan | NoSlice:
    """The slice of `raw` for an engine of version `sglang`, with its heads where `mtp` and they are usable.

    `layers` is rounded up to whole periods; left out, the family's row and the pattern decide.
    """
    family = family_of(checkpoint.architecture)
    if family is None:
        name = (
            f"`{checkpoint.architecture}`" if checkpoint.architecture else "a model without `architectures`"
        )
        return NoSlice(f"how SGLang loads {name} was not looked into, so it cannot be cut")
    total, tensors = checkpoint.num_layers, raw.tensors
    if total is None or tensors is None:
        return NoSlice(f"nothing tells {'how many layers it has' if total is None else 'its tensors'}")
    if not any(file.endswith(".safetensors") for group in tensors.groups for file in group.files):
        return NoSlice("its weights are not in safetensors files")
    said = language_config(raw.config)
    config = with_class_defaults(said)
    odd = unknown_lists(config, family.keys, total)
    if odd:
        because = (f"no configuration of {family.title} is known to have that key",)
        return NoSlice(
            f"`{config.name(odd[0])}` has an entry a layer, and it is not known how to cut it", because
        )
    kinds = kinds_of(config, total)
    repeat = find_repeat(kinds, family.layers)
    kept = repeat.layers if layers is None else whole_periods(repeat, layers)
    if kept >= total:
        return NoSlice(f"a slice would take {kept} layers, and the model has {total}")
    part = part_of(tensors, config, checkpoint, family, layers=kept, total=total, mtp=mtp)
    absent = _without_tensors(tensors, part)
    if absent:
        return NoSlice(f"no tensor has a name that puts it into layer {absent[0]}")
    files = _files(raw, tensors, part, family.skips_deeper(sglang), copy_limit_bytes)
    if isinstance(files, NoSlice):
        return files
    return _plan(raw, said, part, files, repeat, kinds)


def _files(raw: RawCheckpoint, tensors: Tensors, part: Part, skips: bool, limit: int) -> Files | NoSlice:
    """The weight files as they are, or those that have to be made."""
    try:
        found = files_at_hand(raw, part, skips=skips, limit=limit)
    except CheckpointError as error:
        return NoSlice(error.what, error.because)
    return files_to_make(tensors, part) if found is None else found


def _plan(
    raw: RawCheckpoint, said: Config, part: Part, files: Files, repeat: Repeat, kinds: tuple[str, ...]
) -> SlicePlan:
    """The plan, once everything is known; `said` is the configuration without class defaults."""
    renamed = part.renamed()
    tensors, rest = raw.tensors, raw.hf_quant_config
    return SlicePlan(
        source=raw.folder,
        kind=files.kind,
        layers=part.layers,
        total_layers=part.total,
        period=repeat.period,
        kept=tuple(range(part.layers)),
        config=cut_config(said, part.layers, part.total, renumbered=bool(renamed)),
        tensors=files.tensors,
        weight_bytes=files.weight_bytes,
        mtp=part.mtp,
        reason=_reason(part, files, repeat),
        layer_bytes=_layer_bytes(tensors, part, repeat.period) if tensors else 0,
        copied=files.copied,
        copied_bytes=files.copied_bytes,
        renamed=renamed,
        hf_quant_config=renumber(rest, part.layers, part.total) if rest is not None and renamed else None,
        kinds=kinds,
        whole=tensors,
    )


def _without_tensors(tensors: Tensors, part: Part) -> list[int]:
    """Layers of the whole to which no tensor belongs."""
    there = {group.layer for group in tensors.groups if DECODER_LAYER.match(group.pattern)}
    return [layer for layer in range(part.total) if layer not in there]


def _layer_bytes(tensors: Tensors, part: Part, period: int) -> int:
    """Bytes of one layer, in the mean over the last `period` that are kept."""
    last = range(part.layers - (period or part.layers), part.layers)
    sizes = [
        group.bytes or 0
        for group in tensors.groups
        if group.layer is not None and group.layer in last and DECODER_LAYER.match(group.pattern)
    ]
    return sum(sizes) // len(last)


def _reason(part: Part, files: Files, repeat: Repeat) -> str:
    """What was taken and how, in one sentence."""
    many = len(set(files.tensors.values()))
    named = "1 weight file" if many == 1 else f"{many} weight files"
    how = {
        "synthetic": "the weights are not at hand",
        "view": f"linked to {named}",
        "copied": f"{format_bytes(files.copied_bytes)} copied from {len(files.copied)} of {named}",
    }[files.kind]
    if repeat.period == 0:
        pattern = "where every kind of layer occurs"
    else:
        pattern = f"where a period of {repeat.period} repeats"
        pattern += f" after {repeat.start}" if repeat.start else ""
    return "; ".join((f"the first {part.layers} of {part.total} layers, {pattern}", how, *part.notes))
