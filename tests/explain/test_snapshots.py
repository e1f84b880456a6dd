"""What explain prints, compared whole: models of several kinds on several machines, in several versions.

A row of the table that is changed changes what is printed; look at the difference, then write the files anew
with `AUTOLAUNCH_TEST_UPDATE=1 pytest tests/explain/test_snapshots.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from autolaunch.assessment import Assessment
from autolaunch.explain.markdown import markdown_of
from autolaunch.explain.screen import Screen
from autolaunch.explain.text import lines_of
from autolaunch.explain.why import answers, lines_of_why
from tests.explain.cases import QWEN_397B, ask, write_model

SNAPSHOTS = Path(__file__).parent / "snapshots"


def piped(assessment: Assessment) -> str:
    """Into a pipe."""
    return Screen().render(lines_of(assessment))


def narrow(assessment: Assessment) -> str:
    """On a terminal of 80 columns, in colours."""
    return Screen(colour=True, width=80).render(lines_of(assessment, brief=True))


def why(*questions: str) -> Callable[[Assessment], str]:
    """The answers to some questions."""
    return lambda assessment: Screen().render(lines_of_why(assessment, answers(assessment, questions)))


@dataclass(frozen=True, slots=True)
class Case:
    """A start and how it is shown; the name of the file tells the expected machine."""

    file: str
    model: str
    tokens: tuple[str, ...]
    sglang: str
    gpu: str | None = None
    gpus: int | None = None
    shown: Callable[[Assessment], str] = piped


SEED = (QWEN_397B, ("--tp", "8"), "0.5.21", "RTX PRO 6000", 8)
CASES = (
    Case("qwen-397b-nvfp4.sm120.0.5.21.txt", *SEED),
    Case("qwen-397b-nvfp4.sm120.0.5.21.terminal.txt", *SEED, shown=narrow),
    Case("qwen-397b-nvfp4.sm120.0.5.21.md", *SEED, shown=markdown_of),
    Case("qwen-397b-nvfp4.sm120.0.5.21.why.txt", *SEED, shown=why(
        "fp4-gemm-backend=flashinfer_trtllm", "moe-runner-backend", "attention-backend=fa3", "sampling-backend=x"
    )),
    Case("qwen-397b-nvfp4.sm120.0.5.9.txt", QWEN_397B, ("--tp", "8"), "0.5.9", "RTX PRO 6000", 8),
    Case("qwen-397b-nvfp4.sm100.0.5.23.txt", QWEN_397B, ("--tp", "4"), "0.5.23", "B200", 4),
    Case("deepseek-r1.sm90.0.5.17.txt", "deepseek-ai/DeepSeek-R1", ("--tp", "8"), "0.5.17", "H200", 8),
    Case("gpt-oss-120b.sm89.0.5.14.txt", "openai/gpt-oss-120b", ("--tp", "4"), "0.5.14", "RTX 4090", 4),
    Case(
        "qwen3-30b-fp8-pinned.sm89.0.5.23.txt",
        "Qwen/Qwen3-30B-A3B-FP8",
        ("--attention-backend", "fa3", "--moe-runner-backend", "deep_gemm", "--mem-fraction-static", "0.99", "--no-such"),
        "0.5.23",
        "L40S",
    ),
    Case("glm-5-nvfp4.sm103.0.5.23.txt", "nvidia/GLM-5-NVFP4", ("--tp", "8"), "0.5.23", "B300", 8),
    Case("gemma-3-27b.sm80.0.5.11.txt", "google/gemma-3-27b-it", ("--tp", "2"), "0.5.11", "A100", 2),
    Case("qwen3-32b-awq.no-gpu.0.5.21.txt", "Qwen/Qwen3-32B-AWQ", ("--device", "cpu"), "0.5.21"),
    Case("object-store.sm90.0.5.23.txt", "s3://bucket/model", ("--tp", "2"), "0.5.23", "H200", 2),
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_it_is_what_it_was(case: Case, models: Path) -> None:
    model = case.model if "://" in case.model else write_model(case.model, models)
    found = ask(model, *case.tokens, gpu=case.gpu, gpus=case.gpus, sglang=case.sglang, cwd=models)
    text = case.shown(found)
    file = SNAPSHOTS / case.file
    if os.environ.get("AUTOLAUNCH_TEST_UPDATE"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


def test_every_file_has_its_case() -> None:
    assert {path.name for path in SNAPSHOTS.iterdir()} == {case.file for case in CASES}
