"""A raw checkpoint (JSON files and tensor headers) into what it means: `inspect`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from autolaunch.checkpoint.attention import Attention, attention_of
from autolaunch.checkpoint.config import (
    Config,
    architectures,
    context_length,
    dtype,
    language_config,
    num_layers,
)
from autolaunch.checkpoint.declared import declared_quantization
from autolaunch.checkpoint.experts import Moe, moe_of
from autolaunch.checkpoint.heads import announced_heads, find_heads
from autolaunch.checkpoint.layers import architecture_rows, with_class_defaults
from autolaunch.checkpoint.mtp import Mtp, mtp_of
from autolaunch.checkpoint.quantization import Quantization, quantization_of
from autolaunch.checkpoint.sizes import bytes_by_part, parameters_of
from autolaunch.checkpoint.source import RawCheckpoint
from autolaunch.checkpoint.weights import Weight, part_of, weights_of
from autolaunch.checkpoint.widths import Widths, widths_of

_SHARD = re.compile(r"-of-0*([1-9][0-9]{0,5})\.safetensors$")
# Parts of a configuration that describe what is seen or heard.
_SENSES = (
    "vision_config",
    "visual",
    "audio_config",
    "vision_tower",
    "mm_vision_tower",
    "vit_config",
    "img_processor",
    "audio_processor",
    "speech_config",
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a checkpoint is, as far as its metadata tells."""

    path: str
    source: str
    """`folder`, `hf-cache` or `hub-metadata`."""
    architecture: str
    """First of `architectures`, empty where there is none."""
    model_type: str
    config: Mapping[str, Any]
    """The language part of config.json."""
    attention: Attention
    moe: Moe | None
    quantization: Quantization
    mtp: Mtp
    num_layers: int | None
    hidden_size: int | None
    vocab_size: int | None
    context_length: int | None
    """Positions including rope scaling."""
    dtype: str | None
    """As the configuration says (`bfloat16` …), under either key."""
    weight_bytes: int | None
    """All tensors, of the heads and of the vision part too."""
    weight_bytes_by_part: Mapping[str, int] = field(default_factory=dict)
    """Bytes of `experts`, `attention`, … with `other` for norms and routers; empty without headers."""
    parameters: int | None = None
    """Numbers, packed ones counted as what they stand for; None without headers."""
    dense_width: int | None = None
    """Intermediate size of dense layers."""
    multimodal: bool = False
    embedding: bool = False
    draft: bool = False
    """A draft model, which is no target by itself."""
    hf_quant_config: bool = False
    notes: tuple[str, ...] = ()
    """What is odd, one sentence each without full stop."""

    def widths(self, tp: int, ep: int = 1, attention_dp: int = 1) -> Widths:
        """What one of `tp` ranks holds."""
        return widths_of(
            self.attention,
            self.moe,
            self.quantization,
            dense_width=self.dense_width,
            tp=tp,
            ep=ep,
            attention_dp=attention_dp,
        )


def inspect(raw: RawCheckpoint) -> Checkpoint:
    """What `raw` means; CheckpointError where its configuration holds what cannot be right."""
    config = language_config(raw.config)
    full = with_class_defaults(config)
    names = architectures(config)
    layers = num_layers(full)
    heads = find_heads(raw.tensors, layers, announced_heads(config)[0] or 0) if raw.tensors else None
    in_heads = frozenset((group.pattern, group.layer) for group in heads.groups) if heads else frozenset()
    weights: tuple[Weight, ...] = ()
    if raw.tensors:
        weights = weights_of(raw.tensors, lambda group: (group.pattern, group.layer) in in_heads)
    attention = attention_of(config, raw.tensors)
    moe = moe_of(config, raw.tensors)
    multimodal = _multimodal(config, names)
    declared = declared_quantization(config, raw.hf_quant_config, raw.other)
    told = dtype(config)
    quantization = quantization_of(
        declared,
        weights,
        dtype=told,
        expected=_expected_parts(config, attention, moe, layers, multimodal),
        layers=layers,
        one_name=attention.linear in {"kda", "lightning"},
    )
    mtp = mtp_of(
        config,
        names,
        raw.tensors,
        heads,
        [weight for weight in weights if weight.part == "mtp"],
        _is_whole(raw, layers),
    )
    return Checkpoint(
        path=raw.path,
        source=raw.source,
        architecture=names[0] if names else "",
        model_type=config.text("model_type") or str(config.outer.get("model_type") or ""),
        config=config.data,
        attention=attention,
        moe=moe,
        quantization=quantization,
        mtp=mtp,
        num_layers=layers,
        hidden_size=full.integer("hidden_size", "n_embd", "d_model"),
        vocab_size=full.integer("vocab_size", "padded_vocab_size"),
        context_length=context_length(full),
        dtype=told,
        weight_bytes=raw.weight_bytes,
        weight_bytes_by_part=bytes_by_part(weights),
        parameters=parameters_of(weights, raw.tensors),
        dense_width=_dense_width(full, moe),
        multimodal=multimodal,
        embedding=_is_of(names, "embedding"),
        draft=_is_of(names, "embedding", draft=True),
        hf_quant_config=raw.hf_quant_config is not None,
        notes=(*raw.notes, *quantization.notes, *mtp.notes, *(moe.notes if moe else ())),
    )


def _expected_parts(
    config: Config, attention: Attention, moe: Moe | None, layers: int | None, multimodal: bool
) -> dict[str, int]:
    """Parts that a model of this configuration has, with the number of their layers (0: not known)."""
    parts: dict[str, int] = {}
    if moe is not None:
        parts["experts"] = moe.layers or 0
        if moe.shared:
            parts["shared_experts"] = moe.layers or 0
    if moe is None or moe.first_dense:
        parts["dense"] = moe.first_dense if moe is not None else layers or 0
    if attention.full != "none":
        parts["attention"] = attention.n_full + attention.n_sliding
    if attention.linear is not None:
        parts["linear_attention"] = attention.n_linear
    parts |= {"embedding": 0, "lm_head": 0}
    if announced_heads(config)[0]:
        parts["mtp"] = 0
    return parts | ({"vision": 0} if multimodal else {})


def _is_whole(raw: RawCheckpoint, layers: int | None) -> bool:
    """Whether nothing speaks for more tensors than are listed.

    A list ends early when shards were never downloaded and no index names them: then decoder layers are
    missing up to the last, and shards by their own numbering.
    """
    if raw.tensors is None:
        return False
    found = {
        group.layer
        for group in raw.tensors.groups
        if ".layers.N." in f".{group.pattern}" and part_of(group.pattern) != "vision"
    }
    if not layers or not found or len(found) >= layers or layers - 1 in found:
        return True
    numbered = [match for name, _ in raw.files if (match := _SHARD.search(name))]
    return all(len(numbered) >= int(match[1]) for match in numbered)


def _multimodal(config: Config, names: Sequence[str]) -> bool:
    """Whether SGLang takes the model for one of images or sound: by its class, or by a nested language part.

    Classes that can do without eyes count when the configuration has some (MiMo-V2, Qwen-VL's first).
    """
    if config.outer.get("language_model_only") is True:
        return False
    return (
        bool(config.path)
        or _is_of(names, "multimodal")
        or any(isinstance(config.outer.get(key), Mapping | str) and config.outer[key] for key in _SENSES)
    )


def _is_of(names: Sequence[str], table: str, *, draft: bool = False) -> bool:
    """Whether a class is among those of the rows `table`, of those for drafts where `draft`."""
    return any(
        fnmatchcase(name, like)
        for row in architecture_rows(table)
        if bool(row.get("draft", False)) is draft
        for name in names
        for like in row["architectures"]
    )


def _dense_width(config: Config, moe: Moe | None) -> int | None:
    """Intermediate size of dense layers; None for a model that has none."""
    if moe is not None and not moe.first_dense:
        return None
    return config.integer("dense_intermediate_size", "intermediate_size", "ffn_hidden_size", "n_inner")
