"""Warms engines up, any number at the same time, and knows since when each does, or how long it took."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from autolaunch.candidates.candidate import ORIGINAL_ID
from autolaunch.race.outcomes import EngineFailed, Failure
from autolaunch.race.pace import Pace
from autolaunch.race.result import silent_fallback
from autolaunch.race.step_limits import PATIENCE, Limits
from autolaunch.race.trials import Trials
from autolaunch.race.warm_up_windows import WarmUp
from autolaunch.race.yardstick import Yardstick

WINDOW_EXTRA_S = 1.0
"""Of a window, beside twice what is sent: the cache is emptied, a trace written and read.

H200, sglang 0.5.17, 2026-12-01.
"""


@dataclass(frozen=True, slots=True)
class _Begun:
    """A warm-up that was begun."""

    warm_up: WarmUp
    window_limit_s: float
    """What each of its windows may take."""
    since_s: float


class Warming:
    """The warm-ups of one race."""

    def __init__(self, trials: Trials, pace: Pace, yardstick: Yardstick, limits: Limits) -> None:
        self._trials, self._pace, self._yardstick, self._limits = trials, pace, yardstick, limits
        self._begun: dict[str, _Begun] = {}
        """Those that are not over, and those whose engine was ended before they were."""
        self._batch_s: dict[str, float] = {}

    def quickness(self, candidate_id: str) -> float:
        """What to order engines by: `c0` is first, then who warmed up in less time."""
        took_s = self._limits.took_s("warm-up", candidate_id)
        return 0.0 if candidate_id == ORIGINAL_ID else math.inf if took_s is None else took_s

    @property
    def window_s(self) -> float:
        """What a window of `c0` will take, about, from the last batch of its warm-up."""
        return 2 * self._batch_s.get(ORIGINAL_ID, 0.0) + WINDOW_EXTRA_S

    @property
    def patient_s(self) -> float:
        """What the warm-up of a challenger may take in any case: so many times that of `c0`."""
        return PATIENCE * (self._limits.took_s("warm-up", ORIGINAL_ID) or 0.0)

    def spent_s(self, candidate_id: str) -> float:
        """How long a warm-up that was begun has been going on."""
        return self._pace.clock() - self._begun[candidate_id].since_s

    def begin(self, candidate_id: str) -> bool:
        """Let an engine compile what the workload needs; False where it is out before that."""
        trial = self._trials[candidate_id]
        fallback = silent_fallback(trial.candidate, trial.ready)
        if fallback is not None:
            self._trials.fail(candidate_id, fallback)
            return False
        warm_up = self._yardstick.warm_up(self._trials.engines[candidate_id])
        self._begun[candidate_id] = _Begun(warm_up, self._pace.ask_limit_s, self._pace.clock())
        return True

    def is_over(self, candidate_id: str, spare_s: float) -> bool:
        """Whether a warm-up that was begun is over; EngineFailed where it fails or takes too long.

        `spare_s` is what the final leaves of the budget.
        """
        begun, engine = self._begun[candidate_id], self._trials.engines[candidate_id]
        took_s = self.spent_s(candidate_id)
        limit = self._limits.of("warm-up", candidate_id, spare_s + took_s)
        try:
            window = begun.warm_up.poll(begun.window_limit_s)
        except EngineFailed as error:
            if error.failure.kind != "hang":
                raise
            if candidate_id == ORIGINAL_ID:
                raise EngineFailed(self._maybe_too_large(error.failure)) from error
            raise EngineFailed(limit.exceeded(took_s, error.failure.log)) from error
        if window is None and took_s > limit.most_s:
            raise EngineFailed(limit.exceeded(limit.most_s, str(engine.log)))
        if window is not None:
            del self._begun[candidate_id]
            self._yardstick.warmed(engine, window)
            self._limits.note("warm-up", candidate_id, took_s)
            self._batch_s[candidate_id] = window.wall_s
        return window is not None

    def _maybe_too_large(self, failure: Failure) -> Failure:
        """The failure of `c0` at its first batch, which may have nothing to do with `c0`."""
        words = self._yardstick.workload.words
        more = f"the workload `{words}` may be too large for the budget; `--workload` takes a smaller one"
        return replace(failure, reason=f"{failure.reason}: {more}")
