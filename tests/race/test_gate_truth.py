"""The gate with a truth at hand: who is further from it than candidate 0, and whether candidate 0 is right."""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autolaunch.command import Command
from autolaunch.race import gate
from autolaunch.race.engine import Engine
from autolaunch.race.gate_answers import why_unstructured
from autolaunch.race.gate_prompts import LONG, PASSAGES, PROMPTS, SHORT, make_prompts, make_sequences
from autolaunch.race.outcomes import EngineFailed, GateReport
from tests.race.conftest import FAKE
from tests.race.processes import Mark


class Kernels:
    """Stands in for an engine whose kernels are `noise` nats away from the exact values, each in its way."""

    def __init__(
        self, name: str, noise: float, *, decoding: float | None = None, model: str = "m", **faults: Any
    ) -> None:
        self.facts: dict[str, Any] = {"vocab_size": 5000}
        self.log = f"{name}.log"
        self.name, self.noise, self.model = name, noise, model
        self.decoding = noise if decoding is None else decoding
        self.faults = faults
        self.asked: list[dict[str, Any]] = []

    def value(self, ids: list[int], at: int, noise: float, how: str) -> float:
        """Log-probability of token `at`."""
        place = f"{at} {ids[max(0, at - 2) : at + 1]}"
        exact = random.Random(f"{self.model} {place}").gauss(-8, 3)
        return exact + random.Random(f"{self.name} {how} {place}").gauss(0, noise)

    def ask(self, op: str, limit_s: float, **args: Any) -> Any:
        """The answer to `op`."""
        self.asked.append({"op": op, **args})
        if op == "tokenize":
            return [[ord(letter) % 4000 + 500 for letter in text] for text in args["texts"]]
        if op == "generate":
            return [self.continued(ids, args) for ids in args["input_ids"]]
        if op == "score":
            shift = self.faults.get("batch_noise", self.noise) if args["concurrency"] > 1 else self.noise
            pairs = zip(args["input_ids"], args["starts"], strict=True)
            return [
                [self.value(ids, at, shift, "prefill") for at in range(start, len(ids))]
                for ids, start in pairs
            ]
        if op == "attempt":
            return self.faults["attempt"]
        return True

    def continued(self, prompt: list[int], args: dict[str, Any]) -> dict[str, Any]:
        """One continuation, the same for all engines."""
        count = args["sampling"]["max_new_tokens"]
        ids = [*prompt, *((prompt[-1] + step) % 5000 for step in range(1, count + 1))]
        logprobs = [self.value(ids, len(prompt) + at, self.decoding, "decode") for at in range(count)]
        if args["concurrency"] >= 8 and "from_eight_on" in self.faults:
            logprobs[-1] = self.faults["from_eight_on"]
        return {"text": "text", "output_ids": ids[len(prompt) :], "logprobs": logprobs}


ORIGINAL_NOISE = 0.16
"""What block-FP8 kernels of a MoE model were away from bf16 (H200, 2026-11-30)."""


def judge(
    challenger: Kernels, original: Kernels | None = None, *, whole: bool = True, tokens: int = 2048
) -> GateReport:
    """The gate's word on `challenger`, by a truth."""
    reference = gate.take_reference(original or Kernels("c0", ORIGINAL_NOISE), tokens=tokens)  # type: ignore[arg-type]
    truth = gate.take_truth(Kernels("truth", 0.0), reference)  # type: ignore[arg-type]
    report = gate.check(challenger, reference, truth, whole=whole)  # type: ignore[arg-type]
    json.dumps(report.to_json(), allow_nan=False)
    json.dumps(truth.to_json(), allow_nan=False)
    return report


def test_an_equally_good_backend_passes() -> None:
    report = judge(Kernels("c1", ORIGINAL_NOISE))
    assert report.passed, report.reason
    assert report.label == "gated"
    assert report.details["ratio"] == pytest.approx(1.0, abs=0.05)
    assert len(report.details["distances"]) == len(report.details["original_distances"]) == 32
    assert "times as far from the same weights in bf16 as candidate 0's" in report.reason


def test_a_better_backend_passes() -> None:
    assert judge(Kernels("c1", ORIGINAL_NOISE / 10)).passed


def test_lost_precision_is_garbage_though_agreement_would_let_it_pass() -> None:
    challenger = Kernels("c1", 1.3 * ORIGINAL_NOISE)
    report = judge(challenger)
    assert (report.passed, report.kind) == (False, "garbage")
    assert "limit 1.05" in report.reason
    reference = gate.take_reference(Kernels("c0", ORIGINAL_NOISE))  # type: ignore[arg-type]
    assert gate.check(challenger, reference).passed  # type: ignore[arg-type]


def test_a_fault_in_batches_only() -> None:
    report = judge(Kernels("c1", ORIGINAL_NOISE, batch_noise=2 * ORIGINAL_NOISE))
    assert not report.passed
    assert "in a batch" in report.reason
    assert report.details["ratio_alone"] < 1.1


def test_a_fault_while_decoding_only() -> None:
    """Two answers that are each as far from the truth as candidate 0 cannot be this far apart."""
    report = judge(Kernels("c1", ORIGINAL_NOISE, decoding=0.7))
    assert not report.passed
    assert "while decoding" in report.reason


@pytest.mark.parametrize("bad", [math.nan, None, math.inf, -math.log(5000)])
def test_logits_that_are_no_numbers_from_eight_at_once_on(bad: Any) -> None:
    report = judge(Kernels("c1", ORIGINAL_NOISE, from_eight_on=bad))
    assert (report.passed, report.kind) == (False, "garbage")
    assert "8 at once" in report.reason
    with pytest.raises(EngineFailed, match="8 at once"):
        gate.take_reference(Kernels("c0", ORIGINAL_NOISE, from_eight_on=bad), concurrency=1)  # type: ignore[arg-type]


def test_a_window_is_sent_once_more() -> None:
    prompts = [[1, 2, 3]] * 8
    sick: Any = Kernels("c1", 0.1, from_eight_on=math.nan)
    assert "8 of 8 continuations, 8 at once" in (gate.check_window(sick, prompts, 24, 8, 10.0) or "")
    assert gate.check_window(sick, prompts, 24, 4, 10.0) is None


def test_candidate_0_is_judged_too() -> None:
    original: Any = Kernels("c0", ORIGINAL_NOISE)
    reference = gate.take_reference(original)
    truth = gate.take_truth(Kernels("truth", 0.0), reference)  # type: ignore[arg-type]
    report = gate.judge_original(reference, truth)
    assert (report.passed, report.label) == (True, "gated")
    assert report.details["unrelatedness"] < 0.1
    json.dumps(report.to_json(), allow_nan=False)
    report = gate.judge_original(reference, None)
    assert (report.passed, report.label) == (True, "ungated")


def test_a_wrong_candidate_0_agrees_with_itself_and_is_found() -> None:
    original: Any = Kernels("c0", 0.1, model="other")
    reference = gate.take_reference(original)
    truth = gate.take_truth(Kernels("truth", 0.0), reference)  # type: ignore[arg-type]
    report = gate.judge_original(reference, truth)
    assert (report.passed, report.kind) == (False, "garbage")
    assert "times what those of other tokens are" in report.reason
    healthy = gate.check(Kernels("c1", 0.16), reference, truth)  # type: ignore[arg-type]
    assert healthy.passed, "challengers are compared with the truth, not with what was wrong"
    alike = gate.check(Kernels("c2", 0.1, model="other"), reference, truth)  # type: ignore[arg-type]
    assert not alike.passed, "as far away as a wrong candidate 0 is not near enough"


@pytest.mark.parametrize("noise", [math.nan, None])
def test_a_truth_must_be_one(noise: float | None) -> None:
    reference = gate.take_reference(Kernels("c0", 0.1))  # type: ignore[arg-type]

    class Useless(Kernels):
        def value(self, ids: list[int], at: int, noise: float, how: str) -> float:
            return -6.2 if self.noise == 0.0 else math.nan

    with pytest.raises(EngineFailed, match="equally probable" if noise is None else "not finite"):
        gate.take_truth(Useless("t", 0.0 if noise is None else 1.0), reference)  # type: ignore[arg-type]


def test_a_slice_says_what_it_cannot_show() -> None:
    looping = Kernels("c1", ORIGINAL_NOISE)
    report = judge(looping, whole=False)
    assert report.passed
    assert report.reason.endswith("a slice cannot show what overflows only in later layers")
    assert report.details["slice"] in report.reason


def test_agreement_is_settled_at_the_end() -> None:
    original: Any = Kernels("c0", 0.05)
    reference = gate.take_reference(original)
    others = {name: Kernels(name, noise) for name, noise in (("c1", 0.05), ("c2", 0.4), ("c3", 0.05))}
    reports = {name: gate.check(one, reference) for name, one in others.items()}  # type: ignore[arg-type]
    assert all(report.passed and report.label == "agreement" for report in reports.values())
    settled = gate.settle(reference, reports)
    assert set(settled) == {"c2"}
    assert settled["c2"].kind == "garbage"
    json.dumps(settled["c2"].to_json(), allow_nan=False)


def test_a_candidate_0_that_nobody_agrees_with() -> None:
    original: Any = Kernels("c0", 0.05, model="other")
    reference = gate.take_reference(original)
    reports = {name: gate.check(Kernels(name, 0.05), reference) for name in ("c1", "c2")}  # type: ignore[arg-type]
    assert not any(report.passed for report in reports.values())
    settled = gate.settle(reference, reports)
    assert set(settled) == {"c0"}
    assert (settled["c0"].passed, settled["c0"].kind) == (False, "garbage")


def test_nothing_is_settled_where_a_truth_spoke() -> None:
    reference = gate.take_reference(Kernels("c0", 0.1))  # type: ignore[arg-type]
    assert gate.settle(reference, {"c1": GateReport(True, "fine"), "c2": judge(Kernels("c2", 0.16))}) == {}


SCHEMA_ANSWERS = [
    ({"text": '{"colour": "red", "even": true}'}, None),
    ({"text": '{"colour": "red"'}, "is no JSON"),
    ({"text": "{        ", "finish_reason": {"type": "length"}}, None),
    ({"text": "{        ", "finish_reason": {"type": "stop"}}, "is no JSON"),
    ({"error": "ValueError: not supported when the server is launched with --grammar-backend none"}, None),
    ({"text": '{"colour": "red"}'}, "does not keep to its JSON schema"),
    ({"text": "[1]"}, "does not keep to its JSON schema"),
    ({"error": "no grammar backend"}, "a request with a JSON schema failed: no grammar backend"),
]


@pytest.mark.parametrize(("answer", "reason"), SCHEMA_ANSWERS)
def test_structured_output(answer: dict[str, str], reason: str | None) -> None:
    """Asked apart from the gate, which never sends such a request: it may end an engine."""
    engine: Any = Kernels("c1", ORIGINAL_NOISE, attempt=answer)
    assert why_unstructured(engine, [1, 2], 10.0) is None, "this engine's host has no such operation"
    engine.facts["operations"] = ["attempt"]
    said = why_unstructured(engine, [1, 2], 10.0)
    assert (said is None) if reason is None else (reason in (said or ""))
    report = judge(engine)
    assert report.passed
    assert "structured" not in report.details


def test_sequences_are_text_and_random_tokens_in_turns() -> None:
    passages = [[ord(letter) % 300 for letter in text] for text in PASSAGES]
    sequences = make_sequences(passages, 6144, 5000)
    assert [len(ids) for ids in sequences] == [LONG] * 32
    assert all(max(ids) < 300 for ids in sequences[::2])
    assert all(max(ids) > 300 for ids in sequences[1::2])
    assert len({tuple(ids[:32]) for ids in sequences}) == 32, "no two share a beginning"
    assert [len(ids) for ids in make_sequences(None, 512, 5000)] == [SHORT] * 8
    assert make_sequences(passages, 6144, 5000) == sequences


def test_there_are_enough_prompts_for_the_concurrency() -> None:
    texts = [[1, 2, 3]] * len(PROMPTS)
    assert len(make_prompts(texts, 32, 5000)) == 32
    assert make_prompts(texts, 4, 5000) == texts
    assert len(make_prompts(None, 8, 5000)) == 8


NAN_FROM_EIGHT_ON = f'''
"""The fake SGLang, whose log-probabilities are no numbers while eight requests or more are in flight."""
__path__ = [{str(FAKE / "sglang")!r}]
exec(compile(open({str(FAKE / "sglang" / "__init__.py")!r}).read(), "fake", "exec"), globals())

class Engine(Engine):
    flying = 0

    async def async_generate(self, **call):
        self.flying += 1
        await asyncio.sleep(0)
        crowd = self.flying
        answer = await super().async_generate(**call)
        self.flying -= 1
        if crowd >= 8 and call["sampling_params"]["max_new_tokens"] > 1:
            meta = answer["meta_info"]
            meta["output_token_logprobs"] = [(float("nan"), *rest) for _, *rest in meta["output_token_logprobs"]]
        return answer
'''


def test_no_numbers_from_eight_on_through_an_engine(
    fake_engine: Callable[..., Engine], mark: Mark, tmp_path: Path
) -> None:
    package = tmp_path / "sick" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(NAN_FROM_EIGHT_ON)
    command = Command((sys.executable, "-m", "sglang.launch_server", "--model-path", "m"))
    environ = mark.environ() | {"TMPDIR": str(tmp_path)}
    sick = Engine(command, (), log=tmp_path / "sick.log", environ=environ, cwd=package.parent)
    with fake_engine() as original, sick:
        original.wait_ready(20)
        sick.wait_ready(20)
        report = gate.check(sick, gate.take_reference(original, concurrency=2), concurrency=2)
    assert (report.passed, report.kind) == (False, "garbage")
    assert "log-probabilities are not finite in 8 of 8 continuations, 8 at once" in report.reason
