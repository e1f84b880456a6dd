"""Explaining a large checkpoint takes no more than 2.5 times what reading its index takes, and little memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.loading import load_script
from tests.real_server import ROOT

ROUNDS = 3
TRIES = 3


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_targets_hold_now(tmp_path: Path) -> None:
    """Other work on the machine only adds time, so that the second fastest of all runs are compared."""
    benchmark = load_script("benchmarks/measure_explain")
    samples_s: dict[str, list[float]] = {}
    for attempt in range(TRIES):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        measured = benchmark.measure_all(ROUNDS, folder)
        for row in ({"name": "baseline", **measured["baseline"]}, *measured["cases"]):
            name = row["name"]
            samples_s[name] = sorted((*samples_s.get(name, ()), *row["samples_s"]))
            assert row["peak_mib"] <= benchmark.MOST_MIB, name
        seconds = {name: samples[1] for name, samples in samples_s.items()}
        if max(seconds.values()) <= benchmark.MOST_TIMES * seconds["baseline"]:
            return
    pytest.fail(f"too slow: {samples_s}")


def test_targets_held_when_measured() -> None:
    saved = json.loads((ROOT / "benchmarks" / "explain.json").read_text())
    assert len(saved["cases"]) == 3
    for row in saved["cases"]:
        assert row["holds"], row["name"]
        assert row["ratio"] <= row["target"]["ratio"]
        assert row["peak_mib"] <= row["target"]["peak_mib"]
        assert len(row["samples_s"]) >= 9
