"""The engine that knows better: the gate's reference in a more exact arithmetic, asked once and then ended.

It imports SGLang while its weights are made: where it began after that it kept all others waiting, by 8 s of
110 (H200, sglang 0.5.17, 2026-12-01).  Without it the gate has less to go by, and the race goes on.
"""

from __future__ import annotations

from collections.abc import Callable

from autolaunch.race.engine import Engine, Tick
from autolaunch.race.judge import Judge
from autolaunch.race.outcomes import EngineFailed, Failure
from autolaunch.race.pace import Pace
from autolaunch.race.trials import Trials

TRUTH_ID = "truth"

OpenTruth = Callable[[Tick], tuple[Engine, Callable[[], None]]]
"""Makes the engine, held and not yet started, and what makes its weights; the callback is its `on_tick`."""


class TruthEngine:
    """Started with the first wave; `comes` as long as others should wait for what it says."""

    def __init__(self, trials: Trials, pace: Pace, judge: Judge, open_truth: OpenTruth | None) -> None:
        self._trials, self._pace, self._judge = trials, pace, judge
        self._open = open_truth
        self._answers = False

    @property
    def comes(self) -> bool:
        """Whether it may still be asked."""
        return TRUTH_ID in self._trials.engines

    @property
    def is_due(self) -> bool:
        """Whether it answers, and there is something to ask."""
        return self._answers and self._judge.reference is not None

    def begin(self) -> bool:
        """Start it, the first time; whether it loads now."""
        if self._open is None:
            return False
        open_truth, self._open = self._open, None
        self._trials.journal.write("start", id=TRUTH_ID)
        try:
            engine, make_weights = open_truth(self._pace.tick)
            self._trials.engines[TRUTH_ID] = engine
            engine.start()
            make_weights()
            engine.release()
        except EngineFailed as error:
            self.lose(error.failure.reason)
            return False
        except OSError as error:
            self.lose(f"could not be started: {error}")
            return False
        return True

    def ready(self) -> None:
        """It answers now."""
        self._answers = True

    def ask(self) -> None:
        """Ask what it is there for, and end it."""
        try:
            self._judge.take_truth(self._trials.engines[TRUTH_ID])
        except EngineFailed as error:
            self.fail(error.failure)
        self.end()

    def fail(self, failure: Failure) -> None:
        """It failed, and the race goes on without it."""
        self.lose(f"{failure.kind} at {failure.stage}: {failure.reason}")

    def lose(self, why: str) -> None:
        """Go on without it."""
        self.end()
        self._trials.journal.write("truth-lost", reason=why)
        self._trials.progress.say(f"the gate's reference in full precision is missing: {why}")

    def end(self) -> None:
        """End its engine, whatever it is doing."""
        self._answers = False
        self._trials.close(TRUTH_ID)
