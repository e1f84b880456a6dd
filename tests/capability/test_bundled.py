"""The bundled table under facts of every kind: it always answers, says why, and never guesses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autolaunch.capability import rows
from autolaunch.capability.contenders import candidates_from
from autolaunch.capability.evaluate import evaluate
from autolaunch.capability.fact_names import FACT_NAMES, UNKNOWN, Fact
from autolaunch.capability.flag_facts import FactSheet
from autolaunch.capability.table import bundled_table, read_table
from autolaunch.capability.verdicts import Evaluation
from autolaunch.request.catalogue import bundled_catalogue, bundled_versions
from tests.capability.tables import DIMENSIONS, make_table, rule

TABLE = bundled_table()

SCHEMES = ["bf16", "fp8_block", "fp8_tensor", "nvfp4", "mxfp4", "mxfp8", "awq_int4", "w4afp8", "none"]
CHOICES: dict[str, list[Fact]] = {
    "platform": ["cuda", "cpu"],
    "sm": [75, 80, 86, 89, 90, 100, 103, 107, 110, 120, 121],
    "gpus": [1, 8],
    "memory_gb": [24.0, 80.0, 180.0],
    "flashinfer": ["0.6.3", "0.6.7", "0.6.16", "0.7.2", "0.8.0", "none"],
    "cudnn": ["9.10.2", "9.15", "none"],
    "cuda": ["12.8", "13.0"],
    "arch": ["Qwen3_5MoeForConditionalGeneration", "DeepseekV3ForCausalLM", "GptOssForCausalLM", "New"],
    "attention": ["gqa", "mla", "dsa", "dsv4", "hybrid_linear", "none"],
    "mla": [True, False],
    "sinks": [True, False],
    "linear_attention": ["gdn", "kda", "mamba2", "none"],
    "head_dim": [64, 128, 256],
    "moe": [True, False],
    "experts": [0, 8, 512],
    "expert_width_per_rank": [0, 96, 128, 85.3],
    "scheme": [*SCHEMES, "mixed"],
    "scheme_dense": [*SCHEMES],
    "scheme_experts": [*SCHEMES],
    "scheme_attention": [*SCHEMES],
    "method": ["none", "modelopt_fp4", "fp8", "compressed-tensors"],
    "quant_block": [0, 16, 128],
    "multimodal": [True, False],
    "tp": [1, 8],
    "ep": [1, 8],
    "lora": [True, False],
    "dp_attention": [True, False],
    "spec": ["off", "EAGLE", "NEXTN"],
    "spec_topk": ["unset", 1, 4],
    "quantization_flag": ["none", "modelopt_fp4", "fp8"],
    "deterministic": [True, False],
    "disaggregation": ["off", "prefill"],
    "flag.attention_backend": ["fa3", "auto", "trtllm_mha", "nonsense", "7"],
    "flag.kv_cache_dtype": ["fp8_e4m3", "auto"],
    "flag.page_size": [1, 64],
    "flag.moe_runner_backend": ["flashinfer_trtllm", "triton"],
    "flag.enable_dp_attention": [True],
    "flag.lora_paths": [("a", "b")],
}
SHEETS = st.fixed_dictionaries(
    {}, optional={name: st.sampled_from([*values, UNKNOWN]) for name, values in CHOICES.items()}
)
VERSIONS = st.sampled_from([*bundled_versions(), "0.0.0.dev1"])


def run(facts: dict[str, Fact], version: str) -> Evaluation:
    """The evaluation of the bundled table for a version's own flags."""
    sheet = FactSheet({name: value for name, value in facts.items() if value is not UNKNOWN})
    sheet["sglang"] = version
    catalogue = bundled_catalogue(version if version in bundled_versions() else bundled_versions()[-1])
    return evaluate(sheet, TABLE, catalogue)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(SHEETS, VERSIONS)
def test_it_always_answers_with_reasons(facts: dict[str, Fact], version: str) -> None:
    evaluation = run(facts, version)
    for dimension in evaluation.dimensions:
        pinned = f"flag.{dimension.dest}" in facts and facts[f"flag.{dimension.dest}"] is not UNKNOWN
        assert (dimension.decision == "pinned") == pinned
        for verdict in dimension.choices:
            assert verdict.reason
            if verdict.verdict == "excluded":
                assert verdict.rules and verdict.evidence and verdict.failure
            if verdict.verdict == "eligible":
                assert verdict.rules and verdict.evidence and not verdict.missing
        if dimension.repair is not None:
            found = dimension.choice(dimension.repair.value)
            assert found is not None and found.verdict == "eligible"
    for warning in evaluation.warnings:
        assert warning.because and warning.evidence and warning.text
    json.dumps([one.to_json() for one in evaluation.dimensions])
    json.dumps([one.to_json() for one in evaluation.warnings])
    catalogue = bundled_catalogue(version if version in bundled_versions() else bundled_versions()[-1])
    found_ = candidates_from(evaluation, TABLE, catalogue)
    assert all(one.reason for one in found_.dropped)
    assert not {one.dest for one in found_.offered} & {
        one.dest for one in evaluation.dimensions if one.pinned
    }


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(SHEETS, VERSIONS, st.sets(st.sampled_from(sorted(set(CHOICES) & set(FACT_NAMES))), max_size=6))
def test_knowing_more_never_turns_a_verdict_round(
    facts: dict[str, Fact], version: str, hidden: set[str]
) -> None:
    """Excluded or eligible with a fact missing stays so when the fact is known, as no rule guesses."""
    whole = run(facts, version)
    partly = run({name: UNKNOWN if name in hidden else value for name, value in facts.items()}, version)
    if whole.repairs != partly.repairs:
        return  # then other flags run, and other rules apply
    for dimension in partly.dimensions:
        after = whole.dimension(dimension.name)
        for verdict in dimension.choices:
            known = after.choice(verdict.choice) if after else None
            if known is not None and verdict.verdict != "unknown":
                assert known.verdict == verdict.verdict, (dimension.flag, verdict, known)


def test_a_gpu_that_nobody_saw_excludes_nothing_by_its_kernels() -> None:
    """Without any fact, whatever is excluded is so on every machine."""
    for version in bundled_versions():
        for dimension in run({}, version).dimensions:
            for verdict in dimension.choices:
                assert "sm" not in {name for hit in verdict.hits for name, _ in hit.facts} or (
                    verdict.verdict == "unknown"
                ), (dimension.flag, verdict.choice)


def test_a_parsed_file_is_kept_and_a_broken_one_parsed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    row = rule(id='"page.any.x"', dimension='"--page-size"', effect='"exclude"', failure='"slow"')
    folder = tmp_path / "table"
    make_table(folder, {"rules/page-size": row.replace("ref = ", "checked = 2026-11-30, ref = ")}, DIMENSIONS)
    first = read_table(folder, cache).rules("page-size")
    assert len(list((cache / "table").iterdir())) == 2
    monkeypatch.setattr(rows.toml, "loads", lambda text: pytest.fail("parsed again"))
    assert read_table(folder, cache).rules("page-size")[0].id == first[0].id
    monkeypatch.undo()
    for junk in ("", "[1]", "{"):
        for file in (cache / "table").iterdir():
            file.write_text(junk)
        assert read_table(folder, cache).rules("page-size")[0].id == first[0].id
    (tmp_path / "file").write_text("")
    assert read_table(folder, tmp_path / "file").rules("page-size")[0].id == first[0].id
