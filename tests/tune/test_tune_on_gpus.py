"""`autolaunch tune` where NVML tells of GPUs: the field is the table's, and the report says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.explain.cases import QWEN_397B, write_model
from tests.explain.schema import check_document
from tests.launch.harness import HERE as LAUNCH
from tests.real_server import ROOT
from tests.tune.harness import HERE
from tests.tune.schema import check_trials

SM_120 = "rtx-pro-6000-bw-x8.sm120.json"
SMALL = "t4-no-permission-for-much.sm75.json"


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixture of experts in NVFP4."""
    return write_model(QWEN_397B, tmp_path_factory.mktemp("models"))


def tune(model: Path, *words: str, how: str = "wins", **extra: str) -> subprocess.CompletedProcess[str]:
    """Run it on eight GPUs of SM 12.0."""
    paths = [HERE / "planted", LAUNCH / "fake_nvml", LAUNCH / "fake_sglang", ROOT]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "FAKE_NVML": SM_120}
    return subprocess.run(
        [sys.executable, "-m", "autolaunch", "tune", str(model), "--device", "cuda", *words],
        env={**environ, "PLANT_RACE": how, **extra},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_field_is_the_tables(qwen: Path) -> None:
    done = tune(qwen, "--tp", "8", "--format", "json")
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    check_document(value)
    check_trials(value["trials"])
    assert value["machine"]["gpus"][0]["sm"] == 120
    assert value["race"]["workload"]["words"] == "in=1024,out=256,concurrency=32"
    decided = {one["flag"]: one["decision"] for one in value["dimensions"]}
    assert decided[value["trials"][1]["flags"][0]] in ("raced", "repaired")
    assert value["chosen"]["id"] == "c1"


def test_a_result_belongs_to_its_gpus(qwen: Path) -> None:
    assert tune(qwen, "--tp", "8").returncode == 0
    again = tune(qwen, "--tp", "8", "--if-missing", how="raises")
    assert again.returncode == 0, again.stderr
    fewer = tune(qwen, "--tp", "8", "--if-missing", FAKE_NVML="b300-x8.sm103.json")
    assert "racing the original" in fewer.stderr


def test_what_cannot_fit_is_exit_3_with_the_table(qwen: Path) -> None:
    done = tune(qwen, "--tp", "1", "--format", "json", how="raises", FAKE_NVML=SMALL)
    assert done.returncode == 3
    assert "error: no launch candidate for" in done.stderr
    value = json.loads(done.stdout)
    check_document(value)
    assert value["trials"] == []
    assert value["memory"]["fits"] is False
    assert "chosen: none" in tune(qwen, "--tp", "1", how="raises", FAKE_NVML=SMALL).stdout


def test_gpus_of_several_kinds_are_not_raced_on(qwen: Path) -> None:
    done = tune(qwen, "--tp", "2", how="raises", FAKE_NVML="mixed-a100-rtx4090.refused.json")
    assert done.returncode in (1, 3)
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


def test_full_shows_the_race_on_the_slice_before_that_on_the_whole_model(qwen: Path) -> None:
    done = tune(qwen, "--tp", "8", "--full", "--format", "json")
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    check_document(value)
    check_trials(value["trials"])
    check_trials(value["on_slice"]["trials"])
    ids = [one["id"] for one in value["trials"]]
    assert ids == ["c0", value["chosen"]["id"]], "only the best is raced again"
    assert len(value["on_slice"]["trials"]) > len(ids)
    assert "once more, on the whole model" in done.stderr
    text = tune(qwen, "--tp", "8", "--full").stdout
    assert text.index("\nslice: ") < text.index("\nrace: ") < text.index("\nchosen: ")
    assert json.loads(tune(qwen, "--tp", "8", "--format", "json").stdout)["on_slice"] is None
