"""A configuration into the kind of each of its decoder layers, however it spells them.

Lists with a word or a number a layer come first, then periods (`full_attention_interval`), then a key that
gives a kind without saying which layers have it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from autolaunch.checkpoint.config import Config, architectures, num_layers
from autolaunch.tables import load_rows

LayerKind = str
"""`full` `sliding` `chunked` `linear` `conv` `mamba` `both` (state space and attention) or `none`."""

# Lists with one word a layer, in the order in which they are believed.
_WORD_LISTS = (
    "layers_block_type",
    "layer_types",
    "hybrid_override_pattern",
    "attention_layer_types",
    "layer_type_list",
    "block_types",
    "_block_types",
)
# Keys of state space models; any of them makes one of a configuration without a list of layers.
_MAMBA_KEYS = (
    "mamba_d_state",
    "mamba_num_heads",
    "mamba_n_heads",
    "mamba_d_ssm",
    "ssm_state_size",
    "ssm_cfg",
    "mamba_expand",
    "state_size",
)
_ATTENTION_KEYS = ("num_attention_heads", "n_head", "n_heads")
# Keys of layers with a state of fixed size, with a word for the kind of state.
_LINEAR_KEYS = (
    ("linear_num_value_heads", "gdn"),
    ("linear_key_head_dim", "gdn"),
    ("linear_num_heads", "kda"),
)


@dataclass(frozen=True, slots=True)
class Layers:
    """Kinds of the decoder layers; `kinds` is empty where only `some` is known."""

    kinds: tuple[LayerKind, ...]
    some: frozenset[LayerKind]
    """Kinds that occur, also where it is not known in which layers."""
    key: str
    """The key that spoke, for a reason."""

    def count(self, *kinds: LayerKind) -> int:
        """How many layers are of any of `kinds`."""
        return sum(kind in kinds for kind in self.kinds)


@cache
def architecture_rows(table: str) -> tuple[Mapping[str, Any], ...]:
    """The rows `table` of `data/architectures.toml`."""
    return tuple(load_rows("architectures", table))


def with_class_defaults(config: Config) -> Config:
    """`config` with the keys that its class fills in; what config.json says stays."""
    types = {str(part.get("model_type")) for part in (config.data, config.outer)}
    names = architectures(config)
    data: dict[str, Any] = dict(config.data)
    for row in architecture_rows("default"):
        if any(fnmatchcase(one, like) for one in types for like in row["model_types"]) or any(
            fnmatchcase(one, like) for one in names for like in row["architectures"]
        ):
            data.update({key: value for key, value in row["keys"].items() if data.get(key) is None})
    return replace(config, data=data)


def layers_of(config: Config) -> Layers:
    """The kinds of the layers of `config`, whose class defaults are already in it."""
    total = num_layers(config) or 0
    for found in (_listed(config, total), _numbered(config, total), _periodic(config, total)):
        if found is not None:
            return found
    # A list of nothing but attention outweighs keys that a class writes for all its members (Granite 4).
    if isinstance(config.data.get("layer_types"), list) and config.data["layer_types"]:
        return Layers(("full",) * total, frozenset({"full"}), "layer_types")
    return _hinted(config, total)


def _layers(kinds: Sequence[LayerKind], key: str, total: int) -> Layers:
    """`kinds` cut to the number of layers: some lists go on with the heads that predict several tokens."""
    cut = tuple(kinds[:total] if total else kinds)
    return Layers(cut, frozenset(cut), key)


def _listed(config: Config, total: int) -> Layers | None:
    """From a list, or a text, of one word a layer; None without one that says more than "attention"."""
    words = {word: row["kind"] for row in architecture_rows("word") for word in row["words"]}
    for key in _WORD_LISTS:
        listed = config.sequence(key)
        if not listed:
            continue
        if "block_types" in key:  # RecurrentGemma gives one period
            listed = [listed[n % len(listed)] for n in range(total)]
        kinds = [words.get(str(one)) or words.get(str(one).lower(), "full") for one in listed]
        if key == "hybrid_override_pattern" and isinstance(listed, str):
            kinds = [words.get(one, "none") for one in listed]
        if set(kinds) - {"full", "none"} or key != "layer_types":
            return _layers(kinds, key, total)
    return _searched(config, total)


def _searched(config: Config, total: int) -> Layers | None:
    """From one object a layer, as an architecture search leaves them: some layers have no attention."""
    blocks = config.sequence("block_configs")
    parts = [
        part
        for one in blocks or ()
        if isinstance(one, Mapping) and isinstance(part := one.get("attention"), Mapping)
    ]
    if not parts or len(parts) != len(blocks or ()):
        return None
    gone = [bool(one.get("no_op") or one.get("replace_with_linear")) for one in parts]
    return _layers(["none" if none else "full" for none in gone], "block_configs", total)


def _numbered(config: Config, total: int) -> Layers | None:
    """From lists of numbers: 0 and 1 a layer, or the indices of the layers of one kind."""
    linear = config.mapping("linear_attn_config")
    if linear is not None and isinstance(linear.get("kda_layers"), list) and linear["kda_layers"]:
        # Layers are counted from one in some of these configurations, so only their number is used.
        many = len(linear["kda_layers"])
        return _layers(["linear"] * many + ["full"] * max(0, total - many), "linear_attn_config", total)
    marked: tuple[tuple[str, int, LayerKind], ...] = (
        ("attn_type_list", 0, "linear"),
        ("hybrid_layer_pattern", 1, "sliding"),
    )
    for key, mark, kind in marked:
        listed = config.sequence(key)
        if isinstance(listed, list | tuple) and mark in listed:
            return _layers([kind if number == mark else "full" for number in listed], key, total)
    inside: tuple[tuple[str, LayerKind, LayerKind], ...] = (
        ("attn_layer_indices", "full", "mamba"),
        ("full_attn_idxs", "full", "conv"),
        ("local_layer_ids", "sliding", "full"),
        ("full_attention_idxs", "full", "sliding"),
    )
    for key, within, without in inside:
        listed = config.sequence(key)
        if listed and total:
            chosen = {one for one in listed if isinstance(one, int)}
            return _layers([within if n in chosen else without for n in range(total)], key, total)
    return None


def _periodic(config: Config, total: int) -> Layers | None:
    """From a period: every n-th layer is of another kind than the rest."""
    interval = config.integer("full_attention_interval", least=1)
    if interval and config.has("linear_num_value_heads", "linear_key_head_dim", "linear_num_heads"):
        return _every(interval, "linear", total, "full_attention_interval")
    group = config.integer("layer_group_size", least=1)
    if group and group > 1:
        return _every(group, "linear", total, "layer_group_size")
    period, offset = config.integer("attn_layer_period", least=1), config.integer("attn_layer_offset")
    if period:
        kinds: list[LayerKind] = ["full" if n % period == (offset or 0) else "mamba" for n in range(total)]
        return _layers(kinds, "attn_layer_period", total)
    if config.flag("use_sliding_window") is False:
        return None
    if config.has("sliding_window", "sliding_window_size"):
        for key in ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"):
            value = config.data.get(key)
            if isinstance(value, str) and value:
                return _layers([_letter(value[n % len(value)]) for n in range(total)], key, total)
            every = config.integer(key)
            if every and every > 1:
                return _every(every, "sliding", total, key)
        dense = config.integer("max_window_layers")
        if config.flag("use_sliding_window") and dense is not None and dense < total:
            return _layers(["full"] * dense + ["sliding"] * (total - dense), "max_window_layers", total)
    chunked = config.integer("chunked_attention_pattern", least=1)
    if chunked and config.has("attention_chunk_size"):
        return _every(chunked, "chunked", total, "attention_chunk_size")
    return None


def _every(period: int, rest: LayerKind, total: int, key: str) -> Layers:
    """Full attention in the last layer of each `period`, `rest` in the others."""
    if not total:
        return Layers((), frozenset({"full", rest}), key)
    return _layers(["full" if (n + 1) % period == 0 else rest for n in range(total)], key, total)


def _letter(letter: str) -> LayerKind:
    """`L` is local, anything else is global."""
    return "sliding" if letter.upper() == "L" else "full"


def _hinted(config: Config, total: int) -> Layers:
    """From keys that say what occurs, not where; else all layers are full."""
    for key in _MAMBA_KEYS:
        if config.has(key):
            attends = config.has(*_ATTENTION_KEYS)
            parallel = attends and config.has("mamba_d_ssm")  # Falcon-H1 runs both in every layer
            some: frozenset[LayerKind] = frozenset({"mamba", "full"} if attends else {"mamba"})
            kinds: tuple[LayerKind, ...] = (
                ("both",) * total if parallel else () if attends else ("mamba",) * total
            )
            return Layers(kinds, some, key)
    for key, _ in _LINEAR_KEYS:
        if config.has(key):
            return Layers((), frozenset({"linear", "full"}), key)
    return Layers(("full",) * total, frozenset({"full"}), "")


def linear_kind(config: Config, layers: Layers) -> str | None:
    """What the layers with a state of fixed size are, None where there are none."""
    if layers.some & {"mamba", "both"}:
        grouped = config.has(
            "mamba_num_heads", "mamba_n_heads", "mamba_d_head", "mamba_head_dim", "num_heads", "n_groups"
        )
        return "mamba2" if grouped or not config.has("mamba_dt_rank", "time_step_rank") else "mamba1"
    if "conv" in layers.some:
        return "short_conv"
    if "linear" not in layers.some:
        return None
    if layers.key == "linear_attn_config" or config.has("linear_num_heads"):
        return "kda"
    if layers.key == "attn_type_list":
        return "lightning"
    if layers.key == "layer_group_size":
        return "kda" if config.has("short_conv_kernel_size") else "lightning"
    if config.has("linear_num_value_heads", "linear_key_head_dim", "efficient_attention_config"):
        return "gdn"
    return "lightning"
