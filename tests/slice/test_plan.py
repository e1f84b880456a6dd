"""Plans of public models, as headers: how deep, from which files, what is renamed, and what cannot be cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autolaunch.checkpoint.source import RawCheckpoint
from autolaunch.slice import files as slice_files
from autolaunch.slice.complete import lacking
from autolaunch.slice.plan import SlicePlan
from tests.checkpoint import compact
from tests.checkpoint.make_checkpoint import write_checkpoint, write_header, write_index
from tests.slice.models import dense, layer_of, plan_of, public_model, refusal_of, write_sharded

GIB = 1024**3


@pytest.mark.parametrize(
    ("model", "layers", "period", "stem"),
    [
        ("meta-llama/Meta-Llama-3.1-8B", 4, 1, "model.layers.3."),
        ("mistralai/Mistral-Nemo-Instruct-2407", 4, 1, "model.layers.3."),
        ("Qwen/Qwen2.5-7B", 4, 1, "model.layers.3."),
        ("Qwen/Qwen3-8B-FP8", 4, 1, "model.layers.3."),
        ("Qwen/Qwen3-30B-A3B-FP8", 4, 1, "model.layers.3."),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 8, 4, "model.layers.7."),
        ("Qwen/Qwen3.5-397B-A17B", 8, 4, "model.language_model.layers.7."),
        ("nvidia/Qwen3.5-397B-A17B-NVFP4", 8, 4, "model.language_model.layers.7."),
        ("deepseek-ai/DeepSeek-V3", 5, 1, "model.layers.4."),
        ("moonshotai/Kimi-K2-Instruct", 4, 1, "model.layers.3."),
        ("moonshotai/Kimi-K2.5", 4, 1, "language_model.model.layers.3."),
        ("nvidia/Kimi-K2.5-NVFP4", 4, 1, "language_model.model.layers.3."),
        ("zai-org/GLM-4.5-FP8", 5, 1, "model.layers.4."),
        ("zai-org/GLM-4.7-Flash", 4, 1, "model.layers.3."),
        ("zai-org/GLM-5.2-FP8", 5, 1, "model.layers.4."),
        ("openai/gpt-oss-120b", 4, 2, "model.layers.3."),
        ("XiaomiMiMo/MiMo-7B-Base", 4, 1, "model.layers.3."),
        ("XiaomiMiMo/MiMo-V2.5", 13, 6, "model.layers.12."),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", 14, 7, "backbone.layers.13."),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", 17, 0, "backbone.layers.16."),
        ("nvidia/Nemotron-H-56B-Base-8K", 22, 11, "layers.21."),
    ],
)  # fmt: skip
def test_a_public_model(model: str, layers: int, period: int, stem: str, tmp_path: Path) -> None:
    raw = public_model(model, tmp_path / "model")
    plan = plan_of(raw)
    assert (plan.kind, plan.layers, plan.period) == ("view", layers, period), plan.reason
    assert plan.kept == tuple(range(layers))
    assert lacking(plan) == ()
    assert any(stem in name for name in plan.tensors)
    assert max(layer_of(name) for name in plan.tensors) == layers - 1
    assert raw.tensors is not None
    names = set(raw.tensors.names())
    outside = {name for name in names if layer_of(name) < 0 and "mtp" not in name}
    assert outside <= plan.tensors.keys() <= names
    assert not any("mtp" in name for name in plan.tensors)
    text = plan.config.get("text_config", plan.config)
    assert text["num_hidden_layers"] == layers
    assert all(
        len(text[key]) == layers
        for key in ("layer_types", "hybrid_override_pattern", "hybrid_layer_pattern", "mlp_layer_types")
        if key in text
    )
    assert 0 < plan.layer_bytes < plan.weight_bytes < (raw.weight_bytes or 0)
    assert plan.reason.startswith(f"the first {layers} of {plan.total_layers} layers")


def test_what_a_list_says_of_layers_is_cut(tmp_path: Path) -> None:
    mimo = plan_of(public_model("XiaomiMiMo/MiMo-V2.5", tmp_path / "mimo"))
    assert mimo.config["hybrid_layer_pattern"] == [0, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1]
    assert mimo.config["moe_layer_freq"] == [0] + [1] * 12
    assert "what sees or hears is kept whole" in mimo.reason
    assert any(name.startswith("visual.blocks.27.") for name in mimo.tensors)
    nano = plan_of(public_model("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", tmp_path / "nano"))
    assert nano.config["hybrid_override_pattern"] == "MEMEM*EMEMEM*E"
    glm = plan_of(public_model("zai-org/GLM-5.2-FP8", tmp_path / "glm"))
    assert glm.config["mlp_layer_types"] == ["dense"] * 3 + ["sparse"] * 2


@pytest.mark.parametrize(
    ("model", "prefix"),
    [
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "mtp."),
        ("nvidia/Qwen3.5-397B-A17B-NVFP4", "mtp."),
        ("XiaomiMiMo/MiMo-7B-Base", "model.mtp_layers.0."),
        ("XiaomiMiMo/MiMo-V2.5", "model.mtp.layers.0."),
        ("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "mtp."),
    ],
)
def test_heads_with_a_name_of_their_own_keep_it(model: str, prefix: str, tmp_path: Path) -> None:
    raw = public_model(model, tmp_path / "model")
    plan = plan_of(raw, mtp=True)
    assert (plan.kind, plan.mtp, plan.renamed) == ("view", True, {})
    assert raw.tensors is not None
    assert sum(name.startswith(prefix) for name in plan.tensors) == sum(
        name.startswith(prefix) for name in raw.tensors.names()
    )


@pytest.mark.parametrize(
    ("model", "layers", "total"),
    [
        ("deepseek-ai/DeepSeek-V3", 5, 61),
        ("zai-org/GLM-4.5-FP8", 5, 92),
        ("zai-org/GLM-4.7-Flash", 4, 47),
        ("zai-org/GLM-5.2-FP8", 5, 78),
    ],
)
def test_heads_behind_the_last_layer_are_renumbered(
    model: str, layers: int, total: int, tmp_path: Path
) -> None:
    raw = public_model(model, tmp_path / "model")
    plan = plan_of(raw, mtp=True)
    assert plan.kind == "copied"
    assert plan.mtp
    assert all(new.startswith(f"model.layers.{layers}.") for new in plan.renamed)
    assert all(old.startswith(f"model.layers.{total}.") for old in plan.renamed.values())
    assert f"model.layers.{layers}.eh_proj.weight" in plan.tensors
    assert plan.origin(f"model.layers.{layers}.eh_proj.weight") == f"model.layers.{total}.eh_proj.weight"
    unread = {"embed_tokens", "shared_head.head"}
    assert not any(word in name for word in unread for name in plan.renamed)
    # One file a layer: that of the heads is copied, all others are linked.
    assert plan.copied == (plan.tensors[f"model.layers.{layers}.eh_proj.weight"],)
    assert lacking(plan) == ()
    quantization = plan.config.get("quantization_config", {})
    named = [*quantization.get("modules_to_not_convert", ()), *quantization.get("ignore", ())]
    assert not any(f"layers.{total}." in name for name in named)


def test_heads_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    plan = plan_of(public_model("Qwen/Qwen3-8B-FP8", tmp_path / "model"), mtp=True)
    assert not plan.mtp
    assert "without heads, since none of" in plan.reason


def test_a_file_with_deeper_layers_is_linked_where_the_loader_skips_them(tmp_path: Path) -> None:
    config, tensors = dense()
    raw = write_sharded(tmp_path / "model", tensors, config, shards=2)
    plan = plan_of(raw, layers=2)
    assert (plan.kind, plan.copied) == ("view", ())
    old = plan_of(raw, layers=2, sglang="0.4.9")
    assert (old.kind, len(old.copied)) == ("copied", 1)
    assert old.copied_bytes == old.weight_bytes
    assert old.tensors == plan.tensors
    assert refusal_of(raw, layers=2, sglang="0.4.9", copy_limit_bytes=10).reason.startswith(
        "12.2 KiB would have"
    )


def test_a_loader_that_fails_at_deeper_layers_gets_copies(tmp_path: Path) -> None:
    whole = public_model("openai/gpt-oss-120b", tmp_path / "one", shards=3)
    plan = plan_of(whole)
    assert plan.kind == "copied"
    assert plan.copied == ("model-00001-of-00003.safetensors",)
    assert plan_of(public_model("openai/gpt-oss-120b", tmp_path / "many")).kind == "view"


def test_heads_with_deeper_layers_beside_them_are_copied(tmp_path: Path) -> None:
    """A draft that looks for `model.layers.5` also takes `model.layers.5.*` of the whole, and `50.*`."""
    raw = public_model("deepseek-ai/DeepSeek-V3", tmp_path / "model", shards=10)
    assert plan_of(raw).kind == "view"
    plan = plan_of(raw, mtp=True)
    assert plan.copied == tuple(
        sorted(
            {
                plan.tensors["model.layers.0.input_layernorm.weight"],
                plan.tensors["model.layers.5.eh_proj.weight"],
            }
        )
    )


def test_a_file_that_is_mostly_useless_is_copied_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, tensors = dense(layers=40)
    raw = write_sharded(tmp_path / "model", tensors, config, shards=1)
    assert plan_of(raw).kind == "view"
    monkeypatch.setattr(slice_files, "MUCH_BYTES", 1000)
    plan = plan_of(raw)
    assert (plan.kind, plan.copied) == ("copied", ("model-00001-of-00001.safetensors",))
    assert plan_of(raw, copy_limit_bytes=100).kind == "view", "the loader would manage"


def test_a_single_file_without_an_index(tmp_path: Path) -> None:
    config, tensors = dense()
    write_checkpoint(tmp_path / "model", tensors, config=config)
    plan = plan_of(compact.read(tmp_path / "model"))
    assert plan.kind == "view"
    assert set(plan.tensors.values()) == {"model.safetensors"}


def test_heads_in_a_file_that_the_index_forgot(tmp_path: Path) -> None:
    raw = public_model("zai-org/GLM-4.7-Flash", tmp_path / "model")
    assert raw.folder is not None
    assert raw.tensors is not None
    last = next(
        info.file
        for name in raw.tensors.names()
        if name.startswith("model.layers.47.") and (info := raw.tensors.get(name))
    )
    named = {
        name: info.file
        for name in raw.tensors.names()
        if (info := raw.tensors.get(name)) and info.file != last
    }
    (raw.folder / last).rename(raw.folder / "mtp.safetensors")
    write_index(raw.folder, named)
    plan = plan_of(compact.read(raw.folder), mtp=True)
    assert plan.copied == ("mtp.safetensors",)
    assert plan.tensors["model.layers.4.eh_proj.weight"] == "mtp.safetensors"


@pytest.mark.parametrize("mtp", [False, True])
def test_weights_that_are_not_at_hand_have_to_be_made(mtp: bool, tmp_path: Path) -> None:
    at_hand = public_model("deepseek-ai/DeepSeek-V3", tmp_path / "model")
    real = plan_of(at_hand, mtp=mtp)
    plan = plan_of(replace(at_hand, folder=None, source="hub-metadata"), mtp=mtp)
    assert (plan.kind, plan.source) == ("synthetic", None)
    assert plan.tensors == real.tensors
    assert plan.weight_bytes == real.weight_bytes
    assert plan.renamed == real.renamed
    assert lacking(plan) == ()


def test_headers_without_data_are_no_weights(tmp_path: Path) -> None:
    config, tensors = dense()
    raw = write_sharded(tmp_path / "model", tensors, config)
    assert raw.folder is not None
    first = min(raw.folder.glob("*.safetensors"))
    write_header(first, [one for one in tensors if layer_of(one[0]) < 0], data=False)
    plan = plan_of(compact.read(raw.folder))
    assert (plan.kind, plan.source) == ("synthetic", raw.folder)


def test_of_a_partial_download_what_is_there_may_be_enough(tmp_path: Path) -> None:
    config, tensors = dense(layers=8)
    raw = write_sharded(tmp_path / "model", tensors, config)
    assert raw.folder is not None
    files = sorted(path.name for path in raw.folder.glob("*.safetensors"))

    def cached(*gone: str) -> RawCheckpoint:
        from autolaunch.checkpoint.folder import read_folder

        for name in gone:
            (tmp_path / "model" / name).unlink()
        found = read_folder(tmp_path / "model", path="a/b", source="hf-cache")
        assert isinstance(found, RawCheckpoint)
        return found

    assert plan_of(cached(files[-1])).kind == "view"
    assert plan_of(cached(files[1])).kind == "synthetic"


def a_dense(folder: Path, change: dict[str, Any], layers: int = 6) -> RawCheckpoint:
    """A small model with another configuration."""
    config, tensors = dense(layers)
    return write_sharded(folder, tensors, config | change)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"architectures": ["Gemma9ForCausalLM"]}, "how SGLang loads `Gemma9ForCausalLM` was not looked into, so it cannot be cut"),
        ({"architectures": []}, "how SGLang loads a model without `architectures` was not looked into, so it cannot be cut"),
        ({"no_rope_layers": [1] * 6}, "`no_rope_layers` has an entry a layer, and it is not known how to cut it"),
        ({"num_hidden_layers": 7, "layer_types": None}, "no tensor has a name that puts it into layer 6"),
        ({"num_hidden_layers": 4, "layer_types": None}, "a slice would take 4 layers, and the model has 4"),
    ],
)  # fmt: skip
def test_what_cannot_be_cut(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    assert refusal_of(a_dense(tmp_path / "model", change)).reason == reason


def test_without_tensors_there_is_no_plan(tmp_path: Path) -> None:
    raw = a_dense(tmp_path / "model", {})
    assert refusal_of(replace(raw, tensors=None)).reason == "nothing tells its tensors"


def test_an_index_that_is_wrong_is_no_plan(tmp_path: Path) -> None:
    config, tensors = dense()
    raw = write_sharded(tmp_path / "model", tensors, config, shards=2)
    assert raw.folder is not None
    names = [name for name, _, _ in tensors]
    write_index(raw.folder, dict.fromkeys(names, "model-00002-of-00002.safetensors"))
    assert "and the index says it does" in refusal_of(raw).reason
    (raw.folder / "model.safetensors.index.json").write_text("{")
    assert "not valid JSON" in refusal_of(raw).reason or refusal_of(raw).because


def test_a_plan_is_a_value(tmp_path: Path) -> None:
    raw = a_dense(tmp_path / "model", {})
    assert plan_of(raw) == plan_of(raw)
    assert isinstance(plan_of(raw), SlicePlan)
