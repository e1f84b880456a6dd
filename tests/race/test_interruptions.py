"""Whatever ends the launcher while several engines load together, nothing of them stays, and the journal can be read."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.race.processes import Mark
from tests.real_server import ROOT

MOMENTS = 17
"""Of each signal, 51 in all."""
LONGEST_S = 2.5
"""Four engines and the gate's reference are up after about 0.6 s, gated after 1.2, and then timed."""
ENGINES = 4


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A short temporary folder, for sockets in a long one have too long names."""
    folder = Path(tempfile.mkdtemp(prefix="al-"))
    yield folder
    shutil.rmtree(folder)


def start(mark: Mark, folder: Path, temporary: Path, **job: object) -> subprocess.Popen[bytes]:
    """A launcher that races; returns when the race begins."""
    folder.mkdir()
    words = {"folder": str(folder), "engines": ENGINES, **job}
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.race.race_parent", json.dumps(words)],
        env=mark.environ() | {"PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"starting\n"
    return parent


def events(folder: Path) -> list[dict[str, object]]:
    """The journal, every line of which must be whole."""
    *lines, rest = (folder / "journal.jsonl").read_text().split("\n")
    assert rest == ""
    return [json.loads(line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda one: one.name)
def test_a_signal_at_a_random_moment(
    number: signal.Signals, mark: Mark, temporary: Path, tmp_path: Path
) -> None:
    moments = random.Random(f"moments of {number.name}")
    for count in range(MOMENTS):
        delay_s = moments.uniform(0, LONGEST_S)
        folder = tmp_path / str(count)
        with start(mark, folder, temporary) as parent:
            time.sleep(delay_s)
            parent.send_signal(number)
            code = parent.wait(30)
            assert parent.stdout is not None
            said = parent.stdout.read()
        assert mark.wait_gone(10) == {}, f"after {delay_s:.3f} s"
        assert list(temporary.iterdir()) == [], f"after {delay_s:.3f} s"
        written = events(folder)
        if number == signal.SIGINT:
            assert (code, said) == (0, b"ended interrupted\n")
            assert written[-1]["event"] == "race-ended"
        else:
            assert (code, said) == (-number, b"")


def test_an_engine_that_hangs_while_others_are_gated_is_ended_too(
    mark: Mark, temporary: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    with start(
        mark, folder, temporary, behave={"c1": "load-hang", "c2": "load-kill", "truth": "load-hang"}
    ) as parent:
        deadline = time.monotonic() + 20
        while not any(one["event"] == "failed" for one in events(folder)) and time.monotonic() < deadline:
            time.sleep(0.05)
        alive = len(mark.pids())
        parent.kill()
    assert alive > 3 * ENGINES
    assert mark.wait_gone(10) == {}
    assert list(temporary.iterdir()) == []
    assert [one["id"] for one in events(folder) if one["event"] == "failed"] == ["c2"]
