"""The bundled rows on attention: softmax, sparse, of the vision tower, and what SGLang picks by itself."""

from __future__ import annotations

import pytest

from autolaunch.capability.contenders import candidates_from
from autolaunch.capability.fact_names import UNKNOWN, Fact
from autolaunch.capability.table import bundled_table
from autolaunch.request.catalogue import bundled_catalogue
from tests.capability.models import (
    DEEPSEEK_V4,
    GLM_NVFP4,
    GPT_OSS,
    QWEN_8B,
    QWEN_30B,
    QWEN_397B_NVFP4,
    VERSIONS,
    choice,
    dimension,
    judged,
    says,
    warned,
)

ATTENTION = "--attention-backend"
PREFILL = "--prefill-attention-backend"
DECODE = "--decode-attention-backend"
VISION = "--mm-attention-backend"

DEEPSEEK: dict[str, Fact] = {
    **GLM_NVFP4, "arch": "DeepseekV3ForCausalLM", "model_type": "deepseek_v3", "attention": "mla", "method": "fp8",
    "scheme": "fp8_block", "scheme_experts": "fp8_block", "scheme_dense": "fp8_block", "scheme_mtp": "fp8_block",
    "scheme_attention": "fp8_block", "fp8_block": True, "quant_block": 128,
}  # fmt: skip
KIMI_LINEAR: dict[str, Fact] = {
    **QWEN_30B, "arch": "KimiLinearForCausalLM", "attention": "hybrid_linear", "linear_attention": "kda", "mla": True,
    "head_dim": 192,
}  # fmt: skip
OLMO: dict[str, Fact] = {**QWEN_8B, "arch": "Olmo2ForCausalLM", "sliding_window": True}
EXAONE: dict[str, Fact] = {**QWEN_8B, "arch": "Exaone4ForCausalLM", "sliding_window": True}
STEP: dict[str, Fact] = {**QWEN_30B, "arch": "Step3p5ForCausalLM", "sliding_window": True}
MIMO: dict[str, Fact] = {
    **QWEN_30B, "arch": "MiMoV2ForCausalLM", "sinks": True, "sliding_window": True, "v_head_dim": 96,
    "multimodal": True, "mtp_present": True,
}  # fmt: skip
GLM_FLASH: dict[str, Fact] = {**GLM_NVFP4, "arch": "Glm5NextForConditionalGeneration", "multimodal": True}
DEEPSEEK_V32: dict[str, Fact] = {**GLM_NVFP4, "arch": "DeepseekV32ForCausalLM"}


@pytest.mark.parametrize(
    ("sm", "picked"),
    [
        (80, "flashinfer"),
        (89, "flashinfer"),
        (90, "fa3"),
        (100, "trtllm_mha"),
        (110, "flashinfer"),
        (120, "flashinfer"),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_plain_attention_is_picked_by_the_gpu(version: str, sm: int, picked: str) -> None:
    found = dimension(judged(QWEN_8B, sm, version), ATTENTION)
    assert (found.auto, found.decision) == (picked, "kept")
    assert choice(judged(QWEN_8B, sm, version), ATTENTION, picked).verdict == "eligible"


@pytest.mark.parametrize(
    ("sm", "picked"), [(80, "triton"), (90, "fa3"), (100, "trtllm_mla"), (110, "triton"), (120, "triton")]
)
@pytest.mark.parametrize("version", VERSIONS)
def test_latent_attention_is_picked_by_the_gpu(version: str, sm: int, picked: str) -> None:
    found = dimension(judged(DEEPSEEK, sm, version), ATTENTION)
    assert (found.auto, found.decision) == (picked, "kept")


@pytest.mark.parametrize("sm", [100, 103, 110, 120, 121])
@pytest.mark.parametrize("version", VERSIONS)
def test_flash_attention_3_is_not_for_blackwell(version: str, sm: int) -> None:
    found = choice(judged(QWEN_8B, sm, version), ATTENTION, "fa3")
    assert (found.verdict, found.failure) == ("excluded", "rejected")
    assert str(sm) in says(found)


def test_flash_attention_3_knows_no_latent_cache_before_hopper() -> None:
    assert choice(judged(DEEPSEEK, 80), ATTENTION, "fa3").verdict == "excluded"
    assert choice(judged(QWEN_8B, 80), ATTENTION, "fa3").verdict == "eligible"
    assert choice(judged(DEEPSEEK, 90), ATTENTION, "fa3").verdict == "eligible"


@pytest.mark.parametrize(
    ("version", "sm", "prefill", "decode"),
    [
        ("0.5.9", 90, "excluded", "excluded"),
        ("0.5.9", 120, "excluded", "excluded"),
        ("0.5.17", 90, "excluded", "eligible"),
        ("0.5.17", 121, "excluded", "eligible"),
        ("0.5.17", 110, "excluded", "excluded"),
        ("0.5.20", 90, "eligible", "eligible"),
        ("0.5.23", 120, "eligible", "eligible"),
        ("0.5.23", 110, "excluded", "excluded"),
        ("0.5.9", 100, "eligible", "eligible"),
        ("0.5.23", 103, "eligible", "eligible"),
    ],
)
def test_trtllm_mha_came_to_other_gpus_by_phase(version: str, sm: int, prefill: str, decode: str) -> None:
    found = judged(QWEN_8B, sm, version)
    assert choice(found, PREFILL, "trtllm_mha").verdict == prefill
    assert choice(found, ATTENTION, "trtllm_mha").verdict == prefill
    assert choice(found, DECODE, "trtllm_mha").verdict == decode


def test_trtllm_mha_takes_no_fp8_cache_in_a_prefill_on_sm12x() -> None:
    found = judged(QWEN_8B, 120, flag_kv_cache_dtype="fp8_e4m3")
    assert choice(found, ATTENTION, "trtllm_mha").verdict == "excluded"
    assert choice(found, DECODE, "trtllm_mha").verdict == "eligible"


@pytest.mark.parametrize(
    ("version", "sm", "allowed"),
    [
        ("0.5.9", 120, {"triton"}),
        ("0.5.9", 100, {"triton", "trtllm_mha"}),
        ("0.5.14", 120, {"triton", "flashinfer"}),
        ("0.5.17", 100, {"triton", "trtllm_mha", "fa4"}),
        ("0.5.17", 121, {"triton", "flashinfer"}),
        ("0.5.20", 110, {"triton"}),
        ("0.5.21", 110, {"triton", "flashinfer"}),
        ("0.5.23", 103, {"triton", "trtllm_mha", "fa4", "flashinfer"}),
    ],
)
def test_gated_delta_nets_have_a_list_on_blackwell(version: str, sm: int, allowed: set[str]) -> None:
    found = dimension(judged(QWEN_397B_NVFP4, sm, version, tp=8), ATTENTION)
    assert {one.choice for one in found.choices if one.verdict == "eligible"} == allowed


def test_the_seed_case_on_the_oldest_version_is_repaired() -> None:
    """FlashInfer, which SGLang picks, meets an assertion after the weights are loaded."""
    found = dimension(judged(QWEN_397B_NVFP4, 120, "0.5.9", tp=8), ATTENTION)
    assert (found.auto, found.decision, found.value) == ("flashinfer", "repaired", "triton")
    assert found.repair is not None
    assert found.repair.rules == ("attention.any.gdn_old_blackwell",)


@pytest.mark.parametrize(
    ("version", "changes", "picked"),
    [
        ("0.5.9", {}, "triton"),
        ("0.5.14", {}, "triton"),
        ("0.5.17", {}, "trtllm_mha"),
        ("0.5.23", {"radix_cache": False}, "trtllm_mha"),
        ("0.5.23", {"spec": "NEXTN", "flag_speculative_algorithm": "NEXTN"}, "triton"),
        ("0.5.23", {"spec": "NEXTN", "flag_speculative_algorithm": "NEXTN", "spec_topk": 1}, "trtllm_mha"),
    ],
)
def test_hybrid_qwen_on_sm100_depends_on_buffers_and_branches(
    version: str, changes: dict[str, Fact], picked: str
) -> None:
    found = judged(QWEN_397B_NVFP4, 100, version, tp=8, **changes)
    assert dimension(found, ATTENTION).auto == picked
    lost = changes.get("spec") == "NEXTN" and "spec_topk" not in changes
    assert ("spec.lost_attention" in warned(found)) == lost


@pytest.mark.parametrize(
    ("model", "version", "sm", "picked", "better"),
    [
        (OLMO, "0.5.9", 120, "fa3", "triton"),
        (OLMO, "0.5.23", 110, "fa3", "triton"),
        (EXAONE, "0.5.23", 121, "fa3", "triton"),
        (EXAONE, "0.5.17", 90, "flashinfer", "fa3"),
        (STEP, "0.5.17", 120, "fa4", "flashinfer"),
    ],
)
def test_a_family_whose_pick_cannot_run_is_repaired(
    model: dict[str, Fact], version: str, sm: int, picked: str, better: str
) -> None:
    found = dimension(judged(model, sm, version), ATTENTION)
    assert (found.auto, found.decision, found.value) == (picked, "repaired", better)


def test_a_family_whose_pick_runs_is_left_alone() -> None:
    for model, sm, picked in (
        (OLMO, 100, "trtllm_mha"),
        (OLMO, 90, "fa3"),
        (STEP, 100, "fa4"),
        (EXAONE, 89, "fa3"),
    ):
        found = dimension(judged(model, sm), ATTENTION)
        assert (found.auto, found.decision) == (picked, "kept")


@pytest.mark.parametrize("version", VERSIONS)
def test_sinks_rule_flashinfer_out(version: str) -> None:
    found = judged(GPT_OSS, 120, version)
    assert dimension(found, ATTENTION).auto == "triton"
    assert choice(found, ATTENTION, "flashinfer").verdict == "excluded"


def test_keys_and_values_of_two_widths_leave_few_backends() -> None:
    found = judged(MIMO, 100)
    assert choice(found, ATTENTION, "trtllm_mha").verdict == "excluded"
    assert choice(found, ATTENTION, "flashinfer").verdict == "excluded"
    assert choice(found, ATTENTION, "fa4").verdict == "eligible"


@pytest.mark.parametrize(
    ("version", "sm", "verdict"),
    [("0.5.11", 103, "excluded"), ("0.5.11", 100, "eligible"), ("0.5.23", 103, "eligible"), ("0.5.17", 120, "excluded"),
     ("0.5.23", 120, "unknown"), ("0.5.23", 110, "unknown"), ("0.5.23", 90, "eligible")],
)  # fmt: skip
def test_flash_attention_4_by_gpu_and_version(version: str, sm: int, verdict: str) -> None:
    assert choice(judged(QWEN_30B, sm, version), ATTENTION, "fa4").verdict == verdict


@pytest.mark.parametrize(
    ("version", "missing", "verdict"),
    [
        ("0.5.9", "module.quack", "excluded"),
        ("0.5.9", "module.flash_attn.cute", "unknown"),
        ("0.5.14", "module.flash_attn.cute", "excluded"),
        ("0.5.14", "module.cutlass", "excluded"),
        ("0.5.17", "module.flash_attn.cute", "eligible"),
        ("0.5.17", "module.quack", "excluded"),
        ("0.5.23", "module.cutlass", "excluded"),
    ],
)
def test_flash_attention_4_needs_its_packages(version: str, missing: str, verdict: str) -> None:
    """SGLang has its own copy from 0.5.16 on, which still imports CuTe DSL and quack."""
    found = choice(judged(QWEN_8B, 90, version, **{missing: False}), ATTENTION, "fa4")
    assert found.verdict == verdict
    assert found.failure == ("environment" if verdict == "excluded" else None)


def test_a_package_that_nobody_looked_for_is_unknown() -> None:
    found = choice(judged(QWEN_8B, 90, "0.5.17", **{"module.quack": UNKNOWN}), ATTENTION, "fa4")
    assert (found.verdict, found.missing) == ("unknown", ("module.quack",))


@pytest.mark.parametrize(
    ("model", "changes", "verdict"),
    [
        (QWEN_8B, {}, "unknown"),
        (QWEN_8B, {"module.hpc": False}, "excluded"),
        (QWEN_8B, {"sliding_window": True}, "excluded"),
        ({**QWEN_8B, "kv_heads": 32}, {}, "excluded"),
        ({**QWEN_8B, "head_dim": 64}, {}, "excluded"),
        (QWEN_397B_NVFP4, {}, "excluded"),
    ],
)
def test_hpc_ops_has_kernels_for_few_shapes(
    model: dict[str, Fact], changes: dict[str, Fact], verdict: str
) -> None:
    for version in ("0.5.17", "0.5.23"):
        found = judged(model, 90, version, **{"module.hpc": True, **changes})
        assert choice(found, ATTENTION, "hpc_ops").verdict == verdict


@pytest.mark.parametrize("version", VERSIONS)
def test_on_an_h200_without_packages_beside_sglang_only_what_can_start_is_raced(version: str) -> None:
    """What raced there with 0.5.17 in vain: `fa4`, `hpc_ops` and `dual_chunk_flash_attn`."""
    catalogue, table = bundled_catalogue(version), bundled_table()
    bare: dict[str, Fact] = {"module.cutlass": False, "module.quack": False, "module.flash_attn.cute": False}
    offered = candidates_from(judged(QWEN_8B, 90, version, **bare), table, catalogue).offered
    raced = {one.choice for one in offered if one.dimension == ATTENTION}
    assert raced - {"trtllm_mha"} == {"flashinfer", "triton"}


@pytest.mark.parametrize("version", ["0.5.9", "0.5.14", "0.5.17"])
def test_dual_chunks_are_for_checkpoints_that_ask_for_them(version: str) -> None:
    dual = "dual_chunk_flash_attn"
    assert choice(judged(QWEN_8B, 90, version), ATTENTION, dual).failure == "crash"
    found = judged(QWEN_8B, 90, version, dual_chunk=True)
    assert choice(found, ATTENTION, dual).verdict == "unknown"
    assert choice(found, ATTENTION, "triton").failure == "rejected"
    assert choice(judged(QWEN_8B, 90, version, dual_chunk=UNKNOWN), ATTENTION, "triton").verdict == "unknown"


def test_xqa_cannot_verify_drafts() -> None:
    """On SM 12.x FlashInfer turns TRT-LLM's latent decode into XQA."""
    drafting = judged(DEEPSEEK, 120, flag_speculative_algorithm="NEXTN", spec_topk=1)
    assert choice(drafting, DECODE, "trtllm_mla").failure == "crash"
    assert choice(judged(DEEPSEEK, 120), DECODE, "trtllm_mla").verdict == "unknown"
    assert choice(judged(DEEPSEEK, 110), DECODE, "trtllm_mla").verdict == "excluded"
    assert choice(judged(DEEPSEEK, 90), DECODE, "trtllm_mla").verdict == "excluded"


def test_latent_backends_are_for_latent_models() -> None:
    plain = dimension(judged(QWEN_8B, 100, "0.5.17"), ATTENTION)
    for name in ("trtllm_mla", "cutlass_mla", "cutedsl_mla", "tokenspeed_mla", "flashmla", "dsa", "dsv4"):
        found = plain.choice(name)
        assert found is not None and found.verdict == "excluded", name


def test_pages_that_would_be_rewritten_are_told() -> None:
    assert "attention.trtllm_mha.page" in warned(judged(QWEN_8B, 100, flag_page_size=1))
    assert "attention.trtllm_mha.page" not in warned(judged(QWEN_8B, 100, flag_page_size=32))
    assert dimension(judged(QWEN_8B, 100), "--page-size").auto == "64"
    assert dimension(judged(QWEN_8B, 120), "--page-size").auto == "1"


@pytest.mark.parametrize("backend", ["trtllm_mha", "trtllm_mla", "flashmla"])
def test_deterministic_inference_takes_few_backends(backend: str) -> None:
    model = QWEN_8B if backend == "trtllm_mha" else DEEPSEEK
    found = judged(model, 100, deterministic=True, flag_enable_deterministic_inference=True)
    assert choice(found, ATTENTION, backend).verdict == "excluded"


@pytest.mark.parametrize(
    ("model", "version", "sm", "picked", "value"),
    [
        (QWEN_397B_NVFP4, "0.5.9", 100, "triton_attn", None),
        (QWEN_397B_NVFP4, "0.5.11", 103, "fa4", "triton_attn"),
        (QWEN_397B_NVFP4, "0.5.14", 103, "triton_attn", None),
        (QWEN_397B_NVFP4, "0.5.23", 103, "fa4", None),
        (QWEN_397B_NVFP4, "0.5.23", 120, "triton_attn", None),
        (QWEN_397B_NVFP4, "0.5.23", 90, "fa3", None),
        (MIMO, "0.5.14", 100, "fa3", "fa4"),
        (MIMO, "0.5.14", 120, "fa3", "triton_attn"),
    ],
)
def test_the_vision_tower_has_its_own_choice(
    model: dict[str, Fact], version: str, sm: int, picked: str, value: str | None
) -> None:
    found = dimension(judged(model, sm, version), VISION)
    assert (found.auto, found.value) == (picked, value)


@pytest.mark.parametrize("sm", [120, 121])
def test_the_vision_tower_has_no_flash_attention_4_on_sm12x(sm: int) -> None:
    assert choice(judged(QWEN_397B_NVFP4, sm), VISION, "fa4").verdict == "excluded"


# --- DeepSeek's sparse attention


@pytest.mark.parametrize("flag", ["--dsa-prefill-backend", "--dsa-decode-backend"])
@pytest.mark.parametrize(
    ("sm", "verdict"),
    [(90, "excluded"), (100, "eligible"), (103, "eligible"), (110, "excluded"), (120, "excluded")],
)
def test_trtllm_sparse_kernels_are_for_sm10x(flag: str, sm: int, verdict: str) -> None:
    assert choice(judged(DEEPSEEK_V32, sm, "0.5.23", tp=8), flag, "trtllm").verdict == verdict


def test_glm_has_a_sparse_kernel_on_sm12x() -> None:
    found = judged(GLM_NVFP4, 120, "0.5.23", tp=8)
    for flag in ("--dsa-prefill-backend", "--dsa-decode-backend"):
        assert dimension(found, flag).auto == "flashinfer_sparse_mla"
        assert choice(found, flag, "flashinfer_sparse_mla").verdict == "eligible"
        assert choice(found, flag, "flashmla_sparse").verdict == "excluded"


def test_other_families_have_none_there() -> None:
    found = judged(DEEPSEEK_V32, 121, "0.5.20", tp=8, flag_dsa_decode_backend="flashinfer_sparse_mla")
    verdict = choice(found, "--dsa-decode-backend", "flashinfer_sparse_mla")
    assert verdict.verdict == "excluded"
    assert "DeepseekV32ForCausalLM" in says(verdict)
    assert "dsa.sparse_mla.arch" in warned(found)


def test_glm_flash_is_moved_to_tilelang_and_a_wider_cache_on_sm12x() -> None:
    found = judged(GLM_FLASH, 121, "0.5.20", tp=2)
    assert [(one.dimension, one.value) for one in found.repairs if "--moe" not in one.dimension] == [
        ("--kv-cache-dtype", "bfloat16"),
        ("--dsa-prefill-backend", "tilelang"),
        ("--dsa-decode-backend", "tilelang"),
    ]


def test_tilelang_reads_no_fp8_cache_before_the_last_version() -> None:
    pins: dict[str, Fact] = {"flag_dsa_decode_backend": "tilelang", "flag_dsa_prefill_backend": "tilelang"}
    old = judged(GLM_FLASH, 121, "0.5.20", flag_kv_cache_dtype="fp8_e4m3", **pins)
    assert "dsa.tilelang.fp8_kv_old" in warned(old)
    right = judged(GLM_FLASH, 120, "0.5.20", flag_kv_cache_dtype="bfloat16", **pins)
    assert not {one for one in warned(right) if one.startswith(("dsa.", "kv.", "attention."))}


@pytest.mark.parametrize(
    ("version", "sm", "prefill", "decode"),
    [
        ("0.5.9", 100, "flashmla_auto", "flashmla_kv"),
        ("0.5.10.post1", 100, "trtllm", "trtllm"),
        ("0.5.23", 100, "trtllm", "trtllm"),
        ("0.5.9", 90, "flashmla_sparse", "fa3"),
        ("0.5.23", 90, "flashmla_sparse", "fa3"),
    ],
)
def test_sparse_kernels_follow_the_cache(version: str, sm: int, prefill: str, decode: str) -> None:
    found = judged(DEEPSEEK_V32, sm, version, tp=8)
    assert dimension(found, "--dsa-prefill-backend").auto == prefill
    assert dimension(found, "--dsa-decode-backend").auto == decode
    assert dimension(found, "--kv-cache-dtype").auto == ("bfloat16" if sm == 90 else "fp8_e4m3")


# --- DeepSeek-V4


def test_deepseek_v4_runs_its_own_attention() -> None:
    found = judged(DEEPSEEK_V4, 120, "0.5.20", tp=4)
    assert dimension(found, ATTENTION).auto == "dsv4"
    assert dimension(found, "--page-size").auto == "256"
    assert choice(found, ATTENTION, "triton").failure == "silent_fallback"
    assert choice(found, "--dsv4-attn-backend", "flashmla").verdict == "eligible"
    assert choice(found, "--dsv4-attn-backend", "trtllm").verdict == "excluded"


def test_a_prefill_split_over_gpus_is_not_right_on_sm103() -> None:
    split: dict[str, Fact] = {"flag_enable_dsa_prefill_context_parallel": True}
    assert "combination.dsv4_context_parallel_sm103" in warned(
        judged(DEEPSEEK_V4, 103, "0.5.14", tp=4, **split)
    )
    assert "combination.dsv4_context_parallel_sm103" not in warned(
        judged(DEEPSEEK_V4, 100, "0.5.14", tp=4, **split)
    )


def test_triton_needs_sm80() -> None:
    found = judged(QWEN_8B, 75)
    assert choice(found, ATTENTION, "triton").verdict == "excluded"
    assert choice(found, ATTENTION, "flashinfer").verdict == "excluded"


def test_kimi_linear_runs_latent_attention() -> None:
    assert dimension(judged(KIMI_LINEAR, 120), ATTENTION).auto == "triton"
    assert dimension(judged(KIMI_LINEAR, 100), ATTENTION).auto == "flashinfer"
    assert "attention.flashinfer.kimi_linear_old" in warned(judged(KIMI_LINEAR, 100, "0.5.9"))
