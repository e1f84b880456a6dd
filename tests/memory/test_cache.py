"""Bytes of one token and of one request, against sums by hand and against SGLang's own log lines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autolaunch.capability.fact_names import Fact
from autolaunch.checkpoint.attention import Attention
from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.checkpoint.quantization import Quantization
from autolaunch.memory.cache import cache_cost
from tests.memory.models import DEEPSEEK_V3, DEEPSEEK_V32, GPT_OSS, LLAMA_8B, QWEN_397B, facts, plain


def token(model: Checkpoint, tp: int = 1, version: str = "0.5.23", **changes: Fact) -> int:
    """Bytes of one token."""
    sheet = facts(tp, version, arch=model.architecture, **changes)
    cost = cache_cost(model, sheet, tp)
    assert cost is not None
    return cost.token


@pytest.mark.parametrize(
    ("model", "tp", "changes", "wanted"),
    [
        pytest.param(LLAMA_8B, 1, {}, 32 * 8 * 256 * 2, id="gqa"),
        pytest.param(LLAMA_8B, 4, {}, 32 * 2 * 256 * 2, id="heads are split"),
        pytest.param(LLAMA_8B, 16, {}, 32 * 1 * 256 * 2, id="a head is kept by two ranks"),
        pytest.param(LLAMA_8B, 8, {"dp_attention": True, "dp": 8}, 32 * 8 * 256 * 2, id="each rank has all heads"),
        pytest.param(LLAMA_8B, 1, {"pp": 2}, 16 * 8 * 256 * 2, id="half of the layers"),
        pytest.param(LLAMA_8B, 1, {"flag_kv_cache_dtype": "fp8_e4m3"}, 32 * 8 * 256, id="fp8"),
        pytest.param(LLAMA_8B, 1, {"flag_kv_cache_dtype": "fp4_e2m1"}, 36864, id="fp4 with scales of 16"),
        pytest.param(LLAMA_8B, 1, {"flag_kv_cache_dtype": "mxfp8"}, 32 * 8 * 256 * 33 // 32, id="mxfp8"),
        pytest.param(DEEPSEEK_V3, 1, {}, 61 * 576 * 2, id="latent"),
        pytest.param(DEEPSEEK_V3, 8, {}, 61 * 576 * 2, id="every rank keeps the latent"),
        pytest.param(DEEPSEEK_V3, 8, {"spec": "EAGLE"}, 62 * 576 * 2, id="and the draft's layer"),
        pytest.param(DEEPSEEK_V32, 8, {}, 61 * (576 * 2 + 132), id="with keys of the indexer"),
        pytest.param(DEEPSEEK_V32, 8, {"sm": 100, "flag_dsa_decode_backend": "trtllm"}, 61 * (576 + 132), id="fp8 by default"),
        pytest.param(
            DEEPSEEK_V32, 8, {"flag_kv_cache_dtype": "fp8_e4m3", "flag_dsa_decode_backend": "flashmla_kv"},
            61 * (656 + 132), id="FlashMLA's layout",
        ),
        pytest.param(GPT_OSS, 1, {}, 18 * 2048 + int(0.8 * 18 * 2048) + 1, id="sliding layers keep less"),
        pytest.param(GPT_OSS, 1, {"flag_swa_full_tokens_ratio": 0.5}, 27 * 2048, id="as much as is asked for"),
        pytest.param(GPT_OSS, 1, {"flag_disable_hybrid_swa_memory": True}, 36 * 2048, id="or everything"),
        pytest.param(QWEN_397B, 2, {}, 15360, id="full layers of a hybrid"),
        pytest.param(QWEN_397B, 8, {}, 15360, id="its two KV heads"),
    ],
)  # fmt: skip
def test_bytes_of_a_token(model: Checkpoint, tp: int, changes: dict[str, Fact], wanted: int) -> None:
    assert token(model, tp, **changes) == wanted


def test_sliding_layers_without_a_pool_of_their_own_keep_everything() -> None:
    gemma = plain(
        "Gemma3ForCausalLM",
        Attention("sliding_hybrid", "gqa", 16, 8, 256, 256, sliding_window=1024, n_full=8, n_sliding=40),
        num_layers=48,
    )
    assert token(gemma) == 48 * 8 * 512 * 2
    gemma4 = plain("Gemma4ForCausalLM", gemma.attention, num_layers=48)
    assert token(gemma4, version="0.5.9") == 48 * 8 * 512 * 2
    assert token(gemma4, version="0.5.11") == (8 + 32) * 8 * 512 * 2


def test_a_layer_may_attend_twice() -> None:
    attention = replace(DEEPSEEK_V3.attention, n_full=28)
    longcat = plain("LongcatFlashForCausalLM", attention, num_layers=28)
    assert token(longcat) == 2 * 28 * 576 * 2
    assert token(longcat, spec="NEXTN") == (2 * 28 + 1) * 576 * 2


def test_a_hybrid_as_sglang_logged_it() -> None:
    # https://github.com/kvcache-ai/ktransformers/issues/1870, Qwen3.5-397B on two GPUs: 580,364 tokens in 4.15 GB
    # of keys and as much of values; 82 states and one to spare in 7.29 GB, their convolutions in 0.13 GB.
    cost = cache_cost(QWEN_397B, facts(2, arch=QWEN_397B.architecture), 2)
    assert cost is not None
    assert cost.token * 580_364 / 2**30 == pytest.approx(2 * 4.15, abs=0.01)
    assert cost.state * 83 / 2**30 == pytest.approx(7.29 + 0.13, abs=0.01)


def test_states_of_other_kinds() -> None:
    nemotron = plain(
        "NemotronHForCausalLM",
        Attention("hybrid_mamba", "gqa", 32, 2, 128, 128, linear="mamba2", n_full=6, n_linear=23),
        config={
            "mamba_num_heads": 64,
            "mamba_head_dim": 64,
            "n_groups": 8,
            "ssm_state_size": 128,
            "conv_kernel": 4,
        },
        num_layers=52,
    )
    cost = cache_cost(nemotron, facts(1), 1)
    assert cost is not None
    assert cost.token == 6 * 2 * 256 * 2
    assert cost.state == 23 * ((64 * 64 + 2 * 8 * 128) * 3 * 2 + 64 * 64 * 128 * 4)
    half = cache_cost(nemotron, facts(1, flag_mamba_ssm_dtype="bfloat16"), 1)
    assert half is not None
    assert half.state == 23 * ((64 * 64 + 2 * 8 * 128) * 3 * 2 + 64 * 64 * 128 * 2)


def test_the_checkpoint_may_ask_for_fp8() -> None:
    parts = {"kv_cache": "fp8_tensor"}
    asked = plain(
        "LlamaForCausalLM", LLAMA_8B.attention, quantization=Quantization("nvfp4", "modelopt_fp4", parts)
    )
    assert token(asked) == 32 * 8 * 256
    ignored = plain("LlamaForCausalLM", LLAMA_8B.attention, quantization=Quantization("fp8", "fp8", parts))
    assert token(ignored) == 32 * 8 * 256 * 2


def test_what_is_not_known_is_said() -> None:
    v4 = plain("DeepseekV4ForCausalLM", Attention("dsv4", "dsv4", 64, 1, 512))
    assert cache_cost(v4, facts(), 1) is None
    assert cache_cost(plain("X", Attention("gqa", "gqa", 32, 8, None)), facts(), 1) is None
