"""Kinds of attention and experts from keys, and from tensors where the keys are silent."""

from __future__ import annotations

from typing import Any

import pytest

from autolaunch.checkpoint.attention import Attention, attention_of
from autolaunch.checkpoint.config import language_config
from autolaunch.checkpoint.experts import Moe, moe_of
from autolaunch.checkpoint.tensors import Group, Tensors

HEADS = {"hidden_size": 4096, "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 8}


def attention(config: dict[str, Any], *patterns: str) -> Attention:
    groups = tuple(Group(pattern, 0, 1, "BF16", (8, 8), 128, ("a",)) for pattern in patterns)
    return attention_of(
        language_config({**HEADS, **config}), Tensors(groups, True, None) if patterns else None
    )


def moe(config: dict[str, Any], *groups: Group) -> Moe | None:
    return moe_of(language_config({**HEADS, **config}), Tensors(groups, True, None) if groups else None)


MLA = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
GDN = {"linear_num_value_heads": 32, "linear_key_head_dim": 128, "full_attention_interval": 4}


@pytest.mark.parametrize(
    ("config", "kind", "full"),
    [
        ({}, "gqa", "gqa"),
        ({"num_key_value_heads": 32}, "mha", "mha"),
        ({"num_key_value_heads": None}, "mha", "mha"),
        ({"num_key_value_heads": 1}, "mqa", "mqa"),
        ({"num_key_value_heads": None, "multi_query_group_num": 2}, "gqa", "gqa"),
        ({"num_key_value_heads": None, "multi_query": True}, "mqa", "mqa"),
        ({"num_key_value_heads": None, "attn_config": {"kv_n_heads": 8}}, "gqa", "gqa"),
        (
            {"num_key_value_heads": None, "block_configs": [{"attention": {"n_heads_in_group": 8}}]},
            "gqa",
            "gqa",
        ),
        (MLA, "mla", "mla"),
        ({**MLA, "use_mla": False}, "gqa", "gqa"),
        ({"kv_lora_rank": None, "use_mla": False}, "gqa", "gqa"),
        ({**MLA, "index_topk": 2048}, "dsa", "dsa"),
        ({"index_topk": 512, "compress_ratios": [0, 4, 128, 4], "sliding_window": 128}, "dsv4", "dsv4"),
        ({"sparse_attention_config": {"use_sparse_attention": True}}, "block_sparse_gqa", "block_sparse_gqa"),
        ({"sparse_attention_config": {"use_sparse_attention": False}}, "gqa", "gqa"),
        (
            {"layer_types": ["sliding_attention", "full_attention"] * 4, "sliding_window": 128},
            "sliding_hybrid",
            "gqa",
        ),
        ({"sliding_window": 4096, "sliding_window_pattern": 6}, "sliding_hybrid", "gqa"),
        ({"sliding_window": 4096, "sliding_window_pattern": "LLLG"}, "sliding_hybrid", "gqa"),
        ({"sliding_window": 4096}, "gqa", "gqa"),
        ({"sliding_window": 4096, "use_sliding_window": False, "sliding_window_pattern": 2}, "gqa", "gqa"),
        ({"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 4}, "sliding_hybrid", "gqa"),
        ({"hybrid_layer_pattern": [0, 1, 1, 1, 0, 1, 1, 1], "sliding_window": 128}, "sliding_hybrid", "gqa"),
        ({"local_layer_ids": [0, 1, 2], "sliding_window": 128}, "sliding_hybrid", "gqa"),
        ({"layer_types": ["chunked_attention"] * 3 + ["full_attention"]}, "chunked_hybrid", "gqa"),
        (GDN, "hybrid_linear", "gqa"),
        (
            {"layer_types": ["linear_attention", "full_attention"] * 4, "linear_num_heads": 32},
            "hybrid_linear",
            "gqa",
        ),
        ({"attn_type_list": [0, 0, 0, 1] * 2}, "hybrid_linear", "gqa"),
        ({"attn_type_list": [1] * 8}, "gqa", "gqa"),
        (
            {**MLA, "linear_attn_config": {"kda_layers": [1, 2, 3], "full_attn_layers": [4]}},
            "hybrid_linear",
            "mla",
        ),
        (
            {**MLA, "index_topk": 4, "layer_types": ["linear_attention", "full_attention"] * 4},
            "hybrid_linear",
            "dsa",
        ),
        ({"layer_group_size": 8}, "hybrid_linear", "gqa"),
        ({"hybrid_override_pattern": "M-M*MEME", "mamba_num_heads": 64}, "hybrid_mamba", "gqa"),
        ({"layers_block_type": ["mamba", "attention", "moe", "mamba"]}, "hybrid_mamba", "gqa"),
        ({"attn_layer_period": 8, "attn_layer_offset": 4, "mamba_dt_rank": 256}, "hybrid_mamba", "gqa"),
        ({"attn_layer_indices": [1, 5], "mamba_n_heads": 32}, "hybrid_mamba", "gqa"),
        ({"layer_types": ["conv", "full_attention"] * 4}, "hybrid_mamba", "gqa"),
        ({"mamba_d_ssm": 3072, "mamba_n_heads": 24}, "hybrid_mamba", "gqa"),
        ({"num_attention_heads": None, "ssm_state_size": 128}, "none", "none"),
        ({"layer_types": ["an_attention_of_tomorrow", "full_attention"] * 4}, "gqa", "gqa"),
    ],
    ids=repr,
)
def test_kinds_are_told_from_keys(config: dict[str, Any], kind: str, full: str) -> None:
    found = attention(config)
    assert (found.kind, found.full) == (kind, full)


@pytest.mark.parametrize(
    ("config", "linear", "many"),
    [
        (GDN, "gdn", 6),
        ({"linear_num_heads": 32, "layer_types": ["linear_attention"] * 3 + ["full_attention"]}, "kda", 3),
        ({"linear_attn_config": {"kda_layers": [1, 2, 3], "full_attn_layers": [4]}}, "kda", 3),
        ({"attn_type_list": [0, 0, 0, 1] * 2}, "lightning", 6),
        ({"layer_group_size": 4}, "lightning", 6),
        ({"layer_group_size": 4, "short_conv_kernel_size": 4}, "kda", 6),
        ({"hybrid_override_pattern": "M-M*MEME", "mamba_num_heads": 64}, "mamba2", 4),
        ({"attn_layer_period": 8, "attn_layer_offset": 4, "mamba_dt_rank": 256}, "mamba1", 7),
        ({"layer_types": ["conv", "full_attention"] * 4}, "short_conv", 4),
        ({"mamba_d_ssm": 3072, "mamba_n_heads": 24}, "mamba2", 8),
        ({}, None, 0),
    ],
    ids=repr,
)
def test_states_of_fixed_size_are_of_many_kinds(
    config: dict[str, Any], linear: str | None, many: int
) -> None:
    found = attention(config)
    assert (found.linear, found.n_linear) == (linear, many)


def test_widths_of_a_latent_are_its_own() -> None:
    found = attention({**MLA, "head_dim": 56, "q_lora_rank": 1536})
    assert (found.kv_heads, found.head_dim, found.v_head_dim) == (1, 192, 128)
    assert (found.kv_lora_rank, found.q_lora_rank, found.qk_rope_head_dim) == (512, 1536, 64)
    assert found.latent


def test_full_and_sliding_layers_may_differ_in_width() -> None:
    gemma = attention(
        {
            "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
            "head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": 2, "sliding_window": 1024,
        }
    )  # fmt: skip
    assert (gemma.kv_heads, gemma.head_dim, gemma.sliding_kv_heads, gemma.sliding_head_dim) == (
        2,
        512,
        8,
        256,
    )
    assert gemma.v_head_dim == 512
    mimo = attention(
        {
            "hybrid_layer_pattern": [0, 1, 1, 1], "sliding_window": 128, "num_key_value_heads": 4,
            "swa_num_key_value_heads": 8, "head_dim": 192, "v_head_dim": 128, "swa_head_dim": 192,
            "add_swa_attention_sink_bias": True, "num_hidden_layers": 4,
        }
    )  # fmt: skip
    assert (mimo.kv_heads, mimo.sliding_kv_heads, mimo.sliding_head_dim) == (4, 8, None)
    assert (mimo.head_dim, mimo.v_head_dim, mimo.sinks, mimo.n_sliding) == (192, 128, True, 3)


def test_classes_fill_in_what_is_missing() -> None:
    gemma = attention_of(
        language_config(
            {"text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34}}
        ),
        None,
    )
    assert (gemma.kind, gemma.heads, gemma.kv_heads, gemma.head_dim, gemma.n_full) == (
        "sliding_hybrid",
        8,
        4,
        256,
        5,
    )
    longcat = attention_of(
        language_config({"architectures": ["LongcatFlashForCausalLM"], "num_layers": 28}), None
    )
    assert (longcat.kind, longcat.heads) == ("mla", 64)
    wrapped = attention_of(
        language_config({"text_config": {"model_type": "mistral", "vocab_size": 32064}}), None
    )
    assert (wrapped.kind, wrapped.kv_heads) == ("gqa", 8)


def test_tensors_speak_where_keys_are_silent() -> None:
    silent = {"num_attention_heads": None, "num_key_value_heads": None}
    assert attention(silent, "model.layers.N.self_attn.kv_a_proj_with_mqa.weight").kind == "mla"
    sparse = ("model.layers.N.self_attn.kv_b_proj.weight", "model.layers.N.self_attn.indexer.wq_b.weight")
    assert attention(silent, *sparse).kind == "dsa"
    linear = attention({}, "model.layers.N.linear_attn.A_log")
    assert (linear.kind, linear.linear) == ("hybrid_linear", "gdn")
    assert attention({}, "model.layers.N.self_attn.sinks").sinks
    assert not attention({}, "visual.blocks.N.attn.sinks").sinks


def test_a_list_longer_than_the_layers_is_cut() -> None:
    found = attention({"layer_types": ["sliding_attention", "full_attention"] * 6, "sliding_window": 8})
    assert (found.n_sliding, found.n_full) == (4, 4)


@pytest.mark.parametrize(
    ("config", "experts", "top_k", "width", "shared"),
    [
        ({"num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768}, 128, 8, 768, 0),
        ({"num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 14336}, 8, 2, 14336, 0),
        ({"n_routed_experts": 256, "n_shared_experts": 1, "moe_intermediate_size": 2048}, 256, None, 2048, 1),
        (
            {"moe_num_experts": 64, "moe_k": 6, "moe_num_shared_experts": 2, "moe_intermediate_size": 9},
            64,
            6,
            9,
            2,
        ),
        ({"num_experts": 64, "moe_topk": [8, 8], "moe_intermediate_size": [3072, 3072]}, 64, 8, 3072, 0),
        ({"n_routed_experts": 512, "moe_topk": 12, "expert_ffn_hidden_size": 2048}, 512, 12, 2048, 0),
        (
            {"num_experts": 128, "top_k_experts": 8, "enable_moe_block": True, "intermediate_size": 5},
            128,
            8,
            5,
            0,
        ),
        ({"ffn_config": {"moe_num_experts": 16}, "intermediate_size": 5}, 16, None, 5, 0),
    ],
)
def test_experts_have_many_keys(
    config: dict[str, Any], experts: int, top_k: int | None, width: int, shared: int
) -> None:
    found = moe(config)
    assert found is not None
    assert (found.experts, found.top_k, found.expert_width, found.shared) == (experts, top_k, width, shared)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"num_experts": None},
        {"num_experts": 0},
        {"num_experts": 1},
        {"num_experts": 8, "enable_moe_block": False},
    ],
)
def test_dense_models_have_none(config: dict[str, Any]) -> None:
    assert moe(config) is None


def test_experts_that_pass_through_hold_no_weights() -> None:
    found = moe({"n_routed_experts": 512, "zero_expert_num": 256})
    assert found is not None
    assert (found.experts, found.zero_experts) == (512, 256)


def test_stacked_experts_are_counted_by_shape_and_the_tensors_are_right() -> None:
    stacked = Group("model.layers.N.mlp.experts.gate_up_proj", 0, 1, "BF16", (96, 2048, 4096), 1, ("a",))
    found = moe({"num_experts": 128}, stacked)
    assert found is not None
    assert found.experts == 96
    assert found.notes == ("`num_experts` says 128 experts, the tensors hold 96",)
    assert moe({}, stacked) is not None


def test_experts_of_heads_are_not_those_of_the_model() -> None:
    groups = (
        Group("model.layers.N.mlp.experts.N.up_proj.weight", 0, 64, "BF16", (8, 8), 1, ("a",)),
        Group("model.layers.N.mlp.experts.N.up_proj.weight", 8, 128, "BF16", (8, 8), 1, ("a",)),
        Group("mtp.layers.N.mlp.experts.N.up_proj.weight", 0, 256, "BF16", (8, 8), 1, ("a",)),
    )
    found = moe({"num_experts": 64}, *groups)
    assert found is not None
    assert (found.experts, found.notes) == (64, ())


def test_dense_layers_come_first() -> None:
    found = moe({"n_routed_experts": 8, "mlp_layer_types": ["dense", "dense"] + ["sparse"] * 6})
    assert found is not None
    assert (found.first_dense, found.layers) == (2, 6)
    found = moe({"n_routed_experts": 8, "first_k_dense_replace": 3})
    assert found is not None
    assert (found.first_dense, found.layers) == (3, 5)
