"""Machine, software, checkpoint and request into the facts that rows ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from autolaunch.capability.dimensions import Dimension
from autolaunch.capability.fact_names import ENV, FLAG, MODULE, NONE, UNKNOWN, UNSET, Fact
from autolaunch.capability.flag_facts import FactSheet, facts_of_features, facts_of_flags
from autolaunch.capability.versions import parse_range
from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.checkpoint.experts import Moe
from autolaunch.detect.machine import Machine
from autolaunch.detect.modules import asked_for
from autolaunch.detect.software import Software
from autolaunch.request.command_line import Request
from autolaunch.request.flags import FlagCatalogue

_GIB = 1 << 30
_VARIABLES: Final = (
    *("SGLANG_", "SGL_", "FLASHINFER_", "NCCL_", "CUDA_", "USE_"),
    *("TORCH", "TRITON_", "TRTLLM_", "DG_"),
)
"""How the variables begin that rows may ask for."""


def facts_of(
    machine: Machine,
    software: Software,
    checkpoint: Checkpoint | None,
    request: Request | None,
    catalogue: FlagCatalogue,
    dimensions: tuple[Dimension, ...] = (),
    environ: Mapping[str, str] = os.environ,
) -> FactSheet:
    """The facts of one start; what could not be detected is UNKNOWN.

    `dimensions` tell which flag was renamed to which; `checkpoint` and `request` may be missing.
    """
    facts = FactSheet()
    facts.update(facts_of_flags(request, catalogue, dimensions))
    facts.update(
        (f"{ENV}{name}", value) for name, value in environ.items() if name.startswith(_VARIABLES) and value
    )
    facts.update(_of_machine(machine))
    facts.update(_of_software(software))
    facts.update(facts_of_features(facts))
    facts.update(_of_checkpoint(checkpoint, facts) if checkpoint else {})
    if facts.get(f"{FLAG}is_embedding") is True:
        facts["embedding"] = True
    return facts


def _of_machine(machine: Machine) -> Iterator[tuple[str, Fact]]:
    """What the GPUs are; all of them are of one kind, or there is no `sm`."""
    yield "platform", machine.platform
    sm = machine.sm
    yield "sm", _known(sm)
    yield "sm_major", UNKNOWN if sm is None else sm // 10
    if machine.gpus:
        first = machine.gpus[0]
        yield "gpus", len(machine.gpus)
        yield "gpu_name", first.name
        yield "sm_count", _known(first.sm_count)
        yield "memory_gb", UNKNOWN if first.memory_bytes is None else round(first.memory_bytes / _GIB, 1)
    yield "driver", _known(machine.driver)
    alone = len(machine.gpus) == 1
    yield "nvlink", False if alone and machine.nvlink is None else _known(machine.nvlink)
    yield "p2p", False if alone and machine.p2p is None else _known(machine.p2p)


def _of_software(software: Software) -> Iterator[tuple[str, Fact]]:
    """The versions, without their local parts' meaning: ranges do not look at those."""
    for name in ("sglang", "flashinfer", "torch", "sgl_kernel", "cudnn", "cuda"):
        yield name, _known(getattr(software, name).version)
    for module in asked_for():
        if module.name in software.modules:
            yield f"{MODULE}{module.name}", _known(software.modules[module.name])
        else:  # nobody looked: it is there where this SGLang installs it
            version = software.sglang.version
            brings = module.sglang is not None and version and parse_range(module.sglang).holds(version)
            yield f"{MODULE}{module.name}", True if brings else UNKNOWN


def _of_checkpoint(checkpoint: Checkpoint, facts: FactSheet) -> Iterator[tuple[str, Fact]]:
    """What the model is, and what one rank holds of it."""
    attention, moe, stored, mtp = (
        checkpoint.attention,
        checkpoint.moe,
        checkpoint.quantization,
        checkpoint.mtp,
    )
    yield "arch", checkpoint.architecture or UNKNOWN
    yield "model_type", checkpoint.model_type or UNKNOWN
    yield "attention", attention.kind or UNKNOWN
    yield "mla", attention.latent
    yield "sinks", attention.sinks
    yield "sliding_window", attention.sliding_window is not None or attention.n_sliding > 0
    yield "linear_attention", attention.linear or NONE
    yield "head_dim", _known(attention.head_dim)
    yield "v_head_dim", _known(attention.v_head_dim or attention.head_dim)
    yield "heads", _known(attention.heads)
    yield "kv_heads", _known(attention.kv_heads)
    tp, dp, ep = (_number(facts, name) for name in ("tp", "dp", "ep"))
    attention_tp = max(1, tp // dp) if facts.get("dp_attention") else tp
    yield "heads_per_rank", _share(attention.heads, attention_tp)
    kv_share = _share(attention.kv_heads, attention_tp)
    yield "kv_heads_per_rank", kv_share if kv_share is UNKNOWN else max(1, int(kv_share))
    yield "heads_per_kv_head", _group(attention.heads, attention.kv_heads, attention_tp)
    dual = checkpoint.config.get("dual_chunk_attention_config")
    yield "dual_chunk", dual is not None if checkpoint.config else UNKNOWN
    yield "moe", moe is not None
    yield "experts", moe.experts if moe else 0
    yield "top_k", _known(moe.top_k) if moe else 0
    yield "expert_width", _known(moe.expert_width) if moe else 0
    yield "expert_width_per_rank", _share(moe.expert_width, max(1, tp // ep)) if moe else 0
    yield "shared_experts", moe.shared if moe else 0
    yield "shared_width_per_rank", _share(_shared_width(moe), tp) if moe and moe.shared else 0
    yield "dense_width_per_rank", _share(checkpoint.dense_width, tp) if checkpoint.dense_width else 0
    typed = facts.get(f"{FLAG}dtype", UNSET)
    typed = _SHORT_DTYPES.get(str(typed), typed)
    yield "dtype", _dtype(checkpoint) if typed in (UNSET, "auto") else typed
    yield "scheme", _scheme(stored.scheme)
    yield "method", stored.method or (UNKNOWN if stored.scheme == "unknown" else NONE)
    for fact, part in (
        ("scheme_experts", "experts"),
        ("scheme_shared", "shared_experts"),
        ("scheme_dense", "dense"),
        ("scheme_attention", "attention"),
        ("scheme_mtp", "mtp"),
        ("scheme_kv", "kv_cache"),
    ):
        yield fact, _scheme(stored.parts.get(part, NONE if stored.parts else stored.scheme))
    yield "fp8_block", any(one.startswith("fp8_block") for one in (stored.scheme, *stored.parts.values()))
    yield "quant_block", max(stored.block) if stored.block else stored.group or 0
    yield "multimodal", checkpoint.multimodal
    yield "embedding", checkpoint.embedding
    yield "mtp_present", _known(mtp.present)
    yield "mtp_family", mtp.family or NONE
    pinned = facts.get(f"{FLAG}context_length")
    yield "context_length", pinned if isinstance(pinned, int) else _known(checkpoint.context_length)
    yield "params_b", UNKNOWN if checkpoint.parameters is None else round(checkpoint.parameters / 1e9, 3)


_SHORT_DTYPES: Final = {"half": "float16", "float": "float32"}


def _shared_width(moe: Moe) -> int | None:
    """Intermediate size of all shared experts of a layer together."""
    if moe.shared_width is not None:
        return moe.shared_width
    return None if moe.expert_width is None else moe.expert_width * moe.shared


def _dtype(checkpoint: Checkpoint) -> Fact:
    """What SGLang makes of `--dtype auto`: a checkpoint in float32, or that says nothing, runs in 16 bit."""
    if checkpoint.dtype not in (None, "float32"):
        return _known(checkpoint.dtype)
    if not checkpoint.config:
        return UNKNOWN
    return "bfloat16" if checkpoint.model_type.startswith("gemma") else "float16"


def _known(value: bool | int | float | str | None) -> Fact:
    """`value`, or UNKNOWN for None."""
    return UNKNOWN if value is None else value


def _scheme(name: str) -> Fact:
    """A scheme, or UNKNOWN where the checkpoint could not say."""
    return UNKNOWN if name == "unknown" else name


def _group(heads: int | None, kv_heads: int | None, ranks: int) -> Fact:
    """Attention heads of one rank to each of its key-value heads, of which it has at least one."""
    if not heads or not kv_heads:
        return UNKNOWN
    return _share(heads // ranks, max(1, kv_heads // ranks))


def _number(facts: FactSheet, name: str) -> int:
    """A size that is always there."""
    value = facts.get(name)
    return value if isinstance(value, int) and value > 0 else 1


def _share(whole: int | None, ranks: int) -> int | float | Any:
    """One rank's part of `whole`; not a whole number where it cannot be split."""
    if whole is None:
        return UNKNOWN
    return whole // ranks if whole % ranks == 0 else whole / ranks
