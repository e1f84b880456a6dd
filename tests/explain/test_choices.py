"""Every choice with its reason for who reads on, a line for each dimension for who does not."""

from __future__ import annotations

from autolaunch.assessment import Assessment
from autolaunch.explain.markdown import markdown_of
from tests.explain.cases import text_of


def test_every_choice_is_there_with_its_reason(seed: Assessment) -> None:
    text, page = text_of(seed), markdown_of(seed)
    for dimension in seed.evaluation.dimensions:
        if dimension.choices:
            assert f"{dimension.flag}: " in text
            assert f"`{dimension.flag}`" in page
        for choice in dimension.choices:
            assert choice.reason in text
            assert f"`{choice.choice}`" in page


def test_a_terminal_gets_a_line_for_each_dimension(seed: Assessment) -> None:
    text = text_of(seed, brief=True)
    assert "MoE runner" in text
    assert "flashinfer_cutlass (repaired)" in text
    assert "--why DIMENSION" in text
    assert len(text.splitlines()) < 60
