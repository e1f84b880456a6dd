"""What SGLang keeps free on a GPU for activations and CUDA graphs, as each version computes it itself."""

from __future__ import annotations

from dataclasses import dataclass

from autolaunch.capability.fact_names import FLAG, UNSET, Facts
from autolaunch.memory.facts import flag_number, is_drafting, is_on, rows_for, size

_STEPS = ((32, 4, 4), (256, 16, 48), (512, 32, 288), (1024, 64, 576), (4096, 256, 1280))
_LEAST_SHARE = 0.2
"""The part of the reserve without which nothing runs; 0.95 was seen to work (sglang#9969)."""
_VISION_SHARE = 0.95
"""What is left of the fraction for a model that sees, before its size is looked at (0.5.23
srt/arg_groups/memory_hook.py adjust_mem_fraction_for_vlm)."""


@dataclass(frozen=True, slots=True)
class Reserve:
    """MiB that SGLang leaves out of its static pool, and the fraction that follows."""

    mib: int
    fraction: float
    floor_mib: int
    """What must stay free: a part of the sum without that for images."""


def reserve_of(memory_mib: int, facts: Facts, tp: int, *, latent: bool, multimodal: bool) -> Reserve:
    """What SGLang would compute for a GPU with `memory_mib` when `--mem-fraction-static` is not given."""
    tier = next(row for row in rows_for("tier", facts) if not row["below"] or memory_mib < row["below"])
    pp, dp = size(facts, "pp"), size(facts, "dp")
    chunk = flag_number(facts, "chunked_prefill_size") or tier["chunk"]
    if chunk < 0:  # prefills are not cut
        chunk = flag_number(facts, "max_prefill_tokens") or 16384
    batch = graph_batch(facts) or tier["batch" if tp < 4 else "batch_many"]
    decode_graphs = facts.get("cuda_graph") is not False
    reserved = 512 + max(chunk, 2048) * 1.5 + batch * 2 * decode_graphs + tp * pp / 8 * 1024
    if facts.get("dp_attention") is True:
        reserved += batch * dp * (4.5 if batch > 300 else 3)
    if decode_graphs and next(rows_for("graphs", facts))["prefill"]:
        reserved += 1536 if latent else 8 * prefill_graphs(int(chunk))
    if memory_mib > 60 * 1024:
        reserved = max(reserved, 10 * 1024)
    if is_drafting(facts):
        reserved += sum(row["mib"] for row in rows_for("draft", facts))
    fraction = round((memory_mib - reserved) / memory_mib, 3)
    if multimodal and not is_on(facts, "language_only"):
        fraction *= _VISION_SHARE
    return Reserve(int(memory_mib * (1 - fraction)), fraction, int(reserved * _LEAST_SHARE))


def graph_batch(facts: Facts) -> int | None:
    """The largest batch in a CUDA graph for decoding, where a flag says one."""
    for dest in ("cuda_graph_max_bs_decode", "cuda_graph_max_bs"):
        value = flag_number(facts, dest)
        if value:
            return int(value)
    listed = facts.get(f"{FLAG}cuda_graph_bs_decode", facts.get(f"{FLAG}cuda_graph_bs", UNSET))
    words = listed if isinstance(listed, tuple) else ()
    return max((int(one) for one in words if str(one).isdigit()), default=0) or None


def prefill_graphs(tokens: int) -> int:
    """How many prefill graphs are captured up to `tokens` (0.5.14 srt/server_args.py
    _generate_prefill_cuda_graph_batch_sizes)."""
    found = 0
    for last, step, first in _STEPS:
        found += len(range(first, min(last, tokens) + 1, step))
    return found + len(range(4608, tokens + 1, 512))
