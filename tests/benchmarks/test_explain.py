"""Explaining a large checkpoint takes no more than 2.5 times what reading its index takes, and little memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.loading import load_script
from tests.real_server import ROOT

ROUNDS = 3
TRIES = 3
"""A busy machine falsifies one try, even of medians; what is too slow is too slow three times."""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_targets_hold_now(tmp_path: Path) -> None:
    benchmark = load_script("benchmarks/measure_explain")
    for attempt in range(TRIES):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        measured = benchmark.measure_all(ROUNDS, folder)
        if all(row["holds"] for row in measured["cases"]):
            return
    pytest.fail(f"too slow: {json.dumps(measured, indent=1)}")


def test_targets_held_when_measured() -> None:
    saved = json.loads((ROOT / "benchmarks" / "explain.json").read_text())
    assert len(saved["cases"]) == 3
    for row in saved["cases"]:
        assert row["holds"], row["name"]
        assert row["ratio"] <= row["target"]["ratio"]
        assert row["peak_mib"] <= row["target"]["peak_mib"]
        assert len(row["samples_s"]) >= 9
