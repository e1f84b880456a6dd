"""Slices on disk: what is linked, what is copied, byte for byte, and that nothing else is touched."""

from __future__ import annotations

import errno
import json
import os
import resource
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autolaunch.checkpoint.source import RawCheckpoint
from autolaunch.slice import cut as cutting
from autolaunch.slice.cut import cut
from autolaunch.slice.problems import SliceError
from tests.checkpoint import compact
from tests.checkpoint.make_checkpoint import write_index
from tests.slice.models import (
    contents,
    dense,
    fill,
    layer_of,
    plan_of,
    public_model,
    refusal_of,
    write_sharded,
)

OLD = "0.4.9"
"""Of a loader that skips nothing, so that files with deeper layers are copied."""


@pytest.fixture
def model(tmp_path: Path) -> RawCheckpoint:
    """A small model of two files, with data."""
    config, tensors = dense()
    raw = write_sharded(tmp_path / "model", tensors, config, shards=2)
    fill(tmp_path / "model")
    (tmp_path / "model" / "tokenizer_config.json").write_text("{}")
    (tmp_path / "model" / "modeling_x.py").write_text("")
    (tmp_path / "model" / "chat_template.jinja").write_text("")
    (tmp_path / "model" / "pytorch_model.bin").write_text("")
    (tmp_path / "model" / "consolidated.safetensors.index.json").write_text("{}")
    (tmp_path / "model" / "original").mkdir()
    return raw


def state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """What lies in `folder`: size, time of the last change, content."""
    return {
        path.name: (path.stat().st_size, path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.iterdir()
        if path.is_file()
    }


def test_a_view_links_what_it_needs(model: RawCheckpoint, tmp_path: Path) -> None:
    before = state(tmp_path / "model")
    plan = plan_of(model, layers=2)
    found = cut(plan, tmp_path / "slice")
    assert found.folder == tmp_path / "slice"
    assert found.plan is plan
    links = {path.name for path in found.folder.iterdir() if path.is_symlink()}
    assert links == {
        "model-00001-of-00002.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "modeling_x.py",
        "chat_template.jinja",
    }
    written = {path.name for path in found.folder.iterdir() if not path.is_symlink()}
    assert written == {"config.json", "model.safetensors.index.json"}
    assert json.loads((found.folder / "config.json").read_text())["num_hidden_layers"] == 2
    assert stat.S_IMODE(found.folder.stat().st_mode) == 0o700
    assert state(tmp_path / "model") == before


def test_a_copy_holds_the_bytes_of_a_view(model: RawCheckpoint, tmp_path: Path) -> None:
    view = cut(plan_of(model, layers=2), tmp_path / "view").folder
    copied = cut(plan_of(model, layers=2, sglang=OLD), tmp_path / "copied").folder
    assert contents(copied) == contents(view)
    assert not (copied / "model-00001-of-00002.safetensors").is_symlink()
    assert json.loads((copied / "config.json").read_text()) == json.loads((view / "config.json").read_text())
    whole = contents(tmp_path / "model")
    assert contents(view) == {name: whole[name] for name in whole if layer_of(name) < 2}
    again = compact.read(copied)
    assert again.tensors is not None
    assert set(again.tensors.names()) == set(contents(view))
    assert again.notes == ()


@settings(max_examples=25, deadline=None)
@given(
    total=st.integers(2, 7),
    layers=st.integers(1, 6),
    shards=st.integers(1, 5),
    tied=st.booleans(),
    sglang=st.sampled_from([OLD, "0.5.23"]),
    seed=st.integers(0, 99),
)
def test_any_slice_is_what_the_whole_says(
    tmp_path_factory: pytest.TempPathFactory,
    total: int,
    layers: int,
    shards: int,
    tied: bool,
    sglang: str,
    seed: int,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    config, tensors = dense(total, tied=tied)
    raw = write_sharded(folder / "model", tensors, config, shards=shards)
    fill(folder / "model", seed)
    if layers >= total:
        return
    plan = plan_of(raw, layers=layers, sglang=sglang)
    found = contents(cut(plan, folder / "slice").folder)
    whole = contents(folder / "model")
    assert found == {name: whole[name] for name in whole if layer_of(name) < layers}
    assert plan.weight_bytes == sum(len(data) for _, _, data in found.values())


def test_renamed_heads_keep_their_bytes(tmp_path: Path) -> None:
    raw = tiny_deepseek(tmp_path / "model")
    plan = plan_of(raw, mtp=True)
    found, whole = contents(cut(plan, tmp_path / "slice").folder), contents(tmp_path / "model")
    assert found["model.layers.4.eh_proj.weight"] == whole["model.layers.8.eh_proj.weight"]
    assert "model.layers.4.embed_tokens.weight" not in found
    assert {plan.origin(name): value for name, value in found.items()}.items() <= whole.items()
    assert json.loads((tmp_path / "slice" / "hf_quant_config.json").read_text()) == {
        "quantization": {"exclude_modules": ["lm_head", "model.layers.4.eh_proj"]}
    }


def tiny_deepseek(folder: Path) -> RawCheckpoint:
    """Eight layers of which one is dense, and a head behind them, in two files with data."""
    config, tensors = dense(layers=8)
    config |= {
        "architectures": ["DeepseekV3ForCausalLM"],
        "num_nextn_predict_layers": 1,
        "first_k_dense_replace": 1,
    }
    del config["layer_types"]
    head = [
        ("model.layers.8.eh_proj.weight", "BF16", (32, 64)),
        ("model.layers.8.enorm.weight", "BF16", (32,)),
        ("model.layers.8.hnorm.weight", "BF16", (32,)),
        ("model.layers.8.embed_tokens.weight", "BF16", (64, 32)),
    ]
    quantization = {
        "quantization": {"exclude_modules": ["lm_head", "model.layers.5.mlp", "model.layers.8.eh_proj"]}
    }
    raw = write_sharded(
        folder, [*tensors, *head], config, shards=2, other={"hf_quant_config.json": quantization}
    )
    fill(folder)
    return raw


def test_a_synthetic_slice_has_no_index(tmp_path: Path) -> None:
    raw = replace(public_model("Qwen/Qwen3-8B-FP8", tmp_path / "model"), folder=None)
    plan = plan_of(raw)
    assert [path.name for path in cut(plan, tmp_path / "slice").folder.iterdir()] == ["config.json"]


def test_a_folder_that_is_there_is_never_filled(model: RawCheckpoint, tmp_path: Path) -> None:
    (tmp_path / "slice").symlink_to(tmp_path / "model")
    before = state(tmp_path / "model")
    with pytest.raises(SliceError, match="cannot make a slice"):
        cut(plan_of(model, layers=2), tmp_path / "slice")
    assert state(tmp_path / "model") == before
    assert (tmp_path / "slice").is_symlink()
    with pytest.raises(SliceError, match="cannot make a slice"):
        cut(plan_of(model, layers=2), tmp_path / "not" / "there")


def full(*args: Any, **kwargs: Any) -> Any:
    """A disk with no room."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def short(*args: Any, **kwargs: Any) -> Any:
    """A disk with a hundred free bytes."""
    return os.statvfs_result((1, 1, 100, 100, 100, 0, 0, 0, 0, 255))


@pytest.mark.parametrize(("name", "fake"), [("copy_tensors", full), ("_write", full)])
def test_a_full_disk_leaves_nothing(
    model: RawCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, fake: Callable[..., Any]
) -> None:
    monkeypatch.setattr(cutting, name, fake)
    with pytest.raises(SliceError, match="the disk is full") as caught:
        cut(plan_of(model, layers=2, sglang=OLD), tmp_path / "slice")
    assert caught.value.hint is not None
    assert not (tmp_path / "slice").exists()


def test_too_little_room_is_seen_before_anything_is_copied(
    model: RawCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", short)
    with pytest.raises(SliceError, match="the disk is full"):
        cut(plan_of(model, layers=2, sglang=OLD), tmp_path / "slice")
    assert not (tmp_path / "slice").exists()


def test_a_write_that_the_kernel_refuses_leaves_nothing(model: RawCheckpoint, tmp_path: Path) -> None:
    """A limit on the size of files, which ends a copy in its middle as the end of a disk does."""
    plan = plan_of(model, layers=2, sglang=OLD)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (plan.copied_bytes // 2, before[1]))
    try:
        with pytest.raises(SliceError, match="cannot make a slice"):
            cut(plan, tmp_path / "slice")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "slice").exists()


def test_an_interrupted_copy_leaves_nothing(
    model: RawCheckpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cutting, "copy_tensors", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cut(plan_of(model, layers=2, sglang=OLD), tmp_path / "slice")
    assert not (tmp_path / "slice").exists()


def test_a_source_that_changed_is_one_error(model: RawCheckpoint, tmp_path: Path) -> None:
    plan = plan_of(model, layers=2, sglang=OLD)
    (tmp_path / "model" / "model-00001-of-00002.safetensors").write_bytes(b"\0" * 64)
    with pytest.raises(SliceError):
        cut(plan, tmp_path / "slice")
    assert not (tmp_path / "slice").exists()


def test_an_index_that_names_files_elsewhere_is_refused(model: RawCheckpoint, tmp_path: Path) -> None:
    write_index(tmp_path / "model", {"model.norm.weight": "../elsewhere.safetensors"})
    refused = refusal_of(model, layers=2)
    assert "names a file outside its folder" in refused.reason


def test_a_weight_file_that_is_called_like_a_small_one_is_not_linked_in_its_place(
    model: RawCheckpoint, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    (folder / "tokenizer.json").write_bytes((folder / first).read_bytes())
    plan = plan_of(model, layers=2, sglang=OLD)
    odd = {first: "tokenizer.json", second: second}
    plan = replace(
        plan,
        tensors={name: odd[file] for name, file in plan.tensors.items()},
        copied=tuple(odd[file] for file in plan.copied),
    )
    made = cut(plan, tmp_path / "slice")
    copied = "tokenizer.json" in plan.copied
    assert (made.folder / "tokenizer.json").is_symlink() != copied
    assert (folder / "tokenizer.json").read_bytes() == (folder / first).read_bytes()
