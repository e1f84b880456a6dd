"""Quantization part by part: declarations, ignore lists, tensors, and what happens where they disagree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autolaunch.checkpoint.checkpoint import inspect
from autolaunch.checkpoint.problems import CheckpointError
from autolaunch.checkpoint.quantization import Quantization, method_in
from autolaunch.checkpoint.spared import spared_parts
from autolaunch.checkpoint.weights import part_of, scheme_rows, split_name
from tests.checkpoint.compact import checkpoint, read, tensors, write
from tests.checkpoint.make_checkpoint import write_index

CONFIG = {
    "architectures": ["ExampleForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4, "intermediate_size": 2048, "vocab_size": 256, "torch_dtype": "bfloat16",
}  # fmt: skip
MOE = {
    **CONFIG,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 512,
    "first_k_dense_replace": 1,
}
HEAD = [["{model.embed_tokens,lm_head}.weight", "BF16", [256, 1024]], ["model.norm.weight", "BF16", [1024]]]
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}


def dense(attention: str | None, mlp: str | None) -> list[list[Any]]:
    """Rows of a small dense model with two layouts, None for plain weights."""

    def matrix(name: str, kind: str | None, outputs: int, inputs: int) -> list[Any]:
        return [name, kind, [outputs, inputs]] if kind else [f"{name}.weight", "BF16", [outputs, inputs]]

    layer = "model.layers.{0-3}."
    return [
        *HEAD,
        matrix(layer + "self_attn.{q_proj,o_proj}", attention, 1024, 1024),
        matrix(layer + "self_attn.{k_proj,v_proj}", attention, 512, 1024),
        matrix(layer + "mlp.{gate_proj,up_proj}", mlp, 2048, 1024),
        matrix(layer + "mlp.down_proj", mlp, 1024, 2048),
        [layer + "{input_layernorm,post_attention_layernorm}.weight", "F32", [1024]],
    ]


def quantization(folder: Path, declared: Any, rows: list[list[Any]] | None, **other: Any) -> Quantization:
    config = {**CONFIG, "quantization_config": declared} if declared is not None else CONFIG
    return checkpoint(folder, config, rows, **other).quantization


def groups(bits: int, kind: str, inputs: Any = None, **more: Any) -> dict[str, Any]:
    """A quantization_config of compressed-tensors with one group."""
    form = more.pop("format", "pack-quantized")
    weights = {"num_bits": bits, "type": kind, **more}
    one = {"weights": weights, "input_activations": inputs, "targets": ["Linear"]}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": one}}


@pytest.mark.parametrize(
    ("layout", "scheme", "block", "group"),
    [
        ("nvfp4", "nvfp4", None, 16),
        ("nvfp4_w4a16", "nvfp4_w4a16", None, 16),
        ("nvfp4_ct", "nvfp4", None, 16),
        ("nvfp4_ct_w4a16", "nvfp4_w4a16", None, 16),
        ("fp8_block", "fp8_block", (128, 128), None),
        ("fp8_tensor", "fp8_tensor", None, None),
        ("fp8_channel", "fp8_channel", None, None),
        ("mxfp8", "mxfp8", None, 32),
        ("mxfp4", "mxfp4", None, 32),
        ("mxfp4_ct", "mxfp4", None, 32),
        ("int4_ct", "int4_ct", None, 32),
        ("awq", "awq_int4", None, 128),
        ("gptq", "gptq_int4", None, 128),
        ("int8", "int8_w8a8", None, None),
        ("int8_block", "int8_block", (128, 128), None),
        ("modelslim", "int8_w8a8", None, None),
        ("w4afp8", "w4afp8", None, 128),
        ("dsv4_fp8", "fp8_block", (128, 128), None),
        ("dsv4_fp4", "mxfp4", None, 32),
        ("bnb_nf4", "bnb_nf4", None, None),
    ],
)
def test_tensors_alone_tell_the_scheme(
    layout: str, scheme: str, block: tuple[int, int] | None, group: int | None, tmp_path: Path
) -> None:
    found = quantization(tmp_path / "m", None, dense(None, layout))
    assert found.scheme == scheme
    assert dict(found.parts) == {"dense": scheme, "attention": "bf16", "embedding": "bf16", "lm_head": "bf16"}
    assert (found.block, found.group, found.method, found.where) == (block, group, None, ("tensors",))
    assert found.notes == (f"no file declares a quantization, but tensors are {scheme}",)


@pytest.mark.parametrize(
    ("declared", "scheme", "method"),
    [
        (FP8, "fp8_block", "fp8"),
        ({"quant_method": "fp8", "weight_block_size": None, "activation_scheme": "static"}, "fp8_tensor", "fp8"),
        ({"quant_method": "mxfp8", "weight_block_size": [1, 32]}, "mxfp8", "mxfp8"),
        ({"quant_method": "mxfp4"}, "mxfp4", "mxfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", "modelopt_fp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8_tensor", "modelopt_fp8"),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "mxfp8", "mxfp8"),
        ({"quant_algo": "FP8", "kv_cache_scheme": "FP8"}, "fp8_tensor", "modelopt_fp8"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "w4afp8", "w4afp8"),
        ({"quant_method": "awq", "bits": 4, "modules_to_not_convert": None}, "awq_int4", "awq"),
        ({"quant_method": "gptq", "bits": 8}, "gptq_int8", "gptq"),
        ({"quant_method": "gptq", "bits": 3, "group_size": -1, "desc_act": True}, "gptq_int3", "gptq"),
        ({"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_gptq"}, "gptq_int4", "auto-round"),
        ({"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:auto_awq"}, "awq_int4", "auto-round"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "bnb_nf4", "bitsandbytes"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bnb_int8", "bitsandbytes"),
        ({"quant_method": "w4afp8"}, "w4afp8", "w4afp8"),
        ({"quant_method": "blockwise_int8", "weight_block_size": [128, 128]}, "int8_block", "blockwise_int8"),
        ({"quant_method": "w8a8_int8"}, "int8_w8a8", "w8a8_int8"),
        ({"group_size": 64, "bits": 4, "mode": "affine"}, "mlx_int4", "mlx"),
        (groups(4, "int", group_size=32, strategy="group"), "int4_ct", "compressed-tensors"),
        (groups(8, "int", {"num_bits": 8}, format="int-quantized"), "int8_w8a8", "compressed-tensors"),
        (groups(8, "float", {"num_bits": 8}, format="float-quantized", strategy="channel"), "fp8_channel", "compressed-tensors"),
        (groups(8, "float", {"num_bits": 8}, format="float-quantized", strategy="block"), "fp8_block", "compressed-tensors"),
        (groups(8, "float", {"num_bits": 8}, format="float-quantized", strategy="tensor"), "fp8_tensor", "compressed-tensors"),
        (groups(4, "float", {"num_bits": 4}, format="nvfp4-pack-quantized", group_size=16), "nvfp4", "compressed-tensors"),
        (groups(4, "float", format="nvfp4-pack-quantized", group_size=16), "nvfp4_w4a16", "compressed-tensors"),
        (groups(4, "float", format="mxfp4-pack-quantized", group_size=32), "mxfp4", "compressed-tensors"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, "mxfp4", "quark"),
        ({"quant_method": "quark", "global_quant_config": {"weight": [{"dtype": "fp8_e4m3"}]}}, "fp8_tensor", "quark"),
        ({"quant_method": "a_method_of_tomorrow"}, "unknown", "a_method_of_tomorrow"),
        ({}, "bf16", None),
    ],
    ids=repr,
)  # fmt: skip
def test_declarations_tell_scheme_and_method(
    declared: Any, scheme: str, method: str | None, tmp_path: Path
) -> None:
    found = quantization(tmp_path / "m", declared, None)
    assert (found.scheme, found.method) == (scheme, method)


def test_a_declaration_may_stand_elsewhere(tmp_path: Path) -> None:
    alone = quantization(
        tmp_path / "a", None, None, hf_quant_config={"quantization": {"quant_algo": "NVFP4"}}
    )
    assert (alone.scheme, alone.where) == ("nvfp4", ("hf_quant_config.json",))
    nested = {"text_config": {**CONFIG, "quantization_config": FP8}}
    found = checkpoint(tmp_path / "b", nested, None).quantization
    assert (found.scheme, found.where) == ("fp8_block", ("config.json:text_config.quantization_config",))
    old = quantization(tmp_path / "c", None, None, quantize_config={"bits": 4, "group_size": 128})
    assert (old.scheme, old.method) == ("gptq_int4", "gptq")
    slim = quantization(
        tmp_path / "d", None, None, quant_model_description={"model_quant_type": "W8A8_DYNAMIC"}
    )
    assert (slim.scheme, slim.method) == ("int8_w8a8", "modelslim")
    compression = checkpoint(
        tmp_path / "e", {**CONFIG, "compression_config": {"quant_method": "compressed-tensors", "format": "int-quantized"}}, None
    ).quantization  # fmt: skip
    assert (compression.scheme, compression.method) == ("int8_w8a8", "compressed-tensors")


@pytest.mark.parametrize(
    "where",
    [
        {"declared": {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": {"type": "float", "num_bits": 8}}},
        {"declared": {"quant_algo": "FP8", "kv_cache_scheme": "FP8"}},
        {"declared": {"quant_method": "modelopt", "quant_algo": "FP8"}, "other": {"quantization": {"kv_cache_quant_algo": "FP8"}}},
        {"other": {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}},
    ],
)  # fmt: skip
def test_the_kv_cache_is_declared_in_odd_places(where: dict[str, Any], tmp_path: Path) -> None:
    other = {"hf_quant_config": where["other"]} if "other" in where else {}
    assert quantization(tmp_path / "m", where.get("declared"), None, **other).parts["kv_cache"] == "fp8"


def test_scales_of_keys_and_values_are_a_quantized_cache(tmp_path: Path) -> None:
    rows = [*dense(None, None), ["model.layers.{0-3}.self_attn.{k_proj.k_scale,v_proj.v_scale}", "F32", []]]
    assert quantization(tmp_path / "m", None, rows).parts["kv_cache"] == "fp8"


def test_tensors_outweigh_a_declaration(tmp_path: Path) -> None:
    """Called FP8, is AWQ; the method stays SGLang's reading, the scheme is what is there."""
    found = quantization(tmp_path / "m", FP8, dense("awq", "awq"))
    assert (found.scheme, found.method) == ("awq_int4", "fp8")
    assert found.notes == ("the files declare fp8_block, the tensors are awq_int4",)


def test_a_declaration_that_nothing_bears_out_still_decides(tmp_path: Path) -> None:
    found = quantization(tmp_path / "m", FP8, dense(None, None))
    assert (found.scheme, found.parts["dense"]) == ("fp8_block", "bf16")
    assert found.notes == ("the files declare fp8_block, but no tensor is quantized",)


def test_parts_differ(tmp_path: Path) -> None:
    found = quantization(tmp_path / "m", FP8, dense("fp8_block", "dsv4_fp4"))
    assert (found.scheme, found.parts["attention"], found.parts["dense"]) == (
        "fp8_block",
        "fp8_block",
        "mxfp4",
    )


def test_four_bit_experts_under_the_name_of_fp8(tmp_path: Path) -> None:
    declared = {
        **FP8, "quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4", "group_size": 16,
        "quantized_layers": {"layers.0.ffn.experts": {"quant_algo": "NVFP4"}}, "ignore": ["*.attn.*", "mtp.*"],
    }  # fmt: skip
    found = checkpoint(tmp_path / "m", {**MOE, "quantization_config": declared}, None).quantization
    assert (found.scheme, found.method) == ("mixed", "fp8")
    assert (found.parts["experts"], found.parts["attention"], found.parts["dense"]) == (
        "nvfp4",
        "fp8_block",
        "fp8_block",
    )
    assert found.notes == ("`quant_method` says fp8, `moe_quant_algo` says nvfp4 for the experts",)
    for key in ("routed_experts_quant_method", "store_dtype"):
        declared = {**FP8, key: "mxfp4"}
        found = checkpoint(tmp_path / key, {**MOE, "quantization_config": declared}, None).quantization
        assert (found.scheme, found.parts["experts"]) == ("fp8_block", "mxfp4")


def test_a_mixture_is_listed_layer_by_layer(tmp_path: Path) -> None:
    layers = {f"model.layers.{n}.self_attn.q_proj": {"quant_algo": "FP8"} for n in range(4)}
    layers |= {f"model.layers.{n}.mlp.up_proj": {"quant_algo": "W4A16_NVFP4"} for n in range(4)}
    declared = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    found = quantization(tmp_path / "m", declared, None)
    assert (found.scheme, found.method) == ("mixed", "modelopt_mixed")
    assert (found.parts["attention"], found.parts["dense"]) == ("fp8_tensor", "nvfp4_w4a16")


MANY = {"experts": 4, "attention": 4, "dense": 2, "linear_attention": 0}


@pytest.mark.parametrize(
    ("entries", "parts"),
    [
        (["lm_head"], {"lm_head"}),
        (["model.layers.*.self_attn", "lm_head"], {"attention", "lm_head"}),
        (["re:.*self_attn.*"], {"attention"}),
        (["re:.*mlp\\.(gate|up|gate_up|down)_proj.*"], {"dense"}),
        (["*.attn.*", "*.ffn.shared_experts.*", "head"], {"attention", "shared_experts", "lm_head"}),
        ([f"model.layers.{n}.self_attn*" for n in range(4)], {"attention"}),
        ([f"model.layers.{n}.self_attn.{p}_proj" for n in range(4) for p in "qkvo"], {"attention"}),
        (["model.layers.0.self_attn*"], set()),
        ([f"model.layers.{n}.self_attn.o_proj" for n in range(4)], set()),
        ([f"model.layers.{n}.self_attn.{p}_norm" for n in range(4) for p in "qk"], set()),
        ([f"model.layers.{n}.mlp.gate" for n in range(4)], set()),
        ([f"backbone.layers.{n}.mixer.conv1d" for n in range(4)], set()),
        (["model.layers.0*", "model.layers.1.*", "model.layers.4*"], {"dense", "mtp"}),
        (["mtp.layers.0*"], {"mtp"}),
        (["mtp*"], {"mtp"}),
        (["model.visual*"], {"vision"}),
        (["vision_tower", "multi_modal_projector"], {"vision"}),
        (["", "re:", "*"], set()),
    ],
    ids=repr,
)
def test_ignore_lists_spare_parts(entries: list[str], parts: set[str]) -> None:
    assert spared_parts(entries, MANY, 4) - {"other"} == parts


def test_an_ignore_list_that_forgets_the_heads(tmp_path: Path) -> None:
    heads = [
        ["mtp.fc.weight", "BF16", [1024, 2048]],
        ["mtp.layers.0.mlp.up_proj.weight", "BF16", [2048, 1024]],
    ]
    declared = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
    found = quantization(tmp_path / "m", declared, [*dense("nvfp4", "nvfp4"), *heads])
    assert found.parts["mtp"] == "bf16"
    assert found.notes == ("the ignore list does not spare the heads (mtp), but they are bf16",)


@pytest.mark.parametrize("declared", ["fp8", 5, ["fp8"]])
def test_a_declaration_of_the_wrong_type_is_an_error(declared: Any, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="quantization_config"):
        quantization(tmp_path / "m", declared, None)


@pytest.mark.parametrize(
    "declared",
    [
        {"quant_method": 5, "bits": "x"},
        {"quant_method": "fp8", "weight_block_size": "128"},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": [1]},
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": None}, "ignore": [1, None]},
        {"quant_method": "compressed-tensors", "config_groups": [1]},
        {"quant_method": "quark", "global_quant_config": 4, "layer_quant_config": {"a": 1}},
    ],
    ids=repr,
)
def test_odd_values_inside_are_passed_over(declared: Any, tmp_path: Path) -> None:
    assert quantization(tmp_path / "m", declared, None).scheme


@pytest.mark.parametrize(
    ("method", "algo", "sglang", "architecture", "called"),
    [
        ("modelopt_mixed", None, "0.5.23", "Qwen3_5ForConditionalGeneration", "modelopt_mixed"),
        ("modelopt_mixed", None, "0.5.14", "Qwen3_5ForConditionalGeneration", "w4afp8"),
        ("modelopt_mixed", None, "0.5.14", "NemotronHForCausalLM", "modelopt_mixed"),
        ("modelopt_mixed", None, "0.5.9", "NemotronHForCausalLM", "w4afp8"),
        ("modelopt_mixed", None, "0.5.10.post1", "NemotronHForCausalLM", "modelopt_mixed"),
        ("mxfp8", "MXFP8", "0.5.17", "A", "modelopt_fp8"),
        ("mxfp8", None, "0.5.17", "A", "mxfp8"),
        ("gptq", None, "0.5.21", "A", "gptq_marlin"),
        ("gptq", None, "0.5.17", "A", "gptq"),
        (None, None, "0.5.23", "A", None),
    ],
)
def test_versions_call_methods_differently(
    method: str | None, algo: str | None, sglang: str, architecture: str, called: str | None
) -> None:
    found = method_in(Quantization("x", method, algo=algo), sglang, [architecture])
    assert found == called


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.layers.N.mlp.experts.N.up_proj.weight", "experts"),
        ("model.layers.N.block_sparse_moe.experts.N.w1.weight_scale_inv", "experts"),
        ("model.layers.N.mlp.experts.gate_up_proj_blocks", "experts"),
        ("model.layers.N.moe.gate_proj.weight", "experts"),
        ("model.layers.N.mlp.switch_mlp.up_proj.weight", "experts"),
        ("model.layers.N.mlp.shared_experts.up_proj.weight", "shared_experts"),
        ("model.layers.N.share_expert.up_proj.weight", "shared_experts"),
        ("model.layers.N.mlp.gate.weight", "router"),
        ("model.layers.N.mlp.shared_expert_gate.weight", "router"),
        ("model.layers.N.mlp.router.weight", "router"),
        ("model.layers.N.mlp.gate_proj.weight", "dense"),
        ("layers.N.ffn.w1.weight", "dense"),
        ("backbone.layers.N.mixer.up_proj.weight", "dense"),
        ("model.layers.N.self_attn.q_proj.qweight", "attention"),
        ("backbone.layers.N.mixer.k_proj.weight", "attention"),
        ("layers.N.attn.wq_a.scale", "attention"),
        ("model.layers.N.linear_attn.in_proj_qkv.weight", "linear_attention"),
        ("backbone.layers.N.mixer.in_proj.weight", "linear_attention"),
        ("model.layers.N.self_attn.indexer.wq_b.weight", "indexer"),
        ("lm_head.weight", "lm_head"),
        ("language_model.lm_head.weight_scale", "lm_head"),
        ("head.weight", "lm_head"),
        ("model.embed_tokens.weight", "embedding"),
        ("model.visual.blocks.N.attn.qkv.weight", "vision"),
        ("vision_tower.encoder.layers.N.mlp.fc1.weight", "vision"),
        ("visual.merger.mlp.N.weight", "vision"),
        ("speech_embeddings.N.weight", "vision"),
        ("model.norm.weight", "other"),
    ],
)
def test_names_tell_the_part(name: str, part: str) -> None:
    assert part_of(name) == part


@pytest.mark.parametrize(
    ("name", "module", "suffix"),
    [
        ("a.q_proj.weight", "a.q_proj", "weight"),
        ("a.q_proj.weight_scale_2", "a.q_proj", "weight_scale_2"),
        ("a.experts.gate_up_proj_blocks", "a.experts.gate_up_proj", "blocks"),
        ("a.experts.gate_up_proj", "a.experts.gate_up_proj", "weight"),
        ("a.q_proj.weight.quant_state.bitsandbytes__nf4", "a.q_proj", "quant_state.nf4"),
        ("a.q_proj.weight.absmax", "a.q_proj", "weight.absmax"),
        ("a.A_log", "a.A_log", "weight"),
    ],
)
def test_the_last_word_is_the_kind_of_tensor(name: str, module: str, suffix: str) -> None:
    assert split_name(name) == (module, suffix)


def test_rows_are_sound() -> None:
    for table in ("part", "stored", "rename"):
        ids = [row["id"] for row in scheme_rows(table)]
        assert len(ids) == len(set(ids))
        assert all(row["reason"] and not row["reason"].endswith(".") for row in scheme_rows(table))
    assert all(one["ref"] for row in scheme_rows("stored") for one in row["evidence"])


def test_bytes_and_parameters(tmp_path: Path) -> None:
    found = checkpoint(tmp_path / "m", CONFIG, dense("nvfp4", None))
    attention = 4 * (2 * 1024 * 1024 + 2 * 512 * 1024)
    mlp = 4 * 3 * 2048 * 1024
    assert found.parameters == attention + mlp + 2 * 256 * 1024 + 1024 + 4 * 2 * 1024
    assert found.weight_bytes_by_part["dense"] == 2 * mlp
    assert found.weight_bytes_by_part["attention"] == attention // 2 + attention // 16 + 4 * 4 * 8
    assert sum(found.weight_bytes_by_part.values()) == found.weight_bytes


@pytest.mark.parametrize(
    ("declared", "layout", "scheme"),
    [
        ({"quant_method": "mxfp8", "weight_block_size": [1, 32]}, "mxfp8", "mxfp8"),
        (FP8, "fp8_block", "fp8_block"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8_tensor", "fp8_tensor"),
        ({"quant_method": "gptq", "bits": 8}, "gptq", "gptq_int8"),
        ({"quant_method": "awq", "bits": 4}, "awq", "awq_int4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", "nvfp4"),
        (FP8, "awq", "awq_int4"),
    ],
)
def test_an_index_alone_leaves_the_rest_to_the_declaration(
    declared: Any, layout: str, scheme: str, tmp_path: Path
) -> None:
    config = {**CONFIG, "quantization_config": declared}
    folder = write(tmp_path / "m", config, None)
    rows = dense(None, layout)
    write_index(folder, dict.fromkeys((tensor[0] for _, tensor in tensors(rows)), "model-1.safetensors"))
    found = inspect(read(folder)).quantization
    assert (found.scheme, found.parts["dense"], found.parts["attention"]) == (scheme, scheme, "bf16")


def test_bits_are_those_of_the_words(tmp_path: Path) -> None:
    rows = [
        *HEAD,
        ["model.layers.{0-3}.mlp.up_proj.qweight", "I32", [256, 2048]],
        ["model.layers.{0-3}.mlp.up_proj.qzeros", "I32", [8, 512]],
        ["model.layers.{0-3}.mlp.up_proj.scales", "F16", [8, 2048]],
        ["model.layers.{0-3}.mlp.up_proj.g_idx", "I32", [1024]],
    ]
    found = quantization(tmp_path / "m", {"quant_method": "gptq", "bits": 8, "group_size": 128}, rows)
    assert (found.scheme, found.group, found.notes) == ("gptq_int8", 128, ())
