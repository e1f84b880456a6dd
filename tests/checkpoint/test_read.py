"""Small files: what is refused, with one message each and before anything large is read."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from autolaunch.checkpoint.problems import CheckpointError, shown
from autolaunch.checkpoint.read import parse_object, read_file, read_object


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"{", "is not JSON"),
        (b'{"a": 1,}', "line 1 column"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}", "nested too deeply"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"[1, 2]", "it holds a list"),
        (b"null", "it holds null"),
        (b'"text"', "it holds a string"),
        (b"true", "it holds a boolean"),
        (b"1e5", "it holds a number"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "Git LFS pointer"),
        (b"<html>", "not JSON"),
    ],
)
def test_bad_content(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=said) as caught:
        read_object(path)
    assert "config.json" in caught.value.what
    assert len(str(caught.value).splitlines()) <= 4


def test_what_python_calls_json_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"a": Infinity, "b": NaN, "c": "1", "\\ud800": null, "a": -Infinity}')
    value = read_object(path)
    assert value["a"] == -math.inf
    assert math.isnan(value["b"])
    assert value["\ud800"] is None


def test_a_key_that_occurs_twice_can_be_forbidden() -> None:
    assert parse_object('{"a": 1, "a": 2}', "config.json") == {"a": 2}
    with pytest.raises(CheckpointError, match="`a` occurs twice"):
        parse_object('{"x": {"a": 1, "b": 0, "a": 2}}', "header", unique=True)


def test_large_files_are_refused_by_size_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.touch()
    os.truncate(path, 200 * 1024 * 1024)
    with pytest.raises(CheckpointError, match="too large") as caught:
        read_object(path)
    assert "200.0 MiB" in str(caught.value)


@pytest.mark.parametrize("kind", ["fifo", "folder", "loop", "dead link", "device", "absent", "unreadable"])
def test_only_regular_files_are_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "dead link":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "unreadable":
        path.write_text("{}")
        path.chmod(0)
        if os.access(path, os.R_OK):
            pytest.skip("the superuser reads everything")
    with pytest.raises(CheckpointError, match="cannot read"):
        read_file(path)


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "blob").write_text(json.dumps({"a": 1}))
    (tmp_path / "config.json").symlink_to("blob")
    assert read_object(tmp_path / "config.json") == {"a": 1}


def test_messages_hold_no_control_characters() -> None:
    assert shown("a\x1b[31mb\n\udcff\u202e") == "a\\x1b[31mb\\n\\udcff\\u202e"
    assert shown("x" * 1000).endswith("…")
