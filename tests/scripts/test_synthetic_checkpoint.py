"""Synthetic checkpoints have the shapes of public ones, and a real SGLang loads them."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import math
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from autolaunch.checkpoint.checkpoint import inspect
from autolaunch.checkpoint.folder import read_folder
from autolaunch.checkpoint.raw import RawCheckpoint
from autolaunch.slice.spec import TensorSpec
from autolaunch.slice.synthesize import synthesize
from autolaunch.slice.weights_child import Setting
from tests.real_server import ROOT, server_environment

SCRIPT = ROOT / "scripts" / "make-synthetic-checkpoint"
PUBLISHED = {
    "qwen3-8b": (399, 16_381_470_720),
    "qwen3-next": (75_944, 162_649_725_440),
    "gpt-oss-20b": (459, 13_761_264_768),
}
"""Tensors and bytes that the index of the public checkpoint gives."""
TINY = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "moe_intermediate_size": 128,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "num_hidden_layers": 2,
    "max_window_layers": 2, "num_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 2048,
    "bos_token_id": 0, "eos_token_id": 2,
}  # fmt: skip
ENGINE = """
import json, math, sys

def main():
    import sglang
    engine = sglang.Engine(
        model_path=sys.argv[1], device="cpu", max_total_tokens=4096, max_running_requests=4,
        disable_overlap_schedule=True, log_level="error",
    )
    try:
        made = engine.generate(
            input_ids=[[7, 8, 9, 10], [200, 100, 50, 25]], return_logprob=True, logprob_start_len=0,
            sampling_params={"temperature": 0, "max_new_tokens": 8, "ignore_eos": True},
        )
        print("\\nANSWER", json.dumps([
            [[one[0] for one in answer["meta_info"]["input_token_logprobs"][1:]],
             [one[0] for one in answer["meta_info"]["output_token_logprobs"]]] for answer in made
        ]), flush=True)
    finally:
        engine.shutdown()

if __name__ == "__main__":
    main()
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """The script as a module."""
    loader = importlib.machinery.SourceFileLoader("make_synthetic_checkpoint", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    module.__file__ = str(SCRIPT)
    loader.exec_module(module)
    return module


def rows_of(script: ModuleType, model: str, **cut: Any) -> dict[str, tuple[str, tuple[int, ...]]]:
    """dtype and shape of every tensor of `model`."""
    mtp = cut.get("mtp", True)
    config = script.model_config(model, layers=cut.get("layers"), experts=cut.get("experts"), mtp=mtp)
    return {
        name: (dtype, shape)
        for name, dtype, shape in script.tensor_rows(config, script.heads_of(config, mtp))
    }


@pytest.mark.parametrize("model", PUBLISHED)
def test_tensors_and_bytes_are_those_of_the_public_checkpoint(script: ModuleType, model: str) -> None:
    rows = rows_of(script, model)
    width = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1}
    size = sum(width[dtype] * math.prod(shape) for dtype, shape in rows.values())
    assert (len(rows), size) == PUBLISHED[model]


def test_block_fp8_is_where_the_real_checkpoint_has_it(script: ModuleType) -> None:
    rows = rows_of(script, "qwen3-30b-a3b-fp8", layers=2)
    quantized = {name for name, (dtype, _) in rows.items() if dtype == "F8_E4M3"}
    assert quantized == {name.removesuffix("_scale_inv") for name in rows if name.endswith("_scale_inv")}
    assert rows["model.layers.1.mlp.experts.127.down_proj.weight_scale_inv"] == ("F32", (16, 6))
    plain = ("mlp.gate.weight", "input_layernorm.weight", "self_attn.q_norm.weight")
    assert all(rows[f"model.layers.0.{name}"][0] == "BF16" for name in plain)
    assert rows["lm_head.weight"] == ("BF16", (151936, 2048))
    config = script.model_config("qwen3-30b-a3b-fp8", layers=2, experts=None, mtp=True)
    spared = config["quantization_config"]["modules_to_not_convert"]
    assert "model.layers.1.mlp.gate" in spared and "model.layers.2.mlp.gate" not in spared
    assert spared.count("lm_head") == 1


def test_a_cut_model_keeps_what_its_loader_counts(script: ModuleType) -> None:
    rows = rows_of(script, "deepseek-v3", layers=4, experts=16)
    assert rows["model.layers.2.mlp.gate_proj.weight"][1] == (18432, 7168)
    assert rows["model.layers.3.mlp.experts.15.up_proj.weight"][1] == (2048, 7168)
    assert "model.layers.3.mlp.experts.16.up_proj.weight" not in rows
    assert rows["model.layers.4.eh_proj.weight"] == ("BF16", (7168, 14336))
    assert "model.layers.4.mlp.experts.0.up_proj.weight" in rows
    without = rows_of(script, "deepseek-v3", layers=4, experts=16, mtp=False)
    assert not [name for name in without if name.startswith("model.layers.4.")]
    config = script.model_config("deepseek-v3", layers=4, experts=16, mtp=False)
    assert (config["num_hidden_layers"], config["first_k_dense_replace"]) == (4, 3)
    assert config["num_nextn_predict_layers"] == 0


def test_a_hybrid_keeps_whole_periods(script: ModuleType) -> None:
    rows = rows_of(script, "qwen3-next", layers=8)
    assert {name.split(".")[2] for name in rows if ".self_attn." in name and name.startswith("model.")} == {
        "3",
        "7",
    }
    assert "mtp.fc.weight" in rows
    assert "mtp.fc.weight" not in rows_of(script, "qwen3-next", layers=8, mtp=False)
    with pytest.raises(script.NotMadeError, match="in steps of 4"):
        rows_of(script, "qwen3-next", layers=6)
    sliding = script.model_config("gpt-oss-20b", layers=4, experts=None, mtp=True)["layer_types"]
    assert sliding == ["sliding_attention", "full_attention"] * 2


@pytest.mark.parametrize(
    ("model", "cut", "said"),
    [
        ("qwen3-8b", {"layers": 37}, "1 to 36 layers"),
        ("qwen3-8b", {"experts": 8}, "no experts"),
        ("deepseek-v3", {"experts": 9}, "in steps of 8"),
        ("qwen3-next", {"experts": 4}, "10 to 512 experts"),
    ],
)
def test_what_cannot_be_cut_is_refused(
    script: ModuleType, model: str, cut: dict[str, int], said: str
) -> None:
    with pytest.raises(script.NotMadeError, match=said):
        rows_of(script, model, **cut)


def test_one_file_a_layer(script: ModuleType) -> None:
    config = script.model_config("mimo-7b", layers=2, experts=None, mtp=True)
    files = {name: file for name, _, _, file in script.with_files(list(script.tensor_rows(config, 1)))}
    assert len(set(files.values())) == 4
    assert files["lm_head.weight"] == files["model.norm.weight"] != files["model.layers.0.mlp.up_proj.weight"]
    assert files["model.mtp_layers.0.input_proj.weight"] == files["model.mtp_layers.0.mlp.up_proj.weight"]


@pytest.mark.sglang
def test_the_whole_script(sglang_python: str, tmp_path: Path) -> None:
    """A real run needs a gigabyte for the vocabulary alone, so a smaller model takes its place."""
    copy = copied_project(tmp_path, "qwen3-30b-a3b-fp8", {**TINY, "hidden_size": 256})
    folder = tmp_path / "made" / "model"
    command = [sglang_python, copy, "small", folder, "--device", "cpu"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "small: 2 layers, 125 tensors" in ran.stdout
    raw = read_folder(folder, path="small")
    assert isinstance(raw, RawCheckpoint)
    found = inspect(raw)
    assert found.quantization.parts["experts"] == "fp8_block"
    again = subprocess.run(command, capture_output=True, text=True)
    assert "is already there" in again.stdout
    other = subprocess.run([*command, "--layers", "1"], capture_output=True, text=True)
    assert other.returncode == 1 and "`--force` replaces it" in other.stderr
    forced = subprocess.run([*command, "--layers", "1", "--force"], capture_output=True, text=True)
    assert "small: 1 layers" in forced.stdout
    assert [one.name for one in folder.parent.iterdir()] == ["model"]


def copied_project(tmp_path: Path, model: str, change: dict[str, Any]) -> Path:
    """The script beside a model `small`, which is `model` with a `change`; everything else is linked."""
    project = tmp_path / "project"
    (project / "scripts").mkdir(parents=True)
    (project / "benchmarks" / "models").mkdir(parents=True)
    (project / "autolaunch").symlink_to(ROOT / "autolaunch")
    models = ROOT / "benchmarks" / "models"
    (project / "benchmarks" / "models" / "tensors.toml").symlink_to(models / "tensors.toml")
    config = json.loads((models / f"{model}.json").read_text())
    (project / "benchmarks" / "models" / "small.json").write_text(json.dumps({**config, **change}))
    copy = project / "scripts" / SCRIPT.name
    copy.write_text(SCRIPT.read_text())
    return copy


@pytest.mark.sglang
@pytest.mark.slow
@pytest.mark.parametrize("model", ["qwen3-8b", "qwen3-30b-a3b-fp8"])
def test_an_engine_loads_it_and_computes(
    script: ModuleType, sglang_python: str, tmp_path: Path, model: str
) -> None:
    config = {**script.model_config(model, layers=2, experts=None, mtp=True), **TINY}
    config.pop("quantization_config", None)  # SGLang has no such kernel for a CPU without AMX
    rows = script.with_files(list(script.tensor_rows(config, 0)))
    folder = tmp_path / "model"
    folder.mkdir()
    script.write_json(folder / "config.json", config)
    environ = server_environment({"TMPDIR": str(tmp_path)})
    synthesize(
        [TensorSpec(name, dtype, shape, file) for name, dtype, shape, file in rows],
        folder,
        Setting(sglang_python, environ, tmp_path / "log", device="cpu"),
        config=config,
    )
    subprocess.run(
        [sglang_python, "-c", WRITE_TOKENIZER, SCRIPT, folder], check=True, cwd=tmp_path, env=environ
    )
    (tmp_path / "engine.py").write_text(ENGINE)
    ran = subprocess.run(
        [sglang_python, tmp_path / "engine.py", folder],
        capture_output=True,
        text=True,
        env=environ,
        timeout=300,
    )
    answer = next((line for line in ran.stdout.splitlines() if line.startswith("ANSWER")), None)
    assert answer is not None, ran.stderr[-3000:]
    logprobs = [one for pair in json.loads(answer.removeprefix("ANSWER")) for part in pair for one in part]
    assert len(logprobs) == 2 * (3 + 8)
    assert all(math.isfinite(one) and one <= 0 for one in logprobs)
    assert len(set(logprobs)) > 10, "random weights prefer some tokens to others"


WRITE_TOKENIZER = """
import importlib.machinery, json, sys, types
from pathlib import Path
module = types.ModuleType("script")
module.__file__ = sys.argv[1]
importlib.machinery.SourceFileLoader("script", sys.argv[1]).exec_module(module)
folder = Path(sys.argv[2])
module.write_tokenizer(folder, json.loads((folder / "config.json").read_text()))
"""
