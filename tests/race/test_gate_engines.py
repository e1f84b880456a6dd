"""The gate on real engines with broken weights and broken logits: what is wrong is caught, what is right passes.

Two engines of the small model on the CPU: candidate 0, bf16 by its configuration, which is given broken
weights while it runs, and the truth, the same weights in fp32.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from autolaunch.race import gate, host_process
from autolaunch.race.engine import Engine
from autolaunch.race.gate_answers import score
from autolaunch.race.gate_statistics import ratio_of, resample
from tests.conftest import SmallModel
from tests.race.test_real_engines import START_LIMIT_S, Bench

pytestmark = pytest.mark.sglang

TOKENS = 2048
RESAMPLES = 300
DOSES = (1.022, 1.05, 4.0)
"""What one layer's `down_proj` is multiplied with; the first doubles the distance to the truth (2.0 ± 0.08,
sglang 0.5.21 on a CPU, 2026-12-01)."""
SCALE = """
import sys
from safetensors.torch import load_file, save_file
path, dose = sys.argv[1], float(sys.argv[2])
tensors = load_file(path)
name = "model.layers.0.mlp.down_proj.weight"
tensors[name] = (tensors[name].float() * dose).to(tensors[name].dtype)
save_file(tensors, path, metadata={"format": "pt"})
"""
PLUGIN = """
import os
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

def spoil(original, self, input_ids, *args, **kwargs):
    output = original(self, input_ids, *args, **kwargs)
    logits = output.next_token_logits
    decoding = logits is not None and len(input_ids) == len(logits)
    if decoding and len(logits) >= 8 and os.path.exists(SWITCH):
        logits.fill_(float("nan"))
    return output

def activate():
    HookRegistry.register("sglang.srt.layers.logits_processor.LogitsProcessor.forward", spoil, HookType.AROUND)
"""


@dataclass(frozen=True, slots=True)
class Pair:
    """Candidate 0, what it answered while it was healthy, and the truth."""

    engine: Engine
    reference: gate.Reference
    truth: gate.Truth
    bench: Bench
    switch: Path
    """While this file is there, decoding eight or more at once gives NaN."""

    def load(self, dose: float) -> None:
        """Give the engine weights of which one layer is multiplied with `dose`."""
        folder = self.bench.folder / f"dose-{dose}"
        if not folder.exists():
            shutil.copytree(self.bench.model.path, folder)
            weights = str(folder / "model.safetensors")
            subprocess.run([self.bench.python, "-c", SCALE, weights, str(dose)], check=True)
        self.engine.ask("reload", 60, path=str(folder))

    def distances(self) -> tuple[float, ...]:
        """Distance of the engine, as it is now, to the truth on each sequence."""
        sequences = self.reference.sequences
        return self.truth.distances(score(self.engine, sequences, [1] * len(sequences), 8, 60))


def make_plugin(folder: Path, switch: Path) -> Path:
    """A folder for PYTHONPATH in which SGLang finds the plugin."""
    information = folder / "spoil-0.dist-info"
    information.mkdir(parents=True)
    (folder / "spoil.py").write_text(f"SWITCH = {str(switch)!r}\n{PLUGIN}")
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: spoil\nVersion: 0\n")
    (information / "entry_points.txt").write_text("[sglang.srt.plugins]\nspoil = spoil:activate\n")
    return folder


@pytest.fixture(scope="module")
def pair(
    sglang_python: str, small_model: SmallModel, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Both engines; the truth is closed again once it has been taken."""
    bench = Bench(sglang_python, small_model, tmp_path_factory.mktemp("g"))
    switch = bench.folder / "spoil-now"
    plugin = make_plugin(bench.folder / "plugin", switch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_process, "ENGINE_HOST", Path(__file__).with_name("reloading_host.py"))
        with bench.engine(pythonpath=str(plugin)) as engine, bench.engine("--dtype", "float32") as exact:
            engine.wait_ready(START_LIMIT_S)
            reference = gate.take_reference(engine, tokens=TOKENS)
            exact.wait_ready(START_LIMIT_S)
            truth = gate.take_truth(exact, reference, precision="fp32")
            exact.close()
            yield Pair(engine, reference, truth, bench, switch)
    left = bench.mark.pids()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == {}


def test_candidate_0_is_near_the_truth(pair: Pair) -> None:
    report = gate.judge_original(pair.reference, pair.truth)
    assert report.passed, report
    assert report.details["unrelatedness"] < 0.02
    assert pair.reference.doubt is None


def test_the_same_weights_again_give_the_same_bits(pair: Pair) -> None:
    pair.load(1.0)
    report = gate.check(pair.engine, pair.reference, pair.truth)
    assert report.passed, report
    assert (report.details["ratio"], report.details["ratio_error"]) == (1.0, 0.0)


@pytest.mark.parametrize("dose", DOSES)
def test_one_layer_of_wrong_scale_is_caught(pair: Pair, dose: float) -> None:
    """At twice the distance in at least 95 of 100 draws of other sequences, and always beyond."""
    pair.load(dose)
    report = gate.check(pair.engine, pair.reference, pair.truth)
    assert (report.passed, report.kind) == (False, "garbage"), report
    json.dumps(report.to_json(), allow_nan=False)
    mine, original = pair.distances(), pair.truth.distances(pair.reference.logprobs)
    ratio = ratio_of(mine, original)
    assert ratio.value > 1.8, "the dose no longer doubles the distance"
    caught = sum(one.exceeds(pair.truth.limit) for one in resample(mine, original, RESAMPLES, seed=1))
    assert caught >= 0.95 * RESAMPLES, ratio


def test_agreement_alone_would_not_have_seen_the_first_dose(pair: Pair) -> None:
    """Why there is a truth."""
    pair.load(DOSES[0])
    assert gate.check(pair.engine, pair.reference).passed


def test_logits_that_are_no_numbers_from_eight_at_once_on(pair: Pair) -> None:
    pair.load(1.0)
    prompts = [list(ids) for ids in pair.reference.prompts]
    pair.switch.touch()
    try:
        assert gate.check_window(pair.engine, prompts, 8, 4, 60) is None, "four at once are well"
        assert "8 at once" in (gate.check_window(pair.engine, prompts, 8, 8, 60) or "")
        report = gate.check(pair.engine, pair.reference, pair.truth, concurrency=4)
        assert (report.passed, report.kind) == (False, "garbage")
        assert "8 at once" in report.reason
    finally:
        pair.switch.unlink()
    assert gate.check(pair.engine, pair.reference, pair.truth, concurrency=4).passed
