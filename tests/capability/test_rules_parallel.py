"""The bundled rows on splitting a model: widths, transports, overlap, quantization, sampling and grammars."""

from __future__ import annotations

import pytest

from autolaunch.capability.fact_names import Fact
from tests.capability.models import (
    DEEPSEEK_V4,
    GLM_NVFP4,
    GPT_OSS,
    QWEN_8B,
    QWEN_8B_FP8,
    QWEN_8B_NVFP4,
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

FUSION = "--flashinfer-allreduce-fusion-backend"
SWITCH = "--enable-flashinfer-allreduce-fusion"
QUANTIZATION = "--quantization"


@pytest.mark.parametrize(
    ("tp", "ep", "fits"),
    [(1, 1, True), (2, 1, True), (4, 1, True), (8, 1, False), (8, 2, True), (8, 8, True)],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_an_expert_is_cut_at_whole_blocks(tp: int, ep: int, fits: bool, version: str) -> None:
    """1,536 columns in blocks of 128: eight ranks would get 192."""
    found = judged(QWEN_235B_FP8, 90, version, tp=tp, ep=ep)
    assert ("parallel.tp.expert_blocks" in warned(found)) != fits
    if not fits:
        told = next(one for one in found.warnings if one.id == "parallel.tp.expert_blocks")
        assert "192 columns of an expert" in " ".join(told.because)


def test_trtllm_pads_what_is_cut_within_a_block() -> None:
    found = judged(QWEN_235B_FP8, 100, tp=8, flag_moe_runner_backend="flashinfer_trtllm")
    assert "parallel.tp.expert_blocks" not in warned(found)


def test_a_dense_layer_is_cut_at_whole_blocks_too() -> None:
    odd: dict[str, Fact] = {**QWEN_8B_FP8, "dense_width": 17408}
    assert "parallel.tp.dense_blocks" not in warned(judged(odd, 90, tp=8))
    assert "parallel.tp.dense_blocks" in warned(judged(odd, 90, tp=16))
    assert "parallel.tp.dense_blocks" not in warned(judged({**odd, "scheme_dense": "bf16"}, 90, tp=16))


@pytest.mark.parametrize(
    ("tp", "told"), [(1, None), (2, None), (3, "parallel.tp.heads"), (8, None), (6, "parallel.tp.heads")]
)
def test_heads_are_shared_out_evenly(tp: int, told: str | None) -> None:
    found = warned(judged(QWEN_30B, 90, tp=tp))
    assert found & {"parallel.tp.heads"} == ({told} if told else set())
    assert "parallel.tp.heads" not in warned(judged(QWEN_30B, 90, tp=tp, dp=tp, dp_attention=True))


def test_key_value_heads_are_split_or_copied() -> None:
    odd: dict[str, Fact] = {**QWEN_8B, "heads": 24, "kv_heads": 3}
    assert "parallel.tp.kv_heads" in warned(judged(odd, 90, tp=2))
    for tp in (1, 3, 6):
        assert "parallel.tp.kv_heads" not in warned(judged(odd, 90, tp=tp))
    assert "parallel.tp.kv_heads" not in warned(judged({**odd, "mla": True}, 90, tp=2))


@pytest.mark.parametrize(("width", "tp", "harmful"), [(512, 8, False), (768, 8, True), (1536, 8, False)])
def test_marlin_wants_whole_tiles_of_integers(width: int, tp: int, harmful: bool) -> None:
    model: dict[str, Fact] = {
        **QWEN_30B, "scheme": "int4_ct", "method": "compressed-tensors", "scheme_experts": "int4_ct",
        "expert_width": width, "quant_block": 32,
    }  # fmt: skip
    assert ("parallel.tp.integer_tiles" in warned(judged(model, 90, tp=tp))) == harmful


def test_experts_cannot_be_spread_over_a_part_of_the_group() -> None:
    assert "parallel.ep.divides" in warned(judged(QWEN_235B_FP8, 90, tp=4, ep=3))
    assert "parallel.ep.divides" not in warned(judged(QWEN_235B_FP8, 90, tp=4, ep=2))


@pytest.mark.parametrize("sm", [80, 89, 110, 120, 121])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_fused_all_reduce_is_for_sm_90_and_10x(sm: int, version: str) -> None:
    known = version not in VERSIONS[:3]
    if known:
        assert choice(judged(QWEN_30B, sm, version, tp=4), FUSION, "trtllm").verdict == "excluded"
    on = choice(
        judged(QWEN_30B, sm, version, tp=4, flag_enable_flashinfer_allreduce_fusion=True), SWITCH, "on"
    )
    assert (on.verdict, on.failure) == (
        ("excluded", "rejected") if known else ("unknown", "silent_fallback")  # pinned, it starts without it
    )


@pytest.mark.parametrize("sm", [90, 100, 103])
def test_the_fused_all_reduce_runs_in_a_data_centre(sm: int) -> None:
    assert choice(judged(QWEN_30B, sm, tp=4), FUSION, "trtllm").verdict == "eligible"
    assert judged(QWEN_30B, sm, tp=1).dimension(FUSION) is None


@pytest.mark.parametrize(
    ("version", "hangs"), [("0.5.11", False), ("0.5.14", True), ("0.5.17", True), ("0.5.20", False)]
)
def test_some_versions_hang_in_the_rendezvous_of_eight(version: str, hangs: bool) -> None:
    found = judged(QWEN_30B, 100, version, tp=8, flag_flashinfer_allreduce_fusion_backend="mnnvl")
    assert ("allreduce.mnnvl.rendezvous" in warned(found)) == hangs


@pytest.mark.parametrize(
    ("flag", "sm", "tp", "verdict"),
    [
        ("--enable-torch-symm-mem", 90, 8, "eligible"),
        ("--enable-torch-symm-mem", 120, 8, "excluded"),
        ("--enable-torch-symm-mem", 90, 3, "excluded"),
        ("--enable-mscclpp", 90, 8, "unknown"),
        ("--enable-mscclpp", 90, 2, "excluded"),
        ("--enable-nccl-nvls", 90, 8, "unknown"),
        ("--enable-nccl-nvls", 120, 8, "excluded"),
    ],
)
def test_where_other_transports_can_be_switched_on(flag: str, sm: int, tp: int, verdict: str) -> None:
    assert choice(judged(QWEN_30B, sm, tp=tp), flag, "on").verdict == verdict


@pytest.mark.parametrize(
    ("version", "a2a", "dp_attention", "verdict"),
    [
        ("0.5.9", "none", True, "excluded"),
        ("0.5.14", "none", True, "excluded"),
        ("0.5.17", "none", False, "excluded"),
        ("0.5.17", "deepep", False, "eligible"),
        ("0.5.23", "deepep", True, "eligible"),
    ],
)
def test_two_batches_overlap_behind_an_all_to_all(
    version: str, a2a: str, dp_attention: bool, verdict: str
) -> None:
    found = judged(
        QWEN_235B_FP8, 90, version, tp=8, ep=8, dp_attention=dp_attention, flag_moe_a2a_backend=a2a
    )
    assert choice(found, "--enable-two-batch-overlap", "on").verdict == verdict


@pytest.mark.parametrize(
    ("sm", "version", "failure"), [(90, "0.5.14", "rejected"), (120, "0.5.23", "silent_fallback")]
)
def test_one_batch_overlaps_on_sm_10x_alone(sm: int, version: str, failure: str) -> None:
    found = judged(QWEN_235B_FP8, sm, version, tp=8, ep=8, flag_moe_a2a_backend="deepep")
    assert choice(found, "--enable-single-batch-overlap", "on").failure == failure


@pytest.mark.parametrize(
    ("model", "flag", "version", "verdict"),
    [
        (QWEN_235B_FP8, "fp8", "0.5.9", "eligible"),
        (QWEN_235B_FP8, "modelopt_fp4", "0.5.17", "excluded"),
        (QWEN_235B_FP8, "awq", "0.5.23", "excluded"),
        (QWEN_397B_NVFP4, "modelopt_fp4", "0.5.9", "eligible"),
        (QWEN_397B_NVFP4, "fp8", "0.5.23", "excluded"),
        (QWEN_397B_NVFP4, "w4afp8", "0.5.23", "excluded"),
        (GPT_OSS, "mxfp4", "0.5.23", "eligible"),
        (GPT_OSS, "gptq_marlin", "0.5.14", "excluded"),
        (QWEN_30B, "fp8", "0.5.23", "eligible"),
        (DEEPSEEK_V4, "fp8", "0.5.17", "eligible"),
    ],
)
def test_a_checkpoint_has_one_method(model: dict[str, Fact], flag: str, version: str, verdict: str) -> None:
    assert choice(judged(model, 100, version, tp=4), QUANTIZATION, flag).verdict == verdict


def test_quantizing_while_loading_is_lossy() -> None:
    assert choice(judged(QWEN_30B, 90), QUANTIZATION, "fp8").numerics == "lossy"
    assert choice(judged(QWEN_235B_FP8, 90, tp=4), QUANTIZATION, "fp8").numerics == "same"


@pytest.mark.parametrize(
    ("model", "flag", "sm", "version", "refused"),
    [
        (QWEN_8B_NVFP4, "modelopt_fp4", 90, "0.5.11", True),
        (QWEN_8B_NVFP4, "modelopt_fp4", 90, "0.5.14", False),
        (QWEN_8B_NVFP4, "modelopt_fp4", 75, "0.5.23", True),
        (QWEN_8B_FP8, "fp8", 75, "0.5.23", True),
        (QWEN_8B_FP8, "fp8", 80, "0.5.23", False),
    ],
)
def test_methods_start_at_a_capability(
    model: dict[str, Fact], flag: str, sm: int, version: str, refused: bool
) -> None:
    found = choice(judged(model, sm, version), QUANTIZATION, flag)
    assert (found.verdict == "excluded") == refused, says(found)


def test_fp8_weights_below_sm_89_are_only_stored_that_way() -> None:
    assert "quantization.fp8.no_fp8_cores" in warned(judged(QWEN_8B_FP8, 86, flag_quantization="fp8"))
    assert "quantization.fp8.no_fp8_cores" not in warned(judged(QWEN_8B_FP8, 89, flag_quantization="fp8"))


@pytest.mark.parametrize("version", VERSIONS)
def test_sampling_and_grammars_work_on_every_gpu(version: str) -> None:
    for sm in (80, 89, 90, 100, 103, 120, 121):
        found = judged(QWEN_8B, sm, version)
        assert dimension(found, "--sampling-backend").auto == "flashinfer"
        assert choice(found, "--sampling-backend", "pytorch").verdict == "eligible"
        assert dimension(found, "--grammar-backend").auto == "xgrammar"
        for name in ("xgrammar", "outlines", "llguidance"):
            assert choice(found, "--grammar-backend", name).verdict == "eligible"


def test_deterministic_inference_samples_with_pytorch() -> None:
    found = judged(QWEN_8B, 90, deterministic=True)
    assert dimension(found, "--sampling-backend").auto == "pytorch"
    assert choice(found, "--sampling-backend", "flashinfer").verdict == "excluded"


@pytest.mark.parametrize("sm", [80, 89, 90, 100, 103, 110, 120, 121])
def test_no_switch_is_judged_without_a_rule(sm: int) -> None:
    for version in VERSIONS:
        for model in (QWEN_30B, GLM_NVFP4):
            found = judged(model, sm, version, tp=8, flag_speculative_algorithm="EAGLE")
            for shown in found.dimensions:
                if shown.name in _MINE:
                    for one in shown.choices:
                        assert one.reason != "no rule speaks of it here", (version, shown.name, one.choice)


_MINE = frozenset({
    FUSION, SWITCH, "--enable-torch-symm-mem", "--enable-nccl-nvls", "--enable-mscclpp", "--enable-symm-mem",
    "--disable-custom-all-reduce", "--disable-shared-experts-fusion", "--enable-two-batch-overlap",
    "--enable-single-batch-overlap", "--sampling-backend", "--grammar-backend", "--speculative-moe-runner-backend",
    "--speculative-moe-a2a-backend", "--deepep-mode", "--flashinfer-mxfp4-moe-precision",
})  # fmt: skip
