"""Digests of a checkpoint's files: what they cover, what they cost the second time, and broken caches."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest

from autolaunch.profiles import digests
from autolaunch.profiles.digests import checkpoint_fields
from tests.checkpoint.make_checkpoint import write_checkpoint

TENSORS = [(f"model.layers.{number}.weight", "BF16", (16, 16)) for number in range(8)]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "model", TENSORS, shards=4)


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of files whose content is read from here on."""
    seen: list[str] = []
    real = digests._digest_of

    def noted(path: Path) -> str:
        seen.append(path.name)
        return real(path)

    monkeypatch.setattr(digests, "_digest_of", noted)
    return seen


def test_nothing_is_read_twice(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = reads(monkeypatch)
    first = checkpoint_fields(model, tmp_path / "cache")
    assert len(seen) == 6  # config, index, four shards
    assert checkpoint_fields(model, tmp_path / "cache") == first
    assert len(seen) == 6
    (model / "config.json").write_text("{}")
    assert checkpoint_fields(model, tmp_path / "cache") != first
    assert seen[6:] == ["config.json"]


def test_a_change_that_hides_its_time_is_seen(model: Path, tmp_path: Path) -> None:
    path, cache = model / "config.json", tmp_path / "cache"
    before, status = checkpoint_fields(model, cache), path.stat()
    path.write_bytes(path.read_bytes().replace(b"test", b"tset"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert checkpoint_fields(model, cache) != before


def test_only_headers_are_read_of_weights(model: Path, tmp_path: Path) -> None:
    shard = next(model.glob("*.safetensors"))
    before = checkpoint_fields(model, None)
    with shard.open("r+b") as stream:
        stream.seek(-4, os.SEEK_END)
        stream.write(b"\xff" * 4)
    assert checkpoint_fields(model, None) == before
    with shard.open("r+b") as stream:
        stream.seek(20)
        stream.write(b"X")
    after = checkpoint_fields(model, None)
    assert after is not None and before is not None
    assert {name for name in after if after[name] != before[name]} == {"checkpoint.headers"}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"schema": "autolaunch.digests/1"}', b'{"schema": "autolaunch.digests/1", "files": []}',
                                     b'{"schema": "autolaunch.digests/1", "files": {"config.json": [1, 2, 3, 4]}}',
                                     b'{"schema": "autolaunch.digests/1", "files": {"config.json": [0, 0, 0, 0, "lie"]}}', b"\xff" * 100])  # fmt: skip
def test_a_broken_cache_is_none(model: Path, tmp_path: Path, content: bytes) -> None:
    cache = tmp_path / "cache"
    fields = checkpoint_fields(model, cache)
    (kept,) = (cache / "checkpoints").iterdir()
    kept.write_bytes(content)
    assert checkpoint_fields(model, cache) == fields
    assert json.loads(kept.read_text())["schema"] == digests.SCHEMA


def test_a_cache_that_cannot_be_written_costs_nothing_else(model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert checkpoint_fields(model, tmp_path / "file") == checkpoint_fields(model, None)


def test_odd_weight_files(tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    assert checkpoint_fields(folder, None) is None
    (folder / "config.json").write_text("{}")
    assert checkpoint_fields(folder, None) is None
    assert checkpoint_fields(tmp_path / "nowhere", None) is None
    assert checkpoint_fields(folder / "config.json", None) is None
    (folder / "pytorch_model.bin").write_bytes(b"x")
    fields = checkpoint_fields(folder, None)
    assert fields is not None and set(fields) == {"checkpoint.config", "checkpoint.files"}
    (folder / "a.safetensors").write_bytes(b"\x01")
    (folder / "b.safetensors").write_bytes(struct.pack("<Q", 1 << 62) + b"x")
    (folder / "c.safetensors").write_bytes(b"")
    assert checkpoint_fields(folder, None) is not None
    (folder / "d.safetensors").symlink_to("nowhere")
    assert checkpoint_fields(folder, None) is None  # weights that are not whole are not here


def test_no_pipe_or_device_is_waited_for(model: Path) -> None:
    os.mkfifo(model / "z.safetensors")
    assert checkpoint_fields(model, None) is None
