"""Headers become the list of tensors that somebody is to make."""

from __future__ import annotations

from pathlib import Path

import pytest

from autolaunch.checkpoint.folder import read_folder
from autolaunch.checkpoint.raw import RawCheckpoint
from autolaunch.slice.problems import SliceError
from autolaunch.slice.spec import TensorSpec, specs_of
from tests.checkpoint.make_checkpoint import write_checkpoint

TENSORS = [
    ("model.embed_tokens.weight", "BF16", (64, 32)),
    ("model.layers.0.mlp.up_proj.weight", "F8_E4M3", (48, 32)),
    ("model.layers.0.mlp.up_proj.weight_scale", "F32", ()),
    ("model.layers.1.mlp.up_proj.weight", "F8_E4M3", (48, 32)),
]


def read(folder: Path) -> RawCheckpoint:
    raw = read_folder(folder, path="m")
    assert isinstance(raw, RawCheckpoint)
    return raw


def test_every_tensor_with_its_file(tmp_path: Path) -> None:
    specs = specs_of(read(write_checkpoint(tmp_path, TENSORS, shards=2)))
    assert sorted((spec.name, spec.dtype, spec.shape) for spec in specs) == sorted(TENSORS)
    assert {spec.file for spec in specs} == {file.name for file in tmp_path.glob("*.safetensors")}


def test_only_what_is_wanted_under_its_new_name(tmp_path: Path) -> None:
    raw = read(write_checkpoint(tmp_path, TENSORS))
    wanted = {"model.layers.1.mlp.up_proj.weight": "model.layers.0.mlp.up_proj.weight"}
    (spec,) = specs_of(raw, wanted)
    assert spec == TensorSpec("model.layers.0.mlp.up_proj.weight", "F8_E4M3", (48, 32), "model.safetensors")


def test_a_tensor_that_is_not_there_is_named(tmp_path: Path) -> None:
    raw = read(write_checkpoint(tmp_path, TENSORS))
    with pytest.raises(SliceError, match=r"has no tensor `model\.layers\.7\.x`"):
        specs_of(raw, {"model.layers.7.x": "x", "model.embed_tokens.weight": "model.embed_tokens.weight"})


def test_without_headers_nothing_can_be_made(tmp_path: Path) -> None:
    raw = read(write_checkpoint(tmp_path, TENSORS, index=True))
    for file in tmp_path.glob("*.safetensors"):
        file.unlink()
    cached = read_folder(tmp_path, path="m", source="hf-cache")
    assert isinstance(cached, RawCheckpoint)
    with pytest.raises(SliceError, match="nothing tells dtype and shape"):
        specs_of(cached)
    assert specs_of(raw)
