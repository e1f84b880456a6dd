"""Where a catalogue comes from: snapshot, cache, sources; and that no cache can do harm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autolaunch.errors import AutolaunchError
from autolaunch.request import catalogue as subject
from autolaunch.request.catalogue import bundled_catalogue, bundled_versions, load_catalogue
from autolaunch.request.interpreter import Interpreter, find_interpreter
from tests.request.conftest import catalogue_of

ROOT = Path(__file__).parent.parent.parent
SOURCE = """
class ServerArgs:
    def add_cli_args(parser):
        parser.add_argument("--model-path", type=str)
        parser.add_argument("--{name}", type=int, choices=[1, 2])
"""


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    """An SGLang of an unknown version with two flags."""
    package = tmp_path / "site" / "sglang"
    (package / "srt").mkdir(parents=True)
    (package / "srt" / "server_args.py").write_text(SOURCE.format(name="first"))
    return Interpreter("/venv/bin/python", package, "0.0.0.dev1+gabc", "--python")


def test_sources_then_cache_then_sources_again(interpreter: Interpreter, tmp_path: Path) -> None:
    first = load_catalogue(interpreter, tmp_path / "cache")
    assert (first.origin, first.version) == ("installed", "0.0.0.dev1+gabc")
    assert [flag.dest for flag in first.flags] == ["help", "model_path", "first"]
    again = load_catalogue(interpreter, tmp_path / "cache")
    assert (again.origin, again.flags) == ("cache", first.flags)
    source = interpreter.package / "srt" / "server_args.py"
    source.write_text(SOURCE.format(name="other"))
    changed = load_catalogue(interpreter, tmp_path / "cache")
    assert (changed.origin, changed.flags[-1].dest) == ("installed", "other")


def test_a_new_version_in_the_same_place_is_read_anew(interpreter: Interpreter, tmp_path: Path) -> None:
    load_catalogue(interpreter, tmp_path)
    newer = Interpreter(interpreter.python, interpreter.package, "9.9", "--python")
    assert load_catalogue(newer, tmp_path).origin == "installed"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"schema": "autolaunch.flags/1"}',
        b'{"schema": "other", "flags": []}',
        b'{"schema": "autolaunch.flags/1", "version": "0.0.0.dev1+gabc", "sources": 3, "state": 0}',
        b'{"schema": "autolaunch.flags/1", "version": "0.0.0.dev1+gabc", "sources": {"/dev/zero": ""}, "state": []}',
    ],
)
def test_a_corrupt_cache_is_ignored(interpreter: Interpreter, tmp_path: Path, content: bytes) -> None:
    load_catalogue(interpreter, tmp_path)
    (cached,) = (tmp_path / "flags").iterdir()
    cached.write_bytes(content)
    assert load_catalogue(interpreter, tmp_path).origin == "installed"
    assert load_catalogue(interpreter, tmp_path).origin == "cache"


def test_flags_of_a_wrong_shape_in_the_cache_are_ignored(interpreter: Interpreter, tmp_path: Path) -> None:
    load_catalogue(interpreter, tmp_path)
    (cached,) = (tmp_path / "flags").iterdir()
    row = json.loads(cached.read_text())
    row["flags"] = [{"names": None}]
    cached.write_text(json.dumps(row))
    assert load_catalogue(interpreter, tmp_path).origin == "installed"


@pytest.mark.parametrize("kind", ["file", "pipe", "huge", "folder"])
def test_a_cache_that_cannot_be_used_costs_time_only(
    interpreter: Interpreter, tmp_path: Path, kind: str
) -> None:
    cache = tmp_path / "cache"
    if kind == "file":
        cache.write_text("in the way")
    else:
        load_catalogue(interpreter, cache)
        (cached,) = (cache / "flags").iterdir()
        cached.unlink()
        if kind == "pipe":
            os.mkfifo(cached)
        elif kind == "huge":
            with cached.open("wb") as file:
                file.truncate(1 << 30)
        else:
            (cached / "x").mkdir(parents=True)
    assert load_catalogue(interpreter, cache).origin == "installed"
    assert not list(tmp_path.rglob(".*.json.*")), "no half-written file stays"


def test_read_only_home(interpreter: Interpreter) -> None:
    assert load_catalogue(interpreter, Path("/proc/nowhere")).origin == "installed"


@pytest.mark.parametrize("version", bundled_versions())
def test_bundled(version: str) -> None:
    catalogue = catalogue_of(version)
    assert (catalogue.version, catalogue.origin) == (version, "bundled")
    assert len(catalogue.flags) > 300
    names = [name for flag in catalogue.flags for name in flag.names]
    assert len(names) == len(set(names))
    for dest in ("model_path", "tp_size", "attention_backend", "disable_radix_cache", "config"):
        assert catalogue.flag(dest) is not None, dest
    assert all(flag.source == "argparse" or flag.source.startswith("srt/") for flag in catalogue.flags)
    backend = catalogue.flag("attention_backend")
    assert backend is not None
    assert {"triton", "torch_native", "fa3", "flashinfer"} <= set(backend.choices or ())


def test_bundled_versions_are_in_order() -> None:
    assert bundled_versions() == (
        "0.5.9", "0.5.10.post1", "0.5.11", "0.5.14", "0.5.17", "0.5.20", "0.5.21", "0.5.23",
    )  # fmt: skip


@pytest.mark.parametrize("version", ["0.5.8", "", "../../etc/passwd", "unknown"])
def test_unknown_bundled_version(version: str) -> None:
    with pytest.raises(AutolaunchError, match=r"0\.5\.23"):
        bundled_catalogue(version)


def test_same_version_with_other_sources_is_read(interpreter: Interpreter, tmp_path: Path) -> None:
    patched = Interpreter(interpreter.python, interpreter.package, "0.5.9", "--python")
    assert [flag.dest for flag in load_catalogue(patched, tmp_path).flags] == ["help", "model_path", "first"]


def test_the_snapshot_is_used_where_the_sources_are_the_same(
    sglang_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = find_interpreter(sglang_python, os.environ, Path("/"))
    if found.version not in bundled_versions():
        pytest.skip(f"SGLang {found.version} has no snapshot")
    bundled = load_catalogue(found, tmp_path)
    assert bundled.origin == "bundled"
    assert not list(tmp_path.rglob("*.json"))
    monkeypatch.setattr(subject, "SNAPSHOTS", tmp_path)
    read = load_catalogue(found, tmp_path)
    assert (read.origin, read.flags) == ("installed", bundled.flags)


def test_snapshots_are_what_the_script_makes(tmp_path: Path) -> None:
    """From a wheel, without a network; the bundled ones are compared where the wheels are at hand."""
    import zipfile

    package = tmp_path / "sglang-1.2-py3-none-any.whl"
    with zipfile.ZipFile(package, "w") as wheel:
        wheel.writestr("sglang/srt/server_args.py", SOURCE.format(name="x"))
        wheel.writestr("sglang/data.bin", "not unpacked")
    script = ROOT / "scripts" / "make-flag-snapshots"
    command = [sys.executable, script, "--wheels", tmp_path, "--into", tmp_path / "out", "1.2"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "sglang-1.2.json: 3 flags from 1 files\n"), done.stderr
    row = json.loads((tmp_path / "out" / "sglang-1.2.json").read_text())
    assert row["schema"] == subject.SCHEMA
    assert row["flags"][2] == {
        "names": ["--x"],
        "dest": "x",
        "source": "srt/server_args.py:5",
        "type": "int",
        "choices": ["1", "2"],
    }
    missing = subprocess.run([*command[:-1], "9.9"], capture_output=True, text=True)
    assert missing.returncode != 0
    assert "no wheel of sglang 9.9" in missing.stderr
