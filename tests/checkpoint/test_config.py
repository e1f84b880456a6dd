"""The language part of a configuration: where it stands, what its keys may hold."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolaunch.checkpoint.config import architectures, context_length, dtype, language_config, num_layers
from autolaunch.checkpoint.problems import CheckpointError

LANGUAGE = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": 100}


@pytest.mark.parametrize(
    "config",
    [
        LANGUAGE,
        {"text_config": LANGUAGE},
        {"llm_config": LANGUAGE, "vision_config": {"hidden_size": 1, "num_hidden_layers": 27}},
        {"language_config": LANGUAGE},
        {
            "thinker_config": {"text_config": LANGUAGE, "audio_config": None},
            "talker_config": {"hidden_size": 9},
        },
        {"thinker_config": {"hidden_size": 64, "num_hidden_layers": 3}},
        {"text_config": {}, **LANGUAGE},
        {"text_config": {"model_type": "x"}, **LANGUAGE},
        {"text_config": None, **LANGUAGE},
        {"text_config": "a name", **LANGUAGE},
    ],
    ids=lambda config: next(iter(config)),
)
def test_the_language_part_is_found_at_every_level(config: dict[str, Any]) -> None:
    part = language_config(config)
    assert part.integer("hidden_size") == 64
    assert num_layers(part) == 3


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        ({"num_layers": 28}, 28),
        ({"n_layer": 12}, 12),
        ({"num_hidden_layers": 5.0}, 5),
        ({"num_hidden_layers": None, "layers_block_type": ["mamba", "moe"] * 54}, 108),
        ({"hybrid_override_pattern": "M-M*"}, 4),
        ({}, None),
    ],
)
def test_the_number_of_layers_has_many_keys(config: dict[str, Any], layers: int | None) -> None:
    assert num_layers(language_config(config)) == layers


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float16"}, "float16"),
        ({"torch_dtype": "torch.float32"}, "float32"),
        ({"dtype": "bfloat16", "text_config": {**LANGUAGE, "torch_dtype": "float16"}}, "float16"),
        ({"torch_dtype": "bfloat16", "text_config": LANGUAGE}, "bfloat16"),
        ({"dtype": None, "torch_dtype": None}, None),
    ],
)
def test_the_data_type_has_two_keys_and_two_levels(config: dict[str, Any], wanted: str | None) -> None:
    assert dtype(language_config(config)) == wanted


@pytest.mark.parametrize(
    ("config", "length"),
    [
        ({"max_position_embeddings": 32768}, 32768),
        ({"seq_length": 8192, "max_position_embeddings": 32768}, 8192),
        ({"max_position_embeddings": 512, "rope_scaling": {"type": "dynamic", "factor": 2.0}}, 1024),
        (
            {
                "max_position_embeddings": 163840,
                "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
            },
            163840,
        ),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"max_position_embeddings": 4096, "rope_parameters": {"rope_type": "linear", "factor": 4.0}}, 16384),
        (
            {
                "max_position_embeddings": 131072,
                "rope_local_base_freq": 10000.0,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
            131072,
        ),
        ({"max_position_embeddings": math.inf}, None),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "dynamic", "factor": math.inf}}, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": None}, 4096),
        ({}, None),
    ],
)
def test_the_context_is_what_sglang_derives(config: dict[str, Any], length: int | None) -> None:
    assert context_length(language_config(config)) == length


def test_infinity_in_keys_nobody_asks_for_is_harmless() -> None:
    config = json.loads('{"time_step_limit": [0.0, Infinity], "a": NaN, "hidden_size": 8, "b": 1e+308}')
    assert language_config(config).integer("hidden_size") == 8


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"hidden_size": "big"}, "`hidden_size` is not a whole number"),
        ({"hidden_size": True}, "`hidden_size` is not a whole number"),
        ({"hidden_size": 1.5}, "`hidden_size` is not a whole number"),
        ({"hidden_size": math.inf}, "`hidden_size` is not a whole number"),
        ({"hidden_size": -1}, "`hidden_size` is not at least 0"),
        ({"hidden_size": [1, "x"]}, "`hidden_size` is not a whole number"),
        ({"hidden_size": {"a": 1}}, "`hidden_size` is not a whole number"),
        (
            {"text_config": {**LANGUAGE, "hidden_size": "x"}},
            "`text_config.hidden_size` is not a whole number",
        ),
        ({"text_config": [1]}, "`text_config` is not an object"),
    ],
)
def test_a_wrong_type_is_one_clear_error(config: dict[str, Any], said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        language_config(config).integer("hidden_size")
    assert said in caught.value.what
    assert caught.value.because


@pytest.mark.parametrize("value", [5, {"a": 1}, [1, 2], [None]])
def test_wrong_architectures_are_an_error(value: Any) -> None:
    with pytest.raises(CheckpointError, match="architectures"):
        architectures(language_config({"architectures": value, **LANGUAGE}))


def test_architectures_may_be_missing_or_inside() -> None:
    assert architectures(language_config(LANGUAGE)) == ()
    assert architectures(language_config({"architectures": [], **LANGUAGE})) == ()
    assert architectures(language_config({"text_config": {**LANGUAGE, "architectures": ["Inner"]}})) == (
        "Inner",
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from(["hidden_size", "text_config", "max_position_embeddings", "dtype"]), JSON)
)
def test_anything_is_read_or_refused(config: dict[str, Any]) -> None:
    try:
        part = language_config(config)
        part.integer("hidden_size")
        context_length(part)
        dtype(part)
    except CheckpointError as error:
        assert error.what.startswith("config.json is wrong")
