"""The bundled rows on MoE runners and all-to-alls: which experts run where, and what SGLang picks."""

from __future__ import annotations

import pytest

from autolaunch.capability.fact_names import Fact
from tests.capability.models import (
    DEEPSEEK_V4,
    GLM_NVFP4,
    GPT_OSS,
    QWEN_30B,
    QWEN_235B_FP8,
    QWEN_397B_NVFP4,
    VERSIONS,
    choice,
    dimension,
    judged,
    says,
    warned,
)

MOE = "--moe-runner-backend"
A2A = "--moe-a2a-backend"


@pytest.mark.parametrize("version", VERSIONS)
def test_fp8_experts_run_on_triton_from_sm_89_on(version: str) -> None:
    for sm in (89, 90, 120, 121):
        moe = dimension(judged(QWEN_235B_FP8, sm, version, tp=4), MOE)
        assert (moe.auto, moe.decision) == ("triton", "kept")
        assert choice(judged(QWEN_235B_FP8, sm, version, tp=4), MOE, "triton").verdict == "eligible"
    for sm in (80, 86):
        found = judged(QWEN_235B_FP8, sm, version, tp=4)
        assert choice(found, MOE, "triton").failure == "crash"
        assert "fp8e4nv" in says(choice(found, MOE, "triton"))
        assert "moe_runner.triton.fp8_sm" in warned(found)


@pytest.mark.parametrize(
    ("sm", "version", "verdict"),
    [
        (90, "0.5.9", "eligible"),
        (100, "0.5.23", "eligible"),
        (120, "0.5.9", "excluded"),
        (121, "0.5.17", "excluded"),
        (120, "0.5.20", "unknown"),
        (110, "0.5.17", "excluded"),
        (89, "0.5.23", "excluded"),
    ],
)
def test_where_deep_gemm_runs(sm: int, version: str, verdict: str) -> None:
    assert choice(judged(QWEN_235B_FP8, sm, version), MOE, "deep_gemm").verdict == verdict


def test_deep_gemm_on_sm_12x_is_wrong_with_spread_experts() -> None:
    found = choice(judged(QWEN_235B_FP8, 120, tp=4, ep=4), MOE, "deep_gemm")
    assert (found.verdict, found.failure) == ("excluded", "garbage")
    assert "always says yes" in says(found)


@pytest.mark.parametrize(
    ("version", "failure"), [("0.5.9", "crash"), ("0.5.17", "crash"), ("0.5.20", "silent_fallback")]
)
def test_fp8_experts_have_no_flashinfer_cutlass(version: str, failure: str) -> None:
    found = choice(judged(QWEN_235B_FP8, 90, version), MOE, "flashinfer_cutlass")
    assert (found.verdict, found.failure) == ("excluded", failure)


@pytest.mark.parametrize("name", ["marlin", "humming", "triton_kernel"])
def test_what_was_measured_to_fail_on_sm90_is_excluded(name: str) -> None:
    found = choice(judged(QWEN_235B_FP8, 90, "0.5.17"), MOE, name)
    assert (found.verdict, found.failure, found.stage) == ("excluded", "crash", "capture")
    assert any(one.kind == "measured" for one in found.evidence)


def test_hpc_ops_needs_a_package() -> None:
    assert choice(judged(QWEN_235B_FP8, 90, "0.5.17"), MOE, "hpc_ops").failure == "environment"
    there = judged(QWEN_235B_FP8, 90, "0.5.17", **{"module.hpc": True})
    assert choice(there, MOE, "hpc_ops").verdict == "unknown"


@pytest.mark.parametrize("version", ["0.5.17", "0.5.20", "0.5.23"])
def test_the_marlin_for_adapters_is_marlin_without_any(version: str) -> None:
    name = "experimental_sgl_marlin"
    assert choice(judged(QWEN_235B_FP8, 90, version), MOE, name).failure == "silent_fallback"
    assert choice(judged(QWEN_235B_FP8, 90, version, lora=True), MOE, name).verdict == "unknown"


@pytest.mark.parametrize("version", VERSIONS)
def test_families_get_the_trtllm_runner_on_sm_10x_only(version: str) -> None:
    for model in (QWEN_30B, QWEN_235B_FP8):
        assert dimension(judged(model, 100, version, tp=2), MOE).auto == "flashinfer_trtllm"
        assert dimension(judged(model, 90, version, tp=2), MOE).auto == "triton"


@pytest.mark.parametrize(
    ("sm", "version", "auto"),
    [
        (90, "0.5.9", "triton_kernel"),
        (100, "0.5.11", "flashinfer_mxfp4"),
        (120, "0.5.9", "flashinfer_mxfp4"),
        (120, "0.5.11", "triton_kernel"),
        (120, "0.5.14", "marlin"),
        (120, "0.5.17", "flashinfer_mxfp4"),
        (121, "0.5.23", "flashinfer_mxfp4"),
    ],
)
def test_what_gpt_oss_gets(sm: int, version: str, auto: str) -> None:
    assert dimension(judged(GPT_OSS, sm, version), MOE).auto == auto


def test_gpt_oss_of_the_oldest_version_is_repaired_on_sm_12x() -> None:
    moe = dimension(judged(GPT_OSS, 120, "0.5.9"), MOE)
    assert (moe.decision, moe.value) == ("repaired", "triton_kernel")


def test_a_new_driver_breaks_triton_kernels_on_blackwell() -> None:
    bf16 = {**GPT_OSS, "scheme": "bf16", "method": "none", "scheme_experts": "bf16"}
    assert dimension(judged(bf16, 100, driver="595.58"), MOE).auto == "triton"
    assert dimension(judged(bf16, 100, driver="580.95"), MOE).auto == "triton_kernel"
    pinned = judged(bf16, 100, driver="595.58", flag_moe_runner_backend="triton_kernel")
    assert "moe_runner.triton_kernel.driver" in warned(pinned)


@pytest.mark.parametrize(
    ("sm", "version", "auto"),
    [
        (90, "0.5.20", "flashinfer_mxfp4"),
        (100, "0.5.23", "flashinfer_mxfp4"),
        (120, "0.5.14", "marlin"),
        (120, "0.5.17", "flashinfer_mxfp4"),
        (121, "0.5.23", "flashinfer_mxfp4"),
    ],
)
def test_what_deepseek_v4_gets(sm: int, version: str, auto: str) -> None:
    moe = dimension(judged(DEEPSEEK_V4, sm, version, tp=4), MOE)
    assert (moe.auto, moe.decision) == (auto, "kept")
    found = moe.choice(auto)
    assert found is not None
    assert found.verdict == "eligible"


def test_nvfp4_experts_of_deepseek_v4_are_repaired_off_sm_10x() -> None:
    nvfp4: dict[str, Fact] = {**DEEPSEEK_V4, "scheme_experts": "nvfp4", "method": "modelopt_mixed"}
    moe = dimension(judged(nvfp4, 120, tp=4), MOE)
    assert (moe.auto, moe.decision, moe.value) == (
        "flashinfer_trtllm_routed",
        "repaired",
        "flashinfer_cutlass",
    )
    assert dimension(judged(nvfp4, 100, tp=4), MOE).decision == "kept"


@pytest.mark.parametrize("name", ["flashinfer_trtllm", "triton", "flashinfer_cutlass"])
def test_fp4_experts_need_a_runner_that_reads_them(name: str) -> None:
    assert choice(judged(DEEPSEEK_V4, 100, tp=4), MOE, name).verdict == "excluded"


def test_two_overlapped_batches_may_leave_one_empty() -> None:
    found = judged(
        DEEPSEEK_V4, 90, "0.5.21", tp=8, dp=8, dp_attention=True, flag_enable_dp_attention=True,
        flag_enable_two_batch_overlap=True, flag_moe_runner_backend="flashinfer_mxfp4",
    )  # fmt: skip
    assert "moe_runner.flashinfer_mxfp4.two_batches" in warned(found)


@pytest.mark.parametrize(
    ("runner", "a2a", "version", "fits"),
    [
        ("flashinfer_trtllm", "deepep", "0.5.11", False),
        ("flashinfer_trtllm", "flashinfer", "0.5.14", False),
        ("flashinfer_trtllm", "flashinfer", "0.5.20", True),
        ("flashinfer_cutedsl", "deepep", "0.5.23", True),
        ("marlin", "deepep", "0.5.23", False),
    ],
)
def test_which_runner_exists_behind_which_all_to_all(runner: str, a2a: str, version: str, fits: bool) -> None:
    found = judged(
        QWEN_397B_NVFP4, 100, version, tp=8, ep=8, dp=8, dp_attention=True, flag_moe_a2a_backend=a2a,
        flag_moe_runner_backend=runner, flag_quantization="modelopt_fp4",
    )  # fmt: skip
    assert (choice(found, MOE, runner).verdict == "eligible") is fits


def test_cutedsl_needs_the_quantization_flag_where_no_family_sets_it() -> None:
    other = {**QWEN_397B_NVFP4, "arch": "MiniMaxM2ForCausalLM"}
    needs = choice(judged(other, 100), MOE, "flashinfer_cutedsl").requires
    assert [str(one.companion) for one in needs] == ["--quantization modelopt_fp4"]
    assert choice(judged(QWEN_397B_NVFP4, 100), MOE, "flashinfer_cutedsl").requires == ()


@pytest.mark.parametrize(("version", "harmful"), [("0.5.14", True), ("0.5.20", True), ("0.5.21", False)])
def test_shared_experts_of_another_scheme_are_kept_apart(version: str, harmful: bool) -> None:
    found = judged(GLM_NVFP4, 120, version, tp=8)
    moe = dimension(found, MOE)
    assert moe.value == "flashinfer_cutlass"
    assert ("--disable-shared-experts-fusion" in found.flags) is harmful
    pinned = judged(GLM_NVFP4, 120, version, tp=8, flag_moe_runner_backend="flashinfer_cutlass")
    assert ("moe_runner.any.shared_experts_fused" in warned(pinned)) is harmful


@pytest.mark.parametrize(
    ("version", "effect"), [("0.5.14", "excluded"), ("0.5.17", "excluded"), ("0.5.20", "eligible")]
)
def test_minimax_m2_answers_wrongly_through_one_runner(version: str, effect: str) -> None:
    minimax = {
        **QWEN_397B_NVFP4,
        "arch": "MiniMaxM2ForCausalLM",
        "expert_width": 1536,
        "linear_attention": "none",
    }
    assert choice(judged(minimax, 100, version), MOE, "flashinfer_trtllm").verdict == effect
    moe = dimension(judged(minimax, 100, version), MOE)
    if effect == "excluded":
        assert (moe.decision, moe.value) == ("repaired", "flashinfer_cutlass")
    else:
        assert (moe.auto, moe.decision) == ("flashinfer_trtllm_routed", "kept")


def test_weight_only_nvfp4_runs_on_marlin_alone() -> None:
    weight_only: dict[str, Fact] = {
        **QWEN_397B_NVFP4, "scheme": "mixed", "method": "modelopt_mixed", "scheme_experts": "nvfp4_w4a16",
    }  # fmt: skip
    for sm in (100, 120):
        found = judged(weight_only, sm, tp=4)
        assert choice(found, MOE, "flashinfer_cutlass").verdict == "excluded"
        assert choice(found, MOE, "marlin").verdict == "eligible"
        assert dimension(found, MOE).effective == "marlin"


def test_mxfp8_gets_a_kernel_that_exists() -> None:
    mxfp8 = {
        **QWEN_235B_FP8,
        "scheme": "mxfp8",
        "method": "mxfp8",
        "scheme_experts": "mxfp8",
        "fp8_block": False,
    }
    found = judged(mxfp8, 90, "0.5.23", flag_quantization="mxfp8")
    moe = dimension(found, MOE)
    assert moe.auto == "flashinfer_trtllm"
    trtllm = moe.choice("flashinfer_trtllm")
    assert trtllm is not None
    assert trtllm.verdict == "excluded"


@pytest.mark.parametrize(
    ("sm", "tp", "verdict"),
    [(90, 8, "eligible"), (100, 8, "eligible"), (90, 1, "excluded"), (120, 8, "excluded")],
)
def test_where_deepep_runs(sm: int, tp: int, verdict: str) -> None:
    found = choice(judged(QWEN_235B_FP8, sm, "0.5.17", tp=tp, ep=tp), A2A, "deepep")
    assert found.verdict == verdict


def test_a_draft_needs_room_in_deepep() -> None:
    found = judged(
        QWEN_235B_FP8, 90, tp=8, ep=8, flag_moe_a2a_backend="deepep", flag_speculative_algorithm="EAGLE"
    )
    assert "moe_a2a.deepep.dispatch_limit" in warned(found)
    roomy = judged(
        QWEN_235B_FP8, 90, tp=8, ep=8, flag_moe_a2a_backend="deepep", flag_speculative_algorithm="EAGLE",
        env_SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK="1024",
    )  # fmt: skip
    assert "moe_a2a.deepep.dispatch_limit" not in warned(roomy)


def test_the_draft_of_an_nvfp4_model_is_better_off_with_triton() -> None:
    found = judged(GLM_NVFP4, 103, "0.5.17", tp=8, spec="EAGLE", flag_speculative_algorithm="EAGLE")
    draft = dimension(found, "--speculative-moe-runner-backend")
    assert draft.choice("triton") is not None
    pinned = judged(
        GLM_NVFP4, 103, "0.5.21", tp=8, spec="EAGLE", flag_speculative_algorithm="EAGLE",
        flag_speculative_moe_runner_backend="flashinfer_trtllm",
    )  # fmt: skip
    assert "spec_moe_runner.trtllm.bf16" in warned(pinned)


def test_no_choice_is_judged_without_a_rule() -> None:
    """Every choice of every version is eligible, excluded or known to be unknown, never forgotten."""
    for version in VERSIONS:
        for sm in (80, 89, 90, 100, 103, 110, 120, 121):
            for model in (QWEN_397B_NVFP4, QWEN_235B_FP8, QWEN_30B, DEEPSEEK_V4, GPT_OSS):
                found = judged(model, sm, version, tp=4)
                for flag in (MOE, A2A):
                    for one in dimension(found, flag).choices:
                        assert one.reason != "no rule speaks of it here", (
                            version,
                            sm,
                            model["arch"],
                            flag,
                            one.choice,
                        )
