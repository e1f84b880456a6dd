"""The bundled rows on the KV cache, its pages, CUDA graphs and the scheduler."""

from __future__ import annotations

import pytest

from autolaunch.capability.fact_names import Fact
from tests.capability.models import (
    DEEPSEEK_V4,
    GLM_NVFP4,
    GPT_OSS,
    QWEN_8B,
    QWEN_235B_FP8,
    QWEN_397B_NVFP4,
    VERSIONS,
    choice,
    dimension,
    judged,
    warned,
)

CACHE = "--kv-cache-dtype"
PAGE = "--page-size"


@pytest.mark.parametrize("version", VERSIONS)
def test_an_fp8_cache_is_coarser_and_never_picked_for_a_plain_model(version: str) -> None:
    found = judged(QWEN_8B, 90, version)
    assert dimension(found, CACHE).auto == "unset"
    assert choice(found, CACHE, "fp8_e4m3").numerics == "lossy"
    assert choice(found, CACHE, "bf16").numerics == "same"


def test_a_checkpoint_may_ask_for_an_fp8_cache() -> None:
    assert dimension(judged(QWEN_397B_NVFP4, 120, "0.5.9"), CACHE).auto == "fp8_e4m3"
    other: dict[str, Fact] = {**QWEN_8B, "method": "compressed-tensors", "scheme_kv": "fp8_tensor"}
    assert dimension(judged(other, 90, "0.5.14"), CACHE).auto == "unset"
    assert dimension(judged(other, 90, "0.5.20"), CACHE).auto == "fp8_e4m3"


@pytest.mark.parametrize(("sm", "harmful"), [(80, True), (86, True), (89, False), (90, False)])
def test_triton_has_no_e4m3_before_sm89(sm: int, harmful: bool) -> None:
    found = judged(QWEN_8B, sm, flag_kv_cache_dtype="fp8_e4m3", flag_attention_backend="triton")
    assert ("attention.triton.fp8_kv_sm8x" in warned(found)) == harmful
    assert (choice(found, CACHE, "fp8_e4m3").verdict == "excluded") == harmful


def test_flashinfer_reads_one_there() -> None:
    found = judged(QWEN_8B, 80, flag_kv_cache_dtype="fp8_e4m3")
    assert dimension(found, "--attention-backend").auto == "flashinfer"
    assert choice(found, CACHE, "fp8_e4m3").verdict == "eligible"


def test_flash_attention_3_turns_e5m2_into_triton() -> None:
    found = judged(QWEN_8B, 90, flag_kv_cache_dtype="fp8_e5m2", flag_attention_backend="fa3")
    told = next(one for one in found.warnings if one.id == "attention.fa3.fp8_e5m2")
    assert told.failure == "silent_fallback"


@pytest.mark.parametrize(("version", "told"), [("0.5.9", True), ("0.5.10.post1", False), ("0.5.23", False)])
def test_flash_attention_3_with_an_uncalibrated_cache_was_wrong_once(version: str, told: bool) -> None:
    found = judged(
        QWEN_235B_FP8, 90, version, tp=4, flag_kv_cache_dtype="fp8_e4m3", flag_attention_backend="fa3"
    )
    assert ("attention.fa3.fp8_e4m3_old" in warned(found)) == told


def test_gpt_oss_loses_accuracy_with_an_fp8_cache() -> None:
    found = judged(GPT_OSS, 100, "0.5.9", flag_attention_backend="trtllm_mha", flag_kv_cache_dtype="fp8_e4m3")
    assert "attention.trtllm_mha.sinks_fp8" in warned(found)


def test_glm_lost_accuracy_with_an_fp8_cache_on_sm10x() -> None:
    assert "kv.fp8_e4m3.dsa_sm10x" in warned(judged(GLM_NVFP4, 103, "0.5.10.post1", tp=8))
    assert "kv.fp8_e4m3.dsa_sm10x" not in warned(judged(GLM_NVFP4, 120, "0.5.10.post1", tp=8))


@pytest.mark.parametrize(
    ("model", "refused"), [(GLM_NVFP4, "fp8_e5m2"), (DEEPSEEK_V4, "bf16"), (DEEPSEEK_V4, "fp8_e5m2")]
)
def test_sparse_families_take_two_types(model: dict[str, Fact], refused: str) -> None:
    assert choice(judged(model, 100, "0.5.23", tp=8), CACHE, refused).verdict == "excluded"


@pytest.mark.parametrize(
    ("sm", "nvfp4", "mxfp8"),
    [
        (90, "excluded", "excluded"),
        (100, "eligible", "unknown"),
        (110, "excluded", "excluded"),
        (120, "unknown", "excluded"),
    ],
)
def test_caches_below_eight_bits_or_with_scales(sm: int, nvfp4: str, mxfp8: str) -> None:
    found = judged(QWEN_8B, sm)
    assert choice(found, CACHE, "nvfp4").verdict == nvfp4
    assert choice(found, CACHE, "mxfp8").verdict == mxfp8
    assert choice(found, CACHE, "nvfp4").numerics == "lossy"


@pytest.mark.parametrize(
    ("model", "sm", "backend", "page"),
    [
        (QWEN_8B, 100, "trtllm_mha", "64"),
        (QWEN_8B, 100, "fa4", "128"),
        (QWEN_8B, 90, "fa3", "1"),
        (GLM_NVFP4, 100, None, "64"),
        (DEEPSEEK_V4, 90, None, "256"),
    ],
)
def test_the_page_size_follows_the_backend(
    model: dict[str, Fact], sm: int, backend: str | None, page: str
) -> None:
    pins: dict[str, Fact] = {"flag_attention_backend": backend} if backend else {}
    assert dimension(judged(model, sm, "0.5.23", tp=8, **pins), PAGE).auto == page


@pytest.mark.parametrize(
    ("version", "backend", "refused"),
    [
        ("0.5.9", "triton", True),
        ("0.5.9", "flashinfer", False),
        ("0.5.14", "triton", False),
        ("0.5.23", "fa3", False),
    ],
)
def test_a_draft_tree_over_pages_is_for_few_backends(version: str, backend: str, refused: bool) -> None:
    found = judged(
        QWEN_8B, 90, version, mtp_present=True, flag_speculative_algorithm="EAGLE", spec_topk=4, spec_steps=3,
        flag_speculative_eagle_topk=4, flag_speculative_num_steps=3, flag_page_size=16, flag_attention_backend=backend,
    )  # fmt: skip
    assert bool({"page.any.tree", "page.any.tree_old"} & warned(found)) == refused


@pytest.mark.parametrize(("chunk", "wrong"), [(8192, False), (8100, True), (-1, False)])
def test_a_chunk_is_made_of_pages(chunk: int, wrong: bool) -> None:
    found = judged(QWEN_8B, 100, flag_chunked_prefill_size=chunk)
    assert ("chunk.any.page" in warned(found)) == wrong


@pytest.mark.parametrize(
    ("version", "memory", "tp", "chunk", "batch"),
    [
        ("0.5.9", 15.0, 1, "2048", "8"),
        ("0.5.9", 31.8, 1, "2048", "24"),
        ("0.5.23", 31.8, 1, "4096", "48"),
        ("0.5.23", 31.8, 4, "4096", "160"),
        ("0.5.14", 44.0, 2, "4096", "32"),
        ("0.5.23", 79.6, 1, "8192", "256"),
        ("0.5.23", 95.0, 8, "8192", "512"),
        ("0.5.9", 178.0, 1, "16384", "512"),
    ],
)
def test_sizes_follow_the_memory(version: str, memory: float, tp: int, chunk: str, batch: str) -> None:
    found = judged(QWEN_8B, 120, version, tp=tp, memory_gb=memory)
    assert dimension(found, "--chunked-prefill-size").auto == chunk
    assert dimension(found, "--cuda-graph-max-bs-decode").auto == batch


def test_large_captures_ran_out_of_memory_for_glm_on_96_gb() -> None:
    assert "graph_bs.any.dsa_sm12x" in warned(judged(GLM_NVFP4, 120, "0.5.20", tp=8))
    right = judged(GLM_NVFP4, 120, "0.5.20", tp=8, flag_cuda_graph_max_bs_decode=256)
    assert "graph_bs.any.dsa_sm12x" not in warned(right)


def test_no_graphs_are_slow_but_for_embeddings() -> None:
    off: dict[str, Fact] = {"flag_disable_cuda_graph": True, "cuda_graph": False}
    assert "no_graph.on.slow" in warned(judged(QWEN_8B, 89, "0.5.23", **off))
    assert "no_graph.on.slow" not in warned(judged({**QWEN_8B, "embedding": True}, 89, "0.5.23", **off))


def test_padding_off_is_refused_with_torch_compile() -> None:
    both: dict[str, Fact] = {"flag_disable_cuda_graph_padding": True, "flag_enable_torch_compile": True}
    assert "no_padding.on.compile" in warned(judged(QWEN_8B, 90, "0.5.23", **both))
    assert "no_padding.on.compile" not in warned(judged(QWEN_8B, 90, "0.5.9", **both))


def test_the_prefill_graph_is_left_off_for_deepseek_v4() -> None:
    found = judged(DEEPSEEK_V4, 100, "0.5.23", tp=4, flag_cuda_graph_backend_prefill="breakable")
    assert "prefill_graph.breakable.kinds" in warned(found)
