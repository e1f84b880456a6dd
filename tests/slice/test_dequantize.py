"""A quantized folder becomes one in BF16 that holds the same matrices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autolaunch.slice.dequantized import dequantize, without_quantization
from autolaunch.slice.synthesize import synthesize
from autolaunch.slice.weights_child import Made, WeightsError
from tests.slice.safetensors_values import fp4, read_folder
from tests.slice.test_synthesize import FORMATS, FP8_BLOCK, R, all_specs, decoded, setting

CONFIG = {**FP8_BLOCK, "model_type": "x", "text_config": {"quantization_config": {}, "hidden_size": 8}}


@pytest.fixture(scope="module")
def both(sglang_python: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Made]:
    """A quantized folder, its twin in BF16, and what the child said of it."""
    home = tmp_path_factory.mktemp("dequantized")
    source = home / "quantized"
    synthesize(all_specs(), source, setting(sglang_python, home), config=CONFIG)
    (source / "config.json").write_text(json.dumps(CONFIG))
    (source / "hf_quant_config.json").write_text("{}")
    (home / "elsewhere.json").write_text('{"some": "tokenizer"}')
    (source / "tokenizer.json").symlink_to(home / "elsewhere.json")
    made = dequantize(source, home / "bf16", setting(sglang_python, home))
    return source, home / "bf16", made


def same(got: list[float], wanted: list[float]) -> bool:
    """Whether `got` is `wanted` in BF16."""
    return len(got) == len(wanted) and all(
        abs(one - other) <= abs(other) * 2**-8 + 1e-9 for one, other in zip(got, wanted, strict=True)
    )


@pytest.mark.sglang
@pytest.mark.parametrize("layout", FORMATS)
def test_every_format_is_read_back(both: tuple[Path, Path, Made], layout: str) -> None:
    source, folder, _ = both
    module = f"model.layers.0.{layout}"
    got = read_folder(folder)[f"{module}.weight"]
    wanted = [one for row in decoded(read_folder(source), module, layout) for one in row]
    assert (got.dtype, got.shape) == ("BF16", (R, 256))
    assert same(got.values, wanted)


@pytest.mark.sglang
def test_blocks_of_gpt_oss_become_what_its_loader_wants(both: tuple[Path, Path, Made]) -> None:
    source, folder, _ = both
    tensors, name = read_folder(source), "model.layers.0.mlp.experts.gate_up_proj"
    codes, scales = tensors[f"{name}_blocks"].data, tensors[f"{name}_scales"].values
    got = read_folder(folder)[name]
    assert got.shape == (3, 256, R)
    values = got.values
    for expert, row, column in ((0, 0, 0), (0, 5, 33), (1, 190, 255), (2, 100, 128)):
        at = (expert * R + row) * 256 + column
        wanted = fp4(codes[at // 2] >> 4 * (at % 2) & 15) * 2.0 ** (scales[at // 32] - 127)
        assert values[(expert * 256 + column) * R + row] == pytest.approx(wanted)


@pytest.mark.sglang
def test_what_is_not_quantized_is_copied(both: tuple[Path, Path, Made]) -> None:
    source, folder, made = both
    before, after = read_folder(source), read_folder(folder)
    for name in ("model.embed_tokens.weight", "lm_head.weight", "model.layers.0.linear_attn.A_log"):
        assert after[name] == before[name]
    assert not [
        name for name in after if "scale" in name or name.endswith(("qzeros", "g_idx", "weight_shape"))
    ]
    experts = {f"model.layers.1.mlp.experts.{n}.up_proj.weight" for n in range(6)}
    assert experts <= after.keys()
    assert made.tensors == len(after)
    assert {"plain", "F8_E4M3 128x128", "nvfp4 group 16", "mxfp4 group 32"} <= set(made.formats)


@pytest.mark.sglang
def test_small_files_are_linked_and_nothing_says_quantized(both: tuple[Path, Path, Made]) -> None:
    source, folder, _ = both
    config = json.loads((folder / "config.json").read_text())
    assert config == {"model_type": "x", "text_config": {"hidden_size": 8}}
    assert not (folder / "hf_quant_config.json").exists()
    assert (folder / "tokenizer.json").readlink() == source.parent / "elsewhere.json"


@pytest.mark.sglang
def test_only_what_the_index_names_is_read(
    both: tuple[Path, Path, Made], sglang_python: str, tmp_path: Path
) -> None:
    """As in a view, whose linked files hold deeper layers too."""
    source = tmp_path / "view"
    source.mkdir()
    (source / "config.json").write_text(json.dumps(CONFIG))
    (source / "a.safetensors").symlink_to(both[0] / "a.safetensors")
    names = ["lm_head.weight", *(f"model.layers.0.block.{role}" for role, _, _ in FORMATS["block"])]
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, "a.safetensors")}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    made = dequantize(source, tmp_path / "out", setting(sglang_python, tmp_path))
    assert made.tensors == 2
    assert read_folder(tmp_path / "out").keys() == {"lm_head.weight", "model.layers.0.block.weight"}


@pytest.mark.sglang
def test_a_broken_file_is_an_error(sglang_python: str, tmp_path: Path) -> None:
    source = tmp_path / "broken"
    source.mkdir()
    (source / "config.json").write_text("{}")
    (source / "a.safetensors").write_bytes(b"\x10" + bytes(7) + b'{"x": 1}        ')
    with pytest.raises(WeightsError, match="could not write the weights in BF16"):
        dequantize(source, tmp_path / "out", setting(sglang_python, tmp_path))


def test_a_folder_that_is_there_is_not_touched(tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    folder.mkdir()
    (source / "config.json").write_text("{}")
    with pytest.raises(WeightsError, match="cannot write"):
        dequantize(source, folder, setting("python", tmp_path))


def test_a_configuration_loses_its_quantization_at_every_depth() -> None:
    config = {"a": 1, "compression_config": {}, "text_config": {"b": [1], "quantization_config": {"c": 2}}}
    assert without_quantization(config) == {"a": 1, "text_config": {"b": [1]}}
