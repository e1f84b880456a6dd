"""Headers of safetensors files: the usual ones by cutting, all others by parsing, bad ones with a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolaunch.checkpoint import headers
from autolaunch.checkpoint.headers import (
    BITS,
    Header,
    RawHeader,
    parse_entries,
    parse_header,
    read_header,
    tensor_bytes,
)
from autolaunch.checkpoint.masks import bundles
from autolaunch.checkpoint.problems import CheckpointError
from autolaunch.checkpoint.tensors import grouped
from tests.checkpoint.make_checkpoint import Tensor, write_header, write_raw

ONE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def contents(header: Header) -> set[Tensor]:
    """All tensors of a header."""
    return {
        (name, group.dtype or "", group.shape or ())
        for group in grouped(header.bundles)
        for name in group.names()
    }


def test_a_usual_header(tmp_path: Path) -> None:
    tensors: list[Tensor] = [
        ("model.layers.0.mlp.experts.0.w1.weight", "U8", (4, 2)),
        ("model.layers.0.mlp.experts.1.w1.weight", "U8", (4, 2)),
        ("model.layers.0.mlp.experts.1.w2.weight", "U8", (2, 4)),
        ("scale_2", "F32", ()),
        ("nothing", "BF16", (0, 8)),
        ("half", "F4", (3, 2)),
    ]
    size = write_header(tmp_path / "a.safetensors", tensors, metadata={"format": "pt", "odd": ']},"'})
    header = read_header(tmp_path / "a.safetensors")
    assert contents(header) == set(tensors)
    assert (header.count, header.data_bytes, header.has_data) == (6, size, True)
    assert header.metadata == {"format": "pt", "odd": ']},"'}


def test_offsets_need_not_be_in_the_order_of_names(tmp_path: Path) -> None:
    fields = {
        "b": {"dtype": "U8", "shape": [4], "data_offsets": [6, 10]},
        "a": {"dtype": "U8", "shape": [6], "data_offsets": [0, 6]},
    }
    write_raw(tmp_path / "a.safetensors", json.dumps(fields, separators=(",", ":")), 10)
    assert contents(read_header(tmp_path / "a.safetensors")) == {("a", "U8", (6,)), ("b", "U8", (4,))}


def test_a_file_may_end_with_its_header(tmp_path: Path) -> None:
    write_header(tmp_path / "a.safetensors", [("a", "F32", (4,))], data=False)
    header = read_header(tmp_path / "a.safetensors")
    assert (header.data_bytes, header.has_data) == (16, False)


@pytest.mark.parametrize(
    ("header", "data_bytes", "said"),
    [
        ("{", 0, "not JSON"),
        ("[]", 0, "it holds a list"),
        ("null", 0, "it holds null"),
        ("<html>a page instead</html>", 0, "not JSON"),
        (b"\xff\xff", 0, "not UTF-8"),
        ('{"a":' * 50_000, 0, "nested too deeply"),
        ({"a": {**ONE, "data_offsets": [0, 16]}}, 16, "8 bytes, and has 16"),
        ({"a": {**ONE, "data_offsets": [8, 16]}}, 16, "does not begin where"),
        ({"a": {**ONE, "data_offsets": [8, 0]}}, 8, "no valid dtype"),
        ({"a": {**ONE, "data_offsets": [-8, 0]}}, 8, "no valid dtype"),
        ({"a": {**ONE, "data_offsets": [0, 2**64]}}, 8, "no valid dtype"),
        ({"a": {**ONE, "data_offsets": [0.0, 8.0]}}, 8, "no valid dtype"),
        ({"a": {**ONE, "data_offsets": "0,8"}}, 8, "no valid dtype"),
        ({"a": {**ONE, "data_offsets": [0, 8, 16]}}, 8, "no valid dtype"),
        ({"a": {**ONE, "shape": None}}, 8, "no valid dtype"),
        ({"a": {**ONE, "shape": [True, 2]}}, 8, "no valid dtype"),
        ({"a": {**ONE, "dtype": ["F32"]}}, 8, "no valid dtype"),
        ({"a": {**ONE, "dtype": "F32\x1b[2J"}}, 8, "no valid dtype"),
        ({"a": []}, 8, "no valid dtype"),
        ({"a\x1b[31m": {}}, 8, r"`a\\x1b\[31m`"),
        ({"a": ONE, "b": {**ONE, "data_offsets": [4, 12]}}, 12, "overlaps"),
        ({"a": ONE, "b": ONE}, 8, "overlaps"),
        ({"a": ONE, "b": {**ONE, "data_offsets": [8, 16]}}, 12, "cut off"),
        ({"a": ONE}, 12, "more behind"),
        ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}', 2, "`a` occurs twice"),
        ('{"x.1.0":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x.1.0":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}', 3, "occurs twice"),
        ('{"a":{"dtype":"U8","shape":[01],"data_offsets":[0,1]}}', 1, "not JSON"),
        ('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},}', 1, "not JSON"),
    ],
)  # fmt: skip
def test_bad_headers(header: Any, data_bytes: int, said: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    text = header if isinstance(header, str | bytes) else json.dumps(header, separators=(",", ":"))
    write_raw(path, text, data_bytes)
    with pytest.raises(CheckpointError, match=said) as caught:
        read_header(path)
    assert "model.safetensors" in str(caught.value)


@pytest.mark.parametrize("length", [2**62, 2**63 + 5, 2**64 - 1, 0, 1, 200_000_000, 60])
def test_bad_lengths(length: int, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_raw(path, '{"a":{}}', 300_000_000 if length == 200_000_000 else 0, length=length)
    with pytest.raises(CheckpointError, match=f"its header should take {length} bytes"):
        read_header(path)


@pytest.mark.parametrize(
    "content", [b"", b"\x01", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n"]
)
def test_files_that_are_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"empty|not a whole|Git LFS pointer"):
        read_header(path)


def test_a_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_header(path, [("a", "F32", (1000,)), ("b", "F32", (1000,))])
    with path.open("r+b") as stream:
        stream.truncate(path.stat().st_size - 1)
    with pytest.raises(CheckpointError, match="cut off"):
        read_header(path)


def test_a_dtype_that_is_not_known_yet(tmp_path: Path) -> None:
    write_raw(tmp_path / "a.safetensors", '{"a":{"dtype":"F3_X","shape":[8],"data_offsets":[0,3]}}', 3)
    header = read_header(tmp_path / "a.safetensors")
    assert contents(header) == {("a", "F3_X", (8,))}
    assert grouped(header.bundles)[0].bytes is None


words = st.text(st.sampled_from('ab0129._-\\"{}[]:,\n\x00 é٣N'), min_size=1, max_size=12)
names = st.one_of(words, st.builds("model.layers.{}.experts.{}.w{}".format, *[st.integers(0, 12)] * 3))
shapes = st.lists(st.integers(0, 12), max_size=3).map(tuple)
lists = st.dictionaries(
    names.filter(lambda name: name != "__metadata__"),
    st.tuples(st.sampled_from(sorted(BITS)), shapes),
    max_size=12,
)


@given(lists, st.booleans(), st.booleans(), st.randoms())
def test_cutting_and_parsing_agree(
    tensors: dict[str, tuple[str, tuple[int, ...]]], ascii_only: bool, spaced: bool, random: Any
) -> None:
    fields, end = {}, 0
    order = list(tensors)
    random.shuffle(order)
    for name in order:
        dtype, shape = tensors[name]
        start, end = end, end + tensor_bytes(dtype, shape)
        fields[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(
        {name: fields[name] for name in tensors},
        ensure_ascii=ascii_only,
        separators=None if spaced else (",", ":"),
    )
    whole = parse_header(RawHeader("a.safetensors", "a", text.encode(), end))
    entries, _, parsed_end = parse_entries(text, end, "a")
    parsed = Header("a.safetensors", bundles("a.safetensors", entries), {}, parsed_end, True, len(entries))
    assert contents(whole) == contents(parsed) == {(name, *fields) for name, fields in tensors.items()}
    assert whole.data_bytes == parsed_end == end


def test_usual_headers_are_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast way is taken where it should be."""
    monkeypatch.setattr(headers, "parse_entries", None)
    tensors: list[Tensor] = [(f"model.layers.{n % 7}.experts.{n}.w1", "BF16", (n, 2)) for n in range(300)]
    write_header(tmp_path / "a.safetensors", tensors, metadata={"format": "pt"})
    assert contents(read_header(tmp_path / "a.safetensors")) == set(tensors)
