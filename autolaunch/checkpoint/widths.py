"""What one rank holds when a model is split: heads, KV heads and expert width for a given tp and ep."""

from __future__ import annotations

from dataclasses import dataclass

from autolaunch.checkpoint.attention import Attention
from autolaunch.checkpoint.experts import Moe
from autolaunch.checkpoint.quantization import Quantization


@dataclass(frozen=True, slots=True)
class Widths:
    """Shares of one rank; None where the checkpoint does not tell."""

    heads: int | None
    kv_heads: int | None
    kv_replicated: bool
    """Whether several ranks keep the same KV head."""
    experts: int | None
    expert_width: int | None
    dense_width: int | None
    problems: tuple[str, ...] = ()
    """Why SGLang could not split the model so, one sentence each."""


def widths_of(
    attention: Attention,
    moe: Moe | None,
    quantization: Quantization,
    *,
    dense_width: int | None,
    tp: int,
    ep: int = 1,
    attention_dp: int = 1,
) -> Widths:
    """The shares of one of `tp` ranks.

    `ep` ranks share the experts, each expert being split over `tp / ep`; with data-parallel attention each of
    `attention_dp` groups splits the heads over `tp / attention_dp` ranks.
    """
    problems: list[str] = []
    heads_tp = max(1, tp // max(1, attention_dp))
    heads = _share(attention.heads, heads_tp, "attention heads", problems)
    kv_heads, replicated = attention.kv_heads, False
    if kv_heads is not None and not attention.latent:
        replicated = heads_tp > kv_heads
        if max(heads_tp, kv_heads) % max(1, min(heads_tp, kv_heads)):
            problems.append(f"{kv_heads} KV heads and {heads_tp} ranks do not divide each other")
        kv_heads = max(1, kv_heads // heads_tp)
    experts = expert_width = None
    if moe is not None:
        experts = _share(moe.experts, max(1, ep), "experts", problems)
        expert_width = _share(moe.expert_width, max(1, tp // max(1, ep)), "expert width", problems)
        _check_block(expert_width, quantization, "experts", "expert width", problems)
    dense = _share(dense_width, tp, "dense width", problems) if dense_width else None
    if moe is None:
        _check_block(dense, quantization, "dense", "dense width", problems)
    return Widths(heads, kv_heads, replicated, experts, expert_width, dense, tuple(problems))


def _share(width: int | None, ranks: int, name: str, problems: list[str]) -> int | None:
    """The share of one of `ranks`; what does not divide is a problem."""
    if width is None:
        return None
    if width % ranks:
        problems.append(f"{width} {name} cannot be divided among {ranks} ranks")
    return width // ranks


def _check_block(
    width: int | None, quantization: Quantization, part: str, name: str, problems: list[str]
) -> None:
    """Note a share that is no multiple of the blocks or groups its scales are for."""
    scheme = quantization.parts.get(part, quantization.scheme)
    if width is None or scheme not in {
        "fp8_block",
        "int8_block",
        "nvfp4",
        "mxfp4",
        "mxfp8",
        "int4_ct",
        "w4afp8",
    }:
        return
    unit = max(quantization.block) if quantization.block and scheme.endswith("_block") else quantization.group
    if unit and unit > 0 and width % unit:
        problems.append(f"{name} {width} of a rank is no multiple of {unit}, the size of a {scheme} block")
