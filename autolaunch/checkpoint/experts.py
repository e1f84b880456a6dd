"""How many experts a model has and how wide they are: configuration, checked by the tensors, into a `Moe`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from autolaunch.checkpoint.config import Config, num_layers
from autolaunch.checkpoint.layers import with_class_defaults
from autolaunch.checkpoint.tensors import Tensors

_COUNT_KEYS = (
    "n_routed_experts",
    "num_experts",
    "num_local_experts",
    "moe_num_experts",
    "num_routed_experts",
    "n_experts",
)
_TOP_K_KEYS = (
    "num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts", "moe_k", "moe_topk",
    "moe_top_k", "num_selected_experts", "num_experts_per_topk",
)  # fmt: skip
# Where none is there, experts are as wide as `intermediate_size` says.
_WIDTH_KEYS = (
    "moe_intermediate_size",
    "expert_ffn_hidden_size",
    "expert_intermediate_size",
    "moe_ffn_hidden_size",
    "ffn_dim",
)
_SHARED_KEYS = (
    "n_shared_experts",
    "num_shared_experts",
    "moe_num_shared_experts",
    "num_shared_expert",
    "n_shared_expert",
)
_SHARED_WIDTH_KEYS = (
    "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size",
    "share_expert_dim", "moe_intermediate_size_shared",
)  # fmt: skip
_DENSE_KEYS = (
    "first_k_dense_replace",
    "num_dense_layers",
    "moe_layer_start_index",
    "moe_layer_num_skipped",
)
# DBRX keeps the experts in an object of their own, under other names.
_NESTED = "ffn_config"
_ROUTED = re.compile(
    r"\.experts\.N\.|\.experts\.(gate_up_proj|gate_proj|up_proj|w1|w13|linear_v)|\.moe\.(gate|up)_proj"
)


@dataclass(frozen=True, slots=True)
class Moe:
    """The routed part of a mixture of experts."""

    experts: int
    """Routed experts that hold weights (experts that only pass through are not counted)."""
    top_k: int | None
    expert_width: int | None
    """Intermediate size of one routed expert."""
    shared: int = 0
    shared_width: int | None = None
    first_dense: int = 0
    """Leading layers without experts."""
    layers: int | None = None
    """Layers with experts."""
    zero_experts: int = 0
    latent: int | None = None
    """Width that routed experts read and write where it is not the hidden size."""
    where: str = ""
    """The key, or `tensors`, that told the number."""
    notes: tuple[str, ...] = ()
    """Where configuration and tensors disagree."""


def moe_of(config: Config, tensors: Tensors | None) -> Moe | None:
    """The experts of the language model, None for a dense one."""
    config = with_class_defaults(config)
    total = num_layers(config)
    key, told = _experts_told(config)
    stored = _experts_stored(tensors, total)
    experts = told or stored
    if not experts or (told is not None and told <= 1 and not stored):
        return None
    notes: tuple[str, ...] = ()
    if told and stored and told != stored:
        notes = (f"`{config.name(key)}` says {told} experts, the tensors hold {stored}",)
        experts = stored
    shared_width = config.integer(*_SHARED_WIDTH_KEYS)
    shared = config.integer(*_SHARED_KEYS)
    if shared is None:
        gates = (
            "shared_expert_intermediate_size",
            "shared_intermediate_size",
            "share_expert_dim",
            "interleave_moe_layer_step",
        )
        shared = 1 if any(config.integer(one) for one in gates) else 0
    layers = _layers_with_experts(config, tensors, total)
    return Moe(
        experts=experts,
        top_k=config.integer(*_TOP_K_KEYS) or _nested(config, "moe_top_k"),
        expert_width=config.integer(*_WIDTH_KEYS)
        or config.integer("intermediate_size")
        or _nested(config, "ffn_hidden_size"),
        shared=shared,
        shared_width=shared_width or None,
        first_dense=_first_dense(config, total),
        layers=layers,
        zero_experts=config.integer("zero_expert_num") or 0,
        latent=config.integer("moe_latent_size", "routed_expert_hidden_size"),
        where=config.name(key) if told else "tensors",
        notes=notes,
    )


def _experts_told(config: Config) -> tuple[str, int | None]:
    """The key that gives the number of experts, and the number."""
    if config.flag("enable_moe_block") is False:
        return "enable_moe_block", None
    for key in _COUNT_KEYS:
        count = config.integer(key)
        if count is not None:
            return key, count
    count = _nested(config, "moe_num_experts")
    return (f"{_NESTED}.moe_num_experts", count) if count else ("", None)


def _nested(config: Config, key: str) -> int | None:
    """The whole number under `key` of the object that some models keep their experts in."""
    value = (config.mapping(_NESTED) or {}).get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _numbered(config: Config) -> list[int]:
    """The numbers of the layers with experts, where they are listed one by one (Step 3)."""
    listed = config.sequence("moe_layers_enum")
    words = listed.split(",") if isinstance(listed, str) else listed or ()
    return sorted(int(one) for one in map(str, words) if one.strip().isdecimal())


def _experts_stored(tensors: Tensors | None, total: int | None) -> int | None:
    """The largest number of experts of a decoder layer: by their numbers in names, or by a stacked shape."""
    numbered: dict[tuple[str, int | None], int] = {}
    most = 0
    for pattern, groups in tensors.patterns().items() if tensors else ():
        if not _ROUTED.search(pattern):
            continue
        for group in groups:
            if _is_head(pattern, group.layer, total):
                continue
            if ".experts.N." not in pattern:
                most = max(most, group.shape[0] if group.shape is not None and len(group.shape) >= 3 else 0)
            elif pattern.split(".").count("N") == 2:  # one number for the layer, one for the expert
                key = (pattern, group.layer)
                numbered[key] = numbered.get(key, 0) + group.count
            else:
                position = pattern[: pattern.index(".experts.N.") + 10].split(".").count("N") - 1
                most = max(most, len(group.numbers(position)))
    return max(most, *numbered.values(), 0) or None


def _is_head(pattern: str, layer: int | None, total: int | None) -> bool:
    """Whether a tensor belongs to heads that predict several tokens, which may have fewer experts."""
    return (
        "mtp" in pattern or "nextn" in pattern or (total is not None and layer is not None and layer >= total)
    )


def _layers_with_experts(config: Config, tensors: Tensors | None, total: int | None) -> int | None:
    """How many decoder layers route, by the tensors where there are any."""
    if tensors is not None:
        found = {
            group.layer
            for group in tensors.groups
            if _ROUTED.search(group.pattern) and not _is_head(group.pattern, group.layer, total)
        }
        if found:
            return len(found)
    for key in ("mlp_layer_types", "moe_layer_freq", "layers_block_type", "hybrid_override_pattern"):
        listed = config.data.get(key)
        if isinstance(listed, list | str) and listed:
            return sum(one in (1, "sparse", "moe", "E") for one in listed[:total])
    if listed := _numbered(config):
        return sum(total is None or n < total for n in listed)
    if total is None:
        return None
    step = config.integer(
        "decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", "expert_layer_period"
    )
    return max(0, total - _first_dense(config, total)) // max(step or 1, 1)


def _first_dense(config: Config, total: int | None) -> int:
    """Leading layers without experts, by number or by a list of one word a layer."""
    told = config.integer(*_DENSE_KEYS)
    if told is not None:
        return told if total is None else min(told, total)
    for key, dense in (("mlp_layer_types", "dense"), ("moe_layer_freq", 0)):
        listed = config.data.get(key)
        if isinstance(listed, list):
            return next((n for n, one in enumerate(listed) if one != dense), len(listed))
    return next(iter(_numbered(config)), 0)
