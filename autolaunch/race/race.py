"""Runs a field of candidates in real engines and times the healthy ones in turns: the order of a race.

Engines start in waves, as many at once as memory and cores allow (`race.company`), on a CPU one after
another; who is not worth a start any more is dropped before (`race.waiting`).  Each is warmed up and gated as
soon as it is ready (`race.loading`); when nothing of the wave loads any more, one window of each is timed
(`race.screen`), and at the end those that may win take turns (`race.final`).  A candidate that ends early
keeps its stage and reason; the budget and the first Ctrl-C end the race with what there is.  When it returns
no engine is left, and what the GPUs held is free again, or said not to be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autolaunch.candidates.candidate import ORIGINAL_ID, Candidate
from autolaunch.candidates.generate import Field
from autolaunch.race.crowding import Crowding
from autolaunch.race.final import Final
from autolaunch.race.gpu_memory import Footprint, Ledger
from autolaunch.race.journal import Journal
from autolaunch.race.judge import Judge
from autolaunch.race.loading import Loader, OpenEngine
from autolaunch.race.outcomes import RaceInterrupted
from autolaunch.race.pace import BudgetEnded, Pace
from autolaunch.race.progress import Progress
from autolaunch.race.result import MIN_ROUNDS, Ended, RaceResult
from autolaunch.race.screen import Screen
from autolaunch.race.setting import RaceSetting
from autolaunch.race.step_limits import Limits
from autolaunch.race.stopwatch import MAX_FINALISTS, Stopwatch
from autolaunch.race.trials import Trials
from autolaunch.race.waiting import Waiting
from autolaunch.race.warming import Warming
from autolaunch.race.workload import Workload
from autolaunch.race.yardstick import WallYardstick


class Race:
    """One race; `run` is called once."""

    def __init__(
        self,
        field: Field,
        open_engine: OpenEngine,
        setting: RaceSetting,
        *,
        journal: Journal,
        progress: Progress,
        interrupted: Callable[[], bool],
    ) -> None:
        """A race of `field`; `interrupted` says whether somebody wants it to end with what there is."""
        self._field = field
        self._workload = setting.workload
        self._company = setting.company
        self._journal = journal
        self._progress = progress
        self._ledger = Ledger(setting.gpu_memory, journal, progress)
        self._kv = setting.kv
        self._footprints: dict[str, Footprint] = {}
        pace = self._pace = Pace(setting.budget_s, interrupted, progress, setting.clock, setting.sleep)
        trials = self._trials = Trials(field.dropped, journal, progress, setting.acceptances)
        self._yardstick = setting.yardstick or WallYardstick(setting.workload)
        limits = Limits()
        self._warming = Warming(trials, pace, self._yardstick, limits)
        self._judge = Judge(
            trials,
            pace,
            self._yardstick,
            limits,
            whole=setting.whole,
            tokens=setting.gate_tokens,
            precision=setting.truth_precision,
        )
        self._crowding = Crowding(trials)
        self._loader = Loader(
            trials,
            pace,
            self._warming,
            self._judge,
            self._crowding,
            open_engine,
            open_truth=setting.open_truth,
        )
        stopwatch = Stopwatch(trials, pace, self._yardstick)
        self._waiting = Waiting(
            field.candidates, trials, pace, stopwatch, setting.memory_available, self._crowding.retried
        )
        self._screen = Screen(trials, pace, stopwatch, setting.objective)
        self._final = Final(trials, pace, self._judge, stopwatch, setting.objective)

    def run(self) -> RaceResult:
        """Race the field; no engine is left when this returns or raises."""
        self._pace.begin()
        ended: Ended = "done"
        try:
            self._ledger.begin()
            self._journal.write("company", **self._company.to_json())
            self._go()
        except RaceInterrupted:
            ended = "interrupted"
            self._progress.say("interrupted: going on with the best so far")
        except BudgetEnded:
            ended = "budget"
        finally:
            self._trials.close_all()
            self._progress.done()
        self._trials.sort_out(self._field.candidates, ended)
        self._ledger.end()
        result = RaceResult(
            trials=tuple(self._trials),
            dropped=tuple(self._trials.dropped),
            ended=ended,
            race_s=self._pace.spent_s,
            workload=self._workload if self._workload != Workload() else None,
            total_layers=self._yardstick.total_layers,
        )
        self._journal.write("race-ended", how=ended, race_s=result.race_s)
        return result

    def _go(self) -> None:
        """All of it, in order."""
        while self._waiting:
            self._run_wave(self._next_wave())
        self._judge.settle()
        if self._company.in_turn:
            return
        self._screen.shorten()
        self._final.play()
        twice = self._final.to_start_again(self._company.at_once)
        if twice:
            self._trials.close_all([candidate.id for candidate in twice])
            self._ledger.between(len(self._trials.engines))
            # The loader counts starts from 1, `boot_of_round` and the final from 0: both mean the second.
            self._loader.load(twice, self._company, start=2)
            self._final.play(start=1, most=MIN_ROUNDS)
        for name in self._trials.standing:
            self._judge.look_at_structure(name)

    # Waves --------------------------------------------------------------------------------------

    def _run_wave(self, wave: list[Candidate]) -> None:
        """Load some engines at once, and time each once when all are there."""
        if not wave:
            return
        with self._waiting.weighing(len(wave)):
            self._loader.load(wave, self._company)
        self._ledger.loaded(len(self._trials.engines))
        self._note_kv_tokens()
        crowded = [candidate.id for candidate in self._crowding.crowded]
        if crowded:
            smaller = max(1, self._company.at_once // 2)
            self._company = replace(self._company, at_once=smaller, truth_slots=0)
        if ORIGINAL_ID in crowded:
            self._begin_anew(wave)
            return
        # Who warmed up slowly comes last, and takes no time that others need.
        names = sorted((candidate.id for candidate in wave), key=self._warming.quickness)
        self._screen.time(names)
        if self._company.in_turn:
            for candidate in wave:
                self._take_turns(candidate)
        self._waiting.put_last(self._crowding.crowded)

    def _note_kv_tokens(self) -> None:
        """Enter how many tokens the caches of each server would hold, by what its engine took beside them."""
        if self._kv is None:
            return
        new = {name: one for name, one in self._trials.engines.items() if name not in self._footprints}
        self._footprints |= self._ledger.footprints(new)
        original = self._footprints.get(ORIGINAL_ID)
        if original is None:
            return
        for name in new:
            self._trials.update(name, kv_tokens=self._kv.tokens_of(self._footprints[name], original))

    def _take_turns(self, candidate: Candidate) -> None:
        """All rounds of one candidate, on two starts where it draws tactics: there is no room for a final.

        The original has enough rounds for both starts of others.
        """
        name = candidate.id
        if name not in self._trials.standing:
            return
        twice = self._trials[name].boots_wanted > 1
        lone = name == ORIGINAL_ID and not twice
        self._final.take_turn(name, MIN_ROUNDS * (2 if lone else 1))
        trial = self._trials[name]
        startup_s = trial.ready.startup_s if trial.ready else 0.0
        if twice and trial.failure is None and self._final.allows([name], startup_s):
            self._ledger.between(len(self._trials.engines))
            self._loader.load([candidate], self._company, start=2)
            self._final.take_turn(name, start=1)

    def _begin_anew(self, wave: list[Candidate]) -> None:
        """Without the original nothing can be decided: it gets another try, with nothing beside it."""
        self._company = replace(self._company, at_once=1)
        for candidate in wave:
            self._trials.set_back(candidate.id)
        self._judge.reference = None
        self._footprints.clear()
        self._waiting.put_back(wave)

    def _next_wave(self) -> list[Candidate]:
        """The next candidates that are to be tried, as many as there is room for."""
        self._waiting.skip()  # before room is made, which ends engines and waits for their memory
        return self._waiting.take(self._room()) if self._waiting else []

    def _room(self) -> int:
        """How many engines may start now; ends some of those that are up where there is none."""
        company = self._company
        first = not self._trials.engines and self._trials.original is None
        size = company.at_once - (company.truth_slots if first else 0)
        if company.together is None:
            return max(1, size)
        kept = min(MAX_FINALISTS, company.together - 2)
        if self._waiting.next_is_retried:
            kept = min(kept, 1)
        if len(self._trials.engines) - 1 > kept:
            self._screen.make_room(kept)
        up = len(self._trials.engines)
        self._ledger.between(up)
        return max(1, min(size, company.together - up))
