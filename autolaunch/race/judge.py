"""Gates the engines of a race, and keeps what the gate compares with: reference and truth.

`c0` becomes the reference, unless it failed: then the first healthy engine does, which was only looked at.
A truth is an independent engine of the same weights; it is asked once and then ended.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace

from autolaunch.candidates.candidate import ORIGINAL_ID
from autolaunch.race import gate
from autolaunch.race.engine import Engine
from autolaunch.race.gate_answers import why_unstructured
from autolaunch.race.gate_reference import DEFAULT_TOKENS, Precision
from autolaunch.race.outcomes import EngineFailed, Failure, GateReport
from autolaunch.race.pace import Pace
from autolaunch.race.step_limits import Limits
from autolaunch.race.trials import Trials
from autolaunch.race.workload import random_prompts
from autolaunch.race.yardstick import Yardstick

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
        limits: Limits,
        *,
        whole: bool = True,
        tokens: int = DEFAULT_TOKENS,
        precision: Precision = "bf16",
    ) -> None:
        """`whole` is False on a slice, `tokens` are those given to be read, `precision` is the truth's."""
        self._trials = trials
        self._pace = pace
        self._yardstick = yardstick
        self._limits = limits
        self._whole = whole
        self._tokens = tokens
        self._precision: Precision = precision
        self.reference: gate.Reference | None = None
        self.truth: gate.Truth | None = None

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
        limit = self._limits.of("gate", candidate_id, spare_s)
        began_s = self._pace.clock()
        try:
            with self._trials.engines[candidate_id].within(limit.most_s):
                yield
        except EngineFailed as error:
            took_s = self._pace.clock() - began_s
            if error.failure.kind != "hang" or took_s < 0.99 * limit.most_s:  # it had another limit
                raise
            raise EngineFailed(limit.exceeded(limit.most_s, error.failure.log)) from error
        self._limits.note("gate", candidate_id, self._pace.clock() - began_s)

    def _enter(self, candidate_id: str, report: GateReport) -> None:
        """Write a verdict down, and end who did not pass."""
        self._trials.journal.write("gate", id=candidate_id, **report.to_json())
        self._trials.update(candidate_id, gate=report)
        if not report.passed:
            kind = report.kind or "garbage"
            self._trials.fail(candidate_id, Failure(stage="gate", kind=kind, reason=report.reason))
