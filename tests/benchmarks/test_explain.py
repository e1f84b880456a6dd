"""Explaining a large checkpoint takes no more than 2.5 times what reading its index takes, and little memory."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.loading import load_script
from tests.real_server import ROOT

ROUNDS = 3
TRIES = 3


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_targets_hold_now(tmp_path: Path) -> None:
    """Other work on the machine only adds time, so that the fastest runs are compared, of as many as it takes."""
    benchmark = load_script("benchmarks/measure_explain")
    fastest_s: dict[str, float] = {}
    for attempt in range(TRIES):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        measured = benchmark.measure_all(ROUNDS, folder)
        for row in ({"name": "baseline", **measured["baseline"]}, *measured["cases"]):
            name = row["name"]
            fastest_s[name] = min(fastest_s.get(name, math.inf), *row["samples_s"])
            assert row["peak_mib"] <= benchmark.MOST_MIB, name
        if max(fastest_s.values()) <= benchmark.MOST_TIMES * fastest_s["baseline"]:
            return
    pytest.fail(f"too slow: {fastest_s}")


def test_targets_held_when_measured() -> None:
    saved = json.loads((ROOT / "benchmarks" / "explain.json").read_text())
    assert len(saved["cases"]) == 3
    for row in saved["cases"]:
        assert row["holds"], row["name"]
        assert row["ratio"] <= row["target"]["ratio"]
        assert row["peak_mib"] <= row["target"]["peak_mib"]
        assert len(row["samples_s"]) >= 9
