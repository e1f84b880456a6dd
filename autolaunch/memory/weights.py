"""Weights of one GPU: a checkpoint's parts, split as SGLang splits them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from autolaunch.capability.fact_names import Facts
from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.memory.facts import attention_ranks, is_drafting, is_on, size

# What every layer has; pipeline stages share those.
_LAYERS: Final = ("experts", "shared_experts", "dense", "attention", "linear_attention", "other")
_BYTES: Final = {"bf16": 2.0, "fp16": 2.0, "fp32": 4.0, "nvfp4": 0.57, "mxfp4": 0.54}
# Parts that `--quantization` makes smaller in a checkpoint without quantization, and to what share.
_ONLINE: Final = {
    "fp8": 0.5,
    "w8a8_fp8": 0.5,
    "w8a8_int8": 0.5,
    "mxfp8": 0.52,
    "modelopt_fp8": 0.5,
    "modelopt_fp4": 0.29,
}
_QUANTIZED: Final = frozenset(_LAYERS) - {"other"}


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes of the fullest GPU."""

    total: int
    """Draft and vision included."""
    draft: int
    vision: int
    notes: tuple[str, ...] = field(default=())


def weights_of(checkpoint: Checkpoint, facts: Facts, tp: int) -> Weights | None:
    """What one of `tp` ranks holds; None where no size is known."""
    parts = dict(checkpoint.weight_bytes_by_part)
    pp = size(facts, "pp")
    if not parts:
        return _undivided(checkpoint, facts, tp * pp)
    for part, share in _online(checkpoint, facts).items():
        parts[part] = int(parts.get(part, 0) * share)
    heads = attention_ranks(facts, tp)
    held = {part: -(-parts.get(part, 0) // tp) for part in ("experts", "shared_experts", "dense")}
    for part in ("attention", "linear_attention"):
        held[part] = -(-parts.get(part, 0) // heads)
    held["attention"] += _replicated(checkpoint, heads)
    held["other"] = parts.get("other", 0)
    layers = -(-sum(held.values()) // pp)
    # With data-parallel attention every rank embeds all tokens; a pipeline has one end at each side.
    embedding = -(-parts.get("embedding", 0) // (1 if heads != tp else tp))
    head = -(-parts.get("lm_head", 0) // (heads if is_on(facts, "enable_dp_lm_head") else tp))
    ends = max(embedding, head) if pp > 1 else embedding + head
    vision = parts.get("vision", 0)
    vision = vision if is_on(facts, "mm_enable_dp_encoder") else -(-vision // tp)
    draft = -(-parts.get("mtp", 0) // tp) if is_drafting(facts) else 0
    known = {*_LAYERS, "embedding", "lm_head", "vision", "mtp"}
    rest = sum(bytes_ for part, bytes_ in parts.items() if part not in known)
    return Weights(layers + ends + vision + draft + rest, draft, vision)


def _undivided(checkpoint: Checkpoint, facts: Facts, ranks: int) -> Weights | None:
    """The weights where only their sum is known."""
    whole = checkpoint.weight_bytes
    if whole is None:
        return None
    heads = checkpoint.mtp.weight_bytes or 0
    draft = -(-heads // ranks) if is_drafting(facts) else 0
    note = "only the sum of the weights is known, so they are taken to be split evenly"
    return Weights(-(-(whole - heads) // ranks) + draft, draft, 0, (note,))


def _online(checkpoint: Checkpoint, facts: Facts) -> dict[str, float]:
    """What becomes of parts on the way: `--quantization` for plain weights, 16 bit for float32."""
    shares: dict[str, float] = {}
    stored = checkpoint.quantization
    if stored.scheme == "fp32" and facts.get("dtype") in ("bfloat16", "float16"):
        shares = dict.fromkeys(checkpoint.weight_bytes_by_part, 0.5)
    online = _ONLINE.get(str(facts.get("quantization_flag")))
    if online is not None and stored.method is None:
        for part in _QUANTIZED & set(checkpoint.weight_bytes_by_part):
            shares[part] = shares.get(part, 1.0) * online
    return shares


def _replicated(checkpoint: Checkpoint, ranks: int) -> int:
    """What a rank holds beyond its share: projections into latents, and KV heads that several ranks keep."""
    attention, hidden = checkpoint.attention, checkpoint.hidden_size or 0
    scheme = checkpoint.quantization.parts.get("attention", "bf16")
    layers = attention.n_full + attention.n_sliding or checkpoint.num_layers or 0
    if attention.latent:
        width = (
            (attention.q_lora_rank or 0) + (attention.kv_lora_rank or 0) + (attention.qk_rope_head_dim or 0)
        )
        held_twice = width * (ranks - 1) / ranks
    else:
        kv_heads, wide = attention.kv_heads or 0, attention.head_dim or 0
        held_twice = max(0.0, 1 - kv_heads / ranks) * 2 * wide if 0 < kv_heads < ranks else 0.0
    return int(layers * hidden * held_twice * _BYTES.get(scheme, 1.0))
