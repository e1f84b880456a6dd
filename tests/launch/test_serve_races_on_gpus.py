"""`autolaunch serve` races slices where NVML tells of GPUs, with engines whose traces are made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autolaunch.candidates.candidate import ORIGINAL
from autolaunch.launch.attempts import Fallback
from autolaunch.race.progress import Progress
from autolaunch.serve.asked import Asked
from autolaunch.serve.decide import fallen_back
from tests.explain.cases import QWEN_397B, ask, write_model
from tests.launch.gpu_box import SM_120, Box, llama
from tests.launch.harness import wait_until
from tests.real_server import RealServer, find_free_port

REPAIR = ("--moe-runner-backend", "flashinfer_cutlass")
WINNER = ["--attention-backend", "triton"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model that can be cut."""
    return llama(tmp_path, layers=12)


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """Two H200, and a folder for what is temporary, which must be empty afterwards."""
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    box = Box(tmp_path)
    box.environ |= {"FAKE_NVML": "h200-x2.sm90.json", "TMPDIR": str(scratch)}
    return box


class Started:
    """Starts servers of one box, on one port."""

    def __init__(self, box: Box, model: Path, start_server: Callable[..., RealServer]) -> None:
        self.box, self.model, self.start_server = box, model, start_server
        self.port = find_free_port()

    def serve(self, *words: str, **environ: str) -> RealServer:
        """A healthy server."""
        self.box.state.unlink(missing_ok=True)
        place = ("--host", "127.0.0.1", "--port", str(self.port))
        argv = self.box.argv(self.model, *place, "--verify", "off", *words)
        environment = {**self.box.environ, **environ}
        server = self.start_server(argv, port=self.port, environ=environment, cwd=self.box.cwd)
        server.wait_healthy(120)
        return server

    def end(self, server: RealServer) -> str:
        """What the server's terminal showed, once it was seen healthy, has ended and left nothing."""
        wait_until(lambda: bool(self.attempt()["healthy"]), 10, "healthy is on record")
        assert server.stop() == 0
        assert server.leftovers() == []
        assert list(Path(self.box.environ["TMPDIR"]).iterdir()) == [], "slices and scratch are gone"
        return server.output()

    def words(self) -> list[str]:
        """SGLang's words of the last server, without those of every start."""
        found: list[str] = json.loads(self.box.state.read_text())["words"]
        return found[found.index(str(self.port)) + 1 :]

    def attempt(self) -> dict[str, Any]:
        """The last start on record."""
        (record,) = Path(self.box.environ["AUTOLAUNCH_HOME"]).glob("state/attempts/*.json")
        found: dict[str, Any] = json.loads(record.read_text())["attempts"][-1]
        return found


@pytest.fixture
def started(box: Box, model: Path, start_server: Callable[..., RealServer]) -> Started:
    """Servers on two H200."""
    return Started(box, model, start_server)


def test_the_fastest_kernels_on_a_slice_serve_and_are_used_again(started: Started) -> None:
    server = started.serve()
    assert started.words() == WINNER
    text = started.end(server)
    assert "a copied slice: the first 4 of 12 layers" in text
    assert f"launching {' '.join(WINNER)}: 100 % more output tok/s than the original" in text
    assert "GPU time on a slice of 4 of 12 layers, extrapolated" in text
    again = started.serve()
    assert started.words() == WINNER
    text = started.end(again)
    assert f"launching {' '.join(WINNER)} by the profile h200/llama.tp1.throughput." in text
    assert "for in=1024,out=256,concurrency=32, throughput): 100 % more output tok/s" in text
    assert "racing" not in text
    dry = started.box.dry_run(started.model, "--host", "127.0.0.1", "--port", str(started.port))
    assert dry.stdout.endswith(f"{' '.join(WINNER)}\n"), "what is shown is what would be launched"


def test_a_profile_that_claims_to_be_made_here_is_asked_of_the_table(
    started: Started, tmp_path: Path
) -> None:
    started.box.environ["FAKE_NVML"] = SM_120
    started.end(started.serve())
    assert started.words() == WINNER
    place = ("--host", "127.0.0.1", "--port", str(started.port))
    assert " by the profile rtx-pro-6000" in started.box.dry_run(started.model, *place).stderr
    (path,) = Path(started.box.environ["AUTOLAUNCH_HOME"]).glob("data/profiles/*/*.toml")
    made, *_ = path.read_text().split("[[entrants]]")
    assert 'origin = "serve"' in made
    forged = made.replace('"triton"', '"fa3"')
    path.write_text(forged)
    base = store_with(tmp_path, f"{path.parent.name}/{path.name}", forged)
    mine = tmp_path / "mine.toml"
    mine.write_text(forged)
    own = path.parents[1]
    for words in ((), ("--profile", str(mine)), ("--profile-dir", str(own), "--profile-dir", str(base))):
        done = started.box.dry_run(started.model, *place, *words)
        assert "fa3" not in done.stdout
        assert "`--attention-backend fa3` is passed over: `--attention-backend fa3`: " in done.stderr
        path.unlink(missing_ok=True)


def store_with(folder: Path, name: str, text: str) -> Path:
    """A store with one profile."""
    place = folder / "store" / name
    place.parent.mkdir(parents=True)
    place.write_text(text)
    return folder / "store"


def test_engines_that_may_not_be_profiled_decide_nothing(started: Started) -> None:
    server = started.serve(FAKE_BEHAVE="profile-empty")
    assert started.words() == []
    text = started.end(server)
    assert text.count("out at serve, environment") == 2
    assert "shows no kernel of a GPU: the engine ran on a CPU, or may not be profiled" in text
    assert "launching the original command, nothing could be measured: the original command failed" in text
    assert not list(Path(started.box.environ["AUTOLAUNCH_HOME"]).glob("data/profiles/*/*.toml"))


def test_full_repeats_the_final_on_the_whole_model(started: Started) -> None:
    server = started.serve("--tune", "full", "--budget", "40s")
    text = started.end(server)
    assert "as `--tune full` says so" in text
    assert "racing c0 and c1 once more, on the whole model" in text
    assert "wall time" in text or "what the slice showed stands" in text
    runs = sorted(Path(started.box.environ["AUTOLAUNCH_HOME"]).glob("state/runs/*"))
    assert len(runs) == 2, "each race has its journal"


def test_where_nothing_could_be_measured_the_tables_repair_is_launched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As without a race: an engine that may not be profiled says nothing against a repair."""
    assessment = ask(write_model(QWEN_397B, tmp_path), "--tp", "8", gpu="RTX PRO 6000", gpus=8)
    assert assessment.choice.flags == REPAIR
    nothing = Fallback(no_race=False, suspects=frozenset(), reason="")
    asked = Asked(None, None, assessment.machine, nothing, assessment.field, assessment)  # type: ignore[arg-type]
    settled = fallen_back(asked, "no trace had a kernel", Progress(), None)
    assert settled.candidate == assessment.choice
    assert settled.line == (
        f"autolaunch: launching {' '.join(REPAIR)}, nothing could be measured: no trace had a kernel"
    )
    assert "repair: `--moe-runner-backend flashinfer_cutlass` in place of" in capsys.readouterr().err
    failed = replace(asked, past=Fallback(False, frozenset({REPAIR}), "it failed before"))
    assert fallen_back(failed, "no trace had a kernel", Progress(), None).candidate == ORIGINAL
