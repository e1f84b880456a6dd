"""Times every engine that passed the gate once, and says which of them go on.

Who is plainly slower is out after a second look; who runs the same kernels as another is merged into it; of
many only the best stay.  No window is open while anything loads.
"""

from __future__ import annotations

from collections.abc import Sequence

from autolaunch.candidates.candidate import ORIGINAL_ID, Dropped
from autolaunch.race.failures import read_log
from autolaunch.race.kernels import same_kernels
from autolaunch.race.objective import Objective
from autolaunch.race.outcomes import EngineFailed, Failure, Window
from autolaunch.race.pace import Pace
from autolaunch.race.result import Trial
from autolaunch.race.stopwatch import MAX_FINALISTS, Stopwatch
from autolaunch.race.tactics import draws_tactics
from autolaunch.race.trials import Trials
from autolaunch.units import format_duration

SCREEN_SHARE = 0.7
"""Below this share of `c0`'s first window a challenger is out of the final; noise stays above it."""
TRACED_SCREEN_SHARE = 0.9
"""The same for GPU times, of which two windows of one engine differ by 0.5 % (H200, sglang 0.5.17)."""
STARTS_WANTED = 2
"""Of engines that draw the tactics of their kernels."""
SCREEN_SEED, SECOND_LOOK_SEED = 1, 3


class Screen:
    """The first windows of one race."""

    def __init__(self, trials: Trials, pace: Pace, stopwatch: Stopwatch, objective: Objective) -> None:
        self._trials, self._pace = trials, pace
        self._stopwatch, self._objective = stopwatch, objective

    def time(self, names: Sequence[str]) -> None:
        """Time one window of each, a second where it was poor; the last only where the final has time."""
        for name in names:
            if name not in self._trials.engines or self._is_too_late(name):
                continue
            self._pace.doing = f"{name} is timed once: {self._trials[name].candidate.label}"
            try:
                self._screen_one(name)
            except EngineFailed as error:
                self._trials.fail(name, error.failure)

    def _is_too_late(self, name: str) -> bool:
        """Drop a challenger whose window would cost the others their final."""
        timed = [one for one in self._trials.standing if self._trials[one].screen is not None]
        left_s, needed_s = self._pace.left_s, self._stopwatch.final_s
        if len(timed) < 2 or ORIGINAL_ID not in timed or left_s >= needed_s:
            return False
        left, needed = format_duration(left_s), format_duration(needed_s)
        reason = f"{left} of the budget were left and about {needed} needed for the final"
        self._trials.forget(name, Dropped(self._trials[name].candidate.label, "serve", reason))
        return True

    def _screen_one(self, name: str) -> None:
        """One window, and what follows from it alone."""
        engine = self._trials.engines[name]
        self._stopwatch.calibrate(name)
        window = self._stopwatch.window(name, SCREEN_SEED)
        trial = self._trials.update(name, screen=window)
        startup_s = trial.ready.startup_s if trial.ready else 0.0
        text = f"{name} {self._shown(window)}, up in {format_duration(startup_s)}"
        twin = self._twin(trial)
        if twin is not None:
            self._trials.merge(name, twin, "its windows ran the same kernels")
            return
        share = self._share_of_original(trial)
        if share >= self._least_share:
            self._trials.progress.say(f"{text}: {trial.candidate.label}")
            self._note_tactics(trial)
            reuse = self._stopwatch.yardstick.reuse(engine, limit_s=self._stopwatch.limit_s)
            self._trials.update(name, reuse=reuse)
            return
        self._trials.progress.say(f"{text}, {share:.2f} × {ORIGINAL_ID}, out: {trial.candidate.label}")
        reason = f"{share:.2f} times the original's {self._objective.name} in the better of two windows"
        self._trials.fail(name, Failure(stage="serve", kind="slow", reason=reason), quiet=True)

    @property
    def _least_share(self) -> float:
        """What a challenger needs of the original's first window to go on."""
        return SCREEN_SHARE if self._stopwatch.yardstick.noise else TRACED_SCREEN_SHARE

    def _shown(self, window: Window) -> str:
        """The value of a window, as a person reads it."""
        value = self._objective.value(window)
        return f"{value:.0f} tok/s" if self._objective.higher_is_better else f"{value:.0f} ms"

    def _share_of_original(self, trial: Trial) -> float:
        """How good a challenger is beside the original, 1 for as good; a poor one gets a second look.

        A neighbour on the machine can halve any single window.
        """
        original = self._trials.original
        if trial.candidate.id == ORIGINAL_ID or original is None or original.screen is None:
            return 1.0
        if trial.screen is None or (trial.drafts and trial.screen.gpu is not None):
            return 1.0  # one traced step says nothing of how many tokens drafts make of it
        share = self._cost(original.screen, trial.screen) / self._cost(trial.screen, original.screen)
        if share >= self._least_share or ORIGINAL_ID not in self._trials.engines:
            return share
        theirs = self._stopwatch.window(ORIGINAL_ID, SECOND_LOOK_SEED)
        mine = self._stopwatch.window(trial.candidate.id, SECOND_LOOK_SEED)
        return max(share, self._cost(theirs, mine) / self._cost(mine, theirs))

    def _cost(self, window: Window, beside: Window) -> float:
        """The cost of a window, made of what both windows have."""
        return self._objective.cost(window, self._objective.basis((window, beside)))

    def _twin(self, trial: Trial) -> str | None:
        """Id of a candidate timed before whose window ran the same kernels; the user's own have none."""
        if trial.candidate.origin == "user" or trial.drafts or trial.screen is None:
            return None
        mine = trial.screen.gpu
        for other in self._trials:
            if other.candidate.id == trial.candidate.id:
                continue
            theirs = other.screen.gpu if other.screen is not None else None
            if mine is None or theirs is None or other.failure or other.merged_into or other.drafts:
                continue
            if same_kernels(mine, theirs):
                return other.candidate.id
        return None

    def _note_tactics(self, trial: Trial) -> None:
        """Remember who must win on two starts."""
        engine = self._trials.engines[trial.candidate.id]
        resolved = trial.ready.resolved if trial.ready else {}
        row = draws_tactics(trial.candidate, resolved, read_log(engine.log))
        if row is not None:
            self._trials.update(trial.candidate.id, boots_wanted=STARTS_WANTED)
            self._trials.journal.write("tactics", id=trial.candidate.id, rule=row)

    # Who stays ----------------------------------------------------------------------------------

    def shorten(self, most: int = MAX_FINALISTS) -> None:
        """End those that are behind the best `most` challengers, as far as one window tells them apart."""
        ranked = sorted(self._timed(), key=lambda pair: pair[1])
        if len(ranked) <= most:
            return
        bound = ranked[most - 1][1] * (1 + self._stopwatch.yardstick.noise)
        behind = [name for name, cost in ranked[most:] if cost > bound or not self._stopwatch.yardstick.noise]
        self._trials.rest(behind, f"{most} others were better in the first window")

    def make_room(self, most: int) -> None:
        """End challengers until at most `most` are up, the best staying."""
        ranked = sorted(self._timed(), key=lambda pair: pair[1])
        behind = [name for name, _ in ranked[max(0, most) :]]
        self._trials.rest(behind, f"there is room for {most} beside the next, and others were better")

    def _timed(self) -> list[tuple[str, float]]:
        """Challengers that are up and screened, with the cost of their windows."""
        found = []
        for name in self._trials.standing:
            trial = self._trials[name]
            if name != ORIGINAL_ID and trial.screen is not None:
                worth = trial.acceptance.tokens_per_step if trial.acceptance else None
                cost = self._objective.cost(trial.screen, tokens_per_step=worth or 1.0)
                found.append((name, cost))
        return found
