"""Secrets of a real start, planted where people keep them, are in nothing that autolaunch leaves behind."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import SmallModel
from tests.launch.harness import wait_until
from tests.real_server import SMALL_SERVER_FLAGS, RealServer, server_environment

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(600)]

KEYS = ("--api-key", "planted-key-one", "--admin-api=planted-key-two")
PASSWORD = ("--ssl-keyfile-pass", "planted-word")
"""Of no file: a server would refuse it, and an engine serves no HTTP."""
ENVIRON = {
    "HF_TOKEN": "hf_plantedTokenOne",
    "OPENAI_API_KEY": "planted-key-three",
    "SIGNING_PASSPHRASE": "planted, with blanks",
    "PIP_INDEX_URL": "https://somebody:planted%2Fproxy@index.invalid/simple",
}
CANDIDATE = "HF_HUB_TOKEN=planted-key-four --disable-radix-cache --api-key planted-key-five"


@pytest.fixture
def arguments(sglang_python: str, small_model: SmallModel) -> list[str]:
    """What both commands are given: a short race of a few choices."""
    own = ["--python", sglang_python, "--budget", "2m", "--candidate", CANDIDATE]
    return [*own, str(small_model), *SMALL_SERVER_FLAGS, "--attention-backend", "torch_native", *KEYS]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The planted variables, and a temporary folder of the test's own."""
    (tmp_path / "tmp").mkdir()
    return server_environment({**ENVIRON, "TMPDIR": str(tmp_path / "tmp")})


def artefacts(*folders: Path) -> Iterator[tuple[Path, str]]:
    """Everything that lies in `folders`, names included."""
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                yield path, f"{path}\n{path.read_bytes().decode('utf-8', 'replace')}"


def check(home: Path, tmp: Path, *printed: str) -> None:
    """No artefact and nothing printed holds anything planted, and there are artefacts."""
    found = dict(artefacts(home, tmp))
    assert [path for path in found if path.name == "journal.jsonl"], "there was a race"
    assert [path for path in found if path.suffix == ".log"], "there were engines"
    assert {path: text for path, text in found.items() if "planted" in text} == {}
    assert [text for text in printed if "planted" in text] == []


def test_a_tuning_leaves_none(
    arguments: list[str], environ: dict[str, str], isolated_home: Path, tmp_path: Path
) -> None:
    argv = [sys.executable, "-m", "autolaunch", "tune", *arguments, *PASSWORD]
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "***" in done.stdout, "the command to serve with has its keys hidden"
    check(isolated_home, tmp_path / "tmp", done.stdout, done.stderr)


def test_a_start_with_a_race_leaves_none(
    arguments: list[str],
    environ: dict[str, str],
    isolated_home: Path,
    tmp_path: Path,
    free_port: int,
    start_server: Callable[..., RealServer],
) -> None:
    argv = [sys.executable, "-m", "autolaunch", "serve", "--tune", "quick", *arguments]
    server = start_server([*argv, "--port", str(free_port)], port=free_port, environ=environ)
    server.wait_healthy(300)
    attempts = isolated_home / "state" / "attempts"
    wait_until(lambda: any(attempts.glob("*")), 30, "a record of the start")
    time.sleep(20)  # its answers are looked at
    assert server.stop() is not None
    check(isolated_home, tmp_path / "tmp")
