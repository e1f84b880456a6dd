"""Models on a hub that runs on this machine: metadata alone, and every way a hub fails."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from autolaunch.checkpoint import alike, fetch
from autolaunch.checkpoint import hub as hub_module
from autolaunch.checkpoint.fetch import hub_place, is_offline
from autolaunch.checkpoint.problems import CheckpointError, NotInspected
from autolaunch.checkpoint.raw import RawCheckpoint
from autolaunch.checkpoint.source import read_checkpoint
from tests.checkpoint.fake_hub import COMMIT, FakeHub, fake_hub
from tests.checkpoint.make_checkpoint import Tensor, nvfp4_moe, write_checkpoint, write_header

MODEL = "org/some-model"
TENSORS: list[Tensor] = [
    (f"model.layers.{layer}.mlp.down_proj.weight", "BF16", (8, 4)) for layer in range(10)
]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A hub with nothing on it, which can be asked also where the tests run offline."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with fake_hub() as running:
        yield running


def ask(
    hub: FakeHub, tmp_path: Path, model: str = MODEL, *, seconds: float = 20, **environ: str
) -> RawCheckpoint | NotInspected:
    """Read `model` with an empty cache."""
    variables = {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_CACHE": str(tmp_path / "cache"),
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
    }
    return read_checkpoint(model, cwd=tmp_path, environ={**variables, **environ}, hub_seconds=seconds)


def found(answer: RawCheckpoint | NotInspected) -> RawCheckpoint:
    """`answer`, which must be a checkpoint."""
    assert isinstance(answer, RawCheckpoint)
    return answer


def refused(answer: RawCheckpoint | NotInspected) -> NotInspected:
    """`answer`, which must be none."""
    assert isinstance(answer, NotInspected)
    return answer


def test_one_file(hub: FakeHub, tmp_path: Path) -> None:
    hub.models[MODEL] = write_checkpoint(
        tmp_path / "m",
        TENSORS,
        config={"a": 1},
        other={"hf_quant_config.json": {"q": 1}, "generation_config.json": {}},
    )
    raw = found(ask(hub, tmp_path))
    assert (raw.source, raw.folder, raw.revision, raw.path) == ("hub-metadata", None, COMMIT, MODEL)
    assert (raw.config, raw.hf_quant_config, raw.other) == (
        {"a": 1},
        {"q": 1},
        {"generation_config.json": {}},
    )
    assert raw.tensors is not None
    assert (len(raw.tensors), raw.tensors.complete) == (10, True)
    assert (raw.weight_bytes, raw.weight_bytes_from, len(raw.files)) == (640, "headers", 1)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("behaviour", ["good", "no ranges"])
def test_shards_are_sampled(
    behaviour: str, hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = list(nvfp4_moe(layers=8, experts=4))
    hub.models[MODEL] = write_checkpoint(tmp_path / "m", tensors, shards=40)
    hub.behaviour = behaviour
    monkeypatch.setattr(hub_module, "_FIRST_BYTES", 64)
    raw = found(ask(hub, tmp_path))
    assert raw.tensors is not None
    assert sorted(raw.tensors.names()) == sorted(name for name, _, _ in tensors)
    assert not raw.tensors.complete
    for name, dtype, shape in tensors:
        info = raw.tensors.get(name)
        assert info is not None
        assert (info.dtype, info.shape) in {(dtype, shape), (None, None)}
    assert raw.weight_bytes_from == "index"
    assert len({path for path in hub.asked if path.endswith(".safetensors")}) == 8
    # Whatever was not seen is like its neighbour, and nearly everything was seen.
    assert sum(group.count for group in raw.tensors.groups if group.dtype is None) < len(tensors) / 10


def test_experts_that_are_alike(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their names are not lost with the headers that were read, and are not taken from those."""
    monkeypatch.setattr(alike, "LARGE", 0)
    monkeypatch.setattr(alike, "LARGE_INDEX", 0)
    tensors = list(nvfp4_moe(layers=8, experts=16))
    hub.models[MODEL] = write_checkpoint(tmp_path / "m", tensors, shards=40)
    raw = found(ask(hub, tmp_path))
    assert raw.tensors is not None
    assert sorted(raw.tensors.names()) == sorted(name for name, _, _ in tensors)
    assert raw.tensors.matching("mtp.layers.0.mlp.experts.")[0].numbers(1) == frozenset(range(16))


def test_metadata_of_a_large_model_is_cheap(hub: FakeHub, tmp_path: Path) -> None:
    hub.models[MODEL] = folder = write_checkpoint(tmp_path / "m", TENSORS, shards=3)
    for path in folder.glob("*.safetensors"):
        os.truncate(path, 1 << 24)
    with pytest.raises(CheckpointError, match="more behind"):
        ask(hub, tmp_path)
    assert hub.sent < 2 << 20


def test_no_index(hub: FakeHub, tmp_path: Path) -> None:
    hub.models[MODEL] = write_checkpoint(tmp_path / "m", TENSORS, shards=10, index=False)
    raw = found(ask(hub, tmp_path))
    assert raw.tensors is not None
    assert (len(raw.tensors), raw.tensors.complete, len(raw.files)) == (8, False, 10)
    assert raw.weight_bytes_from == "files"
    assert "the headers of 8 of 10 weight files were read" in raw.notes


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (["model_index.json"], "diffusion"),
        (["params.json", "consolidated.safetensors"], "mistral"),
        (["a-Q4_K_M.gguf"], "gguf"),
        (["README.md"], "no-config"),
    ],
)
def test_what_is_not_read(names: list[str], kind: str, hub: FakeHub, tmp_path: Path) -> None:
    hub.models[MODEL] = tmp_path / "m"
    (tmp_path / "m").mkdir()
    for name in names:
        (tmp_path / "m" / name).write_text("{}")
    assert refused(ask(hub, tmp_path)).kind == kind


def test_pickles_alone(hub: FakeHub, tmp_path: Path) -> None:
    hub.models[MODEL] = write_checkpoint(tmp_path / "m", [])
    (tmp_path / "m" / "model.safetensors").rename(tmp_path / "m" / "pytorch_model.bin")
    raw = found(ask(hub, tmp_path))
    assert (raw.tensors, raw.weight_bytes_from, raw.files[0][0]) == (None, "files", "pytorch_model.bin")
    assert not any(path.endswith(".bin") for path in hub.asked)


@pytest.mark.parametrize(
    ("behaviour", "kind", "said"),
    [
        ("404/RepoNotFound", "not-found", "answers 404"),
        ("401/RepoNotFound", "not-found", "answers 401"),
        ("401", "gated", "a token is needed"),
        ("403", "gated", "has to be granted"),
        ("gated", "gated", "has to be granted"),
        ("429", "unreachable", "answers 429"),
        ("500", "unreachable", "answers 500"),
        ("503", "unreachable", "answers 503"),
        ("204", "unreachable", "answers 204"),
        ("loop", "unreachable", "redirects without end"),
        ("garbage", "unreachable", "no hub"),
        ("list", "unreachable", "no hub"),
        ("cut", "unreachable", "does not answer"),
        ("endless", "unreachable", "sent more than"),
        ("endless file", "unreachable", "sent more than"),
        ("slow", "unreachable", "took too long"),
    ],
)
def test_failures(behaviour: str, kind: str, said: str, hub: FakeHub, tmp_path: Path) -> None:
    hub.models[MODEL] = write_checkpoint(tmp_path / "m", TENSORS)
    hub.behaviour = behaviour
    started = time.monotonic()
    answer = refused(ask(hub, tmp_path, seconds=1.5))
    assert time.monotonic() - started < 4
    assert (answer.kind, answer.model) == (kind, MODEL)
    assert said in answer.reason
    assert answer.hint


def test_nobody_listens(hub: FakeHub, tmp_path: Path) -> None:
    answer = refused(ask(hub, tmp_path, HF_ENDPOINT="http://user:secret@127.0.0.1:1", HF_TOKEN="hf_secret"))
    assert answer.kind == "unreachable"
    assert "127.0.0.1" in answer.reason
    assert "secret" not in f"{answer}"


def test_a_bad_address(hub: FakeHub, tmp_path: Path) -> None:
    for address in ("nonsense", "http://[", "ftp://127.0.0.1"):
        assert refused(ask(hub, tmp_path, HF_ENDPOINT=address)).kind == "unreachable"


def test_the_token_is_sent_and_never_shown(hub: FakeHub, tmp_path: Path) -> None:
    hub.behaviour = "401"
    answer = refused(ask(hub, tmp_path, HF_TOKEN=" hf_secret\n"))
    assert hub.tokens == {"Bearer hf_secret"}
    assert answer.reason == "127.0.0.1 answers 401: the token is not accepted"
    assert "hf_secret" not in repr(hub_place({"HF_TOKEN": "hf_secret"}))


def test_some_files_may_fail(hub: FakeHub, tmp_path: Path) -> None:
    hub.models[MODEL] = write_checkpoint(
        tmp_path / "m", TENSORS, shards=2, other={"generation_config.json": {}}
    )
    hub.behaviour = "no generation_config.json"
    assert "generation_config.json was not read" in found(ask(hub, tmp_path)).notes[0]
    hub.behaviour = "no model.safetensors.index.json"
    raw = found(ask(hub, tmp_path))
    assert (raw.tensors, raw.weight_bytes_from) == (None, "files")
    assert "its index was not read" in raw.notes[0]
    hub.behaviour = "no model-00002-of-00002.safetensors"
    raw = found(ask(hub, tmp_path))
    assert raw.tensors is not None
    assert len(raw.tensors) == 10
    assert "the header of model-00002-of-00002.safetensors was not read" in raw.notes[0]


def test_broken_files_are_errors(hub: FakeHub, tmp_path: Path) -> None:
    hub.models[MODEL] = write_checkpoint(tmp_path / "m", TENSORS)
    write_header(tmp_path / "m" / "model.safetensors", TENSORS)
    (tmp_path / "m" / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"config\.json of org/some-model"):
        ask(hub, tmp_path)


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_offline(variable: str, hub: FakeHub, tmp_path: Path) -> None:
    assert (
        refused(
            read_checkpoint(
                MODEL,
                cwd=tmp_path,
                environ={"HF_ENDPOINT": hub.url, "HF_HUB_CACHE": "/absent", variable: "1"},
            )
        ).kind
        == "offline"
    )
    assert hub.asked == []
    assert not is_offline({variable: "0"})


def test_modelscope(hub: FakeHub, tmp_path: Path) -> None:
    assert refused(ask(hub, tmp_path, SGLANG_USE_MODELSCOPE="True")).kind == "modelscope"
    assert hub.asked == []


def test_a_bare_name(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "cache/models--nvidia--Qwen3.5-397B-A17B-NVFP4").mkdir(parents=True)
    answer = refused(ask(hub, tmp_path, "Qwen3.5-397B-A17B-NVFP4"))
    assert answer.kind == "not-found"
    assert answer.because == ("it names no owner, as in `owner/name`",)
    assert "`nvidia/Qwen3.5-397B-A17B-NVFP4`" in (answer.hint or "")
    answer = refused(ask(hub, tmp_path, "other"))
    assert "with its owner" in (answer.hint or "")
    hub.models["gpt2"] = write_checkpoint(tmp_path / "m", TENSORS)
    assert found(ask(hub, tmp_path, "gpt2")).path == "gpt2"


def test_a_cached_configuration_without_weights(hub: FakeHub, tmp_path: Path) -> None:
    """Loading a tokenizer or a configuration leaves such a cache; the hub knows the tensors."""
    entry = tmp_path / "cache/models--org--some-model"
    (entry / "refs").mkdir(parents=True)
    (entry / "refs/main").write_text(COMMIT)
    snapshot = entry / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text('{"cached": true}')
    hub.models[MODEL] = write_checkpoint(tmp_path / "m", TENSORS)
    assert found(ask(hub, tmp_path)).source == "hub-metadata"
    raw = found(ask(hub, tmp_path, HF_HUB_OFFLINE="1"))
    assert (raw.source, raw.config, raw.tensors) == ("hf-cache", {"cached": True}, None)
    assert "HF_HUB_OFFLINE" in raw.notes[-1]
    (snapshot / "config.json").unlink()
    assert found(ask(hub, tmp_path)).source == "hub-metadata"


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_failures_of_whichever_library_carries_it_are_known(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """huggingface-hub changed it twice; a hub that does not answer is no fault of ours with any."""

    class HTTPError(Exception):
        """As the library has it."""

    monkeypatch.setitem(sys.modules, library, SimpleNamespace(HTTPError=HTTPError))
    with (
        pytest.raises(fetch.FetchError, match=r"huggingface\.co does not answer"),
        fetch._errors("huggingface.co"),
    ):
        raise HTTPError
