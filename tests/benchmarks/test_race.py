"""Measured races: each file is what it should be, and the README's table is what the script makes of them."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.race_schema import check_races
from tests.loading import load_script
from tests.real_server import ROOT

SCRIPT = "scripts/make-race-table"
FILES = sorted((ROOT / "benchmarks").glob("race-*.json"))
BEGIN = "<!-- race table -->"

CRASH = {"stage": "capture", "kind": "crash", "reason": "no attribute `runner`"}
CASE: dict[str, Any] = {
    "model": "moe-fp8-30b",
    "workload": "in=1024,out=256,concurrency=32",
    "metric": "output_tok_per_s",
    "higher_is_better": True,
    "noise": 0.004,
    "candidates": [
        {"id": "c0", "flags": [], "whole": 1000.0, "race": 990.0, "failure": None},
        {
            "id": "c1",
            "flags": ["--moe-runner-backend", "triton"],
            "whole": 1250.0,
            "race": 1200.0,
            "failure": None,
        },
        {"id": "c2", "flags": ["--a|b"], "whole": None, "race": None, "failure": CRASH},
    ],
    "default": "c0",
    "pick": "c0",
    "race_s": 90.4,
    "plain_cold_start_s": 100.0,
    "exhaustive_s": 400.0,
    "cache_state": "warm",
}
DOCUMENT: dict[str, Any] = {
    "machine": {"gpus": [{"name": "NVIDIA H200"}, {"name": "NVIDIA H200"}]},
    "software": {"sglang": "0.5.17"},
    "command": "scripts/measure-race",
    "date": "2026-11-30",
    "cases": [CASE],
}


def case(**changes: Any) -> dict[str, Any]:
    """The example with `changes`."""
    return {**copy.deepcopy(CASE), **changes}


@pytest.fixture
def script() -> Any:
    """The script as a module."""
    return load_script(SCRIPT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_measured_file_is_what_it_should_be(path: Path) -> None:
    document = json.loads(path.read_text())
    check_races(document)
    assert document["cases"]


def test_the_readme_shows_what_was_measured(script: Any) -> None:
    page = (ROOT / "README.md").read_text()
    if not FILES and BEGIN not in page:
        pytest.skip("no race has been measured yet")
    documents = [json.loads(path.read_text()) for path in FILES]
    assert script.with_table(page, script.table(documents)) == page


def test_the_example_passes_the_check() -> None:
    check_races(DOCUMENT)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pick": "c9"}, "the pick is no candidate"),
        ({"default": "c9"}, "the default is no candidate"),
        ({"race_s": -1}, "race_s"),
        ({"race_s": True}, "race_s"),
        ({"noise": "low"}, "noise"),
        ({"cache_state": "tepid"}, "cache_state"),
        ({"candidates": [{**CASE["candidates"][0], "failure": CRASH}]}, "a failed candidate has no figure"),
        ({"candidates": [CASE["candidates"][0]] * 2}, "two candidates of one id"),
    ],
)
def test_what_is_no_case_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_races({**DOCUMENT, "cases": [case(**changes)]})


@pytest.mark.parametrize("key", sorted(CASE))
def test_every_key_is_needed(key: str) -> None:
    lacking = {name: value for name, value in CASE.items() if name != key}
    with pytest.raises(AssertionError, match=f"lacks {key}"):
        check_races({**DOCUMENT, "cases": [lacking]})


def test_a_row_tells_the_whole_case(script: Any) -> None:
    lines = script.table([{**DOCUMENT, "cases": [case(pick="c1")]}]).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("| model | GPUs | workload | started | pick | regret |")
    assert lines[2] == (
        "| moe-fp8-30b | 2 × H200 | in=1024,out=256,concurrency=32, output tok/s | 2 of 3 "
        "| `--moe-runner-backend triton` | 0.0 ± 0.4 % | +25.0 ± 0.4 % | 90 s | 0.90 (warm) |"
    )


def test_a_bad_pick_is_shown_plainly(script: Any) -> None:
    """A pick that loses, one below the original, and one that the whole model does not start with."""
    assert script.regret(case()) == pytest.approx(0.2)
    slow = case(pick="c1")
    slow["candidates"][1]["whole"] = 950.0
    cells = script.row(slow, DOCUMENT)
    assert cells[5:7] == ["5.0 ± 0.4 %", "−5.0 ± 0.4 %"]
    cells = script.row(case(pick="c2", flags=["--tp", "2"]), DOCUMENT)
    assert cells[0] == "moe-fp8-30b --tp 2"
    assert cells[4:7] == ["`--a\\|b`, which fails: crash at capture", "–", "–"]


def test_lower_is_better_turns_both_around(script: Any) -> None:
    latency = case(metric="latency_ms", higher_is_better=False, pick="c1")
    assert script.regret(latency) == pytest.approx(0.25)
    assert script.gain(latency) == pytest.approx(-0.2)


def test_an_original_that_fails_is_told(script: Any) -> None:
    broken = case(pick="c1")
    broken["candidates"][0] |= {"whole": None, "failure": CRASH}
    assert script.row(broken, DOCUMENT)[5:7] == ["0.0 ± 0.4 %", "the original fails: crash at capture"]


def test_what_was_not_measured_is_a_dash(script: Any) -> None:
    unknown = case(pick=None, noise=None, race_s=None, plain_cold_start_s=None, exhaustive_s=None)
    for one in unknown["candidates"]:
        one |= {"whole": None, "race": None, "failure": None}
    check_races({**DOCUMENT, "cases": [unknown]})
    assert script.row(unknown, DOCUMENT)[3:] == ["0 of 3", "–", "–", "–", "–", "–"]


def test_the_script_writes_between_the_markers_alone(tmp_path: Path) -> None:
    (tmp_path / "race-x.json").write_text(json.dumps(DOCUMENT))
    readme = tmp_path / "README.md"
    command = [sys.executable, ROOT / SCRIPT, "--readme", readme, "--benchmarks", tmp_path]
    readme.write_text("no markers\n")
    assert subprocess.run(command, capture_output=True).returncode == 1
    assert readme.read_text() == "no markers\n"
    readme.write_text(f"before\n{BEGIN}\nold\n<!-- end of race table -->\nafter\n")
    assert subprocess.run([*command, "--check"]).returncode == 1
    assert subprocess.run(command).returncode == 0
    written = readme.read_text()
    assert written.startswith(f"before\n{BEGIN}\n| model |")
    assert written.endswith("|\n<!-- end of race table -->\nafter\n")
    assert "old" not in written
    assert subprocess.run([*command, "--check"]).returncode == 0
