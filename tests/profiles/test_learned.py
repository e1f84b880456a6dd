"""What failed here in the one evaluator: excluded like by any rule, for the versions it was seen with alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autolaunch.assessment import Assessment, Wishes
from autolaunch.candidates.candidate import Dropped
from autolaunch.detect.plan import Planned
from autolaunch.explain.document import document
from autolaunch.explain.plan import Question, plan
from autolaunch.explain.why import answers, lines_of_why
from autolaunch.profiles.failed import Failed, Recalled, Setting, applies
from autolaunch.tune.learning import setting_of_assessment
from tests.explain.cases import QWEN_397B, write_model

FLAG = "--moe-runner-backend"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Qwen3.5-397B-A17B-NVFP4."""
    return write_model(QWEN_397B, tmp_path_factory.mktemp("models"))


def ask(
    model: Path,
    *tokens: str,
    learned: tuple[Failed, ...] = (),
    gpu: str = "RTX PRO 6000",
    sglang: str = "0.5.23",
    flashinfer: str | None = None,
    environ: dict[str, str] | None = None,
    **wishes: Any,
) -> Assessment:
    """The assessment of a start on eight GPUs where `learned` failed before."""
    return plan(
        Question(
            tokens=(model.name, "--tp", "8", *tokens),
            planned=Planned(gpu=gpu, sm=None, gpus=8, sglang=sglang, flashinfer=flashinfer),
            wishes=Wishes(**wishes),
            python=None,
            environ=environ or {},
            cwd=model.parent,
            cache=model.parent / "cache",
            learned=Recalled(learned),
        )
    )


def setting(assessment: Assessment) -> Setting:
    """What a failure of `assessment` is bound to."""
    found = setting_of_assessment(assessment)
    assert found is not None
    return found


def challenger(assessment: Assessment) -> tuple[str, str, tuple[str, ...]]:
    """A choice of one raced dimension that would be tried: its flag, the choice, all flags of the candidate."""
    repairs = {(one.dimension, one.value) for one in assessment.evaluation.repairs}
    for one in assessment.field.challengers:
        changed = (one.dimension, one.choice)
        if one.dimension and one.choice and one.choice not in ("NEXTN", "on") and changed not in repairs:
            return one.dimension, one.choice, one.flags
    raise AssertionError("nothing is raced")


def failure_of(assessment: Assessment, **changes: Any) -> Failed:
    """The crash of the first challenger of `assessment` in a race."""
    flag, choice, flags = challenger(assessment)
    one = Failed(
        flags=flags,
        kind="crash",
        stage="capture",
        reason="RuntimeError: {no} kernel image",
        where="race",
        date="2026-12-01T03:00:00+00:00",
        setting=setting(assessment),
        dimension=flag,
        choice=choice,
    )
    return replace(one, **changes)


def test_what_failed_alone_excludes_its_choice(model: Path) -> None:
    before = ask(model)
    one = failure_of(before)
    after = ask(model, learned=(one,))
    dimension = after.evaluation.dimension(one.dimension)
    assert dimension is not None
    verdict = dimension.choice(one.choice)
    assert verdict is not None
    assert (verdict.verdict, verdict.failure, verdict.stage) == ("excluded", "crash", "capture")
    assert verdict.reason == "it crashed here on 2026-12-01, in a race: RuntimeError: (no) kernel image"
    assert [item.kind for item in verdict.evidence] == ["measured"]
    assert "sglang 0.5.23" in verdict.evidence[0].ref and "RTX PRO 6000" in verdict.evidence[0].ref
    assert verdict.rules == (f"here.{one.dimension.removeprefix('--')}.{one.choice}",)
    assert all(
        one.choice != other.choice or one.dimension != other.dimension for other in after.field.challengers
    )
    (dropped,) = [item for item in after.field.dropped if item.rule == verdict.rules[0]]
    assert (dropped.label, dropped.kind) == (f"{one.dimension} {one.choice}", "crash")


def test_nothing_else_changes(model: Path) -> None:
    before = ask(model)
    one = failure_of(before)
    after = ask(model, learned=(one,))
    assert after.evaluation.repairs == before.evaluation.repairs
    assert after.choice.flags == before.choice.flags
    for old, new in zip(before.evaluation.dimensions, after.evaluation.dimensions, strict=True):
        for was, now in zip(old.choices, new.choices, strict=True):
            assert was == now or (old.flag, was.choice) == (one.dimension, one.choice)


def test_where_nothing_was_learned_the_document_is_the_same(model: Path) -> None:
    before = ask(model)
    elsewhere = failure_of(before, setting=replace(setting(before), config="another model"))
    assert document(ask(model, learned=(elsewhere,))) == document(before)


def test_why_tells_the_facts_it_is_bound_to(model: Path) -> None:
    before = ask(model)
    one = failure_of(before)
    after = ask(model, learned=(one,))
    found = answers(after, (f"{one.dimension.removeprefix('--')}={one.choice}",))
    text = "\n".join(
        "".join(str(part) for part in (line.head, line.body)) for line in lines_of_why(after, found)
    )
    assert "`sm` is 120" in text and "`sglang` is 0.5.23" in text and "`flashinfer` is" in text
    assert "it crashed here on 2026-12-01, in a race" in text
    assert "lets it race all the same" in text
    assert found[0].to_json()["because"][0]["facts"]["sm"] == 120


def test_admit_lets_it_in_again(model: Path) -> None:
    before = ask(model)
    one = failure_of(before)
    admitted = ask(model, learned=(one,), admit=(f"{one.dimension.removeprefix('--')}={one.choice}",))
    assert one.choice in {other.choice for other in admitted.field.challengers}


def test_a_pin_of_it_is_kept_and_warned_of(model: Path) -> None:
    before = ask(model)
    one = failure_of(before)
    # What was pinned is no part of what it is bound to here, since it is what failed.
    pinned = ask(model, one.dimension, one.choice, learned=())
    told = ask(model, one.dimension, one.choice, learned=(replace(one, setting=setting(pinned)),))
    assert one.dimension in told.command.argv
    warning = next(item for item in told.warnings if item.id.startswith("here."))
    assert warning.pinned and "and you pinned it" in warning.text


@pytest.mark.parametrize(
    ("then", "applies_now"),
    [
        ({}, True),
        ({"gpu": "NVIDIA H200 NVL"}, True),
        ({"architecture": "Other"}, True),
        ({"sm": None}, True),
        ({"scheme": ""}, True),
        ({"sm": 90}, False),
        ({"config": "other"}, False),
        ({"platform": "cpu"}, False),
        ({"tp": 4}, False),
        ({"scheme": "bf16"}, False),
        ({"given": ("lora=True",)}, False),
        ({"versions": (("sglang", "0.5.22"),)}, False),
        ({"versions": (("sglang", "0.5.23+local"),)}, False),
        ({"versions": (("flashinfer", "0.1.0"), ("sglang", "0.5.23"))}, False),
        ({"versions": (("sglang", "0.5.23"),)}, True),
        ({"versions": ()}, True),
    ],
)
def test_it_is_bound_to_its_setting(then: dict[str, Any], applies_now: bool, model: Path) -> None:
    before = ask(model)
    one = failure_of(before, setting=replace(setting(before), **then))
    assert applies(one, setting(before)) is applies_now
    after = ask(model, learned=(one,))
    dimension = after.evaluation.dimension(one.dimension)
    assert dimension is not None
    verdict = dimension.choice(one.choice)
    assert verdict is not None and (verdict.verdict == "excluded") is applies_now


def test_out_of_memory_is_bound_to_the_product_too(model: Path) -> None:
    now = setting(ask(model))
    other = replace(now, gpu="NVIDIA H200 NVL")
    assert not applies(failure_of(ask(model), kind="oom", setting=other), now)
    assert applies(failure_of(ask(model), kind="oom"), now)


@pytest.mark.parametrize(
    ("tokens", "environ", "same"),
    [
        (("--port", "1234"), {}, True),
        (("--context-length", "2048"), {}, True),
        (("--served-model-name", "x"), {}, True),
        (("--enable-lora",), {}, False),
        (("--kv-cache-dtype", "fp8_e5m2"), {}, False),
        (("--page-size", "64"), {}, False),
        (("--ep", "8"), {}, False),
        ((), {"NCCL_DEBUG": "INFO"}, True),
        ((), {"CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7"}, True),
        ((), {"SGLANG_CACHE_DIR": "/tmp/x"}, True),
        ((), {"SGLANG_ENABLE_JIT_DEEPGEMM": "0"}, False),
    ],
)
def test_what_else_was_set_counts_where_it_may_matter(
    tokens: tuple[str, ...], environ: dict[str, str], same: bool, model: Path
) -> None:
    assert (setting(ask(model)) == setting(ask(model, *tokens, environ=environ))) is same


def test_a_version_that_is_not_known_now_leaves_it_in_doubt(model: Path) -> None:
    before = ask(model)
    then = setting(before)
    known = replace(then, versions=tuple(sorted({**dict(then.versions), "driver": "580.95.05"}.items())))
    one = failure_of(before, setting=known)
    after = ask(model, learned=(one,))
    verdict = after.evaluation.dimension(one.dimension).choice(one.choice)  # type: ignore[union-attr]
    assert verdict is not None
    assert (verdict.verdict, verdict.missing) == ("unknown", ("driver",))
    assert one.choice in {other.choice for other in after.field.challengers}


def test_what_failed_beside_a_repair_is_dropped_as_a_combination(model: Path) -> None:
    before = ask(model)
    assert before.evaluation.repairs
    repair = before.evaluation.repairs[0]
    flag, choice, flags = next(
        (one.dimension, one.choice, one.flags)
        for one in before.field.challengers
        if one.dimension not in (None, repair.dimension) and one.choice not in (None, "NEXTN")
    )
    one = failure_of(
        before, flags=flags, dimension=flag, choice=choice, beside=((repair.dimension, repair.value),)
    )
    after = ask(model, learned=(one,))
    assert after.evaluation.dimension(flag).choice(choice).verdict == (  # type: ignore[union-attr]
        before.evaluation.dimension(flag).choice(choice).verdict  # type: ignore[union-attr]
    ), "it may work with another choice beside it"
    assert all(other.flags != flags for other in after.field.challengers)
    (dropped,) = [item for item in after.field.dropped if (item.rule or "").startswith("here.")]
    assert "it crashed here on 2026-12-01" in dropped.reason
    assert after.evaluation.repairs == before.evaluation.repairs


def test_a_repair_that_failed_gives_way_to_the_next(model: Path) -> None:
    before = ask(model)
    repair = before.evaluation.repairs[0]
    one = failure_of(before, flags=repair.tokens, dimension=repair.dimension, choice=repair.value)
    after = ask(model, learned=(one,))
    values = {item.dimension: item.value for item in after.evaluation.repairs}
    assert values.get(repair.dimension) != repair.value
    assert all(repair.tokens != other.flags for other in after.field.challengers)


def test_what_sglang_picks_itself_is_not_replaced_for_it(model: Path) -> None:
    before = ask(model)
    dimension = next(
        one
        for one in before.evaluation.dimensions
        if one.decision == "kept"
        and one.auto
        and one.choice(one.auto)
        and one.raced
        and one.choice(one.auto).verdict == "eligible"  # type: ignore[union-attr]
    )
    assert dimension.auto is not None
    one = failure_of(
        before, flags=(dimension.flag, dimension.auto), dimension=dimension.flag, choice=dimension.auto
    )
    after = ask(model, learned=(one,))
    assert after.evaluation.repairs == before.evaluation.repairs
    assert after.choice.flags == before.choice.flags
    assert any(item.id.startswith("here.") for item in after.warnings), "but it is told"


def test_what_failed_here_never_makes_a_start_hopeless(model: Path) -> None:
    before = ask(model)
    dimension = before.evaluation.dimension(FLAG)
    assert dimension is not None and before.hopeless is None
    learned = tuple(
        failure_of(before, flags=(FLAG, one.choice), dimension=FLAG, choice=one.choice)
        for one in dimension.choices
    )
    after = ask(model, learned=learned)
    found = after.evaluation.dimension(FLAG)
    assert found is not None and {one.verdict for one in found.choices} == {"excluded"}
    assert found.decision == "kept" and after.hopeless is None


def test_drafting_that_failed_is_not_planned_again(model: Path) -> None:
    before = ask(model)
    drafting = next(one for one in before.field.challengers if one.choice == "NEXTN")
    beside = tuple((one.dimension, one.value) for one in before.evaluation.repairs)
    one = failure_of(
        before,
        flags=drafting.flags,
        env=drafting.env,
        dimension="--speculative-algorithm",
        choice="NEXTN",
        beside=beside,
        kind="garbage",
        stage="gate",
    )
    after = ask(model, learned=(one,), nextn="on")
    assert all(other.choice != "NEXTN" for other in after.field.challengers)
    assert after.choice.choice != "NEXTN", "not even where the user asks for heads, without a measurement"
    assert not after.nextn.usable and "its answers were wrong here on 2026-12-01" in after.nextn.reason
    assert [item.kind for item in after.field.dropped if (item.rule or "").startswith("here.")] == ["garbage"]
    admitted = ask(model, learned=(one,), admit=("speculative-algorithm=NEXTN",))
    assert any(other.choice == "NEXTN" for other in admitted.field.challengers)


def test_the_users_own_candidate_is_tried_again(model: Path) -> None:
    before = ask(model)
    one = failure_of(before)
    text = " ".join(one.flags)
    after = ask(model, learned=(one,), candidates=(text,))
    assert any(other.origin == "user" and other.flags == one.flags for other in after.field.challengers)


def test_one_hang_does_not_exclude(model: Path) -> None:
    before = ask(model)
    one = failure_of(before, kind="hang")
    assert ask(model, learned=(one,)).field == before.field
    twice = replace(one, times=2)
    assert ask(model, learned=(twice,)).field != before.field


def test_a_hostile_row_reaches_no_command_line(model: Path) -> None:
    before = ask(model)
    rows = tuple(
        failure_of(
            before, flags=("--trust-remote-code", choice), dimension=flag, choice=choice, beside=beside
        )
        for flag, choice, beside in (
            ("--trust-remote-code", "on", ()),
            (FLAG, "*", ()),
            (FLAG, ">=1", ()),
            (FLAG, "../../x", ()),
            ("", "", (("--trust-remote-code", "on"),)),
            (FLAG, "triton", (("--host", "0.0.0.0"),)),
        )
    )
    after = ask(model, learned=rows)
    assert (after.evaluation.repairs, after.choice, after.field.candidates) == (
        before.evaluation.repairs,
        before.choice,
        before.field.candidates,
    )


def test_a_dropped_candidate_says_where_it_was_seen() -> None:
    assert "evidence" not in Dropped("x", "table", "y").to_json()
    told = Dropped("x", "load", "y", "crash", "here.x", "2026-12-01: z").to_json()
    assert told["evidence"] == [{"kind": "measured", "ref": "2026-12-01: z"}]
