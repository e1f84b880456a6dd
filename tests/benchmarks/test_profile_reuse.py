"""What a start by a profile adds: the saved figures say what they are, and a run stays within a wide bound."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.loading import load_script
from tests.real_server import ROOT

BOUND_S = 2.0
"""Several times the target: test machines are slow, and busy with other tests."""


def test_the_saved_result_has_all_it_is_judged_by() -> None:
    saved = json.loads((ROOT / "benchmarks" / "profile-reuse.json").read_text())
    benchmark = load_script("benchmarks/measure_profile_reuse")
    assert {"date", "run", "commit", "machine", "python", "versions", "flags_of_sglang", "nvml"} <= set(saved)
    assert saved["versions"].keys() >= {"click", "msgspec", "nvidia-ml-py"}
    assert saved["index_bytes"] > 40_000_000, "that of 371,111 tensors"
    samples = saved["samples_s"]
    assert len(samples) >= 20
    added = statistics.median(mine - theirs for mine, theirs in samples)
    assert saved["added_median_s"] == pytest.approx(added, abs=1e-4)
    assert saved["target"]["added_s"] == benchmark.MOST_ADDED_S == 0.3
    assert saved["holds"] is (added <= benchmark.MOST_ADDED_S)
    assert saved["holds"], "measured again, it must hold again"
    mine, theirs = (statistics.median(pair[side] for pair in samples) for side in (0, 1))
    assert len(saved["with_watcher_s"]) == len(samples)
    assert all(watched >= pair[0] for watched, pair in zip(saved["with_watcher_s"], samples, strict=True))
    assert saved["ratio"] == pytest.approx(mine / theirs, abs=0.01)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_start_by_a_profile_stays_within_a_wide_bound(tmp_path: Path) -> None:
    output = tmp_path / "result.json"
    script = ROOT / "benchmarks" / "measure_profile_reuse"
    done = subprocess.run(
        [sys.executable, str(script), "--pairs", "5", "--output", str(output)],
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert output.exists(), done.stderr
    found = json.loads(output.read_text())
    assert min(mine - theirs for mine, theirs in found["samples_s"]) < BOUND_S
    assert done.returncode == (0 if found["holds"] else 1)
