"""One large NVFP4 mixture of experts on the GPUs people own: each gets its own answer, and knows why."""

from __future__ import annotations

import pytest

from autolaunch.capability.verdicts import Evaluation
from tests.capability.models import QWEN_397B_NVFP4, choice, dimension, judged, says, warned

FP4 = "--fp4-gemm-backend"
MOE = "--moe-runner-backend"
SEED_VERSIONS = ("0.5.9", "0.5.14", "0.5.17", "0.5.21", "0.5.23")


def seed(sm: int, version: str) -> Evaluation:
    """`--tp 8` and nothing else."""
    return judged(QWEN_397B_NVFP4, sm, version, tp=8)


@pytest.mark.parametrize("version", SEED_VERSIONS)
@pytest.mark.parametrize("sm", [120, 121])
def test_sm_12x_has_no_trtllm_kernels_and_cutlass_runs(sm: int, version: str) -> None:
    found = seed(sm, version)
    trtllm = choice(found, FP4, "flashinfer_trtllm")
    assert (trtllm.verdict, trtllm.failure) == ("excluded", "crash")
    assert "SM 10.0 and 10.3" in says(trtllm)
    assert "without looking at the GPU" in says(trtllm)
    for name in ("flashinfer_cutlass", "flashinfer_cudnn"):
        eligible = choice(found, FP4, name)
        assert eligible.verdict == "eligible"
        assert "PDL" in says(eligible)
    moe = choice(found, MOE, "flashinfer_trtllm")
    assert (moe.verdict, moe.failure) == ("excluded", "crash")
    assert "SGLang checks no SM" in says(moe)
    assert "FlashInfer's own guard" in says(moe)
    cutedsl = choice(found, MOE, "flashinfer_cutedsl")
    assert (cutedsl.verdict, cutedsl.failure) == ("excluded", "garbage")
    assert "!!!!" in says(cutedsl)
    assert choice(found, MOE, "flashinfer_cutlass").verdict == "eligible"


@pytest.mark.parametrize("version", SEED_VERSIONS)
def test_cutlass_of_an_old_flashinfer_is_warned_of(version: str) -> None:
    found = choice(seed(120, version), FP4, "flashinfer_cutlass")
    old = [hit for hit in found.warnings if hit.rule == "fp4_gemm.flashinfer_cutlass.concurrency"]
    assert bool(old) is (version == "0.5.9")
    if old:
        assert "different lengths run together" in old[0].sentence
        assert "fp4_gemm.flashinfer_cutlass.concurrency" in warned(seed(120, version))


@pytest.mark.parametrize("version", ["0.5.11", "0.5.14", "0.5.17", "0.5.20", "0.5.21", "0.5.23"])
@pytest.mark.parametrize("sm", [120, 121])
def test_the_runner_that_sglang_picks_without_a_flag_is_repaired(sm: int, version: str) -> None:
    moe = dimension(seed(sm, version), MOE)
    assert (moe.auto, moe.decision, moe.value) == ("flashinfer_trtllm", "repaired", "flashinfer_cutlass")
    assert moe.repair is not None
    assert any("SGLang checks no SM" in sentence for sentence in moe.repair.because)


@pytest.mark.parametrize("version", ["0.5.14", "0.5.17", "0.5.21", "0.5.23"])
def test_with_the_flag_sglang_is_right_by_itself(version: str) -> None:
    found = judged(QWEN_397B_NVFP4, 120, version, tp=8, flag_quantization="modelopt_fp4")
    moe = dimension(found, MOE)
    assert (moe.auto, moe.decision) == ("flashinfer_cutlass", "kept")


@pytest.mark.parametrize(
    ("version", "auto"),
    [
        ("0.5.9", "flashinfer_cutlass"),
        ("0.5.10.post1", "flashinfer_cudnn"),
        ("0.5.11", "flashinfer_cudnn"),
        ("0.5.14", "flashinfer_cutlass"),
        ("0.5.23", "flashinfer_cutlass"),
    ],
)
def test_what_sglang_picks_for_dense_fp4_on_sm120(version: str, auto: str) -> None:
    assert dimension(seed(120, version), FP4).auto == auto


@pytest.mark.parametrize("version", SEED_VERSIONS)
@pytest.mark.parametrize("sm", [100, 103])
def test_sm_10x_has_all_of_them(sm: int, version: str) -> None:
    found = seed(sm, version)
    for name in ("flashinfer_trtllm", "flashinfer_cutlass", "flashinfer_cudnn"):
        assert choice(found, FP4, name).verdict == "eligible"
    assert choice(found, MOE, "flashinfer_trtllm").verdict == "eligible"
    assert choice(found, MOE, "flashinfer_cutlass").verdict == "eligible"
    assert found.repairs == ()
    if version != "0.5.9":
        assert dimension(found, MOE).auto == "flashinfer_trtllm"
        assert dimension(found, FP4).auto == "flashinfer_cutedsl"
        assert choice(found, MOE, "flashinfer_cutedsl").verdict == "eligible"


@pytest.mark.parametrize(("version", "risky"), [("0.5.14", True), ("0.5.17", True), ("0.5.21", False)])
def test_sm103_is_warned_of_the_runner_that_failed_there(version: str, risky: bool) -> None:
    assert ("moe_runner.flashinfer_trtllm.sm103_nvfp4" in warned(seed(103, version))) is risky
    assert "moe_runner.flashinfer_trtllm.sm103_nvfp4" not in warned(seed(100, version))


@pytest.mark.parametrize("sm", [89, 90])
def test_before_marlin_other_gpus_cannot_load_it(sm: int) -> None:
    found = seed(sm, "0.5.9")
    for dimension_verdict in (dimension(found, FP4), dimension(found, MOE)):
        assert all(one.verdict == "excluded" for one in dimension_verdict.choices)
    assert choice(found, MOE, "flashinfer_cutlass").failure == "rejected"


@pytest.mark.parametrize("version", ["0.5.14", "0.5.17", "0.5.21", "0.5.23"])
@pytest.mark.parametrize("sm", [80, 89, 90])
def test_other_gpus_run_it_on_marlin(sm: int, version: str) -> None:
    found = seed(sm, version)
    for flag in (FP4, MOE):
        assert dimension(found, flag).auto == "marlin"
        marlin = choice(found, flag, "marlin")
        assert (marlin.verdict, marlin.numerics) == ("eligible", "same")
    for name in ("flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_cudnn", "flashinfer_cutedsl"):
        assert choice(found, FP4, name).verdict == "excluded"
    for name in ("flashinfer_cutlass", "flashinfer_trtllm", "flashinfer_cutedsl", "triton"):
        assert choice(found, MOE, name).verdict == "excluded"
