"""Which heads can be used, and what stands against it."""

from __future__ import annotations

import pytest

from autolaunch.capability.rows import RowError
from autolaunch.checkpoint.quantization import Quantization
from autolaunch.nextn.families import parse_families
from autolaunch.nextn.suggest import with_room
from tests.nextn.heads import ABSENT, GIB, checkpoint, mtp, planned

QWEN = "Qwen3_5MoeForConditionalGeneration"
NVFP4 = Quantization("nvfp4", "modelopt_fp4", {"experts": "nvfp4", "mtp": "bf16"})


def test_a_plan_says_gain_cost_and_what_sglang_sets_silently() -> None:
    plan = planned(checkpoint(QWEN, quantization=NVFP4), tp=8)
    assert plan.usable
    assert plan.suggested
    assert plan.gain_range == (1.5, 2.4)
    assert plan.gain is not None
    assert "times the tokens per second" in plan.gain
    assert plan.gain_evidence
    assert plan.cost_bytes == GIB
    assert plan.cost is not None
    assert plan.cost.startswith("about 1.0 GiB")
    assert plan.max_running_requests == 48
    assert plan.to_json()["flags"][:2] == ["--speculative-algorithm", "NEXTN"]


def test_a_workload_that_needs_more_room_than_sglang_gives_is_given_it() -> None:
    plan = planned(checkpoint(QWEN, quantization=NVFP4), tp=8)
    assert with_room(plan, 48) == with_room(plan, None) == plan
    wider = with_room(plan, 64)
    assert wider.flags == (*plan.flags, "--max-running-requests", "64")
    assert "`--max-running-requests 64` holds the workload" in wider.companions[-1]
    assert with_room(wider, 96) == wider


def test_announced_but_absent_says_what_was_looked_for() -> None:
    plan = planned(checkpoint("GlmMoeDsaForCausalLM", ABSENT, num_layers=78))
    assert not plan.usable
    assert plan.in_version
    assert "announces 1" in plan.reason
    assert "model.layers.78.*" in plan.reason


def test_drafting_without_heads_is_warned_of_when_the_user_asks_for_it() -> None:
    plan = planned(checkpoint("GlmMoeDsaForCausalLM", ABSENT), flag_speculative_algorithm="NEXTN")
    assert plan.pinned
    assert not plan.suggested
    assert any("acceptance length of about 1" in one for one in plan.warnings)


def test_present_but_unannounced_is_usable_and_said() -> None:
    heads = mtp(
        announced=False,
        announced_layers=None,
        keys=(),
        notes=("the configuration does not announce the heads",),
    )
    plan = planned(checkpoint(QWEN, heads))
    assert plan.usable
    assert "the configuration does not announce the heads" in plan.warnings
    plan = planned(checkpoint("Glm4MoeForCausalLM", heads))
    assert any("num_nextn_predict_layers" in one for one in plan.warnings)


def test_zero_announced_heads_stop_loaders_that_assert_one() -> None:
    plan = planned(checkpoint("Glm4MoeForCausalLM", mtp(announced=False, announced_layers=0)))
    assert not plan.usable
    assert "asserts" in plan.reason


def test_a_version_without_a_draft_class_is_named() -> None:
    plan = planned(checkpoint("DeepseekV32ForCausalLM"), "0.5.11")
    assert plan.in_version is False
    assert plan.reason == "SGLang 0.5.11 has no draft class for DeepseekV32ForCausalLM; >=0.5.14 has one"


def test_versions_between_those_that_were_read_are_unknown() -> None:
    from autolaunch.capability.evaluate import evaluate
    from autolaunch.capability.table import bundled_table
    from autolaunch.nextn.suggest import suggest
    from autolaunch.request.catalogue import bundled_catalogue
    from tests.capability.models import facts

    sheet = facts({"arch": "HYV4ForCausalLM", "heads": 32, "kv_heads": 8}, 120, "0.5.18")
    table, catalogue = bundled_table(), bundled_catalogue("0.5.17")
    plan = suggest(checkpoint("HYV4ForCausalLM"), evaluate(sheet, table, catalogue), table, catalogue)
    assert plan.in_version is None
    assert not plan.usable
    assert "0.5.18 was not read" in plan.reason


@pytest.mark.parametrize("architecture", ["MiniMaxM2ForCausalLM", "MiniMaxM3SparseForConditionalGeneration"])
def test_promises_that_no_sglang_keeps(architecture: str) -> None:
    plan = planned(checkpoint(architecture, ABSENT))
    assert plan.in_version is False
    assert plan.evidence


def test_heads_of_an_unknown_architecture() -> None:
    assert planned(checkpoint("SomethingForCausalLM")).in_version is False
    assert planned(checkpoint("LlamaForCausalLM", ABSENT)).in_version is None


@pytest.mark.parametrize(
    ("method", "version", "usable"),
    [("modelopt_fp4", "0.5.23", False), ("fp8", "0.5.23", True), ("modelopt_fp4", "0.5.9", False)],
)
def test_quantized_heads_of_a_draft_that_is_built_unquantized(
    method: str, version: str, usable: bool
) -> None:
    stored = Quantization("nvfp4", method, {"experts": "nvfp4", "mtp": "nvfp4"})
    plan = planned(checkpoint("DeepseekV3ForCausalLM", mtp(dtype="nvfp4"), quantization=stored), version)
    assert plan.usable is usable
    assert usable or "without quantization" in plan.reason


def test_the_user_decides_about_drafting_and_its_numbers() -> None:
    plan = planned(checkpoint(QWEN), flag_speculative_algorithm="NGRAM")
    assert plan.pinned
    assert plan.flags == ()
    assert not plan.suggested
    plan = planned(checkpoint(QWEN), flag_speculative_num_steps=1, flag_speculative_num_draft_tokens=2)
    assert plan.flags == ("--speculative-algorithm", "NEXTN", "--speculative-eagle-topk", "1")
    assert planned(checkpoint(QWEN), flag_max_running_requests=16).max_running_requests is None
    assert not planned(checkpoint(QWEN), mode="off").suggested


@pytest.mark.parametrize(
    "architecture", ["MiMoV2FlashForCausalLM", "Step3p5ForCausalLM", "GigaChat35ForCausalLM"]
)
def test_nextn_in_place_of_the_literal_eagle_is_warned_of(architecture: str) -> None:
    model = checkpoint(architecture, mtp(layers=3))
    plan = planned(model, flag_speculative_algorithm="NEXTN")
    assert any("literal EAGLE" in one for one in plan.warnings)
    assert planned(model, flag_speculative_algorithm="EAGLE").warnings == ()
    ready = planned(model)
    assert ready.flags[:2] == ("--speculative-algorithm", "EAGLE")
    assert ready.warnings == ()


def test_as_many_steps_as_heads_where_each_drafts_one_token() -> None:
    plan = planned(checkpoint("Step3p5ForCausalLM", mtp(layers=1)))
    assert plan.flags[2:4] == ("--speculative-num-steps", "1")
    assert plan.flags[-2:] == ("--speculative-num-draft-tokens", "2")


@pytest.mark.parametrize(
    ("version", "facts", "rule"),
    [
        ("0.5.17", {"lora": True}, "nextn.lora"),
        ("0.5.20", {"lora": True}, None),
        ("0.5.20", {"pp": 2}, "nextn.pp"),
        ("0.5.23", {"pp": 2}, None),
    ],
)
def test_conflicts_with_features(version: str, facts: dict[str, object], rule: str | None) -> None:
    plan = planned(checkpoint("DeepseekV3ForCausalLM"), version, **facts)
    assert (plan.conflict.rule if plan.conflict else None) == rule
    assert plan.usable is (rule is None)


def test_a_hybrid_without_prefix_cache_needs_no_companions() -> None:
    plan = planned(checkpoint(QWEN), "0.5.10.post1", radix_cache=False, flag_disable_radix_cache=True)
    assert plan.usable
    assert plan.env == ()
    assert "--mamba-scheduler-strategy" not in plan.flags


def test_companions_say_why_and_pins_stay() -> None:
    plan = planned(checkpoint(QWEN), "0.5.10.post1")
    assert plan.env == (("SGLANG_ENABLE_SPEC_V2", "1"),)
    assert len(plan.companions) == 2
    assert plan.companions[1].startswith("`--mamba-scheduler-strategy extra_buffer`: ")
    plan = planned(checkpoint(QWEN), "0.5.10.post1", flag_mamba_radix_cache_strategy="extra_buffer")
    assert "--mamba-scheduler-strategy" not in plan.flags


@pytest.mark.parametrize(
    "rows",
    [
        {"family": [{"id": "a", "title": "A", "heads": "h"}]},
        {
            "companion": [
                {"id": "nextn.x", "families": ["nobody"], "flag": "--x", "reason": "r", "evidence": []}
            ]
        },
        {"strange": []},
        {
            "caution": [
                {"id": "nextn.x", "families": ["*"], "when": {"colour": 1}, "reason": "r", "evidence": []}
            ]
        },
    ],
)
def test_wrong_rows_are_refused(rows: dict[str, list[dict[str, object]]]) -> None:
    with pytest.raises(RowError):
        parse_families(rows)
