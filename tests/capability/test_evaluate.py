"""The evaluator: verdicts, pins, automatic choices, repairs and warnings, on tables made for the purpose."""

from __future__ import annotations

from pathlib import Path

import pytest

from autolaunch.capability.evaluate import evaluate, judge_choice
from autolaunch.capability.fact_names import UNKNOWN, Fact
from autolaunch.capability.flag_facts import FactSheet
from autolaunch.capability.table import Table
from autolaunch.capability.verdicts import ChoiceVerdict, DimensionVerdict, Evaluation
from autolaunch.request.catalogue import bundled_catalogue
from tests.capability.tables import auto, make_table, rule

FP4 = "--fp4-gemm-backend"
ATTENTION = "--attention-backend"

TRTLLM = rule(
    id='"fp4_gemm.flashinfer_trtllm.sm"',
    dimension=f'"{FP4}"',
    choice='"flashinfer_trtllm"',
    effect='"exclude"',
    flashinfer_backend='{ function = "mm_fp4", backend = "trtllm" }',
    failure='"crash"',
    stage='"capture"',
    reason='"the kernels exist for SM 10.0 and 10.3 only, and this GPU is SM {sm}"',
    contradiction='"SGLang has no guard for it"',
)
ALLOW = rule(
    id='"fp4_gemm.flashinfer.sm"',
    dimension=f'"{FP4}"',
    choice='["flashinfer_cutlass", "flashinfer_cudnn", "flashinfer_trtllm"]',
    effect='"allow"',
    when="{ sm = [100, 103, 110, 120, 121] }",
    numerics='"same"',
)
NAN = rule(
    id='"fp4_gemm.flashinfer_cutlass.nan"',
    dimension=f'"{FP4}"',
    choice='"flashinfer_cutlass"',
    effect='"warn"',
    failure='"garbage"',
    when='{ sm = "12x" }',
    flashinfer='"<0.6.7"',
)
PREFER = f'\n[[prefer]]\ndimension = "{FP4}"\norder = ["flashinfer_cutlass", "flashinfer_cudnn"]\n'


def facts(**changes: Fact) -> FactSheet:
    """A plain NVFP4 model on one SM 12.0; a changed `flag_x` is the fact `flag.x`."""
    sheet: dict[str, Fact] = {
        "platform": "cuda",
        "sm": 120,
        "sglang": "0.5.21",
        "flashinfer": "0.6.18",
        "scheme": "nvfp4",
        "attention": "gqa",
    }
    for name, value in changes.items():
        sheet[name.replace("flag_", "flag.", 1) if name.startswith("flag_") else name] = value
    return FactSheet({name: value for name, value in sheet.items() if value is not UNKNOWN})


def run(table: Table, sheet: FactSheet, version: str | None = None) -> Evaluation:
    """Evaluate with the flags of the version in `sheet`."""
    return evaluate(sheet, table, bundled_catalogue(version or str(sheet["sglang"])))


def fp4(evaluation: Evaluation) -> DimensionVerdict:
    """The FP4 dimension of an evaluation."""
    found = evaluation.dimension(FP4)
    assert found is not None
    return found


def choice(evaluation: Evaluation, name: str, flag: str = FP4) -> ChoiceVerdict:
    """The verdict on one choice."""
    dimension = evaluation.dimension(flag)
    assert dimension is not None
    found = dimension.choice(name)
    assert found is not None
    return found


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """FP4 rules as they are, with an automatic choice that is wrong on SM 12.0."""
    autos = auto(FP4, "flashinfer_trtllm", when="{ sm = [100, 120] }") + auto(FP4, "flashinfer_cutlass")
    return make_table(
        tmp_path / "table",
        {"rules/fp4-gemm-backend": TRTLLM + ALLOW + NAN, "auto/fp4-gemm-backend": autos + PREFER},
    )


def test_an_exclude_wins_over_an_allow_and_says_why(table: Table) -> None:
    verdict = choice(run(table, facts()), "flashinfer_trtllm")
    assert (verdict.verdict, verdict.failure, verdict.stage) == ("excluded", "crash", "capture")
    assert verdict.rules == ("fp4_gemm.flashinfer_trtllm.sm",)
    assert verdict.reason == (
        "the kernels exist for SM 10.0 and 10.3 only, and this GPU is SM 120; SGLang has no guard for it"
    )
    assert any("flashinfer 0.6.18: SMs declared for `mm_fp4`" in one.ref for one in verdict.evidence)


def test_what_the_kernels_serve_is_eligible(table: Table) -> None:
    evaluation = run(table, facts(sm=100))
    assert choice(evaluation, "flashinfer_trtllm").verdict == "eligible"
    assert fp4(evaluation).decision == "kept"
    assert not evaluation.repairs and not evaluation.warnings


def test_no_rule_is_unknown_and_not_unsupported(table: Table) -> None:
    verdict = choice(run(table, facts()), "marlin")
    assert (verdict.verdict, verdict.rules) == ("unknown", ())


def test_a_missing_fact_is_named(table: Table) -> None:
    evaluation = run(table, facts(sm=UNKNOWN))
    verdict = choice(evaluation, "flashinfer_trtllm")
    assert (verdict.verdict, verdict.missing) == ("unknown", ("sm",))
    assert "`sm` could not be detected" in verdict.reason
    dimension = fp4(evaluation)
    assert dimension.auto is None and "depending on sm" in dimension.auto_reason
    assert not evaluation.repairs


def test_an_unknown_flashinfer_is_named(table: Table) -> None:
    verdict = choice(run(table, facts(flashinfer=UNKNOWN)), "flashinfer_trtllm")
    assert (verdict.verdict, verdict.missing) == ("unknown", ("flashinfer",))


def test_between_two_known_flashinfers_only_what_both_say_is_known(table: Table) -> None:
    assert choice(run(table, facts(flashinfer="0.6.5")), "flashinfer_trtllm").verdict == "excluded"
    between = run(table, facts(flashinfer="0.6.16", sm=107))  # 0.6.15 excludes SM 10.7, 0.6.18 serves it
    assert choice(between, "flashinfer_trtllm").verdict == "unknown"
    assert choice(run(table, facts(flashinfer="0.6.1")), "flashinfer_trtllm").missing == ("flashinfer",)
    assert choice(run(table, facts(flashinfer="0.9.0")), "flashinfer_trtllm").verdict == "excluded"


def test_a_choice_that_the_version_does_not_offer_is_rejected(table: Table) -> None:
    evaluation = run(table, facts(sglang="0.5.9"))
    verdict = judge_choice(evaluation, table, bundled_catalogue("0.5.9"), FP4, "marlin")
    assert verdict is not None
    assert (verdict.verdict, verdict.failure, verdict.stage) == ("excluded", "rejected", "start")
    assert verdict.rules == ("choices.fp4_gemm_runner_backend",)
    assert verdict.evidence and "0.5.9" in verdict.reason
    assert judge_choice(evaluation, table, bundled_catalogue("0.5.9"), "--port", "1") is None


def test_an_automatic_choice_that_cannot_work_is_repaired(table: Table) -> None:
    evaluation = run(table, facts())
    dimension = fp4(evaluation)
    assert (dimension.auto, dimension.decision, dimension.value) == (
        "flashinfer_trtllm",
        "repaired",
        "flashinfer_cutlass",
    )
    (repair,) = evaluation.repairs
    assert repair.tokens == (FP4, "flashinfer_cutlass") == evaluation.flags
    assert repair.rules == ("fp4_gemm.flashinfer_trtllm.sm",)
    assert "SGLang has no guard" in repair.because[0]
    assert evaluation.facts["flag.fp4_gemm_runner_backend"] == "flashinfer_cutlass"
    assert not evaluation.warnings


def test_a_repair_that_brings_a_risk_is_warned_of(table: Table) -> None:
    evaluation = run(table, facts(flashinfer="0.6.3"))
    (warning,) = evaluation.warnings
    assert (warning.id, warning.pinned) == ("fp4_gemm.flashinfer_cutlass.nan", False)


def test_a_pin_is_never_changed_and_loudly_warned_of(table: Table) -> None:
    evaluation = run(table, facts(flag_fp4_gemm_runner_backend="flashinfer_trtllm"))
    dimension = fp4(evaluation)
    assert (dimension.decision, dimension.pinned, dimension.value) == (
        "pinned",
        "flashinfer_trtllm",
        "flashinfer_trtllm",
    )
    assert not evaluation.repairs
    (warning,) = evaluation.warnings
    assert warning.id == "fp4_gemm.flashinfer_trtllm.sm"
    assert warning.pinned and "and you pinned it" in warning.text
    assert warning.because and warning.evidence
    assert "flashinfer_cutlass" in (warning.hint or "")
    assert warning.notice().evidence


def test_auto_in_words_is_a_pin_too(table: Table) -> None:
    evaluation = run(table, facts(flag_fp4_gemm_runner_backend="auto"))
    assert fp4(evaluation).decision == "pinned"
    assert not evaluation.repairs
    (warning,) = evaluation.warnings
    assert warning.id == "fp4_gemm.flashinfer_trtllm.sm"


def test_a_pin_that_the_version_does_not_offer_is_warned_of(table: Table) -> None:
    evaluation = run(table, facts(flag_fp4_gemm_runner_backend="b12x"))
    (warning,) = evaluation.warnings
    assert (warning.id, warning.failure) == ("choices.fp4_gemm_runner_backend", "rejected")


def test_a_dimension_that_does_not_matter_is_left_out_unless_pinned(table: Table) -> None:
    assert run(table, facts(scheme="bf16")).dimension(FP4) is None
    pinned = run(table, facts(scheme="bf16", flag_fp4_gemm_runner_backend="flashinfer_cutlass"))
    assert fp4(pinned).relevant is False
    assert fp4(run(table, facts(scheme=UNKNOWN))).relevant is None


def test_nothing_preferred_is_eligible(tmp_path: Path) -> None:
    table = make_table(
        tmp_path,
        {"rules/fp4-gemm-backend": TRTLLM, "auto/fp4-gemm-backend": auto(FP4, "flashinfer_trtllm") + PREFER},
    )
    evaluation = run(table, facts())
    assert not evaluation.repairs  # nobody knows that the preferred ones work
    (warning,) = evaluation.warnings
    assert "SGLang picks it by itself" in warning.text and not warning.pinned


@pytest.mark.parametrize("failure", ["slow", "silent_fallback", "environment"])
def test_what_does_no_harm_is_not_repaired(tmp_path: Path, failure: str) -> None:
    text = TRTLLM.replace('"crash"', f'"{failure}"') + ALLOW
    table = make_table(
        tmp_path,
        {"rules/fp4-gemm-backend": text, "auto/fp4-gemm-backend": auto(FP4, "flashinfer_trtllm") + PREFER},
    )
    evaluation = run(table, facts())
    assert not evaluation.repairs
    assert [one.failure for one in evaluation.warnings] == [failure]


def test_a_copied_automatic_choice_follows_a_repair(tmp_path: Path) -> None:
    table = make_table(
        tmp_path,
        {
            "rules/attention-backend": rule(
                id='"attention.fa3.sm"',
                dimension='["--attention-backend", "--decode-attention-backend"]',
                choice='"fa3"',
                effect='"exclude"',
                failure='"crash"',
                when='{ sm = "12x" }',
            )
            + rule(
                id='"attention.triton.sm"', dimension=f'"{ATTENTION}"', choice='"triton"', effect='"allow"'
            ),
            "auto/attention-backend": auto(ATTENTION, "fa3")
            + f'\n[[prefer]]\ndimension = "{ATTENTION}"\norder = ["fa3", "triton"]\n',
            "auto/decode-attention-backend": auto("--decode-attention-backend", "= flag.attention_backend"),
        },
    )
    evaluation = run(table, facts())
    decode = evaluation.dimension("--decode-attention-backend")
    assert decode is not None
    assert [repair.dimension for repair in evaluation.repairs] == [ATTENTION]
    assert (decode.auto, decode.decision) == ("triton", "kept")
    assert not evaluation.warnings


COMPANION = rule(
    id='"attention.flashmla.page"',
    dimension=f'"{ATTENTION}"',
    choice='"flashmla"',
    effect='"require"',
    require='["--page-size 64|32"]',
) + rule(id='"attention.flashmla.ok"', dimension=f'"{ATTENTION}"', choice='"flashmla"', effect='"allow"')


@pytest.mark.parametrize(("page", "warned"), [("unset", True), (16, True), (64, False), (32, False)])
def test_a_pinned_choice_without_its_companion(tmp_path: Path, page: Fact, warned: bool) -> None:
    table = make_table(tmp_path, {"rules/attention-backend": COMPANION})
    sheet = facts(flag_attention_backend="flashmla")
    if page != "unset":
        sheet["flag.page_size"] = page
    evaluation = run(table, sheet)
    assert [one.id for one in evaluation.warnings] == (["attention.flashmla.page"] if warned else [])
    if warned:
        assert evaluation.warnings[0].hint == "add `--page-size 64`"


def test_a_companion_that_sglang_sets_itself_is_not_missed(tmp_path: Path) -> None:
    pages = auto("--page-size", "64", when='{ flag.attention_backend = "flashmla" }')
    table = make_table(tmp_path, {"rules/attention-backend": COMPANION, "auto/page-size": pages})
    assert not run(table, facts(flag_attention_backend="flashmla")).warnings


def test_a_repair_brings_its_companions(tmp_path: Path) -> None:
    table = make_table(
        tmp_path,
        {
            "rules/attention-backend": COMPANION
            + rule(id='"attention.fa3.sm"', dimension=f'"{ATTENTION}"', choice='"fa3"', effect='"exclude"', failure='"crash"'),
            "auto/attention-backend": auto(ATTENTION, "fa3")
            + f'\n[[prefer]]\ndimension = "{ATTENTION}"\norder = ["flashmla"]\n',
        },
    )  # fmt: skip
    evaluation = run(table, facts())
    assert evaluation.flags == (ATTENTION, "flashmla", "--page-size", "64")
    assert evaluation.facts["flag.page_size"] == 64
    page = evaluation.dimension("--page-size")
    assert page is None  # no row speaks of it, so it has no place of its own
    pinned = run(table, facts(flag_page_size=16))
    assert not pinned.repairs  # it would change what the user set


COMBINATION = rule(
    id='"combo.fp8_kv.fa3"',
    dimension='""',
    effect='"exclude"',
    failure='"garbage"',
    when='{ flag.kv_cache_dtype = "fp8_e5m2", flag.attention_backend = "fa3" }',
)


def test_a_harmful_combination_is_a_warning_with_its_rule(tmp_path: Path) -> None:
    table = make_table(tmp_path, {"rules/combinations": COMBINATION})
    evaluation = run(table, facts(flag_kv_cache_dtype="fp8_e5m2", flag_attention_backend="fa3"))
    (warning,) = evaluation.warnings
    assert (warning.id, warning.pinned) == ("combo.fp8_kv.fa3", True)
    assert warning.flags == ("--kv-cache-dtype fp8_e5m2", "--attention-backend fa3")
    assert not run(table, facts(flag_kv_cache_dtype="fp8_e5m2")).warnings


def test_a_repair_does_not_run_into_a_combination(tmp_path: Path) -> None:
    table = make_table(
        tmp_path,
        {
            "rules/combinations": COMBINATION,
            "rules/attention-backend": rule(
                id='"attention.fa4.sm"', dimension=f'"{ATTENTION}"', choice='"fa4"', effect='"exclude"', failure='"crash"'
            )
            + rule(id='"attention.ok.ok"', dimension=f'"{ATTENTION}"', choice='["fa3", "triton"]', effect='"allow"'),
            "auto/attention-backend": auto(ATTENTION, "fa4")
            + f'\n[[prefer]]\ndimension = "{ATTENTION}"\norder = ["fa3", "triton"]\n',
        },
    )  # fmt: skip
    assert attention_of(run(table, facts())) == "fa3"
    assert attention_of(run(table, facts(flag_kv_cache_dtype="fp8_e5m2"))) == "triton"


def attention_of(evaluation: Evaluation) -> str | None:
    """What attention was repaired to."""
    found = evaluation.dimension(ATTENTION)
    assert found is not None
    return found.value


def test_a_choice_is_judged_as_if_it_were_set(tmp_path: Path) -> None:
    """A rule on all choices may ask for the flag itself, and for what follows from it."""
    text = rule(
        id='"page.any.large"',
        dimension='"--page-size"',
        choice='"*"',
        effect='"exclude"',
        failure='"rejected"',
        when="{ flag.page_size = '>1' }",
    )
    evaluation = run(make_table(tmp_path, {"rules/page-size": text}), facts())
    assert choice(evaluation, "64", "--page-size").verdict == "excluded"
    assert choice(evaluation, "1", "--page-size").verdict == "unknown"
    assert evaluation.facts["flag.page_size"] == "unset"


def test_a_renamed_flag_is_one_dimension(tmp_path: Path) -> None:
    text = rule(
        id='"dsa.trtllm.sm"',
        dimension='"--dsa-decode-backend"',
        choice='"trtllm"',
        effect='"exclude"',
        failure='"crash"',
    )
    table = make_table(tmp_path, {"rules/dsa-decode-backend": text})
    old = run(table, facts(sglang="0.5.9", attention="dsa")).dimension("--nsa-decode-backend")
    new = run(table, facts(attention="dsa")).dimension("--dsa-decode-backend")
    assert old is not None and new is not None
    assert (old.flag, old.name, old.dest) == ("--nsa-decode-backend", new.name, new.dest)
    assert (
        choice(run(table, facts(sglang="0.5.9", attention="dsa")), "trtllm", old.flag).verdict == "excluded"
    )


def test_what_is_silently_replaced_is_no_candidate_but_starts_where_it_is_pinned(tmp_path: Path) -> None:
    text = rule(
        id='"fp4_gemm.flashinfer_cudnn.unread"',
        dimension=f'"{FP4}"',
        choice='"flashinfer_cudnn"',
        effect='"exclude"',
        failure='"silent_fallback"',
    )
    table = make_table(tmp_path, {"rules/fp4-gemm-backend": ALLOW + text})
    assert choice(run(table, facts()), "flashinfer_cudnn").verdict == "excluded"
    pinned = run(table, facts(flag_fp4_gemm_runner_backend="flashinfer_cudnn"))
    verdict = choice(pinned, "flashinfer_cudnn")
    assert (verdict.verdict, verdict.rules) == ("unknown", ("fp4_gemm.flashinfer_cudnn.unread",))
    assert [one.id for one in pinned.warnings] == ["fp4_gemm.flashinfer_cudnn.unread"]


@pytest.mark.parametrize(("value", "missing"), [("1", False), ("True", False), ("0", True), ("unset", True)])
def test_a_variable_is_switched_on_in_several_spellings(tmp_path: Path, value: str, missing: bool) -> None:
    text = rule(
        id='"fp4_gemm.flashinfer_cutlass.variable"',
        dimension=f'"{FP4}"',
        choice='"flashinfer_cutlass"',
        effect='"require"',
        require='["SGLANG_X=1"]',
    )
    table = make_table(tmp_path, {"rules/fp4-gemm-backend": ALLOW + text})
    sheet = facts(flag_fp4_gemm_runner_backend="flashinfer_cutlass")
    sheet["env.SGLANG_X"] = value
    assert bool(run(table, sheet).warnings) is missing


def test_a_switch_is_on_or_off(tmp_path: Path) -> None:
    text = rule(
        id='"symm.on.sm"',
        dimension='"--enable-torch-symm-mem"',
        choice='"on"',
        effect='"exclude"',
        failure='"silent_fallback"',
    )
    table = make_table(tmp_path, {"rules/allreduce": text})
    evaluation = run(table, facts(flag_enable_torch_symm_mem=True))
    assert [one.text for one in evaluation.warnings] == [
        "`--enable-torch-symm-mem` is silently replaced here, and you pinned it"
    ]
    assert not run(table, facts()).warnings


@pytest.mark.parametrize(
    ("version", "notice", "sglang"),
    [
        ("0.0.0.dev1", "table.sglang-development", "0.5.23"),
        ("unknown", "table.sglang-development", "0.5.23"),
        ("0.5.30", "table.sglang-newer", "0.5.30"),
        ("0.5.24.dev12+gabc", "table.sglang-newer", "0.5.24.dev12+gabc"),
        ("0.5.23rc1", "table.sglang-early", "0.5.23rc1"),
        ("0.5.23", None, "0.5.23"),
        ("0.5.10.post1", None, "0.5.10.post1"),
    ],
)
def test_versions_that_the_table_does_not_know(
    table: Table, version: str, notice: str | None, sglang: str
) -> None:
    evaluation = run(table, facts(sglang=version), "0.5.23")
    assert [one.id for one in evaluation.notices] == ([notice] if notice else [])
    assert evaluation.facts["sglang"] == sglang


def test_json_has_what_the_contract_names(table: Table) -> None:
    row = fp4(run(table, facts())).to_json()
    assert {"flag", "pinned", "auto", "decision", "value", "choices"} <= set(row)
    assert {"choice", "verdict", "failure", "numerics", "reason", "rules", "evidence"} <= set(
        row["choices"][0]
    )


def test_what_copies_a_pin_is_not_repaired(tmp_path: Path) -> None:
    """The decode takes the pinned attention over: one warning, no change of it by the back door."""
    both = '["--attention-backend", "--decode-attention-backend"]'
    table = make_table(
        tmp_path,
        {
            "rules/attention-backend": rule(id='"attention.fa3.sm"', dimension=both, choice='"fa3"', effect='"exclude"', failure='"crash"')
            + rule(id='"attention.triton.sm"', dimension=both, choice='"triton"', effect='"allow"'),
            "auto/decode-attention-backend": auto("--decode-attention-backend", "= flag.attention_backend")
            + '\n[[prefer]]\ndimension = "--decode-attention-backend"\norder = ["triton"]\n',
        },
    )  # fmt: skip
    evaluation = run(table, facts(flag_attention_backend="fa3"))
    assert not evaluation.repairs
    assert [(one.id, one.pinned) for one in evaluation.warnings] == [("attention.fa3.sm", True)]
