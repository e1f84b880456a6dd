"""`autolaunch serve` where NVML tells of GPUs: repairs without a measurement, warnings, and a record of both."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.explain.cases import QWEN_397B, write_model
from tests.explain.schema import check_document
from tests.launch.gpu_box import Box, llama
from tests.launch.harness import wait_until
from tests.real_server import RealServer, find_free_port

REPAIR = ["--moe-runner-backend", "flashinfer_cutlass"]


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of the seed case."""
    return write_model(QWEN_397B, tmp_path_factory.mktemp("models"))


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """Eight GPUs of SM 12.0."""
    return Box(tmp_path)


def words_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """SGLang's words of the printed command."""
    return shlex.split(done.stdout.splitlines()[-1])[3:]


def test_what_sglang_gets_wrong_is_repaired_and_told(box: Box, qwen: Path) -> None:
    done = box.dry_run(qwen, "--tp", "8", "--tune", "off")
    assert words_of(done) == ["--model-path", str(qwen), "--device", "cuda", "--tp", "8", *REPAIR]
    first, *rest = done.stderr.splitlines()
    assert (
        first == f"autolaunch: launching with {' '.join(REPAIR)} at once, nothing is measured: `--tune off`"
    )
    assert rest[0] == f"repair: `{' '.join(REPAIR)}` in place of SGLang's own `flashinfer_trtllm`"
    assert rest[1].startswith("  because ")
    assert rest[2].startswith("  evidence: ")
    assert any(line.startswith("not raced") for line in rest)


def test_a_model_that_cannot_be_cut_is_not_raced_by_itself(box: Box, tmp_path: Path) -> None:
    done = box.run(llama(tmp_path, layers=2), FAKE_NVML="h200-x2.sm90.json", FAKE_DEADLY="--model-path")
    assert "a race would load the whole model once a candidate, as a slice would take 2 layers" in done.stderr
    assert "and the model has 2; `--tune quick` does so all the same" in done.stderr
    assert done.returncode == 1  # the server's own


def test_pinned_harm_is_warned_of_and_stays(box: Box, qwen: Path) -> None:
    done = box.dry_run(qwen, "--tp", "8", "--moe-runner-backend", "flashinfer_trtllm")
    assert words_of(done)[-2:] == ["--moe-runner-backend", "flashinfer_trtllm"]
    assert (
        "\nwarning: `--moe-runner-backend flashinfer_trtllm` cannot run here, and you pinned it\n"
        in done.stderr
    )


def test_the_document_has_the_choice(box: Box, qwen: Path) -> None:
    value = box.document(qwen, "--tp", "8")
    check_document(value)
    assert value["machine"]["source"] == "nvml"
    assert value["chosen"]["id"] == "c1"
    assert value["chosen"]["flags"] == REPAIR == value["command"][-2:]
    assert value["command"][0] == sys.executable


def test_admit_lets_an_excluded_one_race(box: Box, qwen: Path) -> None:
    words = ("--tp", "8", "--admit", "moe-runner-backend=flashinfer_trtllm")
    value = box.document(qwen, *words)
    assert not any(
        "flashinfer_trtllm" in one["flags"] for one in box.document(qwen, "--tp", "8")["candidates"]
    )
    assert value["chosen"]["flags"] == REPAIR
    cutedsl = box.document(qwen, "--tp", "8", "--admit", "moe-runner-backend=flashinfer_cutedsl")
    assert any("flashinfer_cutedsl" in one["flags"] for one in cutedsl["candidates"])


@pytest.mark.parametrize("model", ["s3://bucket/model", "org/model"])
def test_a_model_that_is_not_looked_into_passes_through(model: str, box: Box, tmp_path: Path) -> None:
    done = box.dry_run(model, "--tp", "8", HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
    assert words_of(done) == ["--model-path", model, "--device", "cuda", "--tp", "8"]
    assert f"note: `{model}` is not looked into: " in done.stderr


def test_a_broken_checkpoint_starts_the_original_with_a_warning(box: Box, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("[" * 100)
    done = box.dry_run(broken, "--tp", "8")
    assert words_of(done) == ["--model-path", str(broken), "--device", "cuda", "--tp", "8"]
    assert "warning: " in done.stderr
    assert "; starting the original command" in done.stderr
    value = box.document(broken)
    assert value["chosen"]["id"] == "c0"


def test_mixed_gpus_are_warned_of_and_nothing_is_changed(box: Box, qwen: Path) -> None:
    done = box.dry_run(qwen, "--tp", "2", FAKE_NVML="mixed-a100-rtx4090.refused.json")
    assert words_of(done) == ["--model-path", str(qwen), "--device", "cuda", "--tp", "2"]
    assert "warning: the GPUs are of several compute capabilities" in done.stderr


def test_nvml_that_fails_is_no_fault(box: Box, qwen: Path) -> None:
    done = box.dry_run(qwen, "--tp", "8", FAKE_NVML="driver-mismatch.none.json")
    assert words_of(done) == ["--model-path", str(qwen), "--device", "cuda", "--tp", "8"]
    assert "warning: could not read any GPU" in done.stderr


def test_a_repair_is_recorded_and_watched_and_a_failed_one_is_left_out(
    box: Box, qwen: Path, start_server: Callable[..., RealServer]
) -> None:
    port = find_free_port()
    own = ("--tune", "off", "--verify", "off")
    argv = box.argv(qwen, "--tp", "8", "--port", str(port), "--host", "127.0.0.1", *own)

    def start(**environ: str) -> RealServer:
        box.state.unlink(missing_ok=True)
        return start_server(argv, port=port, environ={**box.environ, **environ}, cwd=box.cwd)

    def words() -> list[str]:
        found: list[str] = json.loads(box.state.read_text())["words"]
        return found

    def attempts() -> list[dict[str, Any]]:
        (record,) = Path(box.environ["AUTOLAUNCH_HOME"]).glob("state/attempts/*.json")
        found: list[dict[str, Any]] = json.loads(record.read_text())["attempts"]
        return found

    server = start()
    server.wait_healthy(30)
    assert words()[-2:] == REPAIR
    wait_until(lambda: bool(attempts()[-1]["healthy"]), 10, "healthy is on record")
    assert attempts()[-1]["candidate_flags"] == REPAIR
    assert server.stop() == 0
    assert server.leftovers() == []
    failed = start(FAKE_DEADLY="flashinfer_cutlass")
    assert failed.wait_exit() == 1
    again = start(FAKE_DEADLY="flashinfer_cutlass")
    again.wait_healthy(30)
    assert "flashinfer_cutlass" not in words(), "it failed here, so the table repairs otherwise"
    assert again.stop() == 0
