"""`--why`: one verdict, with the facts it rests on."""

from __future__ import annotations

from pathlib import Path

import pytest

from autolaunch.assessment import Assessment
from autolaunch.errors import UsageError
from autolaunch.explain.screen import Screen
from autolaunch.explain.why import answers, lines_of_why
from tests.explain.cases import ask


@pytest.fixture(scope="module")
def seed(qwen: Path) -> Assessment:
    """The seed case."""
    return ask(qwen, "--tp", "8", gpu="RTX PRO 6000", gpus=8, sglang="0.5.21")


def said(assessment: Assessment, *questions: str) -> str:
    """The answers as text."""
    return Screen().render(lines_of_why(assessment, answers(assessment, questions)))


def test_excluded_because_therefore(seed: Assessment) -> None:
    lines = said(seed, "fp4-gemm-backend=flashinfer_trtllm").splitlines()
    assert lines[0] == "`--fp4-gemm-backend flashinfer_trtllm` is excluded"
    assert lines[1] == "  because `sm` is 120 (compute capability)"
    assert lines[2].startswith("  and FlashInfer's TRT-LLM FP4 kernels are built for SM 10.0 and 10.3")
    assert lines[3].startswith("  therefore it crashes ")
    assert lines[4].startswith("  evidence: flashinfer ")
    assert lines[4].endswith("[fp4_gemm.flashinfer_trtllm.sm]")
    assert lines[-1].startswith("hint: eligible here: ")
    assert "--admit fp4-gemm-backend=flashinfer_trtllm" in lines[-1]


def test_what_runs_says_so(seed: Assessment) -> None:
    text = said(seed, "--moe-runner-backend=flashinfer_cutlass")
    assert text.startswith(
        "`--moe-runner-backend flashinfer_cutlass` is eligible, and it is what runs: repaired"
    )
    assert "  therefore it is eligible\n" in text


def test_a_choice_this_version_does_not_have(seed: Assessment) -> None:
    text = said(seed, "attention-backend=nonsense")
    assert text.startswith("`--attention-backend nonsense` is excluded\n  because ")
    assert "does not offer `nonsense`" in text
    assert "therefore SGLang refuses it at the start, and it is excluded" in text
    assert "--admit" not in text


def test_a_dimension_alone_asks_for_all_of_its_choices(seed: Assessment) -> None:
    found = answers(seed, ("moe-runner-backend",))
    dimension = seed.evaluation.dimension("--moe-runner-backend")
    assert dimension is not None
    assert [one.choice for one in found] == list(dimension.choices)


def test_a_missing_fact_is_named_with_what_tells_it(qwen: Path) -> None:
    text = said(ask(qwen, "--tp", "8", "--device", "cpu"), "fp4-gemm-backend=flashinfer_trtllm")
    assert "is unknown" in text
    assert "`sm` could not be detected" in text
    assert "hint: tell it: `--for-gpu NAME` or `--for-sm N`" in text


@pytest.mark.parametrize(
    ("question", "because", "hint"),
    [
        ("moe-runner-backnd=x", "no flag that selects", "did you mean `--moe-runner-backend`?"),
        ("zzz", "no flag that selects", "those are attention-backend"),
        ("dsa-prefill-backend=x", "selects nothing for it", "those are"),
        ("", "no flag", "those are"),
    ],
)
def test_no_dimension(seed: Assessment, question: str, because: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        answers(seed, (question,))
    assert because in " ".join(caught.value.because)
    assert hint.split()[0] in str(caught.value.hint)


def test_json(seed: Assessment) -> None:
    (why,) = answers(seed, ("fp4-gemm-backend=flashinfer_trtllm",))
    value = why.to_json()
    assert (value["flag"], value["verdict"]) == ("--fp4-gemm-backend", "excluded")
    assert value["because"][0]["facts"]["sm"] == 120
