"""The bundled rows on drafting: what it needs, and what it does not go with."""

from __future__ import annotations

import pytest

from autolaunch.capability.fact_names import Fact
from tests.capability.models import (
    DEEPSEEK_V4,
    GLM_NVFP4,
    GPT_OSS,
    QWEN_8B,
    QWEN_397B_NVFP4,
    VERSIONS,
    choice,
    dimension,
    judged,
    warned,
)

ALGORITHM = "--speculative-algorithm"
NEXTN: dict[str, Fact] = {"flag_speculative_algorithm": "NEXTN"}
MINE = ("spec.", "spec_steps.", "spec_topk.", "combination.", "attention.", "page.", "kv.", "mamba_radix.")


def mine(found: object) -> set[str]:
    """The warnings on attention, cache and drafting."""
    return {one for one in warned(found) if one.startswith(MINE)}  # type: ignore[arg-type]


@pytest.mark.parametrize("version", VERSIONS)
def test_heads_that_are_not_there_accept_nothing(version: str) -> None:
    found = judged({**QWEN_397B_NVFP4, "mtp_present": False}, 120, version, tp=8, **NEXTN)
    assert "spec.heads.absent" in warned(found)
    assert choice(found, ALGORITHM, "NEXTN").failure == "silent_fallback"
    given = judged(
        QWEN_8B, 90, version, flag_speculative_draft_model_path="x", flag_speculative_algorithm="EAGLE3"
    )
    assert choice(given, ALGORITHM, "EAGLE3").verdict == "eligible"


@pytest.mark.parametrize("version", VERSIONS)
def test_heads_that_are_there_do(version: str) -> None:
    assert (
        choice(judged(QWEN_397B_NVFP4, 90, version, tp=8, **NEXTN), ALGORITHM, "NEXTN").verdict == "eligible"
    )


@pytest.mark.parametrize(
    ("arch", "steps", "branches"), [("Qwen3ForCausalLM", "3", "1"), ("LlamaForCausalLM", "5", "4")]
)
def test_what_is_filled_in(arch: str, steps: str, branches: str) -> None:
    found = judged({**QWEN_8B, "arch": arch, "mtp_present": True}, 90, "0.5.23", **NEXTN)
    assert dimension(found, "--speculative-num-steps").auto == steps
    assert dimension(found, "--speculative-eagle-topk").auto == branches
    assert dimension(found, "--max-running-requests").auto == "48"
    assert "combination.draft_numbers_without_steps" not in warned(found)


def test_branches_without_steps_are_refused() -> None:
    found = judged(
        {**QWEN_8B, "mtp_present": True}, 90, "0.5.23", spec_topk=1, flag_speculative_eagle_topk=1, **NEXTN
    )
    assert "combination.draft_numbers_without_steps" in warned(found)


@pytest.mark.parametrize("version", ["0.5.9", "0.5.10.post1"])
def test_the_second_draft_workers_took_one_branch_at_first(version: str) -> None:
    tree: dict[str, Fact] = {"flag_speculative_eagle_topk": 4, "spec_topk": 4, "spec_steps": 3, **NEXTN}
    found = judged({**QWEN_8B, "mtp_present": True}, 80, version, env_SGLANG_ENABLE_SPEC_V2="1", **tree)
    assert "spec_topk.any.spec_v2" in warned(found)
    assert "spec_topk.any.spec_v2" not in warned(
        judged({**QWEN_8B, "mtp_present": True}, 80, version, **tree)
    )


@pytest.mark.parametrize(
    ("version", "name", "changes", "refused"),
    [
        ("0.5.9", "NGRAM", {"dp_attention": True}, True),
        ("0.5.23", "STANDALONE", {"dp_attention": True}, True),
        ("0.5.17", "DFLASH", {"dp_attention": True}, True),
        ("0.5.9", "NEXTN", {"pp": 2}, True),
        ("0.5.23", "NEXTN", {"pp": 2}, True),
        ("0.5.23", "NEXTN", {"pp": 2, "disaggregation": "prefill"}, False),
        ("0.5.17", "NEXTN", {"lora": True}, True),
        ("0.5.20", "NEXTN", {"lora": True}, False),
        ("0.5.17", "NGRAM", {"lora": True}, False),
    ],
)
def test_features_that_drafting_does_not_go_with(
    version: str, name: str, changes: dict[str, Fact], refused: bool
) -> None:
    model: dict[str, Fact] = {**QWEN_8B, "mtp_present": True}
    pins: dict[str, Fact] = {
        "flag_speculative_algorithm": name,
        "flag_speculative_draft_model_path": "x",
        **changes,
    }
    assert (choice(judged(model, 90, version, **pins), ALGORITHM, name).verdict == "excluded") == refused


@pytest.mark.parametrize(("dp", "told"), [(4, True), (8, False)])
def test_sparse_attention_split_in_a_data_parallel_group_is_told(dp: int, told: bool) -> None:
    found = judged(
        GLM_NVFP4, 100, "0.5.14", tp=8, dp=dp, dp_attention=True, spec_topk=1, spec_steps=3, **NEXTN
    )
    assert ("spec.data_parallel_dsa" in warned(found)) == told


def test_quantized_heads_that_are_built_plain_do_not_load() -> None:
    quantized: dict[str, Fact] = {
        **GLM_NVFP4,
        "arch": "Glm5NextForConditionalGeneration",
        "scheme_mtp": "nvfp4",
    }
    assert "spec.quantized_heads" in warned(judged(quantized, 121, "0.5.20", tp=2, **NEXTN))
    assert "spec.quantized_heads" not in warned(
        judged({**quantized, "scheme_mtp": "bf16"}, 121, "0.5.20", tp=2, **NEXTN)
    )


@pytest.mark.parametrize(("steps", "told"), [(3, True), (1, False)])
def test_deepseek_v4_drafts_short_on_sm12x(steps: int, told: bool) -> None:
    model: dict[str, Fact] = {**DEEPSEEK_V4, "mtp_present": True}
    numbers: dict[str, Fact] = {
        "flag_speculative_num_steps": steps, "spec_steps": steps, "spec_topk": 1, "flag_speculative_eagle_topk": 1
    }  # fmt: skip
    found = judged(model, 120, "0.5.14", tp=4, flag_speculative_algorithm="EAGLE", **numbers)
    assert mine(found) == ({"spec_steps.any.dsv4_sm12x"} if told else set())


def test_a_short_list_of_captured_batches_was_read_beyond() -> None:
    model: dict[str, Fact] = {**GPT_OSS}
    pins: dict[str, Fact] = {"flag_speculative_algorithm": "EAGLE3", "flag_speculative_draft_model_path": "x"}
    assert "spec.eagle3.gaps" in warned(
        judged(model, 90, "0.5.14", flag_cuda_graph_bs_decode=("1", "8"), **pins)
    )
    assert "spec.eagle3.gaps" not in warned(judged(model, 90, "0.5.14", **pins))


@pytest.mark.parametrize("sm", [90, 100, 120, 121])
@pytest.mark.parametrize("version", ["0.5.17", "0.5.20", "0.5.23"])
def test_a_plain_recipe_is_not_warned_of(version: str, sm: int) -> None:
    """NEXTN 3/1/4 on a hybrid model, as the recipes say it."""
    numbers: dict[str, Fact] = {
        "flag_speculative_num_steps": 3, "spec_steps": 3, "flag_speculative_eagle_topk": 1, "spec_topk": 1,
        "flag_speculative_num_draft_tokens": 4, "draft_tokens": 4,
    }  # fmt: skip
    model: dict[str, Fact] = {**QWEN_397B_NVFP4, "scheme_kv": "none"}
    assert mine(judged(model, sm, version, tp=8, **NEXTN, **numbers)) == set()


def test_the_draft_has_its_own_attention() -> None:
    flag = "--speculative-draft-attention-backend"
    model: dict[str, Fact] = {**QWEN_8B, "mtp_present": True}
    assert (
        choice(
            judged(model, 120, "0.5.23", flag_speculative_draft_attention_backend="flashinfer", **NEXTN),
            flag,
            "flashinfer",
        ).verdict
        == "eligible"
    )
    assert "draft_attention.fa3.sm" in warned(
        judged(model, 120, "0.5.23", flag_speculative_draft_attention_backend="fa3", **NEXTN)
    )
