"""The bundled rows on dense products: FP8, FP4 and 16 bit."""

from __future__ import annotations

import pytest

from autolaunch.capability.fact_names import Fact
from tests.capability.models import (
    QWEN_8B,
    QWEN_8B_FP8,
    QWEN_8B_MXFP8,
    QWEN_8B_NVFP4,
    VERSIONS,
    choice,
    dimension,
    judged,
    says,
    warned,
)

FP8 = "--fp8-gemm-backend"
FP4 = "--fp4-gemm-backend"
BF16 = "--bf16-gemm-backend"
ALL_SMS = (80, 89, 90, 100, 103, 110, 120, 121)

PER_TENSOR: dict[str, Fact] = {
    **QWEN_8B_FP8, "scheme": "fp8_tensor", "method": "modelopt_fp8", "scheme_dense": "fp8_tensor",
    "scheme_attention": "fp8_tensor", "fp8_block": False, "quant_block": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("sm", "version", "auto"),
    [
        (89, "0.5.9", "triton"),
        (89, "0.5.23", "triton"),
        (90, "0.5.9", "deep_gemm"),
        (90, "0.5.23", "deep_gemm"),
        (100, "0.5.17", "deep_gemm"),
        (103, "0.5.23", "deep_gemm"),
        (110, "0.5.23", "triton"),
        (120, "0.5.10.post1", "triton"),
        (121, "0.5.14", "triton"),
        (120, "0.5.17", "cutlass"),
        (121, "0.5.23", "cutlass"),
    ],
)
def test_what_sglang_picks_for_fp8_in_blocks(sm: int, version: str, auto: str) -> None:
    found = dimension(judged(QWEN_8B_FP8, sm, version), FP8)
    assert (found.auto, found.decision) == (auto, "kept")
    assert choice(judged(QWEN_8B_FP8, sm, version), FP8, auto).verdict == "eligible"


@pytest.mark.parametrize(
    ("sm", "version", "value"),
    [
        (120, "0.5.9", "cutlass"),
        (121, "0.5.9", "cutlass"),
        (110, "0.5.9", "triton"),
        (110, "0.5.21", "triton"),
    ],
)
def test_deep_gemm_is_repaired_where_it_has_no_kernel(sm: int, version: str, value: str) -> None:
    found = dimension(judged(QWEN_8B_FP8, sm, version), FP8)
    assert (found.auto, found.decision, found.value) == ("deep_gemm", "repaired", value)
    assert found.repair is not None
    assert "SM 9.0 upward" in " ".join(found.repair.because)


@pytest.mark.parametrize(
    ("name", "sms"),
    [
        ("flashinfer_trtllm", (100, 103)),
        ("flashinfer_cutlass", (100, 103, 120, 121)),
        ("flashinfer_deepgemm", (90,)),
        ("cutlass", (120, 121)),
        ("deep_gemm", (90, 100, 103)),
        ("triton", (89, 90, 100, 103, 110, 120, 121)),
    ],
)
def test_where_a_product_of_fp8_blocks_has_kernels(name: str, sms: tuple[int, ...]) -> None:
    for sm in ALL_SMS:
        found = choice(judged(QWEN_8B_FP8, sm, "0.5.17"), FP8, name)
        assert (found.verdict == "eligible") == (sm in sms), (sm, found)
        assert sm in sms or found.verdict == "excluded"


def test_no_choice_for_fp8_blocks_below_sm_89() -> None:
    found = judged(QWEN_8B_FP8, 86)
    assert {one.verdict for one in dimension(found, FP8).choices} == {"excluded"}
    assert "Marlin in 16 bit" in says(choice(found, FP8, "triton"))
    assert "fp8_gemm.any.no_fp8_cores" in warned(found)


@pytest.mark.parametrize(
    ("sm", "version", "auto"),
    [
        (100, "0.5.9", "triton"),
        (120, "0.5.17", "triton"),
        (100, "0.5.20", "flashinfer_cutedsl"),
        (103, "0.5.23", "flashinfer_cutedsl"),
        (110, "0.5.23", "flashinfer_cutlass"),
        (120, "0.5.20", "flashinfer_cutlass"),
    ],
)
def test_what_sglang_picks_for_mxfp8(sm: int, version: str, auto: str) -> None:
    assert dimension(judged(QWEN_8B_MXFP8, sm, version), FP8).auto == auto


@pytest.mark.parametrize(("version", "slow"), [("0.5.14", True), ("0.5.17", True), ("0.5.20", False)])
def test_mxfp8_on_triton_is_slow_on_sm_12x(version: str, slow: bool) -> None:
    assert ("fp8_gemm.cutlass.mxfp8_triton" in warned(judged(QWEN_8B_MXFP8, 120, version))) == slow
    assert "fp8_gemm.cutlass.mxfp8_triton" not in warned(judged(QWEN_8B_MXFP8, 100, version))


@pytest.mark.parametrize(
    ("name", "version", "verdict"),
    [
        ("deep_gemm", "0.5.14", "excluded"),
        ("deep_gemm", "0.5.17", "eligible"),
        ("triton", "0.5.17", "eligible"),
        ("triton", "0.5.20", "excluded"),
        ("cutlass", "0.5.23", "excluded"),
    ],
)
def test_a_choice_without_a_kernel_for_mxfp8_is_ignored(name: str, version: str, verdict: str) -> None:
    found = choice(judged(QWEN_8B_MXFP8, 100, version), FP8, name)
    assert found.verdict == verdict
    assert verdict == "eligible" or found.failure in ("silent_fallback", "rejected")


@pytest.mark.parametrize(("version", "effect"), [("0.5.11", "excluded"), ("0.5.14", "eligible")])
def test_float16_through_trtllm_answered_wrongly(version: str, effect: str) -> None:
    found = judged(
        QWEN_8B_FP8, 100, version, dtype="float16", **{"flag_fp8_gemm_runner_backend": "flashinfer_trtllm"}
    )
    one = choice(found, FP8, "flashinfer_trtllm")
    assert one.verdict == effect
    assert one.failure == ("garbage" if effect == "excluded" else None)
    assert any("flashinfer_trtllm.float16" in name for name in warned(found))


def test_float16_leaves_deep_gemm() -> None:
    assert "fp8_gemm.deep_gemm.float16" in warned(judged(QWEN_8B_FP8, 100, "0.5.10.post1", dtype="float16"))
    assert "fp8_gemm.deep_gemm.float16" not in warned(judged(QWEN_8B_FP8, 100, "0.5.10.post1"))


def test_deep_gemm_may_be_turned_off() -> None:
    off = {"env_SGLANG_ENABLE_JIT_DEEPGEMM": "0"}
    found = judged(QWEN_8B_FP8, 90, "0.5.23", **off)
    assert choice(found, FP8, "deep_gemm").failure == "rejected"
    assert dimension(found, FP8).auto == "triton"
    assert dimension(judged(QWEN_8B_FP8, 90, "0.5.14", **off), FP8).auto == "cutlass"
    assert dimension(judged(QWEN_8B_FP8, 100, "0.5.23", **off), FP8).auto == "flashinfer_trtllm"


def test_layers_of_one_scale_do_not_read_the_flag() -> None:
    found = judged(PER_TENSOR, 100)
    assert dimension(found, FP8).auto == "unset"
    assert choice(found, FP8, "flashinfer_trtllm").verdict == "unknown"
    assert "do not read this flag" in says(choice(found, FP8, "flashinfer_trtllm"))
    assert choice(judged(PER_TENSOR, 90), FP8, "flashinfer_trtllm").verdict == "excluded"


@pytest.mark.parametrize("version", VERSIONS[4:])
@pytest.mark.parametrize("sm", ALL_SMS)
def test_cutedsl_multiplies_16_bit_on_sm_10x_alone(sm: int, version: str) -> None:
    found = judged(QWEN_8B, sm, version)
    assert dimension(found, BF16).auto == ("cutedsl" if sm in (100, 103) else "torch")
    assert choice(found, BF16, "torch").verdict == "eligible"
    assert choice(found, BF16, "cutedsl").verdict == ("eligible" if sm in (100, 103) else "excluded")


def test_deterministic_inference_wants_torch() -> None:
    old = dimension(judged(QWEN_8B, 100, "0.5.17", deterministic=True), BF16)
    assert (old.auto, old.decision, old.value) == ("cutedsl", "repaired", "torch")
    new = dimension(judged(QWEN_8B, 100, "0.5.20", deterministic=True), BF16)
    assert (new.auto, new.decision) == ("torch", "kept")


@pytest.mark.parametrize(
    ("sm", "version", "auto"),
    [
        (100, "0.5.9", "flashinfer_cutlass"),
        (100, "0.5.14", "flashinfer_cutedsl"),
        (103, "0.5.23", "flashinfer_cutedsl"),
        (120, "0.5.11", "flashinfer_cudnn"),
        (120, "0.5.14", "flashinfer_cutlass"),
        (121, "0.5.23", "flashinfer_cutlass"),
        (90, "0.5.14", "marlin"),
        (89, "0.5.23", "marlin"),
    ],
)
def test_what_sglang_picks_for_dense_fp4(sm: int, version: str, auto: str) -> None:
    found = dimension(judged(QWEN_8B_NVFP4, sm, version), FP4)
    assert (found.auto, found.decision) == (auto, "kept")


def test_dense_fp4_on_an_old_gpu_has_no_choice_before_marlin() -> None:
    found = judged(QWEN_8B_NVFP4, 90, "0.5.11")
    assert {one.verdict for one in dimension(found, FP4).choices} == {"excluded"}
    assert choice(judged(QWEN_8B_NVFP4, 90, "0.5.14"), FP4, "marlin").numerics == "same"


def test_cudnn_must_be_there() -> None:
    without = judged(QWEN_8B_NVFP4, 120, "0.5.11", cudnn="none")
    assert choice(without, FP4, "flashinfer_cudnn").failure == "crash"
    found = dimension(without, FP4)
    assert (found.decision, found.value) == ("repaired", "flashinfer_cutlass")


@pytest.mark.parametrize("sm", ALL_SMS)
@pytest.mark.parametrize("version", VERSIONS)
def test_no_product_is_judged_without_a_rule(sm: int, version: str) -> None:
    for model in (QWEN_8B, QWEN_8B_FP8, QWEN_8B_MXFP8, QWEN_8B_NVFP4, PER_TENSOR):
        found = judged(model, sm, version)
        for flag in (FP8, FP4, BF16):
            shown = found.dimension(flag)
            for one in shown.choices if shown else ():
                assert one.reason != "no rule speaks of it here", (flag, one.choice, model["scheme"])
