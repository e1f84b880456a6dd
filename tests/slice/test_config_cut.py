"""config.json of a slice: what changes, and that nothing else does."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autolaunch.checkpoint.config import language_config
from autolaunch.slice.config_cut import cut_config, renumber, unknown_lists


def cut(config: dict[str, Any], layers: int, total: int, *, renumbered: bool = False) -> dict[str, Any]:
    return cut_config(language_config(config), layers, total, renumbered=renumbered)


def test_lists_and_numbers_of_layers() -> None:
    config = {
        "num_hidden_layers": 6,
        "hidden_size": 8,
        "layer_types": list("abcdef"),
        "mlp_only_layers": [0, 5],
        "moe_layer_freq": 1,
        "hybrid_override_pattern": "ME*ME*",
        "eos_token_id": [1, 2, 3],
    }
    before = dict(config)
    assert cut(config, 2, 6) == {
        **config,
        "num_hidden_layers": 2,
        "layer_types": ["a", "b"],
        "mlp_only_layers": [0],
        "hybrid_override_pattern": "ME",
    }
    assert config == before


def test_a_list_that_goes_on_with_the_heads_keeps_theirs() -> None:
    assert cut({"num_hidden_layers": 3, "hidden_size": 8, "layer_types": list("abcH")}, 1, 3)[
        "layer_types"
    ] == ["a", "H"]


def test_the_language_part_is_cut_wherever_it_stands() -> None:
    config = {
        "num_hidden_layers": 6,
        "text_config": {"num_hidden_layers": 6, "hidden_size": 8, "layer_types": list("abcdef")},
        "vision_config": {"num_hidden_layers": 6, "layer_types": list("abcdef")},
    }
    found = cut(config, 2, 6)
    assert found["text_config"] == {"num_hidden_layers": 2, "hidden_size": 8, "layer_types": ["a", "b"]}
    assert found["num_hidden_layers"] == 2
    assert found["vision_config"] == config["vision_config"]


def test_a_number_that_the_class_would_fill_in_is_written() -> None:
    assert cut({"hidden_size": 8, "model_type": "llama"}, 4, 32)["num_hidden_layers"] == 4


def test_an_unknown_list_is_seen() -> None:
    config = language_config(
        {
            "num_hidden_layers": 8,
            "hidden_size": 8,
            "no_rope_layers": [1] * 8,
            "layer_types": ["a"] * 8,
            "eos_token_id": [1, 2],
        }
    )
    assert unknown_lists(config, ("num_hidden_layers", "layer_types"), 8) == ("no_rope_layers",)
    assert unknown_lists(config, ("num_hidden_layers",), 8) == ("layer_types", "no_rope_layers")


def test_heads_get_new_numbers_in_lists_of_modules() -> None:
    quantization = {
        "quant_method": "fp8",
        "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate", "model.layers.5.mlp.gate", "model.layers.61.eh_proj", "re:.*layers\\.61\\..*"],
        "config_groups": {"group_0": {"targets": ["Linear"], "ignore": ["model.layers.61*"]}},
        "quantized_layers": {"model.layers.4.mlp": 1, "model.layers.61.mlp": 2, "model.layers.1.mlp": 3},
    }  # fmt: skip
    assert renumber(quantization, 4, 61) == {
        "quant_method": "fp8",
        "modules_to_not_convert": [
            "lm_head",
            "model.layers.0.mlp.gate",
            "model.layers.4.eh_proj",
            "re:.*layers\\.61\\..*",
        ],
        "config_groups": {"group_0": {"targets": ["Linear"], "ignore": ["model.layers.4*"]}},
        "quantized_layers": {"model.layers.4.mlp": 2, "model.layers.1.mlp": 3},
    }
    config = {"num_hidden_layers": 61, "hidden_size": 8, "quantization_config": quantization}
    assert cut(config, 4, 61)["quantization_config"] == quantization
    assert cut(config, 4, 61, renumbered=True)["quantization_config"] == renumber(quantization, 4, 61)


@given(total=st.integers(2, 40), data=st.data())
def test_a_cut_list_has_an_entry_for_each_layer(total: int, data: st.DataObject) -> None:
    layers = data.draw(st.integers(1, total - 1))
    kinds = data.draw(st.lists(st.sampled_from("abc"), min_size=total, max_size=total))
    config = {"num_hidden_layers": total, "hidden_size": 8, "layer_types": kinds}
    found = cut(config, layers, total)
    assert found == {"num_hidden_layers": layers, "hidden_size": 8, "layer_types": kinds[:layers]}
