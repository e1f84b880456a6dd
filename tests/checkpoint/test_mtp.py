"""Heads that predict several tokens: proven by names, in every form families give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autolaunch.checkpoint.checkpoint import inspect
from autolaunch.checkpoint.mtp import Mtp
from tests.checkpoint import compact
from tests.checkpoint.make_checkpoint import write_header, write_index

CONFIG = {
    "architectures": ["ExampleForCausalLM"], "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 128, "torch_dtype": "bfloat16",
}  # fmt: skip
BODY = [
    ["{model.embed_tokens,lm_head}.weight", "BF16", [128, 256]],
    ["model.layers.{0-3}.self_attn.{q_proj,o_proj}.weight", "BF16", [256, 256]],
    ["model.layers.{0-3}.mlp.{gate_proj,up_proj}.weight", "BF16", [512, 256]],
]
JOIN, MLP, NORM = [256, 512], [512, 256], [256]


def head(stem: str, join: str = "eh_proj", *norms: str) -> list[list[Any]]:
    """Rows of one head: the projection that joins token and hidden state, norms, a dense layer."""
    rows: list[list[Any]] = [
        [f"{stem}{join}.weight", "BF16", JOIN],
        [f"{stem}mlp.{{gate_proj,up_proj}}.weight", "BF16", MLP],
    ]
    return rows + [[f"{stem}{norm}.weight", "BF16", NORM] for norm in norms]


def mtp(folder: Path, rows: list[list[Any]] | None, config: dict[str, Any] | None = None) -> Mtp:
    rows = None if rows is None else [*BODY, *rows]
    return compact.checkpoint(folder, {**CONFIG, **(config or {})}, rows).mtp


@pytest.mark.parametrize(
    ("rows", "family", "prefix", "layers", "count"),
    [
        (head("mtp.", "fc") + head("mtp.layers.0."), "mtp", "mtp.", 1, 6),
        (head("language_model.mtp.layers.0.", "eh_proj", "enorm"), "mtp", "language_model.mtp.", 1, 4),
        (head("model.mtp.layers.{0-2}.", "eh_proj", "enorm", "hnorm"), "mtp", "model.mtp.", 3, 15),
        ([*head("mtp.0.", "e_proj", "enorm", "hnorm"), ["mtp.0.h_proj.weight", "BF16", JOIN]], "mtp", "mtp.", 1, 6),
        (head("model.mtp_layers.0.", "input_proj", "token_layernorm"), "mtp_layers", "model.mtp_layers.", 1, 4),
        (
            [["model.mtp_linear_proj.0.weight", "BF16", JOIN], ["model.mtp_block.0.mlp.up_proj.weight", "BF16", MLP]],
            "mtp_blocks", "model.mtp_", 1, 2,
        ),
        (head("model.layers.4.", "eh_proj", "enorm", "hnorm"), "extra_layer", "model.layers.4.", 1, 5),
        (head("model.layers.{4-6}.", "eh_proj", "enorm"), "extra_layer", "model.layers.4.", 3, 12),
        (
            head("model.language_model.layers.4.", "eh_proj", "shared_head.norm"),
            "extra_layer", "model.language_model.layers.4.", 1, 4,
        ),
        (head("model.nextn.", "eh_proj"), "nextn_module", "model.nextn.", 1, 3),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_every_form_is_found(
    rows: list[list[Any]], family: str, prefix: str, layers: int, count: int, tmp_path: Path
) -> None:
    found = mtp(tmp_path / "m", rows)
    assert (found.present, found.usable) == (True, True), found.reason
    assert (found.family, found.prefix, found.layers, found.tensors) == (family, prefix, layers, count)
    assert (found.announced, found.announced_layers) == (False, None)
    assert found.notes == ("the configuration does not announce the heads",)
    assert found.dtype == "bf16"
    assert found.experts == 0


@pytest.mark.parametrize(
    ("config", "number", "key"),
    [
        ({"num_nextn_predict_layers": 1}, 1, "num_nextn_predict_layers"),
        ({"mtp_num_hidden_layers": 1}, 1, "mtp_num_hidden_layers"),
        ({"num_mtp_modules": 3, "use_mtp": True}, 3, "num_mtp_modules"),
        ({"num_mtp_modules": 3}, 3, "num_mtp_modules"),
        ({"_num_mtp_layers": 2}, 2, "_num_mtp_layers"),
        ({"mtp_hybrid_override_pattern": "*E"}, 1, "mtp_hybrid_override_pattern"),
        ({"mtp_layers_block_type": ["attention", "moe"]}, 1, "mtp_layers_block_type"),
        ({"mtp_config": {"n_layers": 8}}, 8, "mtp_config.n_layers"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_announced_but_absent(config: dict[str, Any], number: int, key: str, tmp_path: Path) -> None:
    found = mtp(tmp_path / "m", [], config)
    assert (found.announced, found.announced_layers, found.keys[0]) == (True, number, key)
    assert (found.present, found.usable, found.tensors) == (False, False, 0)
    assert found.reason == f"`{key}` announces {number}, but none of 18 tensors belongs to a head"


@pytest.mark.parametrize(
    ("config", "number"),
    [
        ({"num_nextn_predict_layers": 0}, 0),
        ({"num_mtp_modules": 3, "use_mtp": False}, 0),
        ({"num_nextn_predict_layers": None}, None),
        ({"num_nextn_predict_layers": True}, None),
        ({}, None),
    ],
)
def test_nothing_is_announced(config: dict[str, Any], number: int | None, tmp_path: Path) -> None:
    found = mtp(tmp_path / "m", [], config)
    assert (found.announced, found.announced_layers, found.present) == (False, number, False)


def test_a_key_inside_the_text_config_counts(tmp_path: Path) -> None:
    config = {"architectures": ["X"], "text_config": {**CONFIG, "mtp_num_hidden_layers": 1}}
    found = compact.checkpoint(tmp_path / "m", config, [*BODY, *head("mtp.", "fc")]).mtp
    assert (found.announced, found.keys, found.notes) == (True, ("text_config.mtp_num_hidden_layers",), ())


def test_62_layers_are_62_layers(tmp_path: Path) -> None:
    """Layer 61 is the head of DeepSeek-V3 and an ordinary layer of MiniMax-M2.5."""
    rows = [["model.layers.{0-61}.self_attn.q_proj.weight", "BF16", [8, 8]]]
    config = {**CONFIG, "num_hidden_layers": 62, "num_mtp_modules": 3, "use_mtp": True}
    assert compact.checkpoint(tmp_path / "a", config, rows).mtp.present is False
    rows += [["model.layers.61.{eh_proj,enorm,hnorm}.weight", "BF16", [8, 8]]]
    assert compact.checkpoint(tmp_path / "b", {**config, "num_hidden_layers": 61}, rows).mtp.present is True


def test_a_layer_beyond_the_last_without_a_mark_is_one_only_if_announced(tmp_path: Path) -> None:
    rows = [["model.layers.4.self_attn.q_proj.weight", "BF16", [256, 256]]]
    assert mtp(tmp_path / "a", rows).present is False
    found = mtp(tmp_path / "b", rows, {"num_nextn_predict_layers": 1})
    assert (found.present, found.usable) == (True, False)


def test_a_mark_in_an_ordinary_layer_is_none(tmp_path: Path) -> None:
    assert mtp(tmp_path / "m", [["model.layers.2.enorm.weight", "BF16", NORM]]).present is False


def test_announced_and_held_may_differ(tmp_path: Path) -> None:
    found = mtp(tmp_path / "m", head("model.mtp.layers.{0-2}."), {"num_nextn_predict_layers": 1})
    assert found.layers == 3
    assert found.notes == ("`num_nextn_predict_layers` announces 1, the tensors hold 3",)


def test_one_head_may_be_several_blocks(tmp_path: Path) -> None:
    rows = [
        ["mtp.layers.0.{eh_proj,enorm,hnorm}.weight", "BF16", JOIN],
        ["mtp.layers.1.mixer.experts.{0-15}.up_proj.weight", "BF16", MLP],
    ]
    found = mtp(tmp_path / "m", rows, {"mtp_hybrid_override_pattern": "*E"})
    assert (found.layers, found.experts, found.notes) == (1, 16, ())


@pytest.mark.parametrize(
    ("rows", "experts"),
    [
        ([["mtp.layers.0.mlp.experts.{0-31}.{gate_proj,up_proj,down_proj}.weight", "BF16", MLP]], 32),
        ([["mtp.layers.0.mlp.experts.{gate_up_proj,down_proj}", "BF16", [24, 512, 256]]], 24),
        ([["mtp.0.ffn.experts.{0-7}.{w1,w2,w3}.weight", "BF16", MLP]], 8),
    ],
)
def test_experts_of_a_head(rows: list[list[Any]], experts: int, tmp_path: Path) -> None:
    found = mtp(tmp_path / "m", [["mtp.fc.weight", "BF16", JOIN], *rows])
    assert found.experts == experts


def test_heads_may_be_quantized_or_left_alone(tmp_path: Path) -> None:
    rows: list[list[Any]] = [
        ["mtp.fc.weight", "BF16", JOIN],
        ["mtp.layers.0.mlp.{gate_proj,up_proj}", "nvfp4", [512, 256]],
    ]
    found = mtp(tmp_path / "a", rows)
    assert found.dtype == "nvfp4"
    assert found.weight_bytes == 256 * 512 * 2 + 2 * (512 * 128 + 512 * 16 + 8)
    rows = [["mtp.fc.weight", "BF16", JOIN], ["mtp.layers.0.mlp.up_proj.weight", "BF16", MLP]]
    assert mtp(tmp_path / "b", rows).dtype == "bf16"


def test_a_file_of_their_own(tmp_path: Path) -> None:
    rows = [[*row, "model_mtp.safetensors"] for row in head("model.mtp.layers.0.")]
    found = mtp(tmp_path / "m", rows)
    assert (found.files, found.usable) == (("model_mtp.safetensors",), True)


@pytest.mark.parametrize(
    ("architecture", "file", "usable"),
    [
        ("Glm4MoeForCausalLM", "mtp.safetensors", True),
        ("Glm4MoeForCausalLM", "model_mtp.safetensors", False),
        ("Qwen3NextForCausalLM", "mtp.safetensors", False),
    ],
)
def test_a_file_the_index_does_not_name(architecture: str, file: str, usable: bool, tmp_path: Path) -> None:
    folder = compact.write(tmp_path / "m", {**CONFIG, "architectures": [architecture]}, BODY)
    names = [tensor[0] for _, tensor in compact.tensors(BODY)]
    write_index(folder, dict.fromkeys(names, "model.safetensors"))
    write_header(
        folder / file, [tensor for _, tensor in compact.tensors(head("model.layers.4.", "eh_proj", "enorm"))]
    )
    found = inspect(compact.read(folder)).mtp
    assert (found.present, found.usable, found.files) == (True, usable, (file,))
    assert usable or "which the index does not name and SGLang does not load" in found.reason


def test_dspark_heads_share_the_prefix_and_are_another_kind(tmp_path: Path) -> None:
    rows = [
        ["mtp.{0-2}.main_proj.weight", "BF16", JOIN],
        ["mtp.2.markov_head.{markov_w1,markov_w2}.weight", "BF16", MLP],
        ["mtp.2.confidence_head.weight", "BF16", MLP],
    ]
    found = mtp(tmp_path / "m", rows, {"dspark_block_size": 5, "num_nextn_predict_layers": 1})
    assert (found.present, found.family, found.layers, found.usable) == (True, "dspark", 3, False)
    assert "dspark heads, which NEXTN does not read" in found.reason


def test_a_head_without_its_projection_is_of_no_use(tmp_path: Path) -> None:
    found = mtp(
        tmp_path / "m",
        [["model.layers.4.{enorm,hnorm}.weight", "BF16", NORM]],
        {"num_nextn_predict_layers": 1},
    )
    assert (found.present, found.usable) == (True, False)
    assert "not the projection that joins token and hidden state" in found.reason


def test_without_a_list_of_tensors_nothing_is_proven(tmp_path: Path) -> None:
    found = mtp(tmp_path / "m", None, {"num_nextn_predict_layers": 1})
    assert (found.announced, found.present, found.usable, found.tensors) == (True, None, False, None)
    assert found.reason.startswith("no list of tensors could be read, and the configuration announces 1")


@pytest.mark.parametrize(("shards", "present"), [("00001-of-00043", None), ("00001-of-00001", False)])
def test_a_list_that_ends_early_proves_nothing(shards: str, present: bool | None, tmp_path: Path) -> None:
    """Layers are missing up to the last, and by their numbering shards are too."""
    config = {**CONFIG, "num_hidden_layers": 43, "num_nextn_predict_layers": 1}
    folder = compact.write(tmp_path / "m", config, BODY)
    (folder / "model.safetensors").rename(folder / f"model-{shards}.safetensors")
    found = inspect(compact.read(folder)).mtp
    assert (found.present, found.usable) == (present, False)
    assert found.reason.startswith("the list of tensors is not whole") is (present is None)


def test_an_index_alone_is_a_list(tmp_path: Path) -> None:
    folder = compact.write(tmp_path / "m", CONFIG, None)
    names = [tensor[0] for _, tensor in compact.tensors([*BODY, *head("mtp.", "fc")])]
    write_index(folder, dict.fromkeys(names, "model-00001-of-00001.safetensors"))
    found = inspect(compact.read(folder)).mtp
    assert (found.present, found.tensors, found.dtype, found.weight_bytes) == (True, 3, None, None)
