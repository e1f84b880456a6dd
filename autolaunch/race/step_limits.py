"""What a challenger's warm-up and its gate may take, by what they took the original, and words for more."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

from autolaunch.candidates.candidate import ORIGINAL_ID
from autolaunch.race.outcomes import Failure
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


@dataclass(frozen=True, slots=True)
class Limit:
    """What one step of one candidate may take."""

    step: Step
    most_s: float
    known_s: float
    """What the step took `c0`."""

    def exceeded(self, after_s: float, log: str | None) -> Failure:
        """The failure of a challenger whose step was cut `after_s`."""
        spent, known = format_duration(after_s), format_duration(self.known_s)
        reason = f"its {self.step} was not done after {spent}, where that of {ORIGINAL_ID} took {known}"
        if after_s < self.known_s:
            reason = f"its {self.step} was cut after {spent}, all that the budget had left for it"
        return Failure("serve", "slow", reason, log=log)


class Limits:
    """Those of one race, from what its steps took."""

    def __init__(self) -> None:
        self._took_s: dict[Step, dict[str, float]] = defaultdict(dict)

    def note(self, step: Step, candidate_id: str, took_s: float) -> None:
        """A step is done."""
        self._took_s[step][candidate_id] = took_s

    def took_s(self, step: Step, candidate_id: str) -> float | None:
        """What a step took, once it was done."""
        return self._took_s[step].get(candidate_id)

    def of(self, step: Step, candidate_id: str, spare_s: float) -> Limit:
        """What a step may take; before it is known what it took `c0` there is no limit.

        `spare_s` is what the final leaves of the budget.
        """
        known_s = self.took_s(step, ORIGINAL_ID)
        if known_s is None or candidate_id == ORIGINAL_ID:
            return Limit(step, math.inf, 0.0)
        least_s = COMPILE_S if step == "warm-up" else 0.0
        wanted_s = max(min(PATIENCE * known_s, known_s + COMPILE_S), least_s)
        return Limit(step, max(MIN_LIMIT_S, min(wanted_s, spare_s)), known_s)
