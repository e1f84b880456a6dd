"""Rounds in turns for those that may win, each of them first in its share; meanwhile nothing loads.

Where kernels draw their tactics at start, finalists start twice.
"""

from __future__ import annotations

from statistics import fmean

from autolaunch.candidates.candidate import ORIGINAL_ID, Candidate
from autolaunch.race.judge import Judge
from autolaunch.race.objective import Objective
from autolaunch.race.outcomes import EngineFailed
from autolaunch.race.pace import Pace
from autolaunch.race.result import MIN_ROUNDS
from autolaunch.race.stopwatch import Stopwatch
from autolaunch.race.trials import Trials
from autolaunch.units import format_duration

MAX_ROUNDS = 8
"""Rounds of the final, where the budget allows."""
TRACED_ROUNDS = 5
"""Rounds of GPU times: those of one engine differed by 0.5 % (H200, sglang 0.5.17, 2026-12-01)."""
FINAL_SEED = 10


class Final:
    """The last part of one race."""

    def __init__(
        self, trials: Trials, pace: Pace, judge: Judge, stopwatch: Stopwatch, objective: Objective
    ) -> None:
        self._trials, self._pace, self._judge = trials, pace, judge
        self._stopwatch, self._objective = stopwatch, objective

    def play(self, start: int = 0, most: int | None = None) -> None:
        """Let the engines that are up take turns, each first in its share of the rounds."""
        most = most or (MAX_ROUNDS if self._stopwatch.yardstick.noise else TRACED_ROUNDS)
        for number in range(most):
            finalists = self._trials.standing
            if len(finalists) < 2 or ORIGINAL_ID not in finalists:
                return
            if number >= MIN_ROUNDS and self._pace.left_s < self._stopwatch.final_s / MIN_ROUNDS:
                break
            turn = number % len(finalists)
            for name in finalists[turn:] + finalists[:turn]:
                self._pace.doing = f"final, round {number + 1} of {most}: {name}"
                self._round(name, start)
        self.check_again()

    def take_turn(self, name: str, rounds: int = MIN_ROUNDS, start: int = 0) -> None:
        """Rounds of one candidate while it is up, where no two fit beside each other; then it is ended."""
        if name not in self._trials.standing:
            return
        for number in range(rounds):
            self._pace.doing = f"{name}, round {number + 1} of {rounds}"
            self._round(name, start)
        self.check_again()
        if name in self._trials.engines:
            self._trials.rest([name], "its rounds are taken, and the next start needs the memory")

    def _round(self, name: str, start: int) -> None:
        """One window of the final."""
        trial = self._trials[name]
        if name not in self._trials.engines:
            return
        seed = FINAL_SEED + len(trial.rounds)
        try:
            window = self._stopwatch.window(name, seed)
        except EngineFailed as error:
            self._trials.fail(name, error.failure)
            return
        # Who did not start again has its rounds on the first start, whatever the others are on.
        mine = start if start and trial.boots_wanted > start else 0
        self._trials.update(name, rounds=(*trial.rounds, window), boot_of_round=(*trial.boot_of_round, mine))

    def check_again(self) -> None:
        """What went wrong only under load shows now, in the engine that was timed."""
        for name in self._trials.standing:
            if self._trials[name].rounds == ():
                continue
            self._pace.doing = f"{name} is checked again"
            try:
                if name != ORIGINAL_ID:
                    self._judge.check(name)
                if name in self._trials.engines:
                    self._judge.check_window(name)
            except EngineFailed as error:
                self._trials.fail(name, error.failure)

    def to_start_again(self, at_once: int) -> list[Candidate]:
        """Finalists that a second start is due for, of which `at_once` load at the same time."""
        leads = self._leads()
        due = [name for name in (ORIGINAL_ID, *leads) if leads and self._is_due(name)]
        startups = [ready.startup_s for name in due if (ready := self._trials[name].ready)]
        once_s = max(startups, default=0.0) if at_once >= len(due) else sum(startups)
        return [self._trials[name].candidate for name in due] if self.allows(due, once_s) else []

    def allows(self, due: list[str], starts_s: float) -> bool:
        """Whether there is time for another start of those that are `due`; says so where there is not."""
        needed_s = starts_s + self._stopwatch.final_s
        if not due or needed_s <= self._pace.left_s:
            return bool(due)
        self._trials.progress.say(
            f"{', '.join(due)} draw tactics at start and should start twice: about "
            f"{format_duration(needed_s)} are needed and {format_duration(self._pace.left_s)} left"
        )
        self._trials.journal.write("one-start", ids=due, needed_s=needed_s)
        return False

    def _is_due(self, name: str) -> bool:
        """Whether what an engine drew at its start still has to be seen once more."""
        trial = self._trials[name]
        return name in self._trials.standing and trial.boots_wanted > trial.boots

    def _leads(self) -> list[str]:
        """Challengers that cost less than the original so far; others need no second start."""
        original = self._trials.original
        if original is None or not original.rounds:
            return []
        found = []
        for name in self._trials.standing:
            trial = self._trials[name]
            if name == ORIGINAL_ID or not trial.rounds:
                continue
            worth = trial.acceptance.tokens_per_step if trial.acceptance else None
            basis = self._objective.basis((*trial.rounds, *original.rounds))
            mine = [self._objective.cost(one, basis, tokens_per_step=worth or 1.0) for one in trial.rounds]
            if fmean(mine) < fmean(self._objective.cost(one, basis) for one in original.rounds):
                found.append(name)
        return found
