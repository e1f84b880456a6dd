"""What a race may try: eligible before unknown, nothing excluded unless admitted, nothing lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autolaunch.capability.conflicts import conflict
from autolaunch.capability.contenders import Contenders, candidates_from, parse_admit
from autolaunch.capability.fact_names import Fact
from autolaunch.capability.table import Table
from autolaunch.errors import UsageError
from autolaunch.request.catalogue import bundled_catalogue
from tests.capability.tables import auto, make_table, rule
from tests.capability.test_evaluate import ALLOW, ATTENTION, COMBINATION, FP4, TRTLLM, facts, run

CATALOGUE = bundled_catalogue("0.5.21")
KV = "--kv-cache-dtype"


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """FP4 with an automatic choice, attention with a companion, a lossy KV cache, and a combination."""
    attention = (
        rule(id='"attention.fa3.ok"', dimension=f'"{ATTENTION}"', choice='["fa3", "triton", "flashmla"]', effect='"allow"')
        + rule(id='"attention.flashmla.page"', dimension=f'"{ATTENTION}"', choice='"flashmla"', effect='"require"', require='["--page-size 64", "SGLANG_X=1"]')
    )  # fmt: skip
    lossy = rule(
        id='"kv.fp8.lossy"', dimension=f'"{KV}"', choice='"fp8_e4m3"', effect='"allow"', numerics='"lossy"'
    )
    return make_table(
        tmp_path,
        {
            "rules/fp4-gemm-backend": TRTLLM + ALLOW,
            "auto/fp4-gemm-backend": auto(FP4, "flashinfer_cutlass"),
            "rules/attention-backend": attention,
            "rules/kv-cache-dtype": lossy,
            "rules/combinations": COMBINATION,
        },
    )


def race(table: Table, *admit: str, lossy: bool = False, **changes: Fact) -> Contenders:
    """The contenders for the facts of the tests with `changes`."""
    evaluation = run(table, facts(**changes))
    pairs = [parse_admit(text) for text in admit]
    return candidates_from(evaluation, table, CATALOGUE, admit=pairs, lossy=lossy)


def labels(found: Contenders) -> list[str]:
    """What is offered, in order."""
    return [" ".join(one.tokens) for one in found.offered]


def test_what_is_far_too_slow_races_only_when_admitted(table: Table) -> None:
    slow = rule(
        id='"attention.slow"',
        dimension=f'"{ATTENTION}"',
        choice='"torch_native"',
        effect='"warn"',
        failure='"slow"',
        stage='"serve"',
        reason='"a step takes 10 to 250 ms"',
    )
    path = Path(str(table.folder)) / "rules" / "attention-backend.toml"
    path.write_text(path.read_text() + slow)
    dimensions = tuple(
        replace(one, unraced=("torch_native",)) if one.flag == ATTENTION else one for one in table.dimensions
    )
    found = race(Table(table.folder, dimensions))
    (out,) = [one for one in found.dropped if one.label == f"{ATTENTION} torch_native"]
    assert (out.kind, out.rule, out.reason) == ("slow", "attention.slow", "a step takes 10 to 250 ms")
    admitted = race(Table(table.folder, dimensions), "attention-backend=torch_native")
    assert f"{ATTENTION} torch_native" in labels(admitted)


def test_eligible_choices_come_before_unknown_ones(table: Table) -> None:
    verdicts = [one.verdict.verdict for one in race(table).offered]
    assert verdicts == sorted(verdicts)
    assert {"eligible", "unknown"} == set(verdicts)


def test_the_automatic_choice_is_no_contender(table: Table) -> None:
    offered = labels(race(table))
    assert f"{FP4} flashinfer_cudnn" in offered
    assert f"{FP4} flashinfer_cutlass" not in offered


def test_nothing_vanishes(table: Table) -> None:
    evaluation = run(table, facts())
    found = candidates_from(evaluation, table, CATALOGUE)
    raced = [dimension for dimension in evaluation.dimensions if dimension.raced]
    every = sum(len([c for c in d.choices if c.choice != d.effective]) for d in raced)
    assert len(found.offered) + len(found.dropped) == every
    assert all(one.reason for one in found.dropped)


def test_an_excluded_choice_is_dropped_with_its_rule(table: Table) -> None:
    (dropped,) = [one for one in race(table).dropped if one.label == f"{FP4} flashinfer_trtllm"]
    assert (dropped.stage, dropped.rule, dropped.kind) == ("table", "fp4_gemm.flashinfer_trtllm.sm", "crash")


def test_admit_lets_an_excluded_choice_in(table: Table) -> None:
    found = race(table, "fp4-gemm-backend=flashinfer_trtllm")
    (admitted,) = [one for one in found.offered if one.admitted]
    assert admitted.tokens == (FP4, "flashinfer_trtllm")


def test_companions_come_along(table: Table) -> None:
    (flashmla,) = [one for one in race(table).offered if one.choice == "flashmla"]
    assert flashmla.tokens == (ATTENTION, "flashmla", "--page-size", "64")
    assert flashmla.env == (("SGLANG_X", "1"),)


def test_a_companion_that_would_change_a_pin_drops_the_choice(table: Table) -> None:
    (dropped,) = [one for one in race(table, flag_page_size=16).dropped if "flashmla" in one.label]
    assert dropped.rule == "attention.flashmla.page"
    found = race(table, flag_page_size=64)
    assert f"{ATTENTION} flashmla" in labels(found)


def test_a_pinned_dimension_is_not_raced(table: Table) -> None:
    found = race(table, flag_attention_backend="fa3")
    assert not [one for one in found.offered if one.dimension == ATTENTION]
    reasons = {one.reason for one in found.dropped if one.label.startswith(ATTENTION)}
    assert reasons == {"you pinned `--attention-backend fa3`"}


def test_a_lossy_choice_is_raced_only_when_asked_for(table: Table) -> None:
    assert f"{KV} fp8_e4m3" not in labels(race(table))
    assert any("--lossy" in one.reason for one in race(table).dropped)
    assert f"{KV} fp8_e4m3" in labels(race(table, lossy=True))


def test_a_combination_that_a_rule_excludes_is_dropped(table: Table) -> None:
    found = race(table, flag_kv_cache_dtype="fp8_e5m2")
    (dropped,) = [one for one in found.dropped if one.label == f"{ATTENTION} fa3"]
    assert dropped.rule == "combo.fp8_kv.fa3"
    assert f"{ATTENTION} triton" in labels(found)
    evaluation = run(table, facts())
    both = {"kv_cache_dtype": "fp8_e5m2", "attention_backend": "fa3"}
    hit = conflict(evaluation, table, CATALOGUE, both)
    assert hit is not None and hit.rule == "combo.fp8_kv.fa3"
    assert conflict(evaluation, table, CATALOGUE, {"attention_backend": "fa3"}) is None
    assert evaluation.facts.get("flag.kv_cache_dtype") != "fp8_e5m2"  # only assumed


@pytest.mark.parametrize("text", ["fa3", "=fa3", "attention-backend=", ""])
def test_admit_is_dimension_and_choice(text: str) -> None:
    with pytest.raises(UsageError):
        parse_admit(text)


def test_admit_of_what_is_not_there(table: Table) -> None:
    for text in ("port=1", "attention-backend=nonsense"):
        with pytest.raises(UsageError):
            race(table, text)
    with pytest.raises(UsageError):
        race(table, "attention-backend=fa3", flag_attention_backend="triton")


def test_a_change_that_breaks_another_dimension_is_a_conflict(tmp_path: Path) -> None:
    """Speculation excludes an attention backend; what SGLang picks instead is asked for anew."""
    no_spec = rule(id='"attention.flex.spec"', dimension=f'"{ATTENTION}"', choice='"flex_attention"', effect='"exclude"', failure='"rejected"', when='{ spec = { not = "off" } }')  # fmt: skip
    table = make_table(
        tmp_path / "broken",
        {
            "rules/attention-backend": no_spec,
            "auto/attention-backend": auto(ATTENTION, "triton", when="{ flag.page_size = 64 }")
            + auto(ATTENTION, "flex_attention"),
        },
    )
    evaluation = run(table, facts(spec="off"))
    change = {"speculative_algorithm": "NEXTN"}
    hit = conflict(evaluation, table, CATALOGUE, change)
    assert hit is not None and hit.rule == "attention.flex.spec"
    assert conflict(evaluation, table, CATALOGUE, {**change, "page_size": "64"}) is None
    pinned = run(table, facts(spec="off", flag_attention_backend="flex_attention"))
    assert conflict(pinned, table, CATALOGUE, {**change, "page_size": "64"}) == hit
