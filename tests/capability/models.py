"""Facts of checkpoints, machines and versions for tests of the bundled table."""

from __future__ import annotations

from typing import Final

from autolaunch.capability.evaluate import evaluate
from autolaunch.capability.fact_names import Fact
from autolaunch.capability.flag_facts import FactSheet
from autolaunch.capability.table import bundled_table
from autolaunch.capability.verdicts import ChoiceVerdict, DimensionVerdict, Evaluation
from autolaunch.request.catalogue import bundled_catalogue

FLASHINFER: Final = {
    "0.5.9": "0.6.3",
    "0.5.10.post1": "0.6.7.post3",
    "0.5.11": "0.6.8.post1",
    "0.5.14": "0.6.12",
    "0.5.17": "0.6.15.post1",
    "0.5.20": "0.6.18",
    "0.5.21": "0.6.18",
    "0.5.23": "0.7.2",
}
"""What each SGLang pins."""

VERSIONS: Final = tuple(FLASHINFER)

_NOTHING: Final[dict[str, Fact]] = {
    "platform": "cuda", "nvlink": False, "p2p": True, "gpus": 8, "sm_count": 188, "memory_gb": 95.0, "cuda": "13.0",
    "cudnn": "9.20", "driver": "580.95", "sinks": False, "sliding_window": False, "linear_attention": "none",
    "mla": False, "multimodal": False, "embedding": False, "lora": False, "grammar": True, "disaggregation": "off",
    "deterministic": False, "dp_attention": False, "tp": 1, "dp": 1, "ep": 1, "pp": 1, "nodes": 1, "spec": "off",
    "spec_topk": "unset", "spec_steps": "unset", "draft_tokens": "unset", "radix_cache": True, "cuda_graph": True,
    "overlap": True, "quantization_flag": "none", "dtype": "bfloat16", "scheme_kv": "none", "scheme_mtp": "none",
    "mtp_present": False, "mtp_family": "none", "fp8_block": False, "quant_block": 0, "moe": False, "experts": 0,
    "top_k": 0, "expert_width": 0, "expert_width_per_rank": 0, "shared_experts": 0, "shared_width_per_rank": 0,
    "dense_width_per_rank": 0, "scheme_experts": "none", "scheme_shared": "none", "params_b": 30.0,
    "module.cutlass": True, "module.quack": True, "module.flash_attn.cute": True, "module.hpc": False, "dual_chunk": False,
}  # fmt: skip

QWEN_397B_NVFP4: Final[dict[str, Fact]] = {
    "arch": "Qwen3_5MoeForConditionalGeneration", "model_type": "qwen3_5_moe_text", "attention": "hybrid_linear",
    "linear_attention": "gdn", "moe": True, "experts": 512, "top_k": 10, "expert_width": 1024, "shared_experts": 1,
    "scheme": "nvfp4", "method": "modelopt_fp4", "scheme_experts": "nvfp4", "scheme_shared": "bf16",
    "scheme_dense": "none", "scheme_attention": "bf16", "scheme_mtp": "bf16", "scheme_kv": "fp8_tensor", "quant_block": 16,
    "mtp_present": True, "mtp_family": "qwen3_5", "multimodal": True, "heads": 32, "kv_heads": 2, "head_dim": 256,
    "v_head_dim": 256, "params_b": 397.0, "context_length": 262144,
}  # fmt: skip
"""Qwen3.5-397B-A17B-NVFP4: routed experts in NVFP4, all else in bf16."""

QWEN_235B_FP8: Final[dict[str, Fact]] = {
    "arch": "Qwen3MoeForCausalLM", "model_type": "qwen3_moe", "attention": "gqa", "moe": True, "experts": 128,
    "top_k": 8, "expert_width": 1536, "scheme": "fp8_block", "method": "fp8", "scheme_experts": "fp8_block",
    "scheme_dense": "none", "scheme_attention": "fp8_block", "fp8_block": True, "quant_block": 128, "heads": 64,
    "kv_heads": 4, "head_dim": 128, "v_head_dim": 128, "params_b": 235.0, "context_length": 40960,
}  # fmt: skip

QWEN_8B_FP8: Final[dict[str, Fact]] = {
    "arch": "Qwen3ForCausalLM", "model_type": "qwen3", "attention": "gqa", "scheme": "fp8_block", "method": "fp8",
    "scheme_dense": "fp8_block", "scheme_attention": "fp8_block", "fp8_block": True, "quant_block": 128, "heads": 32,
    "kv_heads": 8, "head_dim": 128, "v_head_dim": 128, "dense_width": 12288, "params_b": 8.0,
}  # fmt: skip

QWEN_8B: Final[dict[str, Fact]] = {
    **QWEN_8B_FP8, "scheme": "bf16", "method": "none", "scheme_dense": "bf16", "scheme_attention": "bf16",
    "fp8_block": False, "quant_block": 0,
}  # fmt: skip

QWEN_8B_MXFP8: Final[dict[str, Fact]] = {
    **QWEN_8B_FP8, "scheme": "mxfp8", "method": "mxfp8", "scheme_dense": "mxfp8", "scheme_attention": "mxfp8",
    "fp8_block": False, "quant_block": 32,
}  # fmt: skip

QWEN_8B_NVFP4: Final[dict[str, Fact]] = {
    **QWEN_8B_FP8, "scheme": "nvfp4", "method": "modelopt_fp4", "scheme_dense": "nvfp4", "scheme_attention": "nvfp4",
    "fp8_block": False, "quant_block": 16,
}  # fmt: skip

QWEN_30B: Final[dict[str, Fact]] = {
    "arch": "Qwen3MoeForCausalLM", "model_type": "qwen3_moe", "attention": "gqa", "moe": True, "experts": 128,
    "top_k": 8, "expert_width": 768, "scheme": "bf16", "method": "none", "scheme_experts": "bf16",
    "scheme_dense": "none", "scheme_attention": "bf16", "heads": 32, "kv_heads": 4, "head_dim": 128, "v_head_dim": 128,
}  # fmt: skip

DEEPSEEK_V4: Final[dict[str, Fact]] = {
    "arch": "DeepseekV4ForCausalLM", "model_type": "deepseek_v4", "attention": "dsv4", "mla": True, "moe": True,
    "experts": 256, "top_k": 6, "expert_width": 2048, "shared_experts": 1, "scheme": "fp8_block", "method": "fp8",
    "scheme_experts": "mxfp4", "scheme_shared": "fp8_block", "scheme_dense": "none", "scheme_attention": "fp8_block",
    "fp8_block": True, "quant_block": 128, "heads": 64, "kv_heads": 1, "head_dim": 512, "v_head_dim": 512,
    "params_b": 284.0,
}  # fmt: skip

GPT_OSS: Final[dict[str, Fact]] = {
    "arch": "GptOssForCausalLM", "model_type": "gpt_oss", "attention": "gqa", "sinks": True, "sliding_window": True,
    "moe": True, "experts": 128, "top_k": 4, "expert_width": 2880, "scheme": "mxfp4", "method": "mxfp4",
    "scheme_experts": "mxfp4", "scheme_dense": "none", "scheme_attention": "bf16", "quant_block": 32, "heads": 64,
    "kv_heads": 8, "head_dim": 64, "v_head_dim": 64, "params_b": 120.0,
}  # fmt: skip

GLM_NVFP4: Final[dict[str, Fact]] = {
    "arch": "GlmMoeDsaForCausalLM", "model_type": "glm_moe_dsa", "attention": "dsa", "mla": True, "moe": True,
    "experts": 256, "top_k": 8, "expert_width": 2048, "shared_experts": 1, "scheme": "nvfp4",
    "method": "modelopt_fp4", "scheme_experts": "nvfp4", "scheme_shared": "bf16", "scheme_dense": "nvfp4",
    "scheme_attention": "bf16", "scheme_mtp": "bf16", "mtp_present": True, "quant_block": 16, "heads": 64,
    "kv_heads": 64, "head_dim": 192, "v_head_dim": 256, "dense_width": 12288, "params_b": 750.0,
}  # fmt: skip


def facts(model: dict[str, Fact], sm: int, version: str = "0.5.23", **changes: Fact) -> FactSheet:
    """`model` on GPUs of `sm` with SGLang `version`; `flag_x` is the flag `x`, and sizes follow `tp` and `ep`."""
    sheet = FactSheet(_NOTHING)
    sheet.update(model)
    sheet.update(sm=sm, sm_major=sm // 10, sglang=version, flashinfer=FLASHINFER.get(version, "0.6.12"))
    if sm in (90, 100, 103):
        sheet.update(nvlink=True, memory_gb=180.0, sm_count=132)
    for name, value in changes.items():
        key = name.replace("flag_", "flag.", 1) if name.startswith("flag_") else name
        sheet[key.replace("env_", "env.", 1) if key.startswith("env_") else key] = value
    if "flag.speculative_algorithm" in sheet:
        sheet["spec"] = sheet["flag.speculative_algorithm"]
    tp, ep = int(str(sheet["tp"])), int(str(sheet["ep"]))
    if tp > 1:
        sheet.setdefault("flag.tp_size", tp)
    if ep > 1:
        sheet.setdefault("flag.ep_size", ep)
    if sheet.get("flag.quantization") is not None and "flag.quantization" in sheet:
        sheet["quantization_flag"] = sheet["flag.quantization"]
    width = int(str(sheet["expert_width"]))
    sheet["expert_width_per_rank"] = _share(width, max(1, tp // ep))
    sheet["shared_width_per_rank"] = _share(width * int(str(sheet["shared_experts"])), tp)
    sheet["dense_width_per_rank"] = _share(int(str(sheet.pop("dense_width", 0))), tp)
    sheet["heads_per_rank"] = _share(int(str(sheet["heads"])), 1 if sheet["dp_attention"] else tp)
    sheet["kv_heads_per_rank"] = max(1, int(str(sheet["kv_heads"])) // tp)
    sheet["heads_per_kv_head"] = int(str(sheet["heads"])) // tp // int(str(sheet["kv_heads_per_rank"]))
    return sheet


def judged(model: dict[str, Fact], sm: int, version: str = "0.5.23", **changes: Fact) -> Evaluation:
    """What the bundled table says of `model`."""
    return evaluate(facts(model, sm, version, **changes), bundled_table(), bundled_catalogue(version))


def dimension(evaluation: Evaluation, flag: str) -> DimensionVerdict:
    """The dimension that `flag` spells, which must be there."""
    found = evaluation.dimension(flag)
    assert found is not None, f"{flag} is not shown"
    return found


def choice(evaluation: Evaluation, flag: str, name: str) -> ChoiceVerdict:
    """The verdict on one choice, which must be there."""
    found = dimension(evaluation, flag).choice(name)
    assert found is not None, f"{flag} {name} is not judged"
    return found


def says(verdict: ChoiceVerdict) -> str:
    """Everything the rules behind a verdict say."""
    return "; ".join(hit.sentence for hit in verdict.hits) or verdict.reason


def warned(evaluation: Evaluation) -> frozenset[str]:
    """The ids of all warnings."""
    return frozenset(one.id for one in evaluation.warnings)


def _share(whole: int, ranks: int) -> int | float:
    return whole // ranks if whole % ranks == 0 else whole / ranks
