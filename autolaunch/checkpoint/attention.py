"""What a checkpoint's layers do to the past: configuration, else tensors, into an `Attention`.

Kinds are told from keys (`kv_lora_rank`, `index_topk`, `layer_types`, `linear_*`, `mamba_*`, windows),
because new architectures come with old keys; `data/architectures.toml` has what classes add to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from autolaunch.checkpoint.config import Config
from autolaunch.checkpoint.layers import (
    Layers,
    architecture_rows,
    layers_of,
    linear_kind,
    with_class_defaults,
)
from autolaunch.checkpoint.tensors import Tensors

# In SGLang's order (0.5.23 configs/model_config.py get_total_num_kv_heads).
_KV_KEYS = (
    "n_head_kv",
    "num_kv_heads",
    "num_key_value_heads",
    "multi_query_group_num",
    "num_attention_groups",
)
_HEAD_KEYS = (
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_heads",
    "decoder_attention_heads",
    "encoder_attention_heads",
)
_HEAD_DIM_KEYS = ("head_dim", "attention_head_dim", "kv_channels")
_LATENT = frozenset({"mla", "dsa", "dsv4"})


@dataclass(frozen=True, slots=True)
class Attention:
    """Kind and widths of the attention layers; a width that the configuration does not tell is None."""

    kind: str
    """`mha` `gqa` `mqa` `mla` `dsa` `dsv4` `hybrid_linear` `hybrid_mamba` `sliding_hybrid` `chunked_hybrid`
    `block_sparse_gqa`, or `none` for a model without attention."""
    full: str
    """Kind of the layers that see everything: what `kind` would be without the others."""
    heads: int | None = None
    kv_heads: int | None = None
    """Heads whose keys and values are kept, of the full layers; 1 where a latent is kept."""
    head_dim: int | None = None
    """Width of a query and key head; with a latent, the part without and with position together."""
    v_head_dim: int | None = None
    kv_lora_rank: int | None = None
    q_lora_rank: int | None = None
    qk_rope_head_dim: int | None = None
    index_topk: int | None = None
    sinks: bool = False
    sliding_window: int | None = None
    """Positions that a sliding layer, or a chunk of a chunked one, sees; None without such layers."""
    sliding_kv_heads: int | None = None
    """KV heads of the sliding layers where they differ from those of the full ones."""
    sliding_head_dim: int | None = None
    linear: str | None = None
    """`gdn` `kda` `lightning` `mamba1` `mamba2` `short_conv`, or None."""
    n_full: int = 0
    n_linear: int = 0
    n_sliding: int = 0
    reason: str = ""
    """Which keys spoke."""

    @property
    def latent(self) -> bool:
        """Whether full layers keep one compressed latent instead of keys and values per head."""
        return self.full in _LATENT


def attention_of(config: Config, tensors: Tensors | None) -> Attention:
    """The attention of the language model that `config` describes."""
    config = with_class_defaults(config)
    layers = layers_of(config)
    shown = shown_by(tensors.patterns() if tensors else ())
    # Mamba2 counts the heads of its state under a name that others use for attention.
    heads = None if layers.some == {"mamba"} else config.integer(*_HEAD_KEYS)
    kv_heads = _kv_heads(config, heads)
    full, reason = _full_kind(config, heads, kv_heads, shown)
    kind = _kind(full, layers, shown)
    linear = linear_kind(config, layers) or next(
        (one for one in ("gdn", "kda", "mamba2") if one in shown), None
    )
    sliding = bool(layers.some & {"sliding", "chunked"}) and kind not in _LATENT
    latent = full in _LATENT
    own_dim = _head_dim(config, full, heads)
    head_dim = config.integer("global_head_dim") or own_dim if sliding else own_dim
    return Attention(
        kind=kind,
        full=full,
        heads=heads,
        kv_heads=1 if latent else _global_kv_heads(config, kv_heads, sliding),
        head_dim=head_dim,
        v_head_dim=config.integer("v_head_dim")
        or (_hidden_per_head(config, heads) if full == "mla" else None)  # MiniCPM3 leaves it out
        or head_dim,
        kv_lora_rank=config.integer("kv_lora_rank") if full in {"mla", "dsa"} else None,
        q_lora_rank=config.integer("q_lora_rank") if latent else None,
        qk_rope_head_dim=config.integer("qk_rope_head_dim") if latent else None,
        index_topk=config.integer("index_topk"),
        sinks="sinks" in shown or any(config.flag(key) for key in _SINK_KEYS),
        sliding_window=_window(config, layers) if sliding or full == "dsv4" else None,
        sliding_kv_heads=_sliding(config, kv_heads, "swa_num_key_value_heads", "num_global_key_value_heads")
        if sliding
        else None,
        sliding_head_dim=_sliding(config, own_dim, "swa_head_dim", "global_head_dim") if sliding else None,
        linear=linear,
        n_full=layers.count("full", "both"),
        n_linear=layers.count("linear", "conv", "mamba", "both"),
        n_sliding=layers.count("sliding", "chunked"),
        reason=", ".join(f"`{key}`" for key in dict.fromkeys((*layers.key.split(), *reason.split())) if key),
    )


_SINK_KEYS = ("learnable_sink", "add_swa_attention_sink_bias", "add_full_attention_sink_bias")


def shown_by(patterns: Iterable[str]) -> frozenset[str]:
    """What names of tensors alone give away, by the rows `tensors` of `data/architectures.toml`."""
    text = "\n".join(patterns)
    return frozenset(
        row["shows"] for row in architecture_rows("tensors") if re.search(row["pattern"], text, re.MULTILINE)
    )


def _full_kind(
    config: Config, heads: int | None, kv_heads: int | None, shown: frozenset[str]
) -> tuple[str, str]:
    """The kind of the layers that see everything, and the key that spoke."""
    rank = config.integer("kv_lora_rank")
    if config.has("compress_ratios") and config.has("index_topk", "o_lora_rank", "index_n_heads"):
        return "dsv4", "compress_ratios"
    if rank and config.flag("use_mla") is not False:
        return ("dsa", "index_topk kv_lora_rank") if config.has("index_topk") else ("mla", "kv_lora_rank")
    if config.has("index_topk"):
        return "dsa", "index_topk"
    sparse = config.mapping("sparse_attention_config")
    if sparse is not None and sparse.get("use_sparse_attention", bool(sparse)):
        return "block_sparse_gqa", "sparse_attention_config"
    if "latent" in shown and heads is None:
        return ("dsa" if "indexer" in shown else "mla"), "tensors"
    if heads is None:
        return "none", ""
    if kv_heads is None or kv_heads == heads:
        return "mha", "num_attention_heads"
    return ("mqa" if kv_heads == 1 else "gqa"), "num_key_value_heads"


def _kind(full: str, layers: Layers, shown: frozenset[str]) -> str:
    """The kind of the model as a whole."""
    attends = layers.some & {"full", "both", "sliding", "chunked"} and full != "none"
    if layers.some & {"mamba", "both", "conv"} or (full == "none" and "mamba2" in shown):
        return "hybrid_mamba" if attends else "none"
    if "linear" in layers.some or (layers.key == "" and shown & {"gdn", "kda"}):
        return "hybrid_linear"
    if full in _LATENT or full == "block_sparse_gqa":
        return full
    if layers.some & {"chunked"}:
        return "chunked_hybrid"
    return "sliding_hybrid" if "sliding" in layers.some else full


def _kv_heads(config: Config, heads: int | None) -> int | None:
    """KV heads as the configuration counts them, `heads` where it does not."""
    if config.flag("multi_query") and not config.flag("new_decoder_architecture"):
        return 1
    told = config.integer(*_KV_KEYS)
    if told is not None:
        return told
    nested = config.mapping("attn_config")  # DBRX, MPT
    if nested is not None and isinstance(nested.get("kv_n_heads"), int):
        return int(nested["kv_n_heads"])
    blocks = config.sequence("block_configs")  # Nemotron NAS
    if heads and isinstance(blocks, list):
        sizes: list[int] = [
            block["attention"]["n_heads_in_group"]
            for block in blocks
            if isinstance(block, dict)
            and isinstance(block.get("attention"), dict)
            and isinstance(block["attention"].get("n_heads_in_group"), int)
        ]
        if sizes and min(sizes) > 0:
            return heads // min(sizes)
    return heads


def _head_dim(config: Config, full: str, heads: int | None) -> int | None:
    """Width of a query and key head."""
    if full in {"mla", "dsa"}:
        nope, rope = config.integer("qk_nope_head_dim"), config.integer("qk_rope_head_dim")
        if nope is not None and rope is not None:
            return nope + rope
    return config.integer(*_HEAD_DIM_KEYS) or _hidden_per_head(config, heads)


def _hidden_per_head(config: Config, heads: int | None) -> int | None:
    """The hidden size shared out over the heads."""
    hidden = config.integer("hidden_size", "n_embd", "d_model")
    return hidden // heads if hidden and heads else None


def _global_kv_heads(config: Config, kv_heads: int | None, sliding: bool) -> int | None:
    """KV heads of the full layers, which some models give apart."""
    return config.integer("num_global_key_value_heads") or kv_heads if sliding else kv_heads


def _sliding(config: Config, common: int | None, own: str, of_full: str) -> int | None:
    """A width of the sliding layers where it differs from that of the full ones."""
    told = config.integer(own)
    if told is not None:
        return told if told != common else None
    return common if config.integer(of_full) not in {None, common} else None


def _window(config: Config, layers: Layers) -> int | None:
    """The window of sliding layers, or the chunk of chunked ones."""
    if "chunked" in layers.some:
        return config.integer("attention_chunk_size")
    return config.integer("sliding_window_size", "sliding_window", "window_size")
