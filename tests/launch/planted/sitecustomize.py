"""Loaded by the Python of `autolaunch serve` in a test: scripts the race, plants a fault in one stage.

`PLANT=STAGE:FAULT` names a stage, a function of one module, and what it does instead of its work.
Without it, or in other stages, the original loses the race against the first challenger that there is;
of `PLANT_TRIED` challengers each is a little slower than the one before.
"""

import ctypes
import os
import signal
import sys
import time
from typing import Any


def raises(*_: object, **__: object) -> None:
    raise RuntimeError("planted")


def hangs(*_: object, **__: object) -> None:
    time.sleep(600)


def hangs_deaf(*_: object, **__: object) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(600)


def exits(*_: object, **__: object) -> None:
    sys.exit(3)


def exits_at_once(*_: object, **__: object) -> None:
    os._exit(3)


def segfaults(*_: object, **__: object) -> None:
    ctypes.string_at(0)


def returns_nothing(*_: object, **__: object) -> None:
    """What a stage never returns."""


def plant() -> None:
    """Script the race, then put the fault in its place."""
    from autolaunch.race.outcomes import Window
    from autolaunch.race.result import RaceResult, Trial
    from autolaunch.serve import decide, stages
    from autolaunch.tune import measuring, racing

    def race(invocation: Any, understood: Any, plan: Any, *_: object, **__: object) -> RaceResult:
        def trial(candidate: object, wall_s: float) -> Trial:
            windows = [Window(4, 4, 256, 96, wall_s + n / 1000) for n in range(6)]
            return Trial(candidate, screen=windows[0], rounds=tuple(windows))

        if (seconds := float(os.environ.get("PLANT_RACE_S", "0"))) > 0:
            time.sleep(seconds)
        first, *others = plan.field.candidates
        tried = others[: int(os.environ.get("PLANT_TRIED", "1"))]
        faster = (trial(one, 1.0 + place / 5) for place, one in enumerate(tried))
        return RaceResult((trial(first, 2.0), *faster), plan.field.dropped, "done", 0.1)

    racing.race = race
    stages.QUICK_STAGE_LIMIT_S = measuring.QUICK_STAGE_LIMIT_S = 1.5
    measuring.RACE_GRACE_S = 1.5
    stage, _, fault = os.environ.get("PLANT", "").partition(":")
    if stage:
        (module,) = (one for one in (stages, decide, measuring, racing) if stage in one.__dict__)
        setattr(module, stage, globals()[fault])


class Missing:
    """A finder for which one module, and what is in it, cannot be imported."""

    def find_spec(self, name: str, *_: object) -> None:
        if (name + ".").startswith(os.environ["PLANT_IMPORT"] + "."):
            raise ImportError(f"planted: {name}")


if sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2].startswith("autolaunch"):
    if "PLANT_IMPORT" in os.environ:
        sys.meta_path.insert(0, Missing())
    else:
        plant()
