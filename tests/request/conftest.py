"""The SGLang versions at hand: the installed one, and those in `AUTOLAUNCH_TEST_SGLANG_DIR`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from autolaunch.request.catalogue import bundled_catalogue
from autolaunch.request.flags import FlagCatalogue
from autolaunch.request.interpreter import Interpreter, find_interpreter

REAL_PARSER = Path(__file__).parent / "real_parser.py"
COMPARED = ("0.5.17", "0.5.21", "0.5.23")
"""The versions whose real parser must agree: the installed one is 0.5.21."""


@dataclass(frozen=True)
class RealSglang:
    """One SGLang with its parser in a process of its own."""

    interpreter: Interpreter
    process: subprocess.Popen[str]

    def ask(self, lines: Sequence[Sequence[str]]) -> dict[str, Any]:
        """What its parser says of each line, and its flags."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(list(map(list, lines))) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@pytest.fixture(scope="session", params=COMPARED)
def real(request: pytest.FixtureRequest, sglang_python: str) -> Iterator[RealSglang]:
    """Each of the real versions in turn; skips those that are not at hand."""
    version = request.param
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    folder = Path(os.environ.get("AUTOLAUNCH_TEST_SGLANG_DIR") or "nowhere", f"sglang-{version}")
    if folder.is_dir():
        environ["PYTHONPATH"] = str(folder)
    interpreter = find_interpreter(sglang_python, environ, Path("/"))
    if interpreter.version != version:
        pytest.skip(f"SGLang {version} is not at hand; `scripts/test` provides it")
    with subprocess.Popen(
        [interpreter.python, str(REAL_PARSER)],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        yield RealSglang(interpreter, process)
        process.kill()


@cache
def catalogue_of(version: str) -> FlagCatalogue:
    """A bundled catalogue, read once."""
    return bundled_catalogue(version)


@pytest.fixture
def make_interpreter(tmp_path: Path) -> Interpreter:
    """An interpreter that holds an SGLang without any file."""
    return Interpreter("/opt/venv/bin/python", tmp_path / "no-sglang-here", "0.5.21", "--python")
