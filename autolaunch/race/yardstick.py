"""How a race times an engine: by the wall, or by the GPU's own times in a trace.

A shallow slice is host-bound on the wall, so only a trace tells its kernels apart; on a CPU there is nothing
to trace, and the whole model runs.  Both warm an engine up first, so that nothing compiles in a window.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Protocol
from weakref import WeakKeyDictionary

from autolaunch.race import measure, traced, warm_up_windows
from autolaunch.race.engine import Engine
from autolaunch.race.outcomes import Window
from autolaunch.race.warm_up_windows import WarmUp
from autolaunch.race.workload import Workload

WINDOW_TARGET_S = 1.5
"""How long a window lasts on the first healthy engine; at 0.15 s two equal engines differed by 40 %."""
MAX_WINDOW_ROUNDS = 64
CALIBRATION_SEED, REUSE_SEED = 2, 4


class Yardstick(Protocol):
    """What a race measures with."""

    workload: Workload
    """What one window sends."""
    noise: float
    """How much two windows of one engine may differ, as a share; closer ones are not told apart."""
    total_layers: int | None
    """Layers of the whole model where a slice is timed."""

    def warm_up(self, engine: Engine) -> WarmUp:
        """Let whatever compiles or autotunes for this workload do so; returns while that begins."""

    def warmed(self, engine: Engine, window: Window) -> None:
        """Take note of the last window of a warm-up that is over."""

    def calibrate(self, engine: Engine, *, limit_s: float) -> Window | None:
        """Settle the length of the windows on the first healthy engine; what it measured does not count."""

    def window(self, engine: Engine, seed: int, *, limit_s: float) -> Window:
        """One timed window of prompts drawn from `seed`."""

    def reuse(self, engine: Engine, *, limit_s: float) -> Window | None:
        """What the prefix cache spares the user's conversations, where windows do not show it themselves."""


class WallYardstick:
    """Wall time of the whole model."""

    noise: float = 0.25
    total_layers: int | None = None

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def warm_up(self, engine: Engine) -> WarmUp:
        """Run the workload once, alone and at once."""
        return warm_up_windows.warm_up(engine, self.workload)

    def warmed(self, engine: Engine, window: Window) -> None:
        """Nothing: windows are as long as the first of them asks for."""

    def calibrate(self, engine: Engine, *, limit_s: float) -> Window:
        """Make the windows long enough to mean something, by one window that does not count."""
        window = self.window(engine, CALIBRATION_SEED, limit_s=limit_s)
        rounds = math.ceil(self.workload.rounds * WINDOW_TARGET_S / max(window.wall_s, 1e-3))
        rounds = max(self.workload.rounds, min(rounds, MAX_WINDOW_ROUNDS))
        self.workload = replace(self.workload, rounds=rounds)
        return window

    def window(self, engine: Engine, seed: int, *, limit_s: float) -> Window:
        """One window on the wall."""
        return measure.measure_window(engine, self.workload, seed=seed, limit_s=limit_s)

    def reuse(self, engine: Engine, *, limit_s: float) -> None:
        """Nothing: a window of conversations has its prefix cache in it."""


class TraceYardstick:
    """GPU time of traced batches, on a slice or on the whole model."""

    noise: float = 0.0

    def __init__(
        self,
        workload: Workload,
        folder: Path,
        *,
        layers: int,
        total_layers: int | None = None,
        period: int = 1,
        tail_layers: int | None = None,
    ) -> None:
        """Trace into `folder`; the engines have `layers` of the model's `total_layers`.

        `period` and `tail_layers` say which of them repeat (see `traced.measure_traced`).
        """
        self.workload = workload
        self.layers = layers
        self.total_layers = total_layers
        self._folder = folder
        self._period = period
        self._tail_layers = tail_layers
        self._tokens_per_step: WeakKeyDictionary[Engine, float] = WeakKeyDictionary()

    def warm_up(self, engine: Engine) -> WarmUp:
        """Run every batch that is traced, and one prompt alone."""
        return warm_up_windows.warm_up_traced(engine, self.workload)

    def warmed(self, engine: Engine, window: Window) -> None:
        """See what an engine that drafts accepts."""
        self._tokens_per_step[engine] = window.accept_length or 1.0

    def calibrate(self, engine: Engine, *, limit_s: float) -> None:
        """Nothing: a window is one batch, however long."""

    def window(self, engine: Engine, seed: int, *, limit_s: float) -> Window:
        """One traced window."""
        return traced.measure_traced(
            engine,
            self.workload,
            seed,
            folder=self._folder,
            layers=self.layers,
            total_layers=self.total_layers or self.layers,
            limit_s=limit_s,
            period=self._period,
            tail_layers=self._tail_layers,
            tokens_per_step=self._tokens_per_step.get(engine, 1.0),
        )

    def reuse(self, engine: Engine, *, limit_s: float) -> Window | None:
        """One window of the conversations on the wall: its time says little, what it reused does."""
        if not self.workload.conversations:
            return None
        return measure.measure_window(engine, self.workload, seed=REUSE_SEED, limit_s=limit_s)
