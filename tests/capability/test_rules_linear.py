"""The bundled rows on linear layers: their kernels, their state, and how states get into the prefix cache."""

from __future__ import annotations

import pytest

from autolaunch.capability.fact_names import Fact
from tests.capability.models import (
    QWEN_8B,
    QWEN_30B,
    QWEN_397B_NVFP4,
    VERSIONS,
    choice,
    dimension,
    judged,
    warned,
)

BASE = "--linear-attn-backend"
DECODE = "--linear-attn-decode-backend"
PREFILL = "--linear-attn-prefill-backend"
VERIFY = "--linear-attn-verify-backend"
STRATEGY = "--mamba-radix-cache-strategy"

KIMI_LINEAR: dict[str, Fact] = {
    **QWEN_30B, "arch": "KimiLinearForCausalLM", "attention": "hybrid_linear", "linear_attention": "kda", "mla": True,
}  # fmt: skip
NEMOTRON: dict[str, Fact] = {
    **QWEN_30B, "arch": "NemotronHForCausalLM", "attention": "hybrid_mamba", "linear_attention": "mamba2",
    "mtp_present": True,
}  # fmt: skip
LATER = VERSIONS[1:]
"""0.5.9 has no flag for the kernels."""


@pytest.mark.parametrize("version", LATER)
@pytest.mark.parametrize("sm", [80, 90, 100, 110, 120])
def test_triton_always_runs(version: str, sm: int) -> None:
    found = judged(QWEN_397B_NVFP4, sm, version, tp=8)
    assert dimension(found, BASE).auto == "triton"
    assert choice(found, BASE, "triton").verdict == "eligible"


@pytest.mark.parametrize(
    ("sm", "state", "verdict"),
    [
        (80, "unset", "excluded"),
        (90, "unset", "eligible"),
        (100, "unset", "excluded"),
        (100, "bfloat16", "eligible"),
        (120, "bfloat16", "eligible"),
        (120, "float32", "excluded"),
    ],
)
@pytest.mark.parametrize("version", ["0.5.11", "0.5.17", "0.5.23"])
def test_flashinfer_decodes_with_a_coarse_state_on_blackwell(
    version: str, sm: int, state: str, verdict: str
) -> None:
    found = judged(QWEN_397B_NVFP4, sm, version, tp=8, flag_mamba_ssm_dtype=state)
    assert choice(found, DECODE, "flashinfer").verdict == verdict
    if sm >= 100:
        assert choice(found, DECODE, "flashinfer").numerics == "lossy"


@pytest.mark.parametrize(
    ("version", "sm", "cuda", "verdict"),
    [
        ("0.5.14", 100, "12.9", "excluded"),
        ("0.5.14", 100, "13.0", "eligible"),
        ("0.5.11", 100, "12.9", "eligible"),
        ("0.5.17", 120, "13.0", "excluded"),
        ("0.5.23", 90, "12.9", "eligible"),
    ],
)
def test_flashinfer_prefills_with_cuda_13(version: str, sm: int, cuda: str, verdict: str) -> None:
    found = judged(QWEN_397B_NVFP4, sm, version, tp=8, cuda=cuda, flag_mamba_ssm_dtype="bfloat16")
    assert choice(found, PREFILL, "flashinfer").verdict == verdict


@pytest.mark.parametrize(
    ("version", "sm", "state", "chunk", "picked"),
    [
        ("0.5.14", 100, "bfloat16", 8192, "triton"),
        ("0.5.17", 100, "bfloat16", 8192, "flashinfer"),
        ("0.5.17", 100, "bfloat16", 16384, "triton"),
        ("0.5.17", 90, "float32", 8192, "triton"),
        ("0.5.20", 90, "unset", 8192, "flashinfer"),
        ("0.5.23", 120, "bfloat16", 8192, "triton"),
    ],
)
def test_sglang_prefills_with_flashinfer_in_a_narrow_case(
    version: str, sm: int, state: str, chunk: int, picked: str
) -> None:
    found = judged(
        QWEN_397B_NVFP4, sm, version, tp=8, flag_mamba_ssm_dtype=state, flag_chunked_prefill_size=chunk
    )
    assert dimension(found, PREFILL).auto == picked
    lost = (version, sm, chunk) == ("0.5.17", 100, 16384)
    assert ("chunk.any.gdn_sm10x" in warned(found)) == lost


def test_a_verify_step_follows_the_decode_on_sm10x() -> None:
    pins: dict[str, Fact] = {
        "flag_mamba_ssm_dtype": "bfloat16",
        "flag_speculative_algorithm": "NEXTN",
        "spec_topk": 1,
    }
    found = judged(QWEN_397B_NVFP4, 100, "0.5.23", tp=8, **pins)
    assert dimension(found, DECODE).auto == "flashinfer"
    assert dimension(found, VERIFY).auto == "flashinfer"
    assert dimension(judged(QWEN_397B_NVFP4, 120, "0.5.23", tp=8, **pins), VERIFY).auto == "triton"


def test_a_coarse_state_is_harmful_in_two_verify_steps() -> None:
    pins: dict[str, Fact] = {
        "flag_mamba_ssm_dtype": "bfloat16",
        "flag_speculative_algorithm": "NEXTN",
        "spec_topk": 1,
    }
    assert "linear.triton.verify_bf16_sm121" in warned(judged(QWEN_397B_NVFP4, 121, "0.5.23", tp=8, **pins))
    assert "linear.triton.verify_bf16_sm121" not in warned(
        judged(QWEN_397B_NVFP4, 120, "0.5.23", tp=8, **pins)
    )
    hopper = judged(QWEN_397B_NVFP4, 90, "0.5.23", tp=8, flag_linear_attn_decode_backend="flashinfer", **pins)
    assert choice(hopper, VERIFY, "flashinfer").failure == "crash"


@pytest.mark.parametrize(
    ("version", "sm", "verdict"),
    [
        ("0.5.11", 100, "excluded"),
        ("0.5.17", 100, "eligible"),
        ("0.5.17", 120, "excluded"),
        ("0.5.23", 120, "excluded"),
    ],
)
def test_cute_dsl_prefills_on_sm10x(version: str, sm: int, verdict: str) -> None:
    found = choice(judged(QWEN_397B_NVFP4, sm, version, tp=8), PREFILL, "cutedsl")
    assert found.verdict == verdict
    if version == "0.5.23":
        assert found.failure == "silent_fallback"


@pytest.mark.parametrize("name", ["flashkda", "nvidia_kda", "ptx_kda", "helion"])
def test_kernels_of_kimi_are_not_for_gated_delta_nets(name: str) -> None:
    assert choice(judged(QWEN_397B_NVFP4, 100, tp=8), PREFILL, name).verdict == "excluded"
    assert choice(judged(KIMI_LINEAR, 100), PREFILL, name).verdict == "unknown"


@pytest.mark.parametrize(
    ("version", "sm", "verdict"),
    [("0.5.14", 100, "excluded"), ("0.5.17", 100, "eligible"), ("0.5.17", 90, "excluded")],
)
def test_flashinfer_decodes_kimi_from_0_5_17_on(version: str, sm: int, verdict: str) -> None:
    found = judged(KIMI_LINEAR, sm, version, flag_mamba_ssm_dtype="bfloat16")
    assert choice(found, DECODE, "flashinfer").verdict == verdict


# --- the prefix cache


@pytest.mark.parametrize("version", VERSIONS)
def test_what_auto_means_for_the_hybrid_models(version: str) -> None:
    found = dimension(judged(QWEN_397B_NVFP4, 90, version, tp=8), STRATEGY)
    assert found.auto == ("no_buffer" if version in VERSIONS[:3] else "extra_buffer")
    assert found.decision == "kept"


@pytest.mark.parametrize("version", ["0.5.10.post1", "0.5.11"])
def test_drafting_needs_an_extra_buffer_in_two_versions(version: str) -> None:
    found = judged(QWEN_397B_NVFP4, 90, version, tp=8, flag_speculative_algorithm="NEXTN")
    assert (dimension(found, STRATEGY).decision, dimension(found, STRATEGY).value) == (
        "repaired",
        "extra_buffer",
    )
    assert dict(found.env) == ({"SGLANG_ENABLE_SPEC_V2": "1"} if version == "0.5.10.post1" else {})


def test_the_oldest_version_drops_the_prefix_cache_when_drafting() -> None:
    found = judged(QWEN_397B_NVFP4, 90, "0.5.9", tp=8, flag_speculative_algorithm="NEXTN")
    assert "mamba_radix.no_buffer.draft_0_5_9" in warned(found)


def test_trtllm_mha_and_no_buffer_exclude_each_other() -> None:
    pins: dict[str, Fact] = {
        "flag_attention_backend": "trtllm_mha",
        "flag_mamba_radix_cache_strategy": "no_buffer",
    }
    assert "attention.trtllm_mha.no_buffer" in warned(judged(NEMOTRON, 100, "0.5.14", tp=8, **pins))
    assert "attention.trtllm_mha.no_buffer_old" in warned(judged(NEMOTRON, 100, "0.5.11", tp=8, **pins))


def test_an_extra_buffer_goes_with_triton_as_the_base_only() -> None:
    found = judged(
        QWEN_397B_NVFP4, 100, tp=8, flag_linear_attn_backend="flashinfer", flag_mamba_ssm_dtype="bfloat16",
        flag_mamba_radix_cache_strategy="extra_buffer",
    )  # fmt: skip
    assert "mamba_radix.extra.linear_backend" in warned(found)
    left = judged(
        QWEN_397B_NVFP4, 100, tp=8, flag_linear_attn_backend="flashinfer", flag_mamba_ssm_dtype="bfloat16"
    )
    assert dimension(left, STRATEGY).auto == "no_buffer"


def test_a_strategy_for_a_model_without_linear_layers_is_refused() -> None:
    assert "mamba_radix.extra.not_hybrid" in warned(
        judged(QWEN_8B, 90, flag_mamba_radix_cache_strategy="extra_buffer")
    )


@pytest.mark.parametrize(
    ("version", "verdict"), [("0.5.9", "excluded"), ("0.5.17", "excluded"), ("0.5.20", "eligible")]
)
def test_nemotron_took_triton_late(version: str, verdict: str) -> None:
    assert choice(judged(NEMOTRON, 90, version), "--attention-backend", "triton").verdict == verdict


def test_a_gptq_hybrid_is_told_to_keep_one_type() -> None:
    gptq: dict[str, Fact] = {
        **QWEN_397B_NVFP4,
        "scheme": "gptq_int4",
        "method": "gptq_marlin",
        "scheme_experts": "gptq_int4",
    }
    assert "combination.gptq_hybrid_float16" in warned(judged(gptq, 120, "0.5.11", flag_dtype="auto"))
    assert "combination.gptq_hybrid_float16" not in warned(judged(gptq, 120, "0.5.11", flag_dtype="bfloat16"))


@pytest.mark.parametrize("version", LATER)
def test_cute_dsl_needs_its_package(version: str) -> None:
    assert choice(judged(QWEN_397B_NVFP4, 90, version, tp=8), DECODE, "cutedsl").verdict == "eligible"
    found = judged(QWEN_397B_NVFP4, 90, version, tp=8, **{"module.cutlass": False})
    assert choice(found, DECODE, "cutedsl").failure == "environment"
    assert choice(found, DECODE, "triton").verdict == "eligible"
