"""What `inspect` puts together: kinds of models, notes, rows of data that are sound."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoint.compact import checkpoint

LANGUAGE = {
    "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 512, "vocab_size": 128,
}  # fmt: skip


def flat(architecture: str, **more: Any) -> dict[str, Any]:
    return {"architectures": [architecture], **LANGUAGE, **more}


@pytest.mark.parametrize(
    ("config", "multimodal", "embedding", "draft"),
    [
        (flat("LlamaForCausalLM"), False, False, False),
        ({"architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": LANGUAGE}, True, False, False),
        (flat("Qwen3_5MoeForConditionalGeneration"), True, False, False),
        (flat("Qwen3_5MoeForConditionalGeneration", language_model_only=True), False, False, False),
        ({"architectures": ["AnyForCausalLM"], "llm_config": LANGUAGE}, True, False, False),
        (flat("MiMoV2ForCausalLM", vision_config={"depth": 28}), True, False, False),
        (flat("MiMoV2ForCausalLM", vision_config=None), False, False, False),
        (flat("Dots1ForCausalLM"), False, False, False),
        (flat("BertModel"), False, True, False),
        (flat("Qwen3ForSequenceClassification"), False, True, False),
        (flat("InternLM2ForRewardModel"), False, True, False),
        (flat("LlamaForCausalLMEagle3"), False, False, True),
        (flat("DSparkDraftModel"), False, False, True),
        (flat("DFlashDraftModel"), False, False, True),
        ({"hidden_size": 256}, False, False, False),
    ],
    ids=lambda value: (
        value["architectures"][0] if isinstance(value, dict) and "architectures" in value else None
    ),
)
def test_kinds_of_models(
    config: dict[str, Any], multimodal: bool, embedding: bool, draft: bool, tmp_path: Path
) -> None:
    found = checkpoint(tmp_path / "m", config, None)
    assert (found.multimodal, found.embedding, found.draft) == (multimodal, embedding, draft)


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    found = checkpoint(tmp_path / "m", {"model_type": "of_tomorrow"}, None)
    assert (found.architecture, found.model_type) == ("", "of_tomorrow")
    assert (found.num_layers, found.hidden_size, found.vocab_size, found.context_length) == (
        None,
        None,
        None,
        None,
    )
    assert (found.attention.kind, found.moe, found.dtype, found.dense_width) == ("none", None, None, None)
    assert (found.parameters, dict(found.weight_bytes_by_part)) == (None, {})
    assert found.mtp.present is None


def test_sizes_of_the_language_part(tmp_path: Path) -> None:
    config = {
        "architectures": ["X"],
        "model_type": "outer",
        "text_config": {**LANGUAGE, "model_type": "inner"},
    }
    found = checkpoint(tmp_path / "m", config, None)
    assert (found.model_type, found.num_layers, found.hidden_size, found.vocab_size) == ("inner", 4, 256, 128)
    assert found.dense_width == 512
    assert found.config["model_type"] == "inner"


def test_notes_of_all_parts_come_together(tmp_path: Path) -> None:
    config = flat(
        "X", num_experts=8, quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]}
    )
    rows = [
        ["model.layers.{0-3}.mlp.experts.{0-3}.up_proj.weight", "BF16", [512, 256]],
        ["mtp.fc.weight", "BF16", [256, 512]],
    ]
    assert checkpoint(tmp_path / "m", config, rows).notes == (
        "the files declare fp8_block, but no tensor is quantized",
        "the ignore list does not spare the heads (mtp), but they are bf16",
        "the configuration does not announce the heads",
        "`num_experts` says 8 experts, the tensors hold 4",
    )


@pytest.mark.parametrize("name", ["architectures", "mtp_tensors", "schemes"])
def test_rows_of_data_are_sound(name: str) -> None:
    data = tomllib.loads(resources.files("autolaunch").joinpath(f"data/{name}.toml").read_text("utf-8"))
    ids = [row["id"] for table in data.values() for row in table if "id" in row]
    assert len(ids) == len(set(ids))
    for table in data.values():
        for row in table:
            assert not row.get("reason", "").endswith(".")
            assert all(
                one["ref"] and one["kind"] in {"source", "docs", "issue", "measured"}
                for one in row.get("evidence", ())
            )
            for key in ("pattern", "prefix"):
                re.compile(row.get(key, ""))
            for key in ("marks", "needs"):
                assert all(re.compile(one) for one in row.get(key, ()))
