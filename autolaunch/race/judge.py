"""Warms engines up and gates them, and keeps what the gate compares with: reference and truth.

`c0` becomes the reference, unless it failed: then the first healthy engine does, which was only looked at.
A truth is an independent engine of the same weights; it is asked once and then ended.
"""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from autolaunch.candidates.candidate import ORIGINAL_ID
from autolaunch.race import gate
from autolaunch.race.engine import Engine
from autolaunch.race.gate_answers import why_unstructured
from autolaunch.race.gate_reference import DEFAULT_TOKENS, Precision
from autolaunch.race.outcomes import EngineFailed, Failure, GateReport
from autolaunch.race.pace import Pace
from autolaunch.race.result import silent_fallback
from autolaunch.race.trials import Trials
from autolaunch.race.warm_ups import WarmUp
from autolaunch.race.workload import random_prompts
from autolaunch.race.yardstick import Yardstick
from autolaunch.units import format_duration

Step = Literal["warm-up", "gate"]
PATIENCE = 3.0
"""Times `c0`'s own warm-up, or gate, that a challenger's may take; half as slow is too slow for a final."""
MIN_LIMIT_S = 10.0
"""What a challenger's warm-up, or gate, may take in any case.

Healthy engines took 0.7 to 1.2 s and 0.5 s where their kernels had been compiled before; the warm-ups of two
interpreted backends took 52 and 32 s, their gates 9 and 23 s (H200, sglang 0.5.17, 2026-12-01).
"""
COMPILE_S = 120.0
"""What a challenger's warm-up may take of time that nobody needs: the first use of a shape may compile.

With empty caches that of candidate 0 took 35 s, and FlashInfer compiles its attention for up to two
minutes (the same machine).  It is also the most that a challenger may take over candidate 0: what both
compile lies in a cache by then.
"""
WINDOW_EXTRA_S = 1.0
"""Of a window, beside twice what is sent: the cache is emptied, a trace written and read (same machine)."""
WINDOW_CHECK_TOKENS = 8
"""Of each answer, where a window is sent once more to look at its log-probabilities."""
WINDOW_CHECK_SEED = 1 << 41


class Judge:
    """The gate of one race."""

    def __init__(
        self,
        trials: Trials,
        pace: Pace,
        yardstick: Yardstick,
        *,
        whole: bool = True,
        tokens: int = DEFAULT_TOKENS,
        precision: Precision = "bf16",
    ) -> None:
        """`whole` is False on a slice, `tokens` are those given to be read, `precision` is the truth's."""
        self._trials = trials
        self._pace = pace
        self._yardstick = yardstick
        self._whole = whole
        self._tokens = tokens
        self._precision: Precision = precision
        self.reference: gate.Reference | None = None
        self.truth: gate.Truth | None = None
        self._took_s: dict[Step, dict[str, float]] = defaultdict(dict)
        self._batch_s: dict[str, float] = {}
        self._warming: dict[str, tuple[WarmUp, float, float]] = {}
        """Warm-ups that are not over: what each of their windows may take, and when they were begun."""

    def quickness(self, candidate_id: str) -> float:
        """What to order engines by: `c0` is first, then who warmed up in less time."""
        return 0.0 if candidate_id == ORIGINAL_ID else self._took_s["warm-up"].get(candidate_id, math.inf)

    @property
    def window_s(self) -> float:
        """What a window of `c0` will take, about, from the last batch of its warm-up."""
        return 2 * self._batch_s.get(ORIGINAL_ID, 0.0) + WINDOW_EXTRA_S

    @property
    def patient_s(self) -> float:
        """What the warm-up of a challenger may take in any case: so many times that of `c0`."""
        return PATIENCE * self._took_s["warm-up"].get(ORIGINAL_ID, 0.0)

    def begin_warm_up(self, candidate_id: str) -> bool:
        """Let an engine compile what the workload needs; False where it is out before that."""
        trial = self._trials[candidate_id]
        fallback = silent_fallback(trial.candidate, trial.ready)
        if fallback is not None:
            self._trials.fail(candidate_id, fallback)
            return False
        warm_up = self._yardstick.warm_up(self._trials.engines[candidate_id])
        self._warming[candidate_id] = (warm_up, self._pace.ask_limit_s, self._pace.clock())
        return True

    def is_warm(self, candidate_id: str, spare_s: float = math.inf) -> bool:
        """Whether a warm-up that was begun is over; EngineFailed where it fails or takes too long.

        `spare_s` is what the final leaves of the budget.
        """
        warm_up, limit_s, began_s = self._warming[candidate_id]
        took_s = self._pace.clock() - began_s
        most_s, known_s = self._limit_s("warm-up", candidate_id, spare_s + took_s, COMPILE_S)
        try:
            window = warm_up.poll(limit_s)
        except EngineFailed as error:
            if error.failure.kind != "hang":
                raise
            if candidate_id == ORIGINAL_ID:
                raise EngineFailed(self._maybe_too_large(error.failure)) from error
            raise EngineFailed(self._too_slow("warm-up", took_s, known_s, error.failure.log)) from error
        if window is None and took_s > most_s:
            log = str(self._trials.engines[candidate_id].log)
            raise EngineFailed(self._too_slow("warm-up", most_s, known_s, log))
        if window is not None:
            del self._warming[candidate_id]
            self._yardstick.warmed(self._trials.engines[candidate_id], window)
            self._took_s["warm-up"][candidate_id] = took_s
            self._batch_s[candidate_id] = window.wall_s
        return window is not None

    def admit(self, candidate_id: str, spare_s: float = math.inf) -> None:
        """Gate one engine that is warm, or take it as the reference where there is none."""
        self._pace.doing = f"{candidate_id} is checked: {self._trials[candidate_id].candidate.label}"
        if self.reference is not None:
            self.check(candidate_id, spare_s)
            return
        if candidate_id != ORIGINAL_ID:
            self.check(candidate_id, spare_s)
        if self._trials[candidate_id].failure is None:
            self._take_reference(candidate_id)

    def check(self, candidate_id: str, spare_s: float = math.inf) -> None:
        """Compare one engine's answers with the best there is, and end it where they cannot be believed."""
        with self._timed(candidate_id, spare_s):
            report = gate.check(
                self._trials.engines[candidate_id],
                self.reference,
                self.truth,
                concurrency=self._yardstick.workload.concurrency,
                limit_s=self._pace.ask_limit_s,
                whole=self._whole,
            )
        self._enter(candidate_id, report)

    def check_window(self, candidate_id: str) -> None:
        """Send what a window sends, and end who computes no numbers: some kernels fail at that shape only."""
        engine, workload = self._trials.engines[candidate_id], self._yardstick.workload
        vocab_size = engine.facts.get("vocab_size")
        prompts = random_prompts(workload.concurrency, workload.input_tokens, vocab_size, WINDOW_CHECK_SEED)
        reason = gate.check_window(
            engine, prompts, WINDOW_CHECK_TOKENS, workload.concurrency, self._pace.ask_limit_s
        )
        self._trials.journal.write("window-check", id=candidate_id, reason=reason)
        if reason is not None:
            self._trials.fail(
                candidate_id, Failure("gate", "garbage", f"in a timed window's shape: {reason}")
            )

    def look_at_structure(self, candidate_id: str) -> None:
        """Ask a whole model for one structured answer, last of all; what is wrong with it fails nobody.

        Nobody said that the server will be asked for any, and the request alone may end an engine: before
        0.5.20 SGLang's grammars did on a CPU (seen with 0.5.14 and 0.5.17, 2026-12-01).
        """
        if self.reference is None or not self._whole:
            return
        self._pace.doing = f"{candidate_id} is asked for a structured answer"
        engine, prompt = self._trials.engines[candidate_id], self.reference.prompts[0]
        try:
            warning = why_unstructured(engine, prompt, self._pace.ask_limit_s)
        except EngineFailed as error:
            warning = f"a request with a JSON schema ended the engine: {error.failure.reason}"
        self._trials.journal.write("structured", id=candidate_id, warning=warning)
        report = self._trials[candidate_id].gate
        if warning is not None and report is not None:
            details = {**report.details, "structured": warning}
            self._trials.update(candidate_id, gate=replace(report, details=details))

    def take_truth(self, engine: Engine) -> None:
        """Have the truth read what the reference read; EngineFailed where it is nobody's truth."""
        if self.reference is None:
            return
        self._pace.doing = "the gate's reference in full precision is asked"
        self.truth = gate.take_truth(
            engine,
            self.reference,
            concurrency=self._yardstick.workload.concurrency,
            limit_s=self._pace.ask_limit_s,
            precision=self._precision,
        )
        self._trials.journal.write("truth", **self.truth.to_json())

    def judge_original(self) -> None:
        """Judge `c0` by the truth, once there is one, or without."""
        if self.reference is None or ORIGINAL_ID not in self._trials.engines:
            return
        report = gate.judge_original(self.reference, self.truth, whole=self._whole)
        self._enter(ORIGINAL_ID, report)

    def settle(self) -> None:
        """Once all were checked without a truth: who is far from everybody is out, `c0` included.

        Those that failed have a voice too: where `c0` is wrong, all that are right failed against it.
        """
        if self.reference is None or self.truth is not None:
            return
        reports = {
            trial.candidate.id: trial.gate
            for trial in self._trials
            if trial.gate is not None and trial.merged_into is None
        }
        for candidate_id, report in gate.settle(self.reference, reports).items():
            if self._trials[candidate_id].failure is None:
                self._enter(candidate_id, report)

    def _take_reference(self, candidate_id: str) -> None:
        """What the others are compared with from here on."""
        with self._timed(candidate_id):
            self.reference = gate.take_reference(
                self._trials.engines[candidate_id],
                concurrency=self._yardstick.workload.concurrency,
                limit_s=self._pace.ask_limit_s,
                tokens=self._tokens,
            )
        self._trials.journal.write("reference", id=candidate_id, **self.reference.to_json())
        if self.reference.doubt is not None:
            self._trials.progress.say(
                f"doubt: {self.reference.doubt}; others are compared with it all the same"
            )

    @contextlib.contextmanager
    def _timed(self, candidate_id: str, spare_s: float = math.inf) -> Iterator[None]:
        """Time a gate, and make it fail as `slow` where a challenger's takes too much longer than `c0`'s."""
        limit_s, known_s = self._limit_s("gate", candidate_id, spare_s)
        began_s = self._pace.clock()
        try:
            with self._trials.engines[candidate_id].within(limit_s):
                yield
        except EngineFailed as error:
            took_s = self._pace.clock() - began_s
            if error.failure.kind != "hang" or took_s < 0.99 * limit_s:  # it had another limit
                raise
            raise EngineFailed(self._too_slow("gate", limit_s, known_s, error.failure.log)) from error
        self._took_s["gate"][candidate_id] = self._pace.clock() - began_s

    def _too_slow(self, step: Step, limit_s: float, known_s: float, log: str | None) -> Failure:
        """The failure of a challenger whose `step` was cut after `limit_s`."""
        spent, known = format_duration(limit_s), format_duration(known_s)
        reason = f"its {step} was not done after {spent}, where that of {ORIGINAL_ID} took {known}"
        if limit_s < known_s:
            reason = f"its {step} was cut after {spent}, all that the budget had left for it"
        return Failure("serve", "slow", reason, log=log)

    def _maybe_too_large(self, failure: Failure) -> Failure:
        """The failure of `c0` at its first batch, which may have nothing to do with `c0`."""
        words = self._yardstick.workload.words
        more = f"the workload `{words}` may be too large for the budget; `--workload` takes a smaller one"
        return replace(failure, reason=f"{failure.reason}: {more}")

    def _limit_s(
        self, step: Step, candidate_id: str, spare_s: float, least_s: float = 0.0
    ) -> tuple[float, float]:
        """What a step may take, and what it took `c0`; without that there is no limit."""
        known_s = self._took_s[step].get(ORIGINAL_ID)
        if known_s is None or candidate_id == ORIGINAL_ID:
            return math.inf, 0.0
        wanted_s = max(min(PATIENCE * known_s, known_s + COMPILE_S), least_s)
        return max(MIN_LIMIT_S, min(wanted_s, spare_s)), known_s

    def _enter(self, candidate_id: str, report: GateReport) -> None:
        """Write a verdict down, and end who did not pass."""
        self._trials.journal.write("gate", id=candidate_id, **report.to_json())
        self._trials.update(candidate_id, gate=report)
        if not report.passed:
            kind = report.kind or "garbage"
            self._trials.fail(candidate_id, Failure(stage="gate", kind=kind, reason=report.reason))
