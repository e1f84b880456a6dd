"""The field of a race on GPUs, where earlier starts have a say."""

from __future__ import annotations

from pathlib import Path

from autolaunch.candidates.generate import SUSPECT
from autolaunch.candidates.tabled import field_from_table
from autolaunch.capability.contenders import Contenders
from tests.explain.cases import QWEN_397B, ask, write_model


def test_a_suspect_is_left_out_also_when_the_user_names_it(tmp_path: Path) -> None:
    assessment = ask(write_model(QWEN_397B, tmp_path), "--tp", "8", gpu="RTX PRO 6000", gpus=8)
    nobody = Contenders((), ())
    mine = ("--disable-radix-cache", "--disable-overlap-schedule")
    suspects = frozenset({("--disable-radix-cache",), assessment.choice.flags})
    field = field_from_table(assessment.evaluation, nobody, assessment.catalogue, mine, suspects)
    assert [(one.id, one.label) for one in field.challengers] == [("c1", "--disable-overlap-schedule")]
    assert {(one.label, one.reason) for one in field.dropped} == {
        ("--disable-radix-cache", SUSPECT),
        (assessment.choice.label, SUSPECT),
    }
