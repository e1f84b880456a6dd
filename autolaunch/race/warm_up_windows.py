"""Lets an engine compile and autotune what a workload needs, by windows that do not count."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from autolaunch.race.batches import FEWEST_TRACED_TOKENS, traced_batches
from autolaunch.race.engine import Engine
from autolaunch.race.outcomes import Window
from autolaunch.race.windows import load_of, must_fit, window_of
from autolaunch.race.workload import Workload
from autolaunch.units import format_duration

WARM_UP_SEED = 1 << 40
"""Added to the seed of a warm-up, whose prompts must not come again in a timed window."""
LOOK_S = 0.02
"""Between two looks at a warm-up that is waited for."""


class WarmUp:
    """Windows that let an engine compile what a workload needs, while nobody waits for it."""

    def __init__(self, engine: Engine, shapes: Sequence[Workload], seed: int) -> None:
        """Begin the first of `shapes`; prompts are drawn from `seed` on."""
        self._engine = engine
        self._left = list(enumerate(shapes, seed))
        self._begin()

    def _begin(self) -> None:
        """Have the engine run the next shape."""
        (self._seed, self._shape), self._began_s = self._left.pop(0), time.monotonic()
        self._engine.begin("flush")
        self._number = self._engine.begin("load", **load_of(self._engine, self._shape, self._seed))

    def poll(self, limit_s: float) -> Window | None:
        """The last window, once all have run; no measurement, but it shows what drafts were accepted.

        EngineFailed when one takes longer than `limit_s`, or when answers are not as long as they had to be.
        """
        while (answer := self._engine.poll(self._number)) is not None:
            shape = self._shape
            wanted_tokens = shape.prompts * shape.output_tokens
            window = window_of(self._engine, answer, shape.concurrency, wanted_tokens, self._seed)
            if not self._left:
                return window
            self._begin()
        if time.monotonic() - self._began_s > limit_s:
            raise self._engine.hangs(f"did not finish `load` within {format_duration(limit_s)}")
        return None

    def finish(self, limit_s: float) -> Window:
        """Wait for the last window; `limit_s` and EngineFailed as for `poll`."""
        while (window := self.poll(limit_s)) is None:
            time.sleep(LOOK_S)
        return window


def warm_up(engine: Engine, workload: Workload, seed: int = 0) -> WarmUp:
    """Run the workload's shape once, alone and at once, so that what compiles or autotunes does so now.

    EngineFailed where the workload does not fit the model.
    """
    must_fit(engine, workload)
    at_once = replace(workload, conversations=())
    alone = replace(at_once, concurrency=1, rounds=1)
    return WarmUp(engine, [alone, at_once], WARM_UP_SEED + 2 * seed)


def warm_up_traced(engine: Engine, workload: Workload, seed: int = 0) -> WarmUp:
    """Run every batch that `measure_traced` would, with short answers and no profiler, and one prompt alone.

    EngineFailed where the workload does not fit the model.
    """
    must_fit(engine, workload)
    first, *others = traced_batches(engine.facts, workload, 1.0)
    alone = replace(first, concurrency=1, output_tokens=FEWEST_TRACED_TOKENS)
    batches = [alone, *(replace(batch, output_tokens=FEWEST_TRACED_TOKENS) for batch in others), first]
    return WarmUp(engine, [batch.workload for batch in batches], WARM_UP_SEED + 4 * seed)
