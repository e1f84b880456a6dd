"""Engines of a fake SGLang, for what need not wait for a real one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from autolaunch.command import Command
from autolaunch.race.engine import Engine
from tests.race.processes import Mark

FAKE = Path(__file__).parent / "fake_sglang"


@pytest.fixture
def mark() -> Iterator[Mark]:
    """A mark for processes; those that still carry it after the test are ended."""
    mark = Mark()
    yield mark
    for pid in mark.pids():
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def fake_engine(mark: Mark, tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """Makes an engine of the fake SGLang that behaves as told; all are closed at the end."""
    made: list[Engine] = []

    def make(
        behave: str = "well",
        *tokens: str,
        overlay: tuple[str, ...] = (),
        more_environ: Mapping[str, str] = MappingProxyType({}),
        **options: object,
    ) -> Engine:
        engine = Engine(
            Command(
                (
                    sys.executable,
                    "-m",
                    "sglang.launch_server",
                    "--model-path",
                    "m",
                    "--behave",
                    behave,
                    *tokens,
                )
            ),
            overlay,
            log=tmp_path / "logs" / f"{len(made)}.log",
            environ=mark.environ() | {"TMPDIR": str(tmp_path), **more_environ},
            cwd=FAKE,
            **options,  # type: ignore[arg-type]
        )
        made.append(engine)
        return engine

    yield make
    for engine in made:
        engine.close()
