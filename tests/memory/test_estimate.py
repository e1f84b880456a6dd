"""Whether a model fits, the tokens beside it and the numbers that are named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autolaunch.capability.fact_names import Fact
from autolaunch.memory.estimate import estimate
from autolaunch.memory.facts import memory_rows
from autolaunch.memory.reserve import prefill_graphs, reserve_of
from autolaunch.memory.weights import weights_of
from tests.capability.models import VERSIONS
from tests.memory.models import DEEPSEEK_V3, GIB, LLAMA_8B, MIB, QWEN_397B, facts, machine


@pytest.mark.parametrize(
    ("memory", "tp", "version", "changes", "mib"),
    [
        # 512 + chunk * 1.5 + 2 * graph batch + 1024 * tp / 8, and 8 for each of 58 prefill graphs
        pytest.param(143771, 1, "0.5.9", {}, 512 + 12288 + 512 + 128, id="H200, no prefill graphs yet"),
        pytest.param(143771, 1, "0.5.17", {}, 512 + 12288 + 512 + 128 + 464, id="H200"),
        pytest.param(143771, 8, "0.5.17", {}, 512 + 12288 + 1024 + 1024 + 464, id="H200, eight ranks"),
        pytest.param(143771, 8, "0.5.11", {"spec": "EAGLE"}, 512 + 12288 + 1024 + 1024 + 464 + 4096, id="draft"),
        pytest.param(143771, 8, "0.5.23", {"spec": "EAGLE"}, 512 + 12288 + 1024 + 1024 + 464, id="draft, newer"),
        pytest.param(32607, 1, "0.5.17", {}, 512 + 3072 + 48 + 128 + 8 * 42, id="RTX 5090, older"),
        pytest.param(32607, 1, "0.5.23", {}, 512 + 6144 + 96 + 128 + 8 * 50, id="RTX 5090"),
        pytest.param(
            143771, 1, "0.5.23", {"flag_chunked_prefill_size": 2048, "flag_cuda_graph_max_bs_decode": 8},
            10240, id="never less than 10 GiB on large GPUs",
        ),
    ],
)  # fmt: skip
def test_what_sglang_keeps_free(
    memory: int, tp: int, version: str, changes: dict[str, Fact], mib: int
) -> None:
    found = reserve_of(memory, facts(tp, version, **changes), tp, latent=False, multimodal=False)
    assert found.fraction == round((memory - mib) / memory, 3)


def test_prefill_graphs() -> None:
    assert [prefill_graphs(tokens) for tokens in (2048, 4096, 8192)] == [42, 50, 58]


def test_keys_and_values_as_they_were_measured() -> None:
    # One H200: a dense slice of 4 layers at default flags took 121 GB for 7,935,232 tokens.
    slice_ = replace(
        LLAMA_8B, attention=replace(LLAMA_8B.attention, n_full=4), num_layers=4,
        weight_bytes_by_part={
            "attention": 4 * 41_943_040 * 2, "dense": 4 * 150_994_944 * 2, "embedding": 151936 * 8192, "lm_head": 151936 * 8192,
        },
    )  # fmt: skip
    found = estimate(slice_, machine(143771, 1), facts(1, "0.5.17"))
    assert found.kv_bytes_per_token == 16384
    assert found.kv_tokens == pytest.approx(7_935_232, rel=0.02)


def test_a_small_model_fits_one_gpu() -> None:
    found = estimate(LLAMA_8B, machine(), facts(1))
    assert found.fits is True
    assert found.weight_bytes_per_gpu == LLAMA_8B.weight_bytes
    assert found.smallest_tp == 1
    assert found.mem_fraction_pinned is False
    assert found.hint is None
    assert found.kv_tokens is not None
    assert 300_000 < found.kv_tokens < 420_000
    assert found.to_json()["kv_tokens"] == found.kv_tokens


def test_a_large_model_needs_more_gpus() -> None:
    found = estimate(DEEPSEEK_V3, machine(), facts(8))
    assert found.fits is False
    assert found.kv_tokens == 0
    assert found.smallest_tp == 16
    assert found.hint == "use `--tp 16` or more on GPUs like these"
    assert "do not fit" in found.reason
    assert estimate(DEEPSEEK_V3, machine(143771), facts(8)).fits is True


def test_drafting_adds_the_heads_and_the_cache_of_their_layer() -> None:
    without = estimate(DEEPSEEK_V3, machine(143771), facts(8))
    drafting = estimate(DEEPSEEK_V3, machine(143771), facts(8, spec="NEXTN"))
    assert without.draft_bytes_per_gpu == 0
    assert drafting.draft_bytes_per_gpu == 14 * GIB // 8
    assert drafting.weight_bytes_per_gpu is not None
    assert without.weight_bytes_per_gpu is not None
    assert drafting.weight_bytes_per_gpu - without.weight_bytes_per_gpu == 14 * GIB // 8
    assert drafting.kv_bytes_per_token == 62 * 1152
    assert (drafting.kv_tokens or 0) < (without.kv_tokens or 0)


def test_a_fraction_that_leaves_no_room_for_a_cache_is_named_with_one_that_does() -> None:
    found = estimate(LLAMA_8B, machine(), facts(1, flag_mem_fraction_static=0.1))
    assert found.fits is False
    assert found.mem_fraction_pinned
    assert found.mem_fraction_min == pytest.approx(0.190, abs=0.002)
    assert found.mem_fraction_fits == pytest.approx(0.83, abs=0.02)
    assert found.hint == f"use `--mem-fraction-static {found.mem_fraction_fits:g}`"
    assert "which need 0.19" in found.reason


@pytest.mark.parametrize(("fraction", "fits"), [(0.9, True), (0.95, True), (0.96, True), (0.98, False)])
def test_a_fraction_that_leaves_nothing_for_activations(fraction: float, fits: bool) -> None:
    found = estimate(LLAMA_8B, machine(), facts(1, flag_mem_fraction_static=fraction))
    assert found.fits is fits
    assert fits or "for activations and graphs" in found.reason


def test_fractions_that_worked_in_reports_are_not_refused() -> None:
    # sglang#9969: 0.95 on SM 12.0, two GPUs; sglang#35596: 0.92 on one RTX 5090 with one request.
    five = machine(32607)
    assert (estimate(LLAMA_8B, five, facts(2, flag_mem_fraction_static=0.95)).mem_fraction_max or 0) > 0.95
    one = facts(1, flag_mem_fraction_static=0.92, flag_cuda_graph_max_bs_decode=1)
    assert (estimate(LLAMA_8B, five, one).mem_fraction_max or 0) > 0.92


def test_unified_memory_leaves_some_for_the_host() -> None:
    found = estimate(LLAMA_8B, machine(124546, 1, unified=True), facts(1, flag_mem_fraction_static=0.92))
    assert found.fits is False
    assert found.mem_fraction_max == 0.9
    assert any("shares the host's memory" in note for note in found.notes)


def test_unknown_machines_and_weights_are_unknown() -> None:
    found = estimate(LLAMA_8B, machine(None), facts(1))
    assert found.fits is None
    assert found.kv_tokens is None
    assert "not known" in found.reason
    assert found.kv_bytes_per_token == 131072
    assert estimate(LLAMA_8B, machine(count=0), facts(1)).fits is None
    nothing = replace(LLAMA_8B, weight_bytes=None, weight_bytes_by_part={})
    unknown = estimate(nothing, machine(), facts(1))
    assert unknown.fits is None
    assert unknown.kv_bytes_per_token == 131072


def test_what_is_too_close_is_not_told() -> None:
    whole = replace(LLAMA_8B, weight_bytes=int(0.83 * 80 * GIB), weight_bytes_by_part={})
    found = estimate(whole, machine(81559 + 768, 1), facts(1))
    assert found.fits is None
    assert found.reason.startswith("too close to tell")
    assert any("split evenly" in note for note in found.notes)


def test_less_cache_than_the_context_is_said() -> None:
    found = estimate(LLAMA_8B, machine(24564, 1), facts(1))
    assert found.fits is True
    assert any("131,072 tokens, would not fit" in note for note in found.notes)


def test_weights_with_data_parallel_attention() -> None:
    shared = weights_of(DEEPSEEK_V3, facts(8), 8)
    own = weights_of(DEEPSEEK_V3, facts(8, dp_attention=True, dp=8), 8)
    assert shared is not None
    assert own is not None
    embedding = DEEPSEEK_V3.weight_bytes_by_part["embedding"]
    projections = 61 * 7168 * (1536 + 512 + 64) * 7 // 8  # which all ranks hold whole anyhow
    assert own.total - shared.total == pytest.approx(
        11 * GIB * 7 // 8 - projections + embedding * 7 // 8, rel=1e-6
    )


def test_weights_that_are_quantized_on_the_way() -> None:
    found = weights_of(LLAMA_8B, facts(1, quantization_flag="fp8"), 1)
    assert found is not None
    assert found.total == (LLAMA_8B.weight_bytes or 0) - (2_684_354_560 + 11_274_289_152) // 2


def test_a_hybrid_shares_memory_between_states_and_cache() -> None:
    model = replace(QWEN_397B, weight_bytes=60 * GIB, weight_bytes_by_part={})
    radix = estimate(model, machine(143771), facts(8))
    fixed = estimate(model, machine(143771), facts(8, radix_cache=False, flag_max_running_requests=8))
    assert radix.state_bytes_per_request == 45 * (12288 // 8 * 6 + 8 * 128 * 128 * 4)
    assert fixed.kv_tokens is not None
    assert radix.kv_tokens is not None
    assert fixed.kv_tokens > 1.8 * radix.kv_tokens
    drafting = estimate(
        model, machine(143771), facts(8, "0.5.11", spec="NEXTN", flag_max_running_requests=64)
    )
    assert drafting.kv_tokens is not None
    assert drafting.kv_tokens < radix.kv_tokens


def test_rows_are_whole() -> None:
    ids = [row["id"] for rows in memory_rows().values() for row in rows]
    assert len(ids) == len(set(ids))
    for rows in memory_rows().values():
        assert all(row["reason"] and row["evidence"] for row in rows)
    for version in VERSIONS:
        assert reserve_of(81559, facts(1, version), 1, latent=True, multimodal=True).mib > 0
    assert reserve_of(81559, facts(1, "0.6.0"), 1, latent=True, multimodal=True).mib > 0
    assert MIB * 1024 == GIB
