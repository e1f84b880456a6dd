"""The JSON object that other tools read, for machines, models and versions of many kinds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autolaunch.assessment import Assessment, Wishes
from autolaunch.explain.document import document, document_text
from tests.explain.cases import ask, write_model
from tests.explain.schema import check_document

MODELS = [
    "Qwen/Qwen3-30B-A3B-FP8",
    "Qwen/Qwen3.5-0.8B",
    "deepseek-ai/DeepSeek-R1",
    "deepseek-ai/DeepSeek-V4-Flash",
    "google/gemma-3-27b-it",
    "openai/gpt-oss-120b",
    "nvidia/GLM-5-NVFP4",
    "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4",
    "Qwen/Qwen3-32B-AWQ",
    "BAAI/bge-large-en",
]
MACHINES = [("H200", 90), ("B200", 100), ("RTX 4090", 89), ("RTX PRO 6000", 120), ("T4", 75)]


@pytest.mark.parametrize("name", MODELS)
def test_it_is_what_was_promised(name: str, models: Path) -> None:
    folder = write_model(name, models)
    for at, (gpu, sm) in enumerate(MACHINES):
        version = ["0.5.9", "0.5.14", "0.5.17", "0.5.21", "0.5.23"][at]
        value = json.loads(document_text(document(ask(folder, "--tp", "4", gpu=gpu, sglang=version))))
        check_document(value)
        assert value["software"]["sglang"] == {"version": version, "source": "assumed"}
        assert value["machine"]["source"] == "named"
        assert [one["sm"] for one in value["machine"]["gpus"]] == [sm] * 4
        assert value["model"]["path"] == folder.name
        assert value["command"][:6] == [
            "python",
            "-m",
            "sglang.launch_server",
            "--model-path",
            folder.name,
            "--tp",
        ]


@pytest.fixture(scope="module")
def seed(qwen: Path) -> Assessment:
    """The seed case."""
    return ask(qwen, "--tp", "8", gpu="RTX PRO 6000", gpus=8, sglang="0.5.21")


def test_the_seed_case(seed: Assessment) -> None:
    value = document(seed)
    check_document(value)
    assert value["software"]["flashinfer"]["source"] == "pinned-by-sglang"
    assert value["model"]["architecture"] == "Qwen3_5MoeForConditionalGeneration"
    assert value["model"]["attention"] == "hybrid_linear"
    assert value["model"]["moe"] == {"experts": 512, "top_k": 10}
    assert value["model"]["quantization"]["scheme"] == "nvfp4"
    assert value["model"]["quantization"]["method"] == "modelopt_fp4"
    assert value["model"]["quantization"]["parts"]["experts"] == "nvfp4"
    assert value["model"]["quantization"]["parts"]["mtp"] == "bf16"
    mtp = value["mtp"]
    assert (mtp["announced"], mtp["present"], mtp["prefix"]) == (True, True, "mtp.")
    assert (mtp["tensors"], mtp["experts"], mtp["usable"]) == (1553, 512, True)
    moe = next(one for one in value["dimensions"] if one["flag"] == "--moe-runner-backend")
    assert (moe["auto"], moe["decision"], moe["value"]) == (
        "flashinfer_trtllm",
        "repaired",
        "flashinfer_cutlass",
    )
    assert value["command"][-2:] == ["--moe-runner-backend", "flashinfer_cutlass"]
    assert value["candidates"][1]["flags"] == ["--moe-runner-backend", "flashinfer_cutlass"]


def test_every_excluded_choice_of_a_raced_dimension_is_dropped_with_its_reason(seed: Assessment) -> None:
    value = document(seed)
    dropped = {one["label"]: one for one in value["dropped"]}
    for dimension in seed.evaluation.dimensions:
        for choice in dimension.choices if dimension.raced and not dimension.is_switch else ():
            if choice.verdict == "excluded" and choice.choice != dimension.effective:
                out = dropped[f"{dimension.flag} {choice.choice}"]
                assert (out["stage"], out["failure"], out["reason"]) == (
                    "table",
                    choice.failure,
                    choice.reason,
                )


def test_without_a_gpu_and_without_a_plan_the_verdicts_are_unknown(qwen: Path) -> None:
    value = document(ask(qwen, "--tp", "8", "--device", "cpu"))
    check_document(value)
    assert value["machine"] == {"source": "none", "gpus": []}
    fp4 = next(one for one in value["dimensions"] if one["flag"] == "--fp4-gemm-backend")
    trtllm = next(one for one in fp4["choices"] if one["choice"] == "flashinfer_trtllm")
    assert trtllm["verdict"] == "unknown"
    assert "sm" in trtllm["missing"]
    assert value["command"][-2:] == ["--device", "cpu"]


def test_a_checkpoint_that_is_not_looked_into_is_null(tmp_path: Path) -> None:
    value = document(ask("s3://bucket/model", "--tp", "8", gpu="H200", cwd=tmp_path))
    check_document(value)
    assert value["model"]["architecture"] is None
    assert value["model"]["not_inspected"]["kind"] == "object-store"
    assert value["mtp"]["present"] is None
    assert value["memory"]["fits"] is None


def test_a_config_alone_proves_no_heads(models: Path) -> None:
    value = document(ask(write_model("Qwen/Qwen3.5-0.8B", models), gpu="H200"))
    assert (value["mtp"]["announced"], value["mtp"]["present"]) == (True, None)


def test_pins_and_wishes(qwen: Path) -> None:
    wishes = Wishes(admit=("moe-runner-backend=flashinfer_cutedsl",))
    value = document(
        ask(
            qwen,
            "--tp",
            "8",
            "--attention-backend",
            "fa3",
            gpu="RTX PRO 6000",
            sglang="0.5.21",
            wishes=wishes,
        )
    )
    attention = next(one for one in value["dimensions"] if one["flag"] == "--attention-backend")
    assert (attention["pinned"], attention["decision"], attention["value"]) == ("fa3", "pinned", "fa3")
    assert any("fa3" in one["text"] and one["pinned"] for one in value["warnings"])
    admitted = [one["flags"] for one in value["candidates"] if "flashinfer_cutedsl" in one["flags"]]
    assert len(admitted) == 1
    assert "--attention-backend" not in [flag for one in value["candidates"] for flag in one["flags"]]


def test_what_sglang_will_refuse_is_a_warning(qwen: Path) -> None:
    value = document(ask(qwen, "--tp", "8", "--no-such-flag", "--port", gpu="H200"))
    assert {one["id"] for one in value["warnings"]} >= {"request.unknown-flag", "request.missing-value"}


def test_secrets_are_hidden(qwen: Path) -> None:
    assessment = ask(qwen, "--tp", "8", "--api-key", "sk-very-secret-indeed", gpu="H200")
    assert "very-secret" not in document_text(document(assessment))


def test_the_text_is_ascii(models: Path) -> None:
    assessment = ask(
        write_model("Qwen/Qwen3-32B-AWQ", models), "--served-model-name", "\x1b[2J\u202e", gpu="H200"
    )
    assert document_text(document(assessment)).isascii()
