"""What one token and one request take of a GPU's cache, by kind of attention, as SGLang's pools count it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

from autolaunch.capability.fact_names import FLAG, UNSET, Facts
from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.memory.facts import attention_ranks, flag_number, is_drafting, is_on, rows_for, size

_INDEX_BLOCK: Final = 128
_WIDTHS: Final = {"fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "mxfp8": 1 + 1 / 32, "fp4_e2m1": 0.5 + 1 / 16}
"""Bytes of an element with its scales (0.5.23 srt/model_executor/pool_configurator.py:486-531)."""
_TYPES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class CacheCost:
    """Bytes on the fullest GPU."""

    token: int
    """For each token of the pool that SGLang counts (`max_total_num_tokens`)."""
    state: int = 0
    """For each request that linear layers remember."""
    notes: tuple[str, ...] = field(default=())


def cache_cost(checkpoint: Checkpoint, facts: Facts, tp: int) -> CacheCost | None:
    """What the cache costs on one of `tp` ranks; None where a width is not known."""
    attention = checkpoint.attention
    ranks, pp = attention_ranks(facts, tp), size(facts, "pp")
    layers = attention.n_full + attention.n_linear + attention.n_sliding or checkpoint.num_layers
    if attention.full == "none":
        return CacheCost(0, _state(checkpoint, facts, ranks))
    if attention.full == "dsv4" or not layers:
        return None
    element = _element(checkpoint, facts)
    full = attention.n_full or layers - attention.n_linear - attention.n_sliding
    full *= next((row["times"] for row in rows_for("passes", facts)), 1)
    notes: list[str] = []
    if attention.latent:
        one = _latent(checkpoint, facts, element)
        if one is None:
            return None
        cell = one * (full + attention.n_sliding)
    else:
        one = _heads(attention.kv_heads, attention.head_dim, attention.v_head_dim, ranks, element)
        if one is None:
            return None
        cell = one * full
        if attention.n_sliding:
            cell += _sliding(checkpoint, facts, ranks, element, notes)
    if is_drafting(facts) and full:
        cell += cell * _draft_layers(checkpoint) / full
    if not isfinite(cell):
        return None
    if attention.full == "block_sparse_gqa":
        notes.append("the keys of its indexer are not counted")
    return CacheCost(int(-(-cell // pp)), _state(checkpoint, facts, ranks) // pp, tuple(notes))


def _heads(
    kv_heads: int | None, head_dim: int | None, v_head_dim: int | None, ranks: int, element: float
) -> float | None:
    """One layer's keys and values of a token; each rank keeps at least one head."""
    if kv_heads is None or head_dim is None:
        return None
    return max(1, kv_heads // ranks) * (head_dim + (v_head_dim or head_dim)) * element


def _sliding(checkpoint: Checkpoint, facts: Facts, ranks: int, element: float, notes: list[str]) -> float:
    """What the sliding layers keep for each token of the full pool."""
    attention = checkpoint.attention
    head_dim = attention.sliding_head_dim or attention.head_dim
    own_v = None if attention.sliding_head_dim else attention.v_head_dim
    one = _heads(attention.sliding_kv_heads or attention.kv_heads, head_dim, own_v, ranks, element) or 0.0
    if is_on(facts, "disable_hybrid_swa_memory") or next(rows_for("sliding", facts), None) is None:
        notes.append("this SGLang keeps the whole past of the sliding layers too")
        return one * attention.n_sliding
    pinned = flag_number(facts, "swa_full_tokens_ratio")
    share = pinned if pinned is not None else float(next(rows_for("share", facts))["ratio"])
    notes.append(f"sliding layers keep {share:g} of the tokens that full ones keep")
    return one * attention.n_sliding * share


def _latent(checkpoint: Checkpoint, facts: Facts, element: float) -> float | None:
    """One layer's latent of a token, the same on every rank, and the key of an indexer."""
    attention = checkpoint.attention
    rank, rope = attention.kv_lora_rank, attention.qk_rope_head_dim
    if rank is None or rope is None:
        return None
    if attention.full != "dsa":
        return (rank + rope) * element
    index = checkpoint.config.get("index_head_dim", 128)
    index = index if isinstance(index, int) else 128
    key = index + index // _INDEX_BLOCK * 4
    backends = (facts.get(f"{FLAG}dsa_prefill_backend"), facts.get(f"{FLAG}dsa_decode_backend"))
    if element == 1.0 and "trtllm" not in backends:
        # FlashMLA's layout: FP8 with a scale for each block, positions in 16 bit.
        return rank + rank // _INDEX_BLOCK * 4 + 2 * rope + key
    return (rank + rope) * element + key


def _element(checkpoint: Checkpoint, facts: Facts) -> float:
    """Bytes of one element of keys and values."""
    told = str(facts.get(f"{FLAG}kv_cache_dtype", UNSET))
    if told in _WIDTHS:
        return _WIDTHS[told]
    if told in ("bf16", "bfloat16"):
        return 2.0
    stored = checkpoint.quantization
    if stored.parts.get("kv_cache", "").startswith("fp8") and str(stored.method).startswith("modelopt"):
        return 1.0
    if checkpoint.attention.full == "dsa" and _sm(facts) >= 100:
        return 1.0
    return float(_TYPES.get(str(facts.get("dtype")), 2))


def _sm(facts: Facts) -> int:
    """The compute capability, 0 where it is not known."""
    value = facts.get("sm")
    return value if isinstance(value, int) else 0


def _draft_layers(checkpoint: Checkpoint) -> int:
    """Layers of the draft, which share the target's widths."""
    return max(1, checkpoint.mtp.layers or 1) if checkpoint.mtp.present else 1


def _state(checkpoint: Checkpoint, facts: Facts, ranks: int) -> int:
    """What the linear layers keep of one request (0.5.9 srt/configs/mamba_utils.py)."""
    attention, config = checkpoint.attention, checkpoint.config
    if not attention.n_linear:
        return 0
    if attention.linear == "gdn":
        heads, groups = _of(config, "linear_num_value_heads"), _of(config, "linear_num_key_heads")
        wide, deep = _of(config, "linear_value_head_dim"), _of(config, "linear_key_head_dim")
        kernel = _of(config, "linear_conv_kernel_dim") or 4
    elif attention.linear in ("mamba1", "mamba2"):
        heads = _of(config, "mamba_num_heads", "mamba_n_heads", "num_heads")
        groups = _of(config, "n_groups", "mamba_n_groups")
        wide = _of(config, "mamba_head_dim", "mamba_d_head", "head_dim")
        deep = _of(config, "ssm_state_size", "mamba_d_state", "state_size")
        kernel = _of(config, "conv_kernel", "mamba_d_conv") or 4
    elif attention.linear == "kda":
        inner = config.get("linear_attn_config")
        inner = inner if isinstance(inner, Mapping) else {}
        heads = groups = _of(inner, "num_heads") or attention.heads or 0
        wide = deep = _of(inner, "head_dim") or attention.head_dim or 0
        kernel = _of(inner, "short_conv_kernel_size") or 4
    else:  # lightning keeps no convolution
        heads, groups, kernel = attention.heads or 0, 0, 1
        wide = deep = attention.head_dim or 0
    groups = ranks if groups % ranks else groups
    convolution = (heads * wide + 2 * groups * deep) // ranks * (kernel - 1) * 2
    recurrent = -(-heads // ranks) * wide * deep * _TYPES.get(_state_type(config, facts), 4)
    return attention.n_linear * (convolution + recurrent)


def _state_type(config: Mapping[str, Any], facts: Facts) -> str:
    """The type of the recurrent state: the flag, the configuration, else float32."""
    told = facts.get(f"{FLAG}mamba_ssm_dtype", UNSET)
    return str(told) if told in _TYPES else str(config.get("mamba_ssm_dtype") or "float32")


def _of(config: Mapping[str, Any], *keys: str) -> int:
    """The first whole number among `keys`, 0 without any."""
    return next((value for key in keys if isinstance(value := config.get(key), int)), 0)
