"""How long a race waits for engines that load: what is worth more than they are, and the words for it.

It looks and says who is late; who waits ends them (`race.loading`).
"""

from __future__ import annotations

import math

from autolaunch.candidates.candidate import ORIGINAL_ID
from autolaunch.race.pace import Pace
from autolaunch.race.result import MIN_ROUNDS
from autolaunch.race.stopwatch import MAX_FINALISTS
from autolaunch.race.trials import Trials
from autolaunch.race.warming import Warming
from autolaunch.race.wave import Wave
from autolaunch.units import format_duration

START_PATIENCE = 4.0
"""Times the quickest start-up that a challenger may take: interpreted kernels needed 2.5 to 4 on a CPU."""
MIN_START_LIMIT_S = 60.0
"""What a challenger's start-up may take in any case."""
STRAGGLER_S, STRAGGLER_SHARE = 10.0, 0.1
"""What a wave waits for the next engine to pass the gate once two have: seconds, or part of the budget.

Of nine engines that loaded together six were ready within 8 s of each other, and one, whose kernels were
compiled for minutes, kept the others waiting for 69 s (H200, sglang 0.5.17, 2026-12-01).
"""

WAITS_LONGER = "a larger `--budget` waits longer"


class Patience:
    """That of one race, with one wave after another."""

    def __init__(self, trials: Trials, pace: Pace, warming: Warming) -> None:
        self._trials, self._pace, self._warming = trials, pace, warming
        self._wave = Wave()
        self._quickest_s = math.inf
        """The quickest start-up."""
        self._passed: tuple[int, float] = (0, 0.0)
        """How many passed the gate, and when the last one did."""
        self._passed_before = 0
        """How many had in earlier waves."""

    def begin(self, wave: Wave) -> None:
        """Wait for `wave`, of which nothing was started."""
        self._wave = wave
        self._passed_before = len(self._through())

    def note_startup(self, startup_s: float) -> None:
        """A candidate's engine is ready."""
        self._quickest_s = min(self._quickest_s, startup_s)

    @property
    def spare_s(self) -> float:
        """What the final leaves of the budget."""
        return max(0.0, self._pace.left_s - self._final_s())

    @property
    def start_limit_s(self) -> float:
        """What the start-up of a challenger may take, by the quickest; without one there is no limit."""
        return max(MIN_START_LIMIT_S, START_PATIENCE * self._quickest_s)

    def late(self) -> dict[str, str]:
        """Ids of those that the budget, or the others, wait for no longer, and why; to be asked often."""
        through_s = self._through_s()
        final_s = self._final_s()
        if self._pace.left_s <= final_s:
            names = self._wave.names if final_s else [*self._wave.loading]
            return {name: self._why_late(name) for name in names}
        if through_s is None:
            return {}
        late = [name for name in self._wave.names if self._straggles(name, through_s)]
        return {name: self._why_straggling(name) for name in late}

    def too_slow(self) -> list[str]:
        """Ids of those whose start-up takes longer than it may.

        The original has the whole budget: a failure of its own decides too much.
        """
        limit_s, now = self.start_limit_s, self._pace.clock()
        begun = self._wave.loading.items()
        return [name for name, began_s in begun if name != ORIGINAL_ID and now - began_s > limit_s]

    def _straggles(self, name: str, through_s: float) -> bool:
        """Whether others, who have been through for `through_s`, have waited long enough for this one.

        One that warms up compiles: what it may take counts from its own beginning, and by the original's.
        One that is warm has only its gate before it.
        """
        limit_s = max(STRAGGLER_S, STRAGGLER_SHARE * self._pace.budget_s)
        if name in self._wave.warming:
            others = set(self._wave.names) - set(self._wave.warming)
            spent_s = self._warming.spent_s(name)
            return (not others or through_s > limit_s) and spent_s > max(limit_s, self._warming.patient_s)
        return name not in self._wave.warm and through_s > limit_s

    def _why_straggling(self, name: str) -> str:
        """What is said of one that the others do not wait for."""
        if name in self._wave.warming:
            took = format_duration(self._warming.spent_s(name))
            return f"its warm-up was not done after {took}, when the others were checked; {WAITS_LONGER}"
        if name in self._wave.loading:
            waited = format_duration(self._pace.clock() - self._wave.loading[name])
            return f"not ready after {waited}, when the others were; {WAITS_LONGER}"
        return f"ready, but not checked when the others were; {WAITS_LONGER}"

    def _why_late(self, name: str) -> str:
        """What is said of one that the budget does not wait for."""
        if name in self._wave.loading:
            waited = format_duration(self._pace.clock() - self._wave.loading[name])
            return f"not ready when the budget ended ({waited})"
        left = format_duration(self._pace.left_s)
        return f"ready, but the final of others needed the {left} that were left of the budget"

    def _through_s(self) -> float | None:
        """How long ago the last of a shared wave passed the gate, once two have; else None."""
        passed, now = len(self._through()), self._pace.clock()
        if passed != self._passed[0]:
            self._passed = (passed, now)
        if not self._wave.shared or self._wave.start > 1 or passed < self._passed_before + 2:
            return None
        return now - self._passed[1]

    def _final_s(self) -> float:
        """What a short final of those that passed the gate would take, once there are two; else nothing."""
        passed = self._through()
        if len(passed) < 2 or ORIGINAL_ID not in passed:
            return 0.0
        windows = len(passed) + MIN_ROUNDS * min(len(passed), MAX_FINALISTS + 1)
        return min(windows * self._warming.window_s, self._pace.budget_s / 2)

    def _through(self) -> list[str]:
        """Ids of those that passed the gate."""
        waiting = set(self._wave.names)
        return [name for name in self._trials.standing if name not in waiting]
