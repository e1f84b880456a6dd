"""Starts the engines of a wave at once and sees each one through warm-up and gate while others still load.

Each warms up as soon as it answers, beside all that others do, for the first use of a shape may compile for
minutes; gates are one at a time.  One that warmed up alone kept five others waiting for 25 s, was cut for
that, and compiled the same again in the next race (H200, sglang 0.5.17, 2026-12-01).

Where each of them stands is in `race.wave`, how long it is waited for in `race.patience`, and what becomes of
one that ran out of memory in company in `race.crowding`.  Nothing is timed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from autolaunch.candidates.candidate import ORIGINAL_ID, Candidate, Dropped
from autolaunch.race.company import Company
from autolaunch.race.crowding import BY_COMPANY, Crowding
from autolaunch.race.engine import Engine, Tick
from autolaunch.race.judge import Judge
from autolaunch.race.outcomes import EngineFailed, EngineReady, Failure
from autolaunch.race.pace import BudgetEnded, Pace
from autolaunch.race.patience import Patience
from autolaunch.race.result import decodes_in_graphs
from autolaunch.race.tactics import again, drawing_again
from autolaunch.race.trials import Trials
from autolaunch.race.truth import TRUTH_ID, OpenTruth, TruthEngine
from autolaunch.race.warming import Warming
from autolaunch.race.wave import Wave
from autolaunch.units import format_duration

OpenEngine = Callable[[Candidate, Tick], Engine]
"""Makes the engine of a candidate, not yet started; the callback is its `on_tick`."""


class Loader:
    """Brings engines up, one wave a call."""

    def __init__(
        self,
        trials: Trials,
        pace: Pace,
        warming: Warming,
        judge: Judge,
        crowding: Crowding,
        open_engine: OpenEngine,
        *,
        open_truth: OpenTruth | None = None,
    ) -> None:
        self._trials, self._pace, self._warming, self._judge = trials, pace, warming, judge
        self._crowding = crowding
        self._open_engine = open_engine
        self._truth = TruthEngine(trials, pace, judge, open_truth)
        self._patience = Patience(trials, pace, warming)
        self._wave = Wave()

    def load(self, candidates: Sequence[Candidate], company: Company, start: int = 1) -> None:
        """Start all `candidates` and return when none loads any more; `start` counts starts of each.

        BudgetEnded where the time is up before there is anything to compare.
        """
        shared = company.shared and len(candidates) + len(self._trials.engines) > 1
        wave = self._wave = Wave(start, shared=shared)
        self._patience.begin(wave)
        self._crowding.begin()
        for candidate in candidates:
            self._begin(candidate)
        # Last, for nothing is looked at while its weights are made.
        if start == 1 and self._truth.begin():
            wave.loading[TRUTH_ID] = self._pace.clock()
        try:
            while not wave.is_over:
                moved = self._poll()
                self._end_late_ones()  # right after the look, and before work, which takes long
                moved = self._work() or moved
                if not moved:
                    self._pace.pause()
        finally:
            self._truth.end()

    # Starting -----------------------------------------------------------------------------------

    def _begin(self, candidate: Candidate) -> None:
        """Start the engine of one candidate."""
        name, started = candidate.id, candidate
        if self._wave.start > 1 and (ready := self._trials[name].ready) is not None:
            started = drawing_again(candidate, ready.resolved, self._wave.start)
        elif name in self._crowding.retried:
            started = again(candidate, 2)
        self._trials.journal.write(
            "start", id=name, flags=started.flags, env=dict(started.env), start=self._wave.start
        )
        self._pace.tick()
        self._trials.begin(candidate, self._open_engine(started, self._pace.tick))
        try:
            self._trials.engines[name].start()
        except OSError as error:
            self._trials.fail(name, Failure("start", "environment", f"could not be started: {error}"))
            return
        self._wave.loading[name] = self._pace.clock()

    # Waiting ------------------------------------------------------------------------------------

    def _poll(self) -> bool:
        """Look at everything that loads or warms up; whether anything got further, or failed."""
        names = list(self._wave.loading)
        self._pace.doing = self._words(names or self._wave.warming)
        moved = [name for name in names if self._is_past(name, self._loads)]
        moved += [name for name in list(self._wave.warming) if self._is_past(name, self._warms_up)]
        return bool(moved)

    def _is_past(self, name: str, stays: Callable[[str], bool]) -> bool:
        """Whether an engine is not where it was any more, for it `stays` no longer or has failed."""
        try:
            return not stays(name)
        except EngineFailed as error:
            self._failed(name, error.failure)
            return True

    def _loads(self, name: str) -> bool:
        """Whether an engine does not answer yet."""
        ready = self._trials.engines[name].poll_ready()
        if ready is not None:
            self._ready(name, ready)
        return ready is None

    def _warms_up(self, name: str) -> bool:
        """Whether an engine is not warm yet."""
        if not self._warming.is_over(name, self._patience.spare_s):
            return True
        self._wave.warming.remove(name)
        self._wave.warm.append(name)
        return False

    def _words(self, names: Sequence[str]) -> str:
        """What loads, or else warms up, for the live line."""
        one, many = ("starts", "start") if self._wave.loading else ("warms up", "warm up")
        if len(names) == 1 and names[0] in self._trials:
            return f"{names[0]} {one}: {self._trials[names[0]].candidate.label}"
        return f"{len(names)} engines {many}: {', '.join(names)}"

    def _ready(self, name: str, ready: EngineReady) -> None:
        """An engine answers."""
        del self._wave.loading[name]
        self._trials.journal.write("ready", id=name, **ready.to_json())
        if name == TRUTH_ID:
            self._truth.ready()
            return
        self._patience.note_startup(ready.startup_s)
        if self._wave.start == 1:
            self._trials.update(name, ready=ready)
        self._wave.cold.insert(0 if name == ORIGINAL_ID else len(self._wave.cold), name)

    def _end_late_ones(self) -> None:
        """End what takes longer than it may; BudgetEnded where nothing is left to compare."""
        late = self._patience.late()
        for name in late:
            self._trials.engines[name].let_go()
        for name, reason in late.items():
            self._end_late_one(name, reason)
        if late and (not self._trials.standing or (ORIGINAL_ID in late and self._wave.start == 1)):
            raise BudgetEnded  # without `c0` there is nothing to compare with
        for name in self._patience.too_slow():
            waited = format_duration(self._patience.start_limit_s)
            self._failed(name, self._trials.engines[name].hangs(f"was not ready within {waited}").failure)

    def _end_late_one(self, name: str, reason: str) -> None:
        """Do not wait for one engine any longer, which is not to blame."""
        self._wave.remove(name)
        if name == TRUTH_ID:
            self._truth.lose("was not ready in time")
        elif self._wave.start > 1:
            self._trials.rest([name], reason)
        else:
            self._trials.forget(name, Dropped(self._trials[name].candidate.label, "start", reason))

    # Working ------------------------------------------------------------------------------------

    def _work(self) -> bool:
        """Do one thing with an engine that is ready; whether there was anything to do.

        What others wait for comes first: warm-ups, which take no time here, the gate's reference, the verdict
        on `c0`, then gates.
        """
        begun = [name for name in list(self._wave.cold) if self._may_warm_up(name)]
        for name in begun:
            self._wave.cold.remove(name)
            self._try(name, partial(self._begin_warm_up, name))
        if self._truth.is_due:
            self._truth.ask()
            return True
        if self._wave.original_due and not self._truth.comes:
            self._wave.original_due = False
            self._try(ORIGINAL_ID, self._judge.judge_original)
            return True
        admitted = next((one for one in self._wave.warm if self._can_admit(one)), None)
        if admitted is not None:
            self._wave.warm.remove(admitted)
            self._try(admitted, partial(self._admit_one, admitted))
        return bool(begun) or admitted is not None

    def _may_warm_up(self, name: str) -> bool:
        """Whether nobody who matters more is disturbed: one without graphs waits where `c0` has them, or may.

        Two of those were ready 47 s before `c0`, and warmed up in 32 and 52 s; it took 0.9 s (H200, sglang
        0.5.17, 2026-12-01).
        """
        if name == ORIGINAL_ID or decodes_in_graphs(self._trials[name].ready) is not False:
            return True
        if set(self._wave.loading) <= {TRUTH_ID} and not self._wave.warming:
            return True
        original = self._trials.original
        ready = original.ready if original is not None else None
        return ready is not None and not decodes_in_graphs(ready)

    def _can_admit(self, name: str) -> bool:
        """Whether what `name` is to be compared with is there, or will not come."""
        if self._judge.reference is None:
            return name == ORIGINAL_ID or ORIGINAL_ID not in self._wave.names
        return not self._truth.comes and not self._wave.original_due

    def _is_twin(self, name: str) -> bool:
        """Drop an engine that runs what the original runs; whether it was one."""
        twin = self._trials.twin_of_original(self._trials[name].candidate)
        if twin is not None:
            self._trials.forget(name, twin)
        return twin is not None

    def _begin_warm_up(self, name: str) -> None:
        """Begin to warm one engine up, unless it need not be tried."""
        if not self._is_twin(name) and self._warming.begin(name):
            self._wave.warming.append(name)

    def _admit_one(self, name: str) -> None:
        """Gate one engine, which may make it the reference."""
        if self._is_twin(name):
            return
        had_reference = self._judge.reference is not None
        self._judge.admit(name, self._patience.spare_s)
        if name == ORIGINAL_ID and not had_reference and self._judge.reference is not None:
            self._wave.original_due = True

    def _try(self, name: str, step: Callable[[], None]) -> None:
        """Do `step`; an engine that fails in it is out."""
        try:
            step()
        except EngineFailed as error:
            self._failed(name, error.failure)

    def _failed(self, name: str, failure: Failure) -> None:
        """An engine failed, by its own fault or by its company."""
        self._wave.remove(name)
        if name == TRUTH_ID:
            self._truth.fail(failure)
            return
        if failure.kind in BY_COMPANY:
            self._crowding.failed(name, failure, self._wave)
        else:
            self._trials.fail(name, failure)
