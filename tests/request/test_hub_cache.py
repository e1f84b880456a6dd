"""The local Hugging Face cache: where it is, what a model id means in it, and what has a similar name."""

from __future__ import annotations

from pathlib import Path

import pytest

from autolaunch.request.hub_cache import cached_snapshot, hub_cache, is_hub_id, similar_models

COMMIT, OLDER = "a" * 40, "b" * 40


def add_model(cache: Path, model: str, *commits: str, refs: dict[str, str] | None = None) -> Path:
    """Lay out a cached model as huggingface-hub does; returns the folder of the first commit."""
    entry = cache / f"models--{model.replace('/', '--')}"
    for commit in commits:
        (entry / "snapshots" / commit).mkdir(parents=True)
    for ref, commit in (refs or {}).items():
        (entry / "refs" / ref).parent.mkdir(parents=True, exist_ok=True)
        (entry / "refs" / ref).write_text(commit)
    return entry / "snapshots" / commits[0]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HUGGINGFACE_HUB_CACHE": "/a", "HF_HOME": "/b"}, "/a"),
        ({"HF_HOME": "/b", "XDG_CACHE_HOME": "/c"}, "/b/hub"),
        ({"HF_HOME": "", "XDG_CACHE_HOME": "/c"}, "/c/huggingface/hub"),
        ({"HOME": "/d"}, "/d/.cache/huggingface/hub"),
    ],
)
def test_where_it_is(environ: dict[str, str], expected: str) -> None:
    assert hub_cache(environ) == Path(expected)


def test_the_snapshot_of_a_revision(tmp_path: Path) -> None:
    environ = {"HF_HUB_CACHE": str(tmp_path)}
    newest = add_model(
        tmp_path, "org/name", COMMIT, OLDER, refs={"main": COMMIT, "pr/1": OLDER, "gone": "c" * 40}
    )
    found = cached_snapshot("org/name", environ)
    assert found is not None
    assert (found.folder, found.revision) == (newest, COMMIT)
    for revision, commit in (("main", COMMIT), ("pr/1", OLDER), (OLDER, OLDER)):
        found = cached_snapshot("org/name", environ, revision)
        assert found is not None
        assert found.revision == commit
    for revision in ("gone", "other", "c" * 40, "../main", "pr/../main", "a\0b", "pr"):
        assert cached_snapshot("org/name", environ, revision) is None
    assert cached_snapshot("org/other", environ) is None


@pytest.mark.parametrize("ref", ["", "../../../..", "x" * 1000, "é"])
def test_refs_that_name_no_commit(ref: str, tmp_path: Path) -> None:
    add_model(tmp_path, "org/name", COMMIT, refs={"main": ref})
    assert cached_snapshot("org/name", {"HF_HUB_CACHE": str(tmp_path)}) is None


@pytest.mark.parametrize(
    ("model", "allowed"),
    [
        ("gpt2", True),
        ("Qwen/Qwen3-8B", True),
        ("Qwen3.5-397B-A17B-NVFP4", True),
        ("a/b/c", False),
        ("/models/a", False),
        ("./a", False),
        ("..", False),
        ("a/..", False),
        ("org/na me", False),
        ("org/-name", False),
        ("org/a--b", False),
        ("org/name.git", False),
        ("org/näme", False),
        ("org/name\n", False),
        ("", False),
        ("x" * 300, False),
    ],
)
def test_what_the_hub_allows(model: str, allowed: bool) -> None:
    assert is_hub_id(model) == allowed


def test_similar_names(tmp_path: Path) -> None:
    environ = {"HF_HUB_CACHE": str(tmp_path)}
    for model in ("nvidia/Qwen3.5-397B-A17B-NVFP4", "Qwen/Qwen3.5-397B-A17B", "openai/gpt-oss-20b"):
        add_model(tmp_path, model, COMMIT)
    assert similar_models("Qwen3.5-397B-A17B-NVFP4", environ)[0] == "nvidia/Qwen3.5-397B-A17B-NVFP4"
    assert similar_models("qwen/qwen3.5-397b-a17b-nvfp4", environ)[0] == "nvidia/Qwen3.5-397B-A17B-NVFP4"
    assert similar_models("gpt-oss-20", environ) == ("openai/gpt-oss-20b",)
    assert similar_models("something else", environ) == ()
    assert similar_models("gpt-oss-20", {"HF_HUB_CACHE": str(tmp_path / "absent")}) == ()
