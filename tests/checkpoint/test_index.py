"""The index: the same by cutting and by parsing, names of files that lead elsewhere, and large ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolaunch.checkpoint import index
from autolaunch.checkpoint.index import agreeing, parse_index
from autolaunch.checkpoint.problems import CheckpointError

MAP = {"a.0": "model-1.safetensors", "a.1": "model-1.safetensors", "b": "model-10.safetensors"}


def written(weight_map: object, **rest: Any) -> bytes:
    """An index as usual."""
    return json.dumps({"metadata": {"total_size": 7}, "weight_map": weight_map, **rest}, indent=2).encode()


@pytest.mark.parametrize("indent", [None, 0, 2, 4, "\t"])
def test_layouts(indent: int | str | None) -> None:
    text = json.dumps({"metadata": {"total_size": 12.0}, "weight_map": MAP}, indent=indent)
    found = parse_index(text.encode(), "index")
    assert found.counts == {"model-1.safetensors": 2, "model-10.safetensors": 1}
    assert found.names_by_file() == {"model-1.safetensors": ["a.0", "a.1"], "model-10.safetensors": ["b"]}
    assert found.total_size == 12


def test_usual_ones_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast way is taken where it should be, with metadata before and behind."""
    monkeypatch.setattr(index, "_parsed", None)
    assert parse_index(written(MAP), "index").counts["model-1.safetensors"] == 2
    behind = json.dumps({"weight_map": MAP, "metadata": {"a": "b", "c": "d", "total_size": 5}}, indent=2)
    assert parse_index(behind.encode(), "index").total_size == 5


@pytest.mark.parametrize("size", ["many", -1, 0, True, None, float("nan"), float("inf"), [1], 1e30])
def test_odd_sizes_count_for_nothing(size: object) -> None:
    text = json.dumps({"metadata": {"total_size": size}, "weight_map": MAP})
    assert parse_index(text.encode(), "index").total_size is None
    assert parse_index(json.dumps({"metadata": size, "weight_map": MAP}).encode(), "index").total_size is None


@pytest.mark.parametrize(
    "file", ["../model.safetensors", "/etc/passwd", "a/../../b", "sub/model.safetensors", "..", "", ".", "a\\b", "a\0b"]
)  # fmt: skip
def test_files_elsewhere(file: str) -> None:
    with pytest.raises(CheckpointError, match="names a file outside its folder"):
        parse_index(written({**MAP, "c": file}), "index")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (written([]), "no `weight_map`"),
        (written(None), "no `weight_map`"),
        (written({"a": 1}), "no `weight_map`"),
        (written({"a": ["x"]}), "no `weight_map`"),
        (b"{}", "no `weight_map`"),
        (b"[]", "it holds a list"),
        (written(MAP)[:-1], "not JSON"),
        (written(MAP)[:60], "not JSON"),
        (written(MAP) + b"}", "not JSON"),
        (written(MAP).replace(b'",', b'"', 1), "not JSON"),
        (written(MAP).replace(b'"a.0"', b'"a.0', 1), "not JSON"),
        (written(MAP).replace(b"a.0", b"a\n0", 1), "not JSON"),
        (written(MAP).replace(b"a.0", b"\xff", 1), "not UTF-8"),
        (b'{"weight_map": {"a": "x", "a": "y"}}', "twice"),
        (b'{"weight_map": {"a": "x"}, "weight_map": {"b": "y"}}', "`weight_map` occurs twice"),
        (b'{"weight_map": ' + b'{"a":' * 50_000, "nested too deeply"),
    ],
)
def test_broken_ones(content: bytes, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        parse_index(content, "index")


words = st.text(st.sampled_from('ab01._-"\\{}:, \n\u00e9'), max_size=8)
files = st.sampled_from(["m-1.safetensors", "m-22.safetensors", "mtp.safetensors", "ü.safetensors"])


@given(st.dictionaries(words, files, max_size=8), st.sampled_from([None, 2]), st.booleans(), st.booleans())
def test_cutting_and_parsing_agree(
    weight_map: dict[str, str], indent: int | None, ascii_only: bool, first: bool
) -> None:
    metadata = {"metadata": {"total_size": 3, "weight_map": "x"} if "a" in weight_map else {}}
    value = {"weight_map": weight_map, **metadata} if first else {**metadata, "weight_map": weight_map}
    content = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    whole, parsed = parse_index(content, "index"), index._parsed(content.decode(), "index")
    assert whole.counts == parsed.counts
    assert whole.names_by_file() == parsed.names_by_file()
    assert whole.total_size == parsed.total_size


def test_a_large_one_that_agrees_with_the_headers_is_not_parsed() -> None:
    weight_map = {
        f"model.layers.{number}.mlp.down_proj.weight": "model-1.safetensors" for number in range(90_000)
    }
    content = written(weight_map)
    found = agreeing(content, {"model-1.safetensors": 90_000})
    assert found is not None
    assert found.counts == {"model-1.safetensors": 90_000}
    assert agreeing(content, {"model-1.safetensors": 89_999}) is None
    assert agreeing(content[:-1], {"model-1.safetensors": 90_000}) is None
    assert agreeing(written(MAP), {"model-1.safetensors": 3}) is None
