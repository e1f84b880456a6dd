"""Where a model's weights lie, from names of files alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autolaunch.request.weights import model_folder, weights_are_local


def test_a_folder_with_weights(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    assert not weights_are_local("model", cwd=tmp_path, environ={})
    (tmp_path / "model" / "model.safetensors").touch()
    assert weights_are_local("model", cwd=tmp_path, environ={})
    assert weights_are_local(str(tmp_path / "model"), cwd=Path("/"), environ={})


def test_a_file_stands_for_its_folder(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").touch()
    assert model_folder("x.gguf", cwd=tmp_path, environ={}) == tmp_path


@pytest.mark.parametrize(
    ("variable", "below"),
    [
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ],
)
def test_a_snapshot_in_the_cache(variable: str, below: str, tmp_path: Path) -> None:
    snapshot = tmp_path / below / "models--org--name" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    environ = {variable: str(tmp_path)}
    assert model_folder("org/name", cwd=tmp_path, environ=environ) == snapshot
    assert not weights_are_local("org/name", cwd=tmp_path, environ=environ)
    (snapshot / "pytorch_model.bin").touch()
    assert weights_are_local("org/name", cwd=tmp_path, environ=environ)


def test_the_snapshot_of_main_goes_before_a_newer_one(tmp_path: Path) -> None:
    entry, main = tmp_path / "models--org--name", "a" * 40
    for commit in (main, "b" * 40):
        (entry / "snapshots" / commit).mkdir(parents=True)
    os.utime(entry / "snapshots" / main, (0, 0))
    environ = {"HF_HUB_CACHE": str(tmp_path)}
    assert model_folder("org/name", cwd=tmp_path, environ=environ) == entry / "snapshots" / ("b" * 40)
    (entry / "refs").mkdir()
    (entry / "refs" / "main").write_text(main)
    assert model_folder("org/name", cwd=tmp_path, environ=environ) == entry / "snapshots" / main


@pytest.mark.parametrize(
    "model", [None, "", "x" * 5000, "~nobody/model", "s3://bucket/model", "a/b/c", "../up", "or g/x"]
)
def test_what_is_not_here(model: str | None, tmp_path: Path) -> None:
    assert not weights_are_local(model, cwd=tmp_path, environ={"HF_HOME": "~nobody", "HOME": str(tmp_path)})
