"""What the gate lets pass and what it stops, on answers made to order."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from autolaunch.race import gate
from autolaunch.race.engine import Engine
from autolaunch.race.outcomes import EngineFailed, GateReport


class Answers:
    """Stands in for an engine: answers by rule, and counts what it is asked."""

    def __init__(
        self, logprob: float | None = -1.0, *, decoded: float | None = None, loops: bool = False
    ) -> None:
        self.facts = {"vocab_size": 512}
        self.log = "engine.log"
        self.logprob = logprob
        self.decoded = logprob if decoded is None else decoded
        self.loops = loops
        self.batch_shift = 0.0
        self.asked: list[str] = []

    def ask(self, op: str, limit_s: float, **args: Any) -> Any:
        """The answer to `op`."""
        self.asked.append(op)
        if op == "tokenize":
            return [[ord(letter) % 500 for letter in text] for text in args["texts"]]
        if op == "generate":
            ids = [7] * 24 if self.loops else list(range(24))
            return [
                {"text": "text", "output_ids": ids, "logprobs": [self.decoded] * 24}
                for _ in args["input_ids"]
            ]
        if op == "score":
            shift = self.batch_shift if args["concurrency"] > 1 else 0.0
            pairs = zip(args["input_ids"], args["starts"], strict=True)
            value = None if self.logprob is None else self.logprob + shift
            return [[value] * (len(ids) - start) for ids, start in pairs]
        return True


def judge(challenger: Answers, original: Answers | None = None) -> GateReport:
    """The gate's word on `challenger`."""
    reference = gate.take_reference(original or Answers())  # type: ignore[arg-type]
    report = gate.check(challenger, reference)  # type: ignore[arg-type]
    json.dumps(report.to_json(), allow_nan=False)
    json.dumps(reference.to_json(), allow_nan=False)
    return report


def test_equal_answers_pass() -> None:
    report = judge(Answers())
    assert report.passed
    assert (report.kind, report.label, report.mean_abs_logprob_delta) == (None, "agreement", 0.0)
    assert report.sample_text == "text"


def test_a_small_difference_passes_with_its_figure() -> None:
    report = judge(Answers(-1.125))
    assert report.passed
    assert report.mean_abs_logprob_delta == pytest.approx(0.125)


def test_a_large_difference_is_garbage_and_ends_the_check() -> None:
    challenger = Answers(-3.0)
    report = judge(challenger)
    assert (report.passed, report.kind) == (False, "garbage")
    assert "one at a time are 2.00 away from candidate 0's" in report.reason
    assert challenger.asked == ["flush", "score"], "a wrong engine is often a slow one"


def test_the_limit_grows_with_what_candidate_0_differs_from_itself() -> None:
    unsteady = Answers(decoded=-1.6)
    assert judge(Answers(-1.9, decoded=-2.0), unsteady).passed
    report = judge(Answers(-2.3), unsteady)
    assert "1.30 away from candidate 0's on average (limit 1.20)" in report.reason


def test_garbage_only_in_a_batch() -> None:
    challenger = Answers()
    challenger.batch_shift = -2.0
    assert "in a batch are 2.00 away from candidate 0's" in judge(challenger).reason


def test_garbage_only_while_decoding() -> None:
    assert "while decoding are 3.00 away from its own prefill's" in judge(Answers(decoded=-4.0)).reason


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), None])
def test_not_finite(value: Any) -> None:
    report = judge(Answers(value, decoded=-1.0))
    assert report.reason == "log-probabilities are not finite"
    assert report.mean_abs_logprob_delta is None
    assert judge(Answers(decoded=value) if value is not None else Answers(float("nan"))).kind == "garbage"


def test_loops_count_only_where_candidate_0_has_none() -> None:
    assert (
        judge(Answers(loops=True)).reason
        == "6 of 6 continuations repeat themselves where candidate 0 does not"
    )
    assert judge(Answers(loops=True), Answers(loops=True)).passed


def test_a_candidate_0_that_repeats_itself_is_doubted_and_kept() -> None:
    assert gate.take_reference(Answers(loops=True)).doubt == (  # type: ignore[arg-type]
        "6 of 6 continuations of candidate 0 repeat themselves"
    )
    assert gate.take_reference(Answers()).doubt is None  # type: ignore[arg-type]


def test_without_a_reference_the_answers_are_only_looked_at() -> None:
    report = gate.check(Answers(), None)  # type: ignore[arg-type]
    assert (report.passed, report.label, report.mean_abs_logprob_delta) == (True, "ungated", None)
    assert not gate.check(Answers(loops=True), None).passed  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("original", "reason"),
    [
        (Answers(float("nan")), "not finite"),
        (Answers(decoded=-4.0), "while decoding are 3.00 away from its own"),
    ],
)
def test_candidate_0_must_agree_with_itself(original: Answers, reason: str) -> None:
    with pytest.raises(EngineFailed, match=reason) as caught:
        gate.take_reference(original)  # type: ignore[arg-type]
    assert (caught.value.failure.stage, caught.value.failure.kind) == ("gate", "garbage")


@pytest.mark.parametrize(
    ("ids", "degenerate"),
    [
        ([9] * 24, True),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12] + [5] * 12, True),
        ([1, 2, 3, 4] * 6, True),
        ([1, 2, 3, 4, 5] * 5, False),
        (list(range(24)), False),
        ([9] * 4, False),
        ([], False),
    ],
)
def test_degenerate(ids: list[int], degenerate: bool) -> None:
    assert gate.is_degenerate(ids) is degenerate


@pytest.mark.parametrize(
    ("behave", "reason"),
    [("well", None), ("answer-nan", "not finite"), ("answer-far", "2.00 away"), ("answer-loop", "repeat")],
)
def test_through_an_engine(fake_engine: Callable[..., Engine], behave: str, reason: str | None) -> None:
    """The whole way: NaN over the socket, tokens from the tokenizer, both concurrencies."""
    with fake_engine() as original, fake_engine(behave) as challenger:
        original.wait_ready(20)
        challenger.wait_ready(20)
        reference = gate.take_reference(original)
        report = gate.check(challenger, reference)
    assert report.passed is (reason is None)
    assert (reason or "") in report.reason


def test_an_engine_that_hangs_in_the_gate(fake_engine: Callable[..., Engine]) -> None:
    with fake_engine("serve-hang") as engine:
        engine.wait_ready(20)
        with pytest.raises(EngineFailed) as caught:
            gate.check(engine, None, limit_s=0.5)
    assert (caught.value.failure.stage, caught.value.failure.kind) == ("gate", "hang")


def test_an_engine_without_a_tokenizer_is_gated_on_random_tokens(fake_engine: Callable[..., Engine]) -> None:
    with fake_engine("well", "--skip-tokenizer-init") as engine:
        engine.wait_ready(20)
        assert gate.check(engine, gate.take_reference(engine)).passed
