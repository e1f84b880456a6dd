"""Slices in a real SGLang: a view loads, and answers as a copy does, bit for bit."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from autolaunch.checkpoint.folder import read_folder
from autolaunch.checkpoint.source import RawCheckpoint
from autolaunch.slice.cut import cut
from autolaunch.slice.home import SliceHome
from tests.conftest import SmallModel
from tests.race.test_real_engines import START_LIMIT_S, Bench
from tests.slice.models import contents, plan_of, public_model

pytestmark = pytest.mark.sglang

SEQUENCES = [[7 * n % 500 + 3 for n in range(40)], [11 * n % 480 + 5 for n in range(25)]]

READ_CONFIGS = """
import json, sys
from transformers import AutoConfig
for folder in sys.argv[1:]:
    config = AutoConfig.from_pretrained(folder)
    part = config.get_text_config()
    print(json.dumps([part.num_hidden_layers, list(getattr(part, "layer_types", None) or [])]))
"""


def logprobs_of(python: str, folder: Path, scratch: Path) -> list[list[float]]:
    """What a real engine of the model in `folder` gives each token of SEQUENCES."""
    scratch.mkdir()
    bench = Bench(python, SmallModel(folder, {}, {}), scratch)
    with bench.engine() as engine:
        engine.wait_ready(START_LIMIT_S)
        scores: list[list[float]] = engine.ask("score", 60, input_ids=SEQUENCES, starts=[1, 1], concurrency=1)
        return scores


def test_a_view_answers_as_a_copy_does(
    sglang_python: str, small_model: SmallModel, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scratch = tmp_path_factory.mktemp("s")
    raw = read_folder(small_model.path, path=str(small_model.path))
    assert isinstance(raw, RawCheckpoint)
    before = {path.name: path.read_bytes() for path in small_model.path.iterdir()}
    with SliceHome(scratch) as home:
        view = cut(plan_of(raw, layers=1), home.new("view"))
        copied = cut(plan_of(raw, layers=1, sglang="0.4.9"), home.new("copied"))
        assert (view.plan.kind, copied.plan.kind) == ("view", "copied")
        assert contents(view.folder) == contents(copied.folder)
        assert json.loads((view.folder / "config.json").read_text())["num_hidden_layers"] == 1
        by_view = logprobs_of(sglang_python, view.folder, scratch / "v")
        by_copy = logprobs_of(sglang_python, copied.folder, scratch / "c")
    assert by_view == by_copy
    assert [len(scores) for scores in by_view] == [39, 24]
    assert {path.name: path.read_bytes() for path in small_model.path.iterdir()} == before
    assert not home.folder.exists()


def test_transformers_takes_the_configurations(sglang_python: str, tmp_path: Path) -> None:
    models = {
        "Qwen/Qwen3-8B-FP8": 4,
        "Qwen/Qwen3-30B-A3B-FP8": 4,
        "Qwen/Qwen3-Next-80B-A3B-Instruct": 8,
        "Qwen/Qwen3.5-397B-A17B": 8,
        "deepseek-ai/DeepSeek-V3": 5,
        "zai-org/GLM-4.5-FP8": 5,
        "zai-org/GLM-5.2-FP8": 5,
        "openai/gpt-oss-120b": 4,
        "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": 14,
    }
    folders = []
    for model in models:
        raw = public_model(model, tmp_path / model.rpartition("/")[2])
        folders.append(str(cut(plan_of(raw), tmp_path / f"{model.rpartition('/')[2]}-slice").folder))
    done = subprocess.run(
        [sglang_python, "-c", READ_CONFIGS, *folders], capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [layers for layers, _ in found] == list(models.values())
    assert all(len(kinds) in (0, layers) for layers, kinds in found)
