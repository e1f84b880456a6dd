"""Whether a model fits on its GPUs, with how many tokens of cache: `estimate`.

SGLang takes `--mem-fraction-static` of what is free before it loads; weights come out of that, the rest is
cache.  What is left out of the fraction serves activations and CUDA graphs.  The estimate follows that
arithmetic; what it cannot know (the context of CUDA, buffers of communication) is taken as a round sum, so a
model that misses by little is neither called fitting nor not fitting.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, floor

from autolaunch.capability.fact_names import Facts
from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.detect.gpus import Gpu, Machine
from autolaunch.memory.cache import CacheCost, cache_cost
from autolaunch.memory.facts import MIB, flag_number, is_drafting, rows_for, size
from autolaunch.memory.reserve import Reserve, reserve_of
from autolaunch.memory.values import MemoryEstimate as MemoryEstimate
from autolaunch.memory.weights import Weights, weights_of
from autolaunch.units import format_bytes

_CONTEXT = 768 * MIB
"""What CUDA, cuBLAS and the kernels take before anything is loaded."""
_LINKS = 512 * MIB
"""Buffers of NCCL and of SGLang's own all-reduce, with several ranks."""
_DOUBT = 0.02
"""The part of a GPU's memory by which the estimate may be wrong."""
_UNIFIED_LIMIT = 0.9
"""A GPU that shares the host's memory needs some for the host; 0.92 failed on GB10, 0.85 worked
(https://github.com/vllm-project/recipes/pull/632, https://github.com/sgl-project/sglang/issues/35464)."""
_RANKS = (1, 2, 4, 8, 16, 32, 64)
_STATES = 0.9
"""State memory for each byte of cache in hybrids (`--mamba-full-memory-ratio`)."""
_DRAFT_REQUESTS = 48
_OTHER_RULES = "the cache is sized by rules that are not followed here"


@dataclass(frozen=True, slots=True)
class _Rank:
    """One GPU under one `--tp`."""

    weights: Weights
    cost: CacheCost | None
    reserve: Reserve
    free: int
    """Bytes before anything is loaded."""
    limit: float = 1.0
    """Above which no fraction was seen to work on GPUs of this kind."""

    @property
    def least(self) -> float:
        """The smallest fraction at which the weights fit."""
        return self.weights.total / self.free

    @property
    def most(self) -> float:
        """The largest fraction that leaves any room beside the static pool."""
        return min(1 - self.reserve.floor_mib * MIB / self.free, self.limit)

    def left(self, fraction: float) -> int:
        """Bytes for the cache."""
        return int(fraction * self.free) - self.weights.total


def estimate(checkpoint: Checkpoint, machine: Machine, facts: Facts) -> MemoryEstimate:
    """What one GPU of `machine` would hold of `checkpoint` under `facts` (sizes, flags, SGLang's version).

    `machine` has the GPUs that the start uses.
    """
    tp = size(facts, "tp")
    cost = cache_cost(checkpoint, facts, tp)
    known = MemoryEstimate(
        None,
        "how large the weights are is not known",
        kv_bytes_per_token=cost.token if cost else None,
        state_bytes_per_request=cost.state if cost else None,
        notes=cost.notes if cost else (_OTHER_RULES,),
    )
    weights = weights_of(checkpoint, facts, tp)
    if weights is None:
        return known
    known = replace(
        known,
        reason=f"the memory of the GPUs is not known; the weights take {format_bytes(weights.total)} of each",
        weight_bytes_per_gpu=weights.total,
        draft_bytes_per_gpu=weights.draft,
        vision_bytes_per_gpu=weights.vision,
        notes=(*weights.notes, *known.notes),
    )
    gpu = _smallest(machine)
    if gpu is None or gpu.memory_bytes is None:
        return known
    rank = _rank(checkpoint, gpu, facts, tp, weights, cost)
    pinned = flag_number(facts, "mem_fraction_static")
    fraction = pinned if pinned is not None else rank.reserve.fraction
    known = replace(
        known,
        reserve_bytes=rank.reserve.mib * MIB,
        memory_bytes=gpu.memory_bytes,
        mem_fraction=round(fraction, 3),
        mem_fraction_pinned=pinned is not None,
        mem_fraction_min=_up(rank.least),
        mem_fraction_max=_down(rank.most),
        mem_fraction_fits=_fitting(rank),
        kv_tokens=_tokens(rank, fraction, facts),
        smallest_tp=next(_fitting_ranks(checkpoint, gpu, facts), None),
        notes=(*known.notes, *_remarks(checkpoint, gpu, facts)),
    )
    return _judged(known, checkpoint, rank, fraction, tp)


def _smallest(machine: Machine) -> Gpu | None:
    """The GPU with the least memory, on which all ranks depend."""
    return min(machine.gpus, key=lambda gpu: gpu.memory_bytes or 0, default=None)


def _rank(
    checkpoint: Checkpoint, gpu: Gpu, facts: Facts, tp: int, weights: Weights, cost: CacheCost | None
) -> _Rank:
    """One GPU of `tp`."""
    memory = gpu.memory_bytes or 0
    free = memory if gpu.memory_free_bytes is None else min(memory, gpu.memory_free_bytes)
    reserve = reserve_of(
        memory // MIB, facts, tp, latent=checkpoint.attention.latent, multimodal=checkpoint.multimodal
    )
    alone = tp * size(facts, "pp") == 1
    limit = _UNIFIED_LIMIT if gpu.unified else 1.0
    return _Rank(weights, cost, reserve, max(1, free - _CONTEXT - (0 if alone else _LINKS)), limit)


def _fitting(rank: _Rank) -> float | None:
    """The fraction to name: SGLang's own where the weights fit under it, else the least with a cache."""
    best = max(rank.reserve.fraction, rank.least + 2 * _DOUBT)
    return floor(best * 1000) / 1000 if best <= rank.most else None


def _fitting_ranks(checkpoint: Checkpoint, gpu: Gpu, facts: Facts) -> Iterator[int]:
    """Every `--tp` with which the model would fit on GPUs like `gpu`, the smallest first."""
    for tp in _RANKS:
        if checkpoint.widths(tp).problems:
            continue
        weights = weights_of(checkpoint, facts, tp)
        if weights is None:
            return
        rank = _rank(checkpoint, gpu, facts, tp, weights, None)
        if rank.left(max(rank.reserve.fraction, 0.0)) > _DOUBT * rank.free:
            yield tp


def _tokens(rank: _Rank, fraction: float, facts: Facts) -> int | None:
    """Tokens that the cache would hold, about."""
    left, cost = rank.left(fraction), rank.cost
    if left <= 0:
        return 0
    if cost is None or not cost.token:
        return None
    if cost.state:
        left = _without_states(left, cost.state, facts)
    held = max(0, left) // cost.token
    limit = flag_number(facts, "max_total_tokens")
    return int(min(held, limit)) if limit else held


def _without_states(left: int, state: int, facts: Facts) -> int:
    """What a hybrid's cache has after the states of its requests (0.5.9 srt/model_executor/
    model_runner_kv_cache_mixin.py handle_max_mamba_cache)."""
    running = flag_number(facts, "max_running_requests")
    tokens = flag_number(facts, "speculative_num_draft_tokens") or 4
    drafted = int((running or _DRAFT_REQUESTS) * tokens) * state if is_drafting(facts) else 0
    slots = flag_number(facts, "max_mamba_cache_size")
    if slots is None and facts.get("radix_cache") is False:
        slots = running
    if slots is not None:
        return int(left - drafted - slots * state)
    ratio = flag_number(facts, "mamba_full_memory_ratio") or _STATES
    version = facts.get("sglang")
    if next(rows_for("states", facts))["draft_inside"] and isinstance(version, str):
        return int(left / (1 + ratio))
    return int((left - drafted) / (1 + ratio))


def _remarks(checkpoint: Checkpoint, gpu: Gpu, facts: Facts) -> Iterator[str]:
    """What the figures leave out."""
    if gpu.unified:
        yield "this GPU shares the host's memory, so everything else on the machine counts too"
    if gpu.is_busy:
        yield f"others hold {format_bytes(gpu.memory_used_bytes or 0)} of GPU {gpu.index}"
    if facts.get("lora") is True:
        yield "LoRA adapters are not counted"
    if flag_number(facts, "cpu_offload_gb"):
        yield "weights that are offloaded to the host are counted as if they were not"
    if is_drafting(facts) and not checkpoint.mtp.present:
        yield "a draft model of its own is not counted"


def _judged(
    known: MemoryEstimate, checkpoint: Checkpoint, rank: _Rank, fraction: float, tp: int
) -> MemoryEstimate:
    """The estimate with its verdict and the arithmetic in words."""
    weights, left = rank.weights.total, rank.left(fraction)
    static = f"{fraction:.3g} of {format_bytes(rank.free)} free"
    sums = f"{static} holds {format_bytes(weights)} of weights"
    if known.mem_fraction_pinned and fraction > rank.most:
        rest, own = int((1 - fraction) * rank.free), rank.reserve.mib * MIB
        reason = (
            f"`--mem-fraction-static {fraction:g}` leaves {format_bytes(rest)} for activations and graphs, "
            f"and SGLang itself would keep {format_bytes(own)}"
        )
        return replace(known, fits=False, reason=reason, hint=_hint(known, tp))
    if left <= -_DOUBT * rank.free:
        if rank.least >= rank.most:
            usable = format_bytes(int(rank.most * rank.free))
            reason = f"{format_bytes(weights)} of weights do not fit into the {usable} that can be used"
        else:
            reason = (
                f"{static} are less than {format_bytes(weights)} of weights, which need {_up(rank.least):g}"
            )
        return replace(known, fits=False, reason=reason, hint=_hint(known, tp))
    if left < _DOUBT * rank.free:
        reason = f"too close to tell: {sums} and about nothing beside them"
        return replace(known, reason=reason, hint=_hint(known, tp))
    tokens = known.kv_tokens
    if tokens is None:
        return replace(known, fits=True, reason=f"{sums} and {format_bytes(left)} of cache")
    reason = f"{sums} and {format_bytes(left)} of cache, about {tokens:,} tokens"
    context = checkpoint.context_length
    if tokens == 0:
        reason = f"{sums} and {format_bytes(left)}, which the states of the requests take up"
        return replace(known, fits=False, reason=reason, hint="set a smaller `--max-running-requests`")
    if context and tokens < context:
        note = f"a request of the whole context, {context:,} tokens, would not fit"
        known = replace(known, notes=(*known.notes, note))
    return replace(known, fits=True, reason=reason)


def _hint(known: MemoryEstimate, tp: int) -> str | None:
    """One thing to do where it does not fit."""
    if known.mem_fraction_fits is not None:
        return f"use `--mem-fraction-static {known.mem_fraction_fits:g}`"
    if known.smallest_tp is not None and known.smallest_tp > tp:
        return f"use `--tp {known.smallest_tp}` or more on GPUs like these"
    return None


def _up(fraction: float) -> float:
    """A fraction rounded up to three digits, so that what needs it fits."""
    return ceil(fraction * 1000) / 1000


def _down(fraction: float) -> float:
    """A fraction rounded down to three digits."""
    return floor(fraction * 1000) / 1000
