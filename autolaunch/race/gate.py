"""Judges an engine's answers by the best reference there is (`race/gate_reference.py`).

Tokens are given (*teacher-forced*), so that one other word does not make all that follows another text.
The steps, the first that cannot be believed being the last, since a wrong engine is often a slow one:

- `alone`: a few sequences, one at a time;
- `at_once`: all of them, as many in flight as the timed windows have, and eight at least;
- `decode`: of the engine's own continuations, as it decoded them at once, against its own prefill of them;
- where the whole model runs, loops in the texts, and an answer that must keep to a JSON schema.

With a truth, a challenger may be hardly further from it than candidate 0 is; healthy backends were at 0.99
to 1.02 of that distance, lost precision at 1.26 and more (H200, 2026-11-30).  Without one it must agree
with candidate 0, and `settle` asks at the end who is far from everybody.

NOTE: no fixed limit on the distance to candidate 0 is right for every model (healthy block-FP8 kernels of
a dense model were 0.6 apart), so agreement finds gross errors only; and a small fault in one layer, a scale
10 % off, stays below the limit even with a truth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from autolaunch.race import gate_answers
from autolaunch.race.engine import Engine
from autolaunch.race.gate_agreement import AGREEMENT, Checked, settle
from autolaunch.race.gate_answers import check_window, is_degenerate
from autolaunch.race.gate_original import judge_original, why_unrelated
from autolaunch.race.gate_prompts import PROMPTS, make_prompts
from autolaunch.race.gate_reference import (
    NOT_FINITE,
    SHALLOW,
    Reference,
    Truth,
    decoding,
    take_reference,
    take_truth,
)
from autolaunch.race.gate_statistics import (
    Logprobs,
    difference,
    distances,
    load_limit,
    ratio_of,
    rounded,
)
from autolaunch.race.outcomes import GateLabel

__all__ = [
    "LIMIT",
    "Checked",
    "Reference",
    "Truth",
    "check",
    "check_window",
    "is_degenerate",
    "judge_original",
    "settle",
    "take_reference",
    "take_truth",
]

LIMIT = load_limit("agreement")
"""Mean |Δ log-probability| to candidate 0 above which answers are wrong, unless it differs so from itself."""
HOW = {"alone": "one at a time", "at_once": "in a batch", "decode": "while decoding"}


def check(
    engine: Engine,
    reference: Reference | None,
    truth: Truth | None = None,
    *,
    concurrency: int = 4,
    limit_s: float = 120.0,
    whole: bool = True,
) -> Checked:
    """Judge `engine`, alone and at `concurrency`, by `truth` if there is one, else by `reference`.

    Without either the label is `ungated`.  `whole` is False on a slice: its texts mean nothing.
    EngineFailed only when the engine does not answer.
    """
    return _Check(engine, reference, truth, gate_answers.at_once(concurrency), limit_s, whole).run()


class _Check:
    """One check, and what has been found so far."""

    def __init__(
        self,
        engine: Engine,
        reference: Reference | None,
        truth: Truth | None,
        at_once: int,
        limit_s: float,
        whole: bool,
    ) -> None:
        self.engine, self.reference, self.truth = engine, reference, truth
        self.at_once, self.limit_s, self.whole = at_once, limit_s, whole
        self.figures: dict[str, float] = {}
        self.details: dict[str, Any] = {}
        self.alone: Logprobs = ()
        self.text = ""

    def run(self) -> Checked:
        """All steps, or those up to the first that fails."""
        reason = None
        if self.reference is not None:
            reason = self.given(self.reference)
        reason = reason or self.free()
        compared = [self.figures[name] for name in ("alone", "at_once") if name in self.figures]
        worst = max(compared, default=math.nan)
        if not self.whole:
            self.details["slice"] = SHALLOW
        figures = {
            name: value if math.isfinite(value) else str(value) for name, value in self.figures.items()
        }
        return Checked(
            passed=reason is None,
            kind=None if reason is None else "garbage",
            reason=reason or self.praise(),
            mean_abs_logprob_delta=worst if math.isfinite(worst) else None,
            label=self.label(),
            sample_text=self.text,
            details=figures | self.details,
            alone=self.alone,
        )

    def label(self) -> GateLabel:
        """Which rung of the ladder this check stood on."""
        if self.reference is None:
            return "ungated"
        return AGREEMENT if self.truth is None else "gated"

    def given(self, reference: Reference) -> str | None:
        """Why the log-probabilities of given tokens cannot be believed."""
        steps = (("alone", 1, reference.alone), ("at_once", self.at_once, reference.logprobs))
        for step, at_once, original in steps:
            sequences = reference.sequences[: len(original)]
            found = gate_answers.score(self.engine, sequences, [1] * len(sequences), at_once, self.limit_s)
            self.figures[step] = difference(original, found)
            if math.isnan(self.figures[step]):
                return NOT_FINITE
            if step == "alone":
                self.alone = tuple(map(tuple, found))
            reason = (
                self.compare(step, distances(original, found), reference.limit)
                if self.truth is None
                else self.measure(step, found, original, self.truth)
            )
            if reason is not None:
                return reason
        return None

    def compare(self, step: str, found: Sequence[float], limit: float) -> str | None:
        """Why a step cannot be believed, by candidate 0."""
        self.details["distances"] = rounded(found)
        return _too_far(step, self.figures[step], "candidate 0's", limit)

    def measure(self, step: str, found: Logprobs, original: Logprobs, truth: Truth) -> str | None:
        """Why a step cannot be believed, by the truth."""
        mine, theirs = truth.distances(found), truth.distances(original)
        ratio = ratio_of(mine, theirs)
        name = "ratio" if step == "at_once" else "ratio_alone"
        self.details |= {name: ratio.value, f"{name}_error": ratio.error}
        self.details |= {"distances": rounded(mine), "original_distances": rounded(theirs)}
        if ratio.exceeds(truth.limit):
            return (
                f"log-probabilities {HOW[step]} are {ratio.value:.2f} ± {ratio.error:.2f} times as far from "
                f"{truth.name} as candidate 0's (limit {truth.limit:.2f})"
            )
        return why_unrelated(found, truth)

    def free(self) -> str | None:
        """Why what the engine writes by itself cannot be believed."""
        reference = self.reference
        prompts: Sequence[Sequence[int]] = reference.prompts if reference else self.prompts()
        answers = gate_answers.generate(self.engine, prompts, self.at_once, self.limit_s)
        self.text = answers[0]["text"] or ""
        reason = gate_answers.why_not_finite(self.engine, answers, self.at_once)
        if reason is not None:
            return reason
        self.figures["decode"] = decoding(self.engine, prompts, answers, self.limit_s)
        if math.isnan(self.figures["decode"]):
            return NOT_FINITE
        reason = _too_far("decode", self.figures["decode"], "its own prefill's", self.decode_limit())
        if reason is not None or not self.whole:
            return reason
        looping = reference.looping if reference else None
        return gate_answers.why_degenerate(answers[: len(PROMPTS)], looping)

    def prompts(self) -> list[list[int]]:
        """Prompts of its own, where no reference has any."""
        ids = gate_answers.tokenize(self.engine, PROMPTS, self.limit_s)
        return make_prompts(ids, self.at_once, self.engine.facts.get("vocab_size"))

    def decode_limit(self) -> float:
        """How far decoding may be from prefill."""
        if self.reference is None:
            return LIMIT
        if self.truth is None:
            return self.reference.limit
        distance = fmean(self.truth.distances(self.reference.logprobs))
        return max(
            load_limit("decode") * distance,
            load_limit("spread") * self.reference.decode,
            load_limit("decode_least"),
        )

    def praise(self) -> str:
        """What a healthy engine showed, in words."""
        if self.reference is None:
            text = "nothing to compare with; the answers are finite and do not repeat themselves"
        elif self.truth is None:
            worst = max(self.figures.values())
            text = f"log-probabilities agree with candidate 0's within {worst:.3f} on average"
        else:
            ratio, error = self.details["ratio"], self.details["ratio_error"]
            text = (
                f"log-probabilities are {ratio:.3f} ± {error:.3f} times as far from {self.truth.name} "
                "as candidate 0's"
            )
        return text if self.whole else f"{text}; {SHALLOW}"


def _too_far(step: str, figure: float, whose: str, limit: float) -> str | None:
    """Why a distance of `figure` cannot be believed, if it cannot."""
    if figure <= limit:
        return None
    return f"log-probabilities {HOW[step]} are {figure:.2f} away from {whose} on average (limit {limit:.2f})"
