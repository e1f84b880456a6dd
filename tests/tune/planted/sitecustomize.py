"""Loaded by the Python of `autolaunch tune` in a test: scripts the race, by the words of `PLANT_RACE`.

wins         the first challenger is twice as fast, the second crashes
fails        every candidate crashes
late         the budget ends before anything is measured
interrupted  Ctrl-C ends it with two candidates measured; `nothing` with none
raises, hangs, segfaults   a fault of autolaunch's own
waits        a minute, unless Ctrl-C comes; then as `interrupted`
"""

import ctypes
import os
import sys
import time
from typing import Any


def race(
    invocation: Any, understood: Any, plan: Any, progress: Any, census_fd: Any, interrupted: Any, *_: Any
) -> Any:
    """A race that ends as it is told."""
    from autolaunch.race.outcomes import EngineReady, Failure, GateReport, Window
    from autolaunch.race.result import RaceResult, Trial

    field = plan.field
    how = os.environ["PLANT_RACE"]
    crash = Failure("load", "crash", "the kernels are not for this machine", log_tail=("ValueError: no",))

    def timed(candidate: Any, wall_s: float, gate: Any) -> Any:
        windows = tuple(Window(4, 4, 256, 96, wall_s + n / 1000) for n in range(6))
        resolved = {"attention_backend": "torch_native", "version": "0.0.fake"}
        return Trial(candidate, EngineReady(3.5, resolved), gate, windows[0], windows)

    def failed(candidate: Any) -> Any:
        return Trial(candidate, failure=crash)

    if how == "raises":
        raise RuntimeError("planted")
    if how == "hangs":
        time.sleep(600)
    if how == "segfaults":
        ctypes.string_at(0)
    if how == "waits":
        progress.say("waiting")
        until = time.monotonic() + 60
        while not interrupted() and time.monotonic() < until:
            time.sleep(0.02)
        how = "interrupted" if interrupted() else "late"
    first, *others = field.candidates
    if how == "fails":
        return RaceResult(tuple(map(failed, field.candidates)), field.dropped, "done", 1.0)
    if how in ("late", "nothing"):
        ended = "budget" if how == "late" else "interrupted"
        return RaceResult((), field.dropped, ended, 1.0)
    gate = GateReport(True, "log-probabilities agree within 0.020 on average", mean_abs_logprob_delta=0.02)
    trials = [timed(first, 2.0, None), timed(others[0], 1.0, gate), *map(failed, others[1:2])]
    ended = "interrupted" if how == "interrupted" else "done"
    return RaceResult(tuple(trials), field.dropped, ended, 12.0)


def plant() -> None:
    """Put the script in the place of the race."""
    from autolaunch.tune import measuring, racing

    racing.race = race
    measuring.RACE_GRACE_S = 1.5


if sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2].startswith("autolaunch"):
    plant()
