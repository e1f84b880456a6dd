"""One expert for all: the same as reading every tensor, and not done where experts differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from autolaunch.checkpoint import alike
from autolaunch.checkpoint import folder as folder_module
from autolaunch.checkpoint.folder import read_folder
from autolaunch.checkpoint.headers import BITS
from autolaunch.checkpoint.problems import CheckpointError
from autolaunch.checkpoint.raw import RawCheckpoint
from autolaunch.checkpoint.tensors import Tensors
from tests.checkpoint.make_checkpoint import Tensor, nvfp4_moe, write_checkpoint, write_header

MODEL: list[Tensor] = list(nvfp4_moe(layers=8, experts=6))


def raw(folder: Path) -> RawCheckpoint:
    """The checkpoint in `folder`."""
    found = read_folder(folder, path="the model")
    assert isinstance(found, RawCheckpoint)
    return found


def facts(tensors: Tensors | None) -> set[tuple[object, ...]]:
    """All that groups say, save where the experts lie that were not looked into."""
    assert tensors is not None
    return {
        (
            one.pattern,
            one.layer,
            one.count,
            one.dtype,
            one.shape,
            one.bytes,
            one.numbers(0),
            one.numbers(1),
            one.numbers(2),
        )
        for one in tensors.groups
    }


def is_repeated(tensors: Tensors | None) -> bool:
    """Whether some experts were not looked into."""
    assert tensors is not None
    return any(part.repeats for group in tensors.groups for part in group.parts)


@pytest.mark.parametrize("shards", [1, 3, 50])
@pytest.mark.parametrize("files", ["all", "without data", "index alone"])
def test_it_is_the_same(shards: int, files: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path, MODEL, shards=shards, index=True)
    for path in tmp_path.glob("*.safetensors"):
        if files == "index alone":
            path.unlink()
        elif files == "without data":
            part = [(name, *fields) for name, *fields in MODEL if raw_names(path, name)]
            write_header(path, part, data=False)  # type: ignore[arg-type]
    one_by_one = raw(tmp_path)
    assert not is_repeated(one_by_one.tensors)
    monkeypatch.setattr(alike, "LARGE", 0)
    monkeypatch.setattr(alike, "LARGE_INDEX", 0)
    quick = raw(tmp_path)
    assert is_repeated(quick.tensors)
    assert facts(quick.tensors) == facts(one_by_one.tensors)
    assert quick.tensors is not None
    assert sorted(quick.tensors.names()) == sorted(name for name, _, _ in MODEL)
    assert (quick.weight_bytes, quick.weight_bytes_from) == (
        one_by_one.weight_bytes,
        one_by_one.weight_bytes_from,
    )
    assert (quick.files, quick.notes) == (one_by_one.files, one_by_one.notes)
    for name, dtype, shape in MODEL[::7]:
        info = quick.tensors.get(name)
        assert info is not None
        assert files == "index alone" or (info.dtype, info.shape) == (dtype, shape)
    for prefix in (
        "mtp.",
        "mtp.layers.0.mlp.experts.1",
        "model.language_model.layers.3.mlp.experts.5.up_proj.weight_scale",
    ):
        assert quick.tensors.count(prefix) == sum(name.startswith(prefix) for name, _, _ in MODEL)


def raw_names(path: Path, name: str) -> bool:
    """Whether the header of `path` names `name`."""
    with path.open("rb") as stream:
        return f'"{name}"'.encode() in stream.read(int.from_bytes(stream.read(8), "little"))


def _changed(change: Callable[[Tensor], Tensor | None]) -> list[Tensor]:
    """The model with every tensor as `change` makes it, None leaves it out."""
    return [changed for tensor in MODEL if (changed := change(tensor)) is not None]


def _is(tensor: Tensor, *words: str) -> bool:
    return all(word in tensor[0] for word in words)


DIFFERENT = {
    "one expert of another dtype": _changed(lambda t: (t[0], "BF16", t[2]) if _is(t, "layers.3.", "experts.4.up_proj.weight") and t[1] == "U8" else t),
    "one expert of another shape": _changed(lambda t: (t[0], t[1], (8, 8)) if _is(t, "layers.3.", "experts.4.up_proj.weight") and t[1] == "U8" else t),
    "one expert lacks a scale": _changed(lambda t: None if _is(t, "layers.3.", "experts.4.up_proj.input_scale") else t),
    "one layer has fewer": _changed(lambda t: None if _is(t, "layers.3.", "experts.5.") else t),
    "two layers have fewer and more": _changed(lambda t: None if _is(t, "layers.3.", "experts.5.") else t)
    + [(t[0].replace(".experts.5.", ".experts.6."), t[1], t[2]) for t in MODEL if _is(t, "language_model.layers.4.", "experts.5.")],
    "experts do not start at 0": _changed(lambda t: (t[0].replace("experts.0.", "experts.9."), t[1], t[2])),
    "an unknown dtype": _changed(lambda t: (t[0], "F3_X", t[2]) if _is(t, "experts.", "up_proj.weight") and t[1] == "U8" else t),
    "fused experts beside": [*MODEL, ("model.extra.experts.gate_up_proj", "BF16", (8, 8))],
    "experts without layers": [*MODEL, *((f"model.experts.{n}.w", "BF16", (8, 8)) for n in range(6))],
    "no experts at all": [t for t in MODEL if ".experts." not in t[0]],
    "names with quotes": [*MODEL, ('a"b', "BF16", (8,))],
}  # fmt: skip


@pytest.mark.parametrize("case", DIFFERENT)
def test_it_is_not_done(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "LARGE", 0)
    monkeypatch.setattr(alike, "LARGE_INDEX", 0)
    if case == "an unknown dtype":
        monkeypatch.setitem(BITS, "F3_X", 8)
        write_checkpoint(tmp_path, DIFFERENT[case], shards=3)
        monkeypatch.delitem(BITS, "F3_X")
    else:
        write_checkpoint(tmp_path, DIFFERENT[case], shards=3)
    found = raw(tmp_path)
    assert not is_repeated(found.tensors)
    assert found.tensors is not None
    assert sorted(found.tensors.names()) == sorted(name for name, _, _ in DIFFERENT[case])
    for name, dtype, shape in DIFFERENT[case]:
        if "experts.4" in name or "experts" not in name:
            info = found.tensors.get(name)
            assert info is not None
            assert (info.dtype, info.shape) == (dtype, shape)


@pytest.mark.parametrize(
    "case",
    [
        "one expert lacks a scale",
        "one layer has fewer",
        "two layers have fewer and more",
        "experts do not start at 0",
    ],
)
def test_it_is_not_done_by_names(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "LARGE", 0)
    monkeypatch.setattr(alike, "LARGE_INDEX", 0)
    write_checkpoint(tmp_path, DIFFERENT[case], shards=3)
    for path in tmp_path.glob("*.safetensors"):
        path.unlink()
    found = raw(tmp_path)
    assert not is_repeated(found.tensors)
    assert found.tensors is not None
    assert sorted(found.tensors.names()) == sorted(name for name, _, _ in DIFFERENT[case])


def test_a_bad_file_is_still_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "LARGE", 0)
    monkeypatch.setattr(alike, "LARGE_INDEX", 0)
    write_checkpoint(tmp_path, MODEL, shards=3)
    path = tmp_path / "model-00002-of-00003.safetensors"
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size - 1)
    with pytest.raises(CheckpointError, match=r"00002-of-00003.*(\n.*)*cut off"):
        read_folder(tmp_path, path="the model")


def test_large_ones_are_not_read_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path, nvfp4_moe(layers=6), shards=4)
    monkeypatch.setattr(folder_module, "parse_header", None)
    monkeypatch.setattr(folder_module, "parse_index", None)
    found = raw(tmp_path)
    assert found.tensors is not None
    assert len(found.tensors) == sum(1 for _ in nvfp4_moe(layers=6))
    assert found.weight_bytes_from == "headers"
