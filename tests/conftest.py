"""What all tests share: a home of their own, a small real model, a real SGLang, and one engine at a time.

Variables that steer a test run, none of which autolaunch itself reads:

- `AUTOLAUNCH_TEST_PYTHON`: the interpreter that holds SGLang; otherwise the one that runs the tests;
- `AUTOLAUNCH_TEST_REQUIRE_SGLANG`: when set, a missing SGLang fails the tests that need it and skips none;
- `AUTOLAUNCH_TEST_SGLANG_DIR`: a folder that holds other versions as `sglang-<version>/`;
- `AUTOLAUNCH_TEST_ENGINE_LOCK`: the lock file of the machine's only turn at running engines;
- `AUTOLAUNCH_TEST_UPDATE`: when set, the files in `tests/explain/snapshots` are written anew.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import pytest

from tests.real_server import ROOT, RealServer, find_free_port

ENGINE_LOCK = filelock.FileLock(
    os.environ.get("AUTOLAUNCH_TEST_ENGINE_LOCK")
    or Path(tempfile.gettempdir(), "autolaunch-test-engine.lock")
)
"""Real engines of two test runs on one machine would falsify each other's times."""


def pytest_configure() -> None:
    """Give what the tests start the signals of a terminal, wherever this run was started from.

    A shell has what it puts in the background ignore SIGINT and SIGQUIT, and `nohup` SIGHUP; children
    would inherit that, and a launcher that respects it passes no test of Ctrl-C.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) == signal.SIG_IGN:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)


@pytest.fixture(autouse=True)
def isolated_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test starts without settings of autolaunch, and writes nothing into the user's folders."""
    for name in os.environ:
        if name.startswith("AUTOLAUNCH_") and not name.startswith("AUTOLAUNCH_TEST_"):
            monkeypatch.delenv(name)
    home = tmp_path / "autolaunch-home"
    monkeypatch.setenv("AUTOLAUNCH_HOME", str(home))
    return home


def needs_engine(item: pytest.Item | None) -> bool:
    """Whether a test starts real engines."""
    return item is not None and item.get_closest_marker("sglang") is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run what needs no engine first: it is quick, and says most."""
    items.sort(key=needs_engine)  # stable, so modules and their fixtures stay together


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Hold the engine lock around tests marked `sglang`, and between two that follow each other.

    This is the outermost wrapper, so waiting for the lock does not count against a test's time limit.
    """
    if needs_engine(item) and not ENGINE_LOCK.is_locked:
        ENGINE_LOCK.acquire()
    try:
        return (yield)
    finally:
        if ENGINE_LOCK.is_locked and not needs_engine(nextitem):
            ENGINE_LOCK.release()


@pytest.fixture(scope="session")
def sglang_python() -> str:
    """The interpreter that holds SGLang; skips, or fails where SGLang is required, when there is none."""
    python = os.environ.get("AUTOLAUNCH_TEST_PYTHON") or sys.executable
    question = "import importlib.util, sys; sys.exit(importlib.util.find_spec('sglang.srt') is None)"
    if subprocess.run([python, "-c", question], cwd="/", stderr=subprocess.DEVNULL).returncode == 0:
        return python
    reason = f"{python} holds no SGLang; `scripts/test` provides one"
    if os.environ.get("AUTOLAUNCH_TEST_REQUIRE_SGLANG"):
        pytest.fail(reason)
    pytest.skip(reason)


@dataclass(frozen=True, slots=True)
class SmallModel:
    """A trained model and what it was taught."""

    path: Path
    answers: dict[str, str]
    """Chat question to the whole answer."""
    continuations: dict[str, str]
    """Beginning of a sentence to the rest of it, which starts with a space."""

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)


def make_small_model(python: str, cache: Path, family: str) -> SmallModel:
    """The small model of `family`, made in `cache` unless this state of the script has made it there."""
    folder = cache / family
    with filelock.FileLock(cache / f"{family}.lock"):
        subprocess.run(
            [python, ROOT / "scripts" / "make-small-model", folder, "--family", family], check=True
        )
    taught = json.loads((folder / "small-model.json").read_text())
    return SmallModel(folder, taught["answers"], taught["continuations"])


@pytest.fixture(scope="session")
def small_model(sglang_python: str, pytestconfig: pytest.Config) -> SmallModel:
    """The small model of the demo, kept in pytest's cache between runs."""
    cache = pytestconfig.cache
    folder = cache.mkdir("small-model") if cache else Path(tempfile.mkdtemp(prefix="autolaunch-small-model-"))
    return make_small_model(sglang_python, folder, "llama")


@pytest.fixture
def free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on."""
    return find_free_port()


@pytest.fixture
def start_server(tmp_path: Path) -> Iterator[Callable[..., RealServer]]:
    """`RealServer` with a log of its own; whatever is left of it is killed when the test ends."""
    started: list[RealServer] = []

    def start(argv: list[str], *, port: int, **options: Any) -> RealServer:
        server = RealServer(argv, port=port, log=tmp_path / f"server-{len(started)}.log", **options)
        started.append(server)
        return server

    yield start
    for server in started:
        server.end()
