"""What a model name means: a folder, a file, an address, or a name in the cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autolaunch.checkpoint import hub
from autolaunch.checkpoint.problems import NoSuchModelError, NotInspected
from autolaunch.checkpoint.raw import RawCheckpoint
from autolaunch.checkpoint.source import read_checkpoint
from tests.checkpoint.make_checkpoint import Tensor, write_checkpoint

TENSORS: list[Tensor] = [("a", "BF16", (8, 4))]
COMMIT = "d" * 40


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of these names may lead to the network."""
    monkeypatch.setattr(hub, "read_hub", None)


def read(model: str, cwd: Path, **environ: str) -> RawCheckpoint | NotInspected:
    """Read `model`, seen from `cwd`."""
    return read_checkpoint(model, cwd=cwd, environ={"HF_HUB_CACHE": str(cwd / "cache"), **environ})


@pytest.mark.parametrize(
    "model", ["org/name", "./org/name", "org/../org/name/", "{cwd}/org/name", "name-by-link"]
)
def test_folders_come_first(model: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "org/name", TENSORS)
    (tmp_path / "name-by-link").symlink_to("org/name")
    model = model.format(cwd=tmp_path)
    found = read(model, tmp_path)
    assert isinstance(found, RawCheckpoint)
    assert (found.path, found.source, found.weight_bytes) == (model, "folder", 64)


def test_then_the_cache(tmp_path: Path) -> None:
    entry = tmp_path / "cache/models--org--name"
    write_checkpoint(entry / "blobs", TENSORS)
    snapshot = entry / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (snapshot / name).symlink_to(f"../../blobs/{name}")
    (entry / "refs").mkdir()
    (entry / "refs/main").write_text(COMMIT)
    found = read("org/name", tmp_path)
    assert isinstance(found, RawCheckpoint)
    assert (found.source, found.revision, found.folder) == ("hf-cache", COMMIT, snapshot)
    assert found.weight_bytes == 64


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("s3://bucket/model", "object-store"),
        ("GS://bucket/model", "object-store"),
        ("az://a/b", "object-store"),
        ("https://host/model", "remote"),
        ("instance://10.0.0.1:1234/model", "remote"),
        ("org/name/file-Q4_K_M.gguf", "gguf"),
        ("org/name:Q4_K_M", "gguf"),
        ("model.gguf", "gguf"),
        ("disguised", "gguf"),
    ],
)
def test_what_is_not_read(model: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"")
    (tmp_path / "disguised").write_bytes(b"GGUF\x03")
    found = read(model, tmp_path)
    assert isinstance(found, NotInspected)
    assert (found.kind, found.model) == (kind, model)


@pytest.mark.parametrize(
    "model",
    ["/absent/model", "./absent", "../absent", "a/b/c", "", "a b", "a\0b", "a\nb", "~nobody-here/model", "file", "loop", "fifo", "x" * 5000, "\udcff"],
)  # fmt: skip
def test_names_that_mean_nothing(model: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("{}")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(NoSuchModelError) as caught:
        read(model, tmp_path)
    assert caught.value.exit_code == 2
    assert caught.value.hint
    assert str(caught.value).isprintable() or "\n" in str(caught.value)


def test_the_current_folder(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TENSORS)
    assert isinstance(read(".", tmp_path), RawCheckpoint)
