"""Model folders: what is read from them, in which case nothing is, and what is wrong with bad ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autolaunch.checkpoint import folder as folder_module
from autolaunch.checkpoint.folder import read_folder
from autolaunch.checkpoint.problems import CheckpointError, NoSuchModelError, NotInspected
from autolaunch.checkpoint.raw import RawCheckpoint
from tests.checkpoint.make_checkpoint import Tensor, write_checkpoint, write_header, write_index, write_raw

TENSORS: list[Tensor] = [
    (f"model.layers.{layer}.mlp.down_proj.weight", "BF16", (8, 4)) for layer in range(10)
]
INDEX = "model.safetensors.index.json"


def raw(folder: Path) -> RawCheckpoint:
    """The checkpoint in `folder`, which must be one."""
    found = read_folder(folder, path="the model")
    assert isinstance(found, RawCheckpoint)
    return found


def test_one_file(tmp_path: Path) -> None:
    write_checkpoint(
        tmp_path, TENSORS, config={"model_type": "llama"}, other={"generation_config.json": {"a": 1}}
    )
    found = raw(tmp_path)
    assert (found.path, found.folder, found.source) == ("the model", tmp_path, "folder")
    assert found.config == {"model_type": "llama"}
    assert found.other == {"generation_config.json": {"a": 1}}
    assert found.hf_quant_config is None
    assert found.tensors is not None
    assert (len(found.tensors), found.tensors.complete, found.tensors.metadata) == (
        10,
        True,
        {"format": "pt"},
    )
    assert (found.weight_bytes, found.weight_bytes_from) == (640, "headers")
    assert found.files == (("model.safetensors", (tmp_path / "model.safetensors").stat().st_size),)
    assert found.notes == ()


@pytest.mark.parametrize("index", [True, False])
def test_shards(index: bool, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TENSORS, shards=3, index=index, other={"hf_quant_config.json": {"q": 1}})
    found = raw(tmp_path)
    assert found.hf_quant_config == {"q": 1}
    assert found.tensors is not None
    assert (len(found.tensors), len(found.files), found.weight_bytes) == (10, 3, 640)
    info = found.tensors.get("model.layers.9.mlp.down_proj.weight")
    assert info is not None
    assert info.file == "model-00003-of-00003.safetensors"


def test_files_that_the_index_does_not_name(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TENSORS, shards=2)
    write_header(tmp_path / "mtp.safetensors", [("mtp.fc.weight", "BF16", (4, 8))])
    write_header(tmp_path / "consolidated.safetensors", [("layers.0.w1", "BF16", (4, 8))])
    (tmp_path / "extra.safetensors").write_bytes(b"junk")
    found = raw(tmp_path)
    assert found.tensors is not None
    assert found.tensors.unindexed == {"mtp.safetensors"}
    assert "mtp.fc.weight" in found.tensors
    assert len(found.tensors) == 11
    assert (found.weight_bytes, len(found.files)) == (640, 2)
    assert any("extra.safetensors" in note for note in found.notes)


def test_consolidated_files_beside_others_do_not_count(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TENSORS)
    write_header(tmp_path / "consolidated.safetensors", [("layers.0.w1", "BF16", (4, 8))])
    assert raw(tmp_path).weight_bytes == 640


def test_an_index_without_its_files(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TENSORS, shards=2)
    for path in tmp_path.glob("*.safetensors"):
        path.unlink()
    found = raw(tmp_path)
    assert found.tensors is not None
    assert (len(found.tensors), found.tensors.complete, found.files) == (10, False, ())
    assert (found.weight_bytes, found.weight_bytes_from) == (640, "index")
    assert found.notes == ("2 of the 2 weight files that model.safetensors.index.json names are not here",)


def test_the_cache_may_lack_what_a_folder_may_not(tmp_path: Path) -> None:
    """SGLang goes on with a download that was broken off."""
    write_checkpoint(tmp_path, TENSORS, shards=2)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    found = read_folder(tmp_path, path="org/name", source="hf-cache")
    assert isinstance(found, RawCheckpoint)
    assert found.tensors is not None
    assert (len(found.tensors), found.tensors.complete, found.weight_bytes) == (10, False, 640)
    assert {(one.layer, one.dtype, one.sampled) for one in found.tensors.groups} == {
        (layer, "BF16", layer > 4) for layer in range(10)
    }
    assert [name for name, _ in found.files] == ["model-00001-of-00002.safetensors"]
    assert found.notes == ("1 of the 2 weight files that model.safetensors.index.json names are not here",)


def test_numbered_files_that_are_not_there(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TENSORS, shards=3, index=False)
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    assert raw(tmp_path).notes == ("1 of the 3 files that the names of its weight files count are not here",)


def test_a_configuration_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    found = raw(tmp_path)
    assert (found.tensors, found.weight_bytes, found.weight_bytes_from) == (None, None, None)
    assert len(found.notes) == 1


@pytest.mark.parametrize("index", [True, False])
def test_pickles_are_not_opened(index: bool, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model-1.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    (tmp_path / "training_args.bin").write_bytes(b"x" * 1000)
    if index:
        write_index(tmp_path, {"a": "pytorch_model-1.bin"}, 4)
        (tmp_path / INDEX).rename(tmp_path / "pytorch_model.bin.index.json")
    found = raw(tmp_path)
    assert (found.weight_bytes, found.weight_bytes_from) == (25, "files")
    assert found.files == (("pytorch_model-1.bin", 25),)
    assert (found.tensors is not None and "a" in found.tensors) == index


def test_headers_without_data_are_said_to_be(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, [])
    write_header(tmp_path / "model.safetensors", TENSORS, data=False)
    found = raw(tmp_path)
    assert found.weight_bytes == 640
    assert "data is missing" in found.notes[0]


def test_headers_count_more_than_the_index(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TENSORS, shards=2)
    write_header(tmp_path / "model-00002-of-00002.safetensors", TENSORS[5:8])
    found = raw(tmp_path)
    assert found.tensors is not None
    assert len(found.tensors) == 8
    assert "says that `model-00002-of-00002.safetensors` holds 5 tensors, and it holds 3" in found.notes[0]


def test_broken_extras_are_notes(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TENSORS)
    (tmp_path / "generation_config.json").write_text("[]")
    (tmp_path / "quantize_config.json").mkdir()
    found = raw(tmp_path)
    assert found.other == {}
    assert len(found.notes) == 2


def test_a_large_index_is_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many: list[Tensor] = [
        (f"model.language_model.layers.{n}.mlp.experts.7.down_proj.weight_scale_2", "F32", ())
        for n in range(50_000)
    ]
    write_checkpoint(tmp_path, many, shards=3)
    monkeypatch.setattr(folder_module, "parse_index", None)
    found = raw(tmp_path)
    assert found.tensors is not None
    assert (len(found.tensors), len(found.files), found.notes) == (50_000, 3, ())


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["model_index.json"], "diffusion"),
        (["modular_model_index.json", "x.safetensors"], "diffusion"),
        (["params.json", "consolidated.safetensors"], "mistral"),
        (["config.json", "params.json", "consolidated-00001-of-00002.safetensors"], "mistral"),
        (["params.json"], "mistral"),
        (["a.gguf"], "gguf"),
        (["config.json", "a-00001-of-00002.gguf"], "gguf"),
    ],
)
def test_what_is_not_read(names: list[str], kind: str, tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).write_text("{}")
    found = read_folder(tmp_path, path="the model")
    assert isinstance(found, NotInspected)
    assert (found.kind, found.model) == (kind, "the model")
    assert found.reason


def test_some_files_of_mistral_beside_a_model_do_not_matter(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TENSORS, other={"params.json": {"dim": 1}})
    write_header(tmp_path / "consolidated.safetensors", [("layers.0.w1", "BF16", (4, 8))])
    assert raw(tmp_path).other["params.json"] == {"dim": 1}


def _lfs(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 10\n")


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "config is a pointer": (lambda at: _lfs(at / "config.json"), "Git LFS pointer"),
    "shard is a pointer": (lambda at: _lfs(at / "model-00001-of-00002.safetensors"), "Git LFS pointer"),
    "index is a pointer": (lambda at: _lfs(at / INDEX), "Git LFS pointer"),
    "config is a list": (lambda at: (at / "config.json").write_text("[]"), "it holds a list"),
    "config is null": (lambda at: (at / "config.json").write_text("null"), "it holds null"),
    "config is huge": (lambda at: os.truncate(at / "config.json", 200 << 20), "too large"),
    "config is deep": (lambda at: (at / "config.json").write_text("[" * 10**6), "nested too deeply"),
    "config is a loop": (lambda at: _loop(at / "config.json"), "symbolic links"),
    "config is a fifo": (lambda at: _fifo(at / "config.json"), "not a regular file"),
    "config is a device": (lambda at: _link(at / "config.json", "/dev/zero"), "not a regular file"),
    "shard is a fifo": (lambda at: _fifo(at / "model-00002-of-00002.safetensors"), "not a regular file"),
    "shard is a dead link": (lambda at: _link(at / "model-00002-of-00002.safetensors", "gone"), "No such file"),
    "shard is a loop": (lambda at: _loop(at / "model-00002-of-00002.safetensors"), "symbolic links"),
    "shard is absent": (lambda at: (at / "model-00002-of-00002.safetensors").unlink(), "is not there"),
    "shard is empty": (lambda at: os.truncate(at / "model-00002-of-00002.safetensors", 0), "is empty"),
    "shard is cut off": (lambda at: os.truncate(at / "model-00002-of-00002.safetensors", 700), "cut off"),
    "header of 2^62": (lambda at: write_raw(at / "model-00001-of-00002.safetensors", "{}", 0, length=2**62), "4611686018427387904 bytes"),
    "hf_quant_config is broken": (lambda at: (at / "hf_quant_config.json").write_text("{"), "is not JSON"),
    "index is huge": (lambda at: os.truncate(at / INDEX, 200 << 20), "too large"),
    "index is broken": (lambda at: (at / INDEX).write_text('{"weight_map": {'), "is not JSON"),
    "index leads up": (lambda at: write_index(at, {"a": "../model-00001-of-00002.safetensors"}), "outside its folder"),
    "index leads away": (lambda at: write_index(at, {"a": "/etc/passwd"}), "outside its folder"),
    "index names more": (lambda at: write_index(at, {"a": "model-00009-of-00009.safetensors"}), "is not there"),
    "index names a tensor twice": (lambda at: (at / INDEX).write_text('{"weight_map": {"a": "x", "a": "y"}}'), "twice"),
}  # fmt: skip


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("case", BROKEN)
def test_broken_folders(case: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TENSORS, shards=2)
    breaking, said = BROKEN[case]
    breaking(tmp_path)
    started = time.process_time()
    with pytest.raises(CheckpointError, match=said) as caught:
        read_folder(tmp_path, path="the model")
    assert time.process_time() - started < 2
    assert caught.value.exit_code == 1
    assert caught.value.hint


def test_folders_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(NoSuchModelError, match="is empty") as caught:
        read_folder(tmp_path, path="the model")
    assert caught.value.exit_code == 2
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(NoSuchModelError, match=r"holds no config\.json"):
        read_folder(tmp_path, path="the model")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(NoSuchModelError, match="LoRA adapter"):
        read_folder(tmp_path, path="the model")
    with pytest.raises(NoSuchModelError, match="cannot read the folder"):
        read_folder(tmp_path / "absent", path="the model")


def test_names_that_are_not_text(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TENSORS)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe.safetensors")).write_bytes(b"junk")
    with pytest.raises(CheckpointError) as caught:
        read_folder(tmp_path, path="the model")
    assert str(caught.value).isascii()
    write_index(tmp_path, {name: "model.safetensors" for name, _, _ in TENSORS})
    assert "\\udcff" in raw(tmp_path).notes[0]


def test_too_many_weight_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_checkpoint(tmp_path, TENSORS, shards=5)
    monkeypatch.setattr(folder_module, "MAX_SHARDS", 4)
    with pytest.raises(CheckpointError, match="holds 5 weight files"):
        read_folder(tmp_path, path="the model")
    monkeypatch.setattr(folder_module, "MAX_SHARDS", 5)
    monkeypatch.setattr(folder_module, "MAX_HEADER_BYTES", 1000)
    with pytest.raises(CheckpointError, match="more header than model"):
        read_folder(tmp_path, path="the model")


def test_a_hundred_thousand_other_files(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TENSORS)
    for number in range(100_000):
        os.mknod(tmp_path / f"{number}.txt")
    started = time.process_time()
    assert raw(tmp_path).weight_bytes == 640
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    "text", ["[" * 8_000_000, '{"a":' * 3_000_000, json.dumps({"a": ["x" * 10] * 1_000_000})]
)
def test_large_configurations_take_little(text: str, tmp_path: Path) -> None:
    """Read in a process of its own, to see its memory; broken or not, within two seconds and 300 MB."""
    write_checkpoint(tmp_path, TENSORS)
    (tmp_path / "config.json").write_text(text)
    code = f"""
import time
from pathlib import Path
from autolaunch.checkpoint.folder import read_folder
started = time.process_time()
try:
    read_folder(Path({str(tmp_path)!r}), path="x")
except Exception as error:
    assert type(error).__name__ == "CheckpointError", error
assert time.process_time() - started < 2
peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
print(peak.split()[1])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    # Of the process's own memory map: ru_maxrss would carry over what pytest itself held at the fork.
    assert int(done.stdout) < 300 * 1024
