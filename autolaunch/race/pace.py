"""The time of a race: what is left of its budget, and the tick that shows it and may end it."""

from __future__ import annotations

import time
from collections.abc import Callable

from autolaunch.race.outcomes import RaceInterrupted
from autolaunch.race.progress import Progress

LONGEST_ASK_S = 120.0
"""One request of warm-up or gate: the first use of a shape may compile for a minute."""
OVERTIME_S = 20.0
"""What one request may go beyond the budget."""
POLL_S = 0.1
"""Between two looks at engines that load."""


class BudgetEnded(Exception):  # noqa: N818 - control flow of a race
    """The time is up."""


class Pace:
    """One budget, counted from `begin`."""

    def __init__(
        self,
        budget_s: float,
        interrupted: Callable[[], bool],
        progress: Progress,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.budget_s = budget_s
        self.clock = clock
        self.doing = ""
        """What the live line says."""
        self._interrupted = interrupted
        self._progress = progress
        self._sleep = sleep
        self._began_s = clock()

    def begin(self) -> None:
        """Count from now."""
        self._began_s = self.clock()

    @property
    def spent_s(self) -> float:
        """Seconds since the beginning."""
        return self.clock() - self._began_s

    @property
    def left_s(self) -> float:
        """Seconds of the budget that are left, never less than none."""
        return max(0.0, self.budget_s - self.spent_s)

    @property
    def ask_limit_s(self) -> float:
        """What one request may take: what is left, and some more to end what was begun."""
        return min(LONGEST_ASK_S, self.left_s + OVERTIME_S)

    def tick(self) -> None:
        """Called several times a second: leave when asked to, and show that something happens."""
        if self._interrupted():
            raise RaceInterrupted
        self._progress.live(self.doing, eta_s=self.left_s)

    def pause(self) -> None:
        """Wait a moment, while engines load."""
        self.tick()
        self._sleep(POLL_S)
