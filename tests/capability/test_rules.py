"""The loader of rows refuses what is malformed, and says where."""

from __future__ import annotations

from pathlib import Path

import pytest

from autolaunch.capability.autos import load_autos
from autolaunch.capability.rows import RowError
from autolaunch.capability.rules import load_rules
from tests.capability.tables import EVIDENCE, auto, rule

GOOD = {
    "id": '"fp4_gemm.x.sm"',
    "dimension": '"--fp4-gemm-backend"',
    "choice": '"flashinfer_trtllm"',
    "effect": '"exclude"',
    "failure": '"crash"',
}


def load(tmp_path: Path, text: str) -> None:
    """Load `text` as a file of rules."""
    file = tmp_path / "fp4-gemm-backend.toml"
    file.write_text(text)
    load_rules(file)


def test_a_good_row_loads(tmp_path: Path) -> None:
    load(
        tmp_path,
        rule(**GOOD, when='{ sm = "12x" }', sglang='">=0.5.9"', numerics='"same"', stage='"capture"'),
    )


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"id": '"plain"'}, "dotted"),
        ({"id": "5"}, "`id` is no string"),
        ({"effect": '"forbid"'}, "not one of exclude, allow"),
        ({"failure": '"explode"'}, "not one of"),
        ({"failure": '""'}, "needs a `failure`"),
        ({"stage": '"boot"'}, "not one of"),
        ({"numerics": '"bad"'}, "not one of"),
        ({"when": "{ smm = 120 }"}, "`smm` is no fact"),
        ({"when": '{ sm = "blackwell" }'}, "is no SM"),
        ({"when": "5"}, "a condition is a table"),
        ({"unless": "{ any = [] }"}, "two tables or more"),
        ({"sglang": '"0.5.9"'}, "no version comparison"),
        ({"sglang": "5"}, "`sglang` is no string"),
        ({"flashinfer": '">=new"'}, "no version"),
        ({"reason": '"It fails."'}, "without a full stop"),
        ({"reason": '""'}, "without a full stop"),
        ({"reason": '"it is {smm}"'}, "`{smm}`, which is no fact"),
        ({"contradiction": '"the guard."'}, "without a full stop"),
        ({"evidence": "[]"}, "needs evidence"),
        ({"evidence": '"source"'}, "needs evidence"),
        ({"evidence": '[{ kind = "rumour", ref = "somebody said" }]'}, "needs a kind"),
        ({"evidence": '[{ kind = "source", ref = "x" }]'}, "needs a kind (source"),
        ({"evidence": '[{ kind = "source", ref = "sglang 0.5.9", line = 3 }]'}, "evidence is"),
        ({"choice": "[]"}, "`choice` is empty"),
        ({"choice": "[1]"}, "no list of strings"),
        ({"require": '["--page-size 64"]'}, "goes with the effect"),
        ({"effect": '"require"', "failure": '""'}, "goes with the effect"),
        ({"effect": '"require"', "require": '["page-size 64"]'}, "neither a flag"),
        ({"effect": '"warn"', "flashinfer_backend": '{ function = "mm_fp4", backend = "trtllm" }'}, "exclude and allow only"),
        ({"flashinfer_backend": '{ function = "mm_fp4" }'}, "`flashinfer_backend` is"),
        ({"flashinfer_backend": '"mm_fp4"'}, "is no table"),
        ({"dimension": '""'}, "a combination has no `choice`"),
        ({"severity": '"high"'}, "unknown keys severity"),
    ],
)  # fmt: skip
def test_a_malformed_row_is_refused(tmp_path: Path, change: dict[str, str], says: str) -> None:
    with pytest.raises(RowError) as caught:
        load(tmp_path, rule(**{**GOOD, **change}))
    assert "fp4-gemm-backend.toml: rule" in str(caught.value)
    assert says in str(caught.value)


@pytest.mark.parametrize("key", ["id", "dimension", "effect"])
def test_a_key_that_is_missing_is_named(tmp_path: Path, key: str) -> None:
    with pytest.raises(RowError, match=f"lacks `{key}`"):
        load(tmp_path, rule(**{name: value for name, value in GOOD.items() if name != key}))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[rules]]\n", "unknown tables rules"),
        ("[rule]\nid = 'a.b'\n", "not [rule]"),
        ("rule = 5\n", "not [rule]"),
        ("[[rule]\n", "no TOML"),
        ("a = [" * 500 + "]" * 500, "no TOML"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(RowError) as caught:
        load(tmp_path, text)
    assert says in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RowError, match="no TOML"):
        load_rules(file)


def test_a_combination_asks_for_flags(tmp_path: Path) -> None:
    good = {"id": '"combo.a.b"', "dimension": '""', "effect": '"warn"', "failure": '"slow"'}
    load(tmp_path, rule(**good, when="{ flag.page_size = 64 }"))
    with pytest.raises(RowError, match="asks for a flag"):
        load(tmp_path, rule(**good, when="{ sm = 90 }"))
    with pytest.raises(RowError, match="excludes, warns or requires"):
        load(tmp_path, rule(**{**good, "effect": '"allow"'}, when="{ flag.page_size = 64 }"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (auto("--page-size", "64"), "is about `--fp4-gemm-backend`"),
        (auto("--fp4-gemm-backend", "= page_size"), "`= flag.<dest>`"),
        (auto("--fp4-gemm-backend", "64", choice='"x"'), "unknown keys choice"),
        ('[[prefer]]\ndimension = "--fp4-gemm-backend"\n', "lacks `order`"),
        (
            '[[auto]]\nid = "a.b"\ndimension = "--fp4-gemm-backend"\nreason = "x"\n' + EVIDENCE,
            "lacks `value`",
        ),
    ],
)
def test_a_malformed_auto_row_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "fp4-gemm-backend.toml"
    file.write_text(text)
    with pytest.raises(RowError) as caught:
        load_autos(file, "--fp4-gemm-backend")
    assert says in str(caught.value)
