"""Takes the windows of a race, one at a time, and knows how long they take."""

from __future__ import annotations

from autolaunch.race.outcomes import Window
from autolaunch.race.pace import Pace
from autolaunch.race.result import MIN_ROUNDS
from autolaunch.race.trials import Trials
from autolaunch.race.yardstick import Yardstick

WINDOW_LIMIT_S = 60.0
MAX_FINALISTS = 3
"""Challengers in the final; more only where one window does not tell them apart."""


class Stopwatch:
    """One yardstick, applied to the engines of the trials."""

    def __init__(self, trials: Trials, pace: Pace, yardstick: Yardstick) -> None:
        self._trials, self._pace = trials, pace
        self.yardstick = yardstick
        self._calibrated = False
        self._took_s: dict[str, float] = {}
        """The last window of each candidate, with all around it."""

    @property
    def limit_s(self) -> float:
        """What one window may take."""
        return min(WINDOW_LIMIT_S, self._pace.ask_limit_s)

    def calibrate(self, name: str) -> None:
        """Settle the length of the windows, on the first engine that is timed."""
        if self._calibrated:
            return
        self._calibrated = True
        window = self.yardstick.calibrate(self._trials.engines[name], limit_s=self.limit_s)
        if window is not None:
            self._trials.journal.write("window", id=name, **window.to_json())
        self._trials.journal.write("workload", **self.yardstick.workload.to_json())

    def window(self, name: str, seed: int) -> Window:
        """One timed window, kept in the journal at once."""
        self._pace.tick()
        began_s = self._pace.clock()
        window = self.yardstick.window(self._trials.engines[name], seed, limit_s=self.limit_s)
        self._took_s[name] = self._pace.clock() - began_s
        self._trials.journal.write("window", id=name, **window.to_json())
        return window

    @property
    def final_s(self) -> float:
        """Seconds that the shortest final would take with one engine more than now; the slow ones rest."""
        seconds = sorted(
            self._took_s[trial.candidate.id]
            for trial in self._trials
            if trial.candidate.id in self._took_s and not trial.failure and trial.merged_into is None
        )
        seconds += seconds[-1:]
        most = len(seconds) if self.yardstick.noise else MAX_FINALISTS + 1
        return MIN_ROUNDS * sum(seconds[:most])
