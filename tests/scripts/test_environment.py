"""The set-up goes on after an interruption, redoes what changed, and explains a failure in one message."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections import namedtuple
from pathlib import Path
from types import ModuleType

import pytest

from tests.loading import load_script
from tests.real_server import ROOT

NEEDED_PYTHON = ROOT / "scripts" / "needed_python.py"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """`scripts/environment.py` with a requirement file of its own, and a pip that only takes notes."""
    module = load_script("scripts/environment.py")
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("torch\n")
    monkeypatch.setattr(module, "REQUIREMENTS", requirements)
    monkeypatch.setattr(module.Environment, "make", lambda self: None)
    monkeypatch.setattr(module.Environment, "imports", lambda self, name: True)
    monkeypatch.setattr(module.Environment, "_check", lambda self, version: None)
    calls: list[str] = []

    def pip(self, *arguments: object) -> None:
        calls.append(Path(str(arguments[-1])).name)
        if calls[-1] in module.failing:
            raise module.SetupError(f"no {calls[-1]}")

    module.calls, module.failing = calls, set()
    monkeypatch.setattr(module.Environment, "pip", pip)
    return module


def installed(module: ModuleType, folder: Path, version: str = "0.5.21") -> list[str]:
    """What one run of the set-up gives to pip."""
    module.calls.clear()
    environment = module.Environment(folder)
    with environment.locked():
        environment.install_sglang(version)
    return list(module.calls)


EVERYTHING = ["requirements.txt", "torchvision==0.28.0", "sglang==0.5.21", "cpu-platform"]


def test_a_second_run_has_nothing_to_do(module: ModuleType, tmp_path: Path) -> None:
    assert installed(module, tmp_path / "venv") == EVERYTHING
    assert installed(module, tmp_path / "venv") == []


def test_an_interrupted_run_is_continued(module: ModuleType, tmp_path: Path) -> None:
    module.failing.add("sglang==0.5.21")
    with pytest.raises(module.SetupError, match=r"no sglang==0\.5\.21"):
        installed(module, tmp_path / "venv")
    module.failing.clear()
    assert installed(module, tmp_path / "venv") == EVERYTHING[2:]


def test_what_changed_is_done_again(module: ModuleType, tmp_path: Path) -> None:
    installed(module, tmp_path / "venv")
    assert installed(module, tmp_path / "venv", "0.5.23") == ["sglang==0.5.23"]
    module.REQUIREMENTS.write_text("torch\nnumpy\n")
    assert installed(module, tmp_path / "venv", "0.5.23")[0] == "requirements.txt"


def test_the_torchvision_that_can_be_imported_is_kept(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        module.Environment, "imports", lambda self, name: "torchvision==0.16.2" in module.calls
    )
    assert installed(module, tmp_path / "venv")[1:3] == ["torchvision==0.28.0", "torchvision==0.16.2"]
    monkeypatch.setattr(module.Environment, "imports", lambda self, name: False)
    with pytest.raises(
        module.SetupError, match=r"0\.28\.0 cannot be imported .* 0\.16\.2 cannot be imported"
    ):
        installed(module, tmp_path / "other")


def test_development_tools_include_the_plain_package(module: ModuleType, tmp_path: Path) -> None:
    environment = module.Environment(tmp_path / "venv")
    with environment.locked():
        environment.install_autolaunch("dev")
        environment.install_autolaunch()
    assert len(module.calls) == 1
    assert module.calls[0].endswith("[dev]")


def test_a_folder_with_other_things_is_refused(module: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(module.SetupError, match="is no Python environment"):
        installed(module, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["notes.txt", "requirements.txt"]


def test_too_little_space_is_said_before_anything_is_fetched(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**10, 10**10, 10**9))
    with pytest.raises(module.SetupError, match=r"1\.0 GB are free, 3\.5 GB are needed"):
        installed(module, tmp_path / "venv")
    assert module.calls == []


def test_a_second_run_waits_for_the_first(
    module: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = tmp_path / "venv"
    installed(module, folder)
    with (folder / ".install.lock").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        second = threading.Thread(target=installed, args=(module, folder))
        second.start()
        second.join(0.3)
        assert second.is_alive()
        assert "another run installs into" in capsys.readouterr().err
    second.join(10)
    assert not second.is_alive()


@pytest.mark.parametrize(
    ("output", "message", "hint"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "no space", "room"),
        ("NewConnectionError: Temporary failure in name resolution\nNo matching distribution found for x", "reached", "network"),
        ("ERROR: No matching distribution found for torch==2.13.0", "has no `torch==2.13.0` for Python 3", ""),
        ("a\nb\n\nc: it broke", "it could not be done\n  a\n  b\n  c: it broke", ""),
    ],
)  # fmt: skip
def test_the_output_of_pip_becomes_one_message(
    module: ModuleType, output: str, message: str, hint: str
) -> None:
    error = module.explained(output, "it could not be done")
    assert message in str(error)
    assert hint in error.hint


def test_a_python_without_ensurepip_is_named(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "The virtual environment was not created successfully because ensurepip is not available."
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 1, stdout=said))
    with pytest.raises(module.SetupError, match="`ensurepip` is missing") as caught:
        module.Environment(tmp_path / "venv")._make()
    assert "python3-venv" in caught.value.hint


@pytest.mark.slow
def test_a_missing_network_is_one_message(tmp_path: Path) -> None:
    """With the real pip, a real environment, and an index at a port where nobody listens."""
    settings = {
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_RETRIES": "1",
        "PIP_CONFIG_FILE": os.devnull,
    }
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "install-sglang-cpu", "here"],
        cwd=tmp_path,
        env={**clean, **settings},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert "error: the package index cannot be reached\n  the whole output: here/install.log" in ran.stderr
    assert "hint: check the network" in ran.stderr
    assert "Traceback" not in ran.stderr


def run_as_old_python(path: str) -> subprocess.CompletedProcess[str]:
    """Import the check as Python 3.10 would, with `path` as PATH."""
    code = (
        "import sys; sys.version_info = (3, 10, 1); sys.argv = ['demo', '--port', '1'];"
        f" exec(open({str(NEEDED_PYTHON)!r}).read()); print('went on')"
    )
    return subprocess.run([sys.executable, "-c", code], env={"PATH": path}, capture_output=True, text=True)


def test_an_old_python_says_what_is_needed(tmp_path: Path) -> None:
    ran = run_as_old_python(str(tmp_path))
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: Python 3.11 or newer is needed, and this is ")
    assert ran.stdout == ""


def test_an_old_python_hands_over_to_a_newer_one(tmp_path: Path) -> None:
    newer = tmp_path / "python3.12"
    newer.write_text('#!/bin/sh\necho "$@"\n')
    newer.chmod(0o755)
    assert run_as_old_python(str(tmp_path)).stdout == "demo --port 1\n"
