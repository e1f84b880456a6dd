"""Runs candidates on the whole model, in engines of their own, for `measure-race`.

Nothing here chooses anything: what it measures is what a choice is judged by.  Engines load together, as
many as fit; while one is timed the others are idle.  Each batch of engines is started once and timed for
every workload in turn, three windows of each candidate, the candidates taking turns.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from race_case import ALONE, WINDOWS, Row, belies, exhaustive_s, is_slow, lacks, median, never_started, row_of

from autolaunch.candidates.candidate import ORIGINAL_ID, Candidate
from autolaunch.invocation import Invocation, Understood
from autolaunch.race import gate, measure, warm_up_windows
from autolaunch.race.crowding import BY_COMPANY
from autolaunch.race.engine import Engine
from autolaunch.race.objective import Objective
from autolaunch.race.outcomes import EngineFailed, Failure, RaceInterrupted
from autolaunch.race.overlay import trial_overlay
from autolaunch.race.ports import Ports
from autolaunch.race.workload import Workload

ASK_LIMIT_S = 240.0
"""One request; the first use of a shape may compile for minutes."""
SLOW_LIMIT_S = 40.0
"""A window of a candidate that was plainly slow in the race."""
MOST_ROUNDS = 16
GRAPHS = "--cuda-graph-max-bs"
"""No larger batch comes, and graphs of larger ones take most of a start."""

Save = Callable[[], None]
Say = Callable[[str], None]


@dataclass(slots=True)
class Job:
    """One workload: its case, and what is sent."""

    case: Row
    workload: Workload
    objective: Objective

    def row(self, candidate: Candidate) -> Row:
        """The row of `candidate`; empty where it is none of this case."""
        return row_of(self.case, candidate) or {}

    def lacks(self, candidate: Candidate) -> bool:
        """Whether the candidate has still to be timed for this workload."""
        row = self.row(candidate)
        return bool(row) and lacks(row)


@dataclass(slots=True)
class Whole:
    """How whole models are run, and until when."""

    invocation: Invocation
    understood: Understood
    jobs: Sequence[Job]
    logs: Path
    environ: Mapping[str, str]
    deadline: float
    """On the clock of `time.monotonic`; nothing is begun after it, and what runs is ended."""
    max_total_tokens: int
    start_limit_s: float = 300.0
    window_s: float = 3.0
    """How long a window shall last on the first engine, which settles that for all."""
    slow_limit_s: float = SLOW_LIMIT_S
    overlay: tuple[str, ...] = ()
    """Tokens after the trial overlay."""
    texts: bool = True
    """Whether what the model writes means something; random weights write noise."""
    gated: bool = True
    say: Say = print
    save: Save = lambda: None
    settle: Callable[[], None] = lambda: None
    """Waits until the memory of ended engines is free."""
    reference: gate.Reference | None = None
    least_s: float = 45.0
    """What a batch needs at least; less is not begun."""
    ports: Ports = field(default_factory=Ports)

    def tick(self) -> None:
        """Leave whatever is being waited for when the time is up."""
        if time.monotonic() >= self.deadline:
            raise RaceInterrupted

    def engine(self, candidate: Candidate, *, company: bool) -> Engine:
        """The engine of `candidate`, as it would be served, plus the trial overlay."""
        pins, catalogue = self.understood.request.pins, self.understood.catalogue
        most = max(job.workload.concurrency for job in self.jobs)
        overlay = trial_overlay(
            pins,
            catalogue,
            port=self.ports.next(),
            nccl_port=self.ports.next(),
            max_total_tokens=self.max_total_tokens,
            company=company,
            max_states=max(64, 4 * most),
        )
        graphs = catalogue.resolve(GRAPHS)
        if graphs is not None and GRAPHS in graphs.names and graphs.dest not in pins:
            overlay = (*overlay, GRAPHS, str(most))
        return Engine(
            self.invocation.original.with_candidate(candidate),
            (*overlay, *self.overlay),
            log=self.logs / f"{candidate.id}.log",
            environ=self.environ,
            cwd=self.invocation.cwd,
            on_tick=self.tick,
            company=company,
            sglang=self.invocation.interpreter.version,
        )


def measure_all(whole: Whole, batches: Sequence[Sequence[Candidate]]) -> bool:
    """Take every candidate's missing windows, batch by batch; whether nothing is left to do."""
    alone: list[Candidate] = []
    try:
        for batch in batches:
            alone += _Batch(whole, batch, name_of(batch)).run()
        for candidate in alone:
            whole.say(f"{candidate.id} once more, alone")
            _Batch(whole, [candidate], f"{candidate.id}{ALONE}").run()
    except RaceInterrupted:
        whole.say("the time is up; the next run goes on from here")
    finally:
        for job in whole.jobs:
            job.case["exhaustive_s"] = exhaustive_s(job.case, [name_of(batch) for batch in batches])
        whole.save()
    return not any(lacks(row) for job in whole.jobs for row in job.case["candidates"])


def plan_batches(
    jobs: Sequence[Job], candidates: Sequence[Candidate], slots: int, *, retry_failed: bool = False
) -> list[list[Candidate]]:
    """Who loads together: the best of the race first, the plainly slow last.

    What failed in the race before it answered is not started: its failure is taken over from there.
    """
    for job in jobs:
        for candidate in candidates:
            if row := job.row(candidate):
                if row["whole"] is None:
                    row["short"] = is_slow(job.case, row)
                if retry_failed and row.get("failure_from") == "race":
                    row.update(failure=None, failure_from=None)
    started = []
    for candidate in candidates:
        rows = [row for job in jobs if (row := job.row(candidate))]
        if rows and all(never_started(row) or row["race"] is None for row in rows):
            failed = [row["race_failure"] for row in rows if never_started(row)]
            if failed and not retry_failed and candidate.id != ORIGINAL_ID:
                for row in rows:
                    if lacks(row):
                        row.update(failure=row["race_failure"] or failed[0], failure_from="race")
                continue
        started.append(candidate)
    started.sort(key=lambda one: _order(jobs, one))
    return [started[at : at + slots] for at in range(0, len(started), slots)]


def _order(jobs: Sequence[Job], candidate: Candidate) -> tuple[float, ...]:
    """Its place: the original, then by the best place in any race, unknown ones after, slow ones last."""
    places = []
    for job in jobs:
        row = job.row(candidate)
        if row and row["race"] is not None:
            sign = -1.0 if job.case["higher_is_better"] else 1.0
            others = [sign * one["race"] for one in job.case["candidates"] if one["race"] is not None]
            places.append(sum(other < sign * row["race"] for other in others))
    rows = [row for job in jobs if (row := job.row(candidate))]
    slow = bool(rows) and all(row.get("short") for row in rows)
    return (candidate.id != ORIGINAL_ID, slow, min(places, default=1 << 20))


def name_of(batch: Sequence[Candidate]) -> str:
    """What the file calls a batch."""
    return " ".join(one.id for one in batch)


class _Batch:
    """Engines that load together."""

    def __init__(self, whole: Whole, planned: Sequence[Candidate], name: str) -> None:
        self.whole, self.name = whole, name
        self.members = [one for one in planned if any(job.lacks(one) for job in whole.jobs)]
        self.company = len(self.members) > 1
        self.engines: dict[str, Engine] = {}
        self.again: list[Candidate] = []

    def run(self) -> list[Candidate]:
        """Start and time them; who failed for want of room, or has more to be timed for, comes back."""
        if not self.members:
            return []
        whole = self.whole
        if whole.deadline - time.monotonic() < whole.least_s:
            raise RaceInterrupted
        whole.say(f"starting {name_of(self.members)}")
        began = time.monotonic()
        try:
            self._load(began)
            load_s = time.monotonic() - began
            self._count("load_s", load_s)
            whole.least_s = max(whole.least_s, 1.2 * load_s)
            began = time.monotonic()
            self._check()
            self._count("check_s", time.monotonic() - began)
            for job in whole.jobs:
                began = time.monotonic()
                try:
                    self._time(job)
                finally:
                    self._count("timed_s", time.monotonic() - began, job)
                    whole.save()
        finally:
            for engine in self.engines.values():
                engine.let_go()
            for engine in self.engines.values():
                engine.close()
            whole.settle()
        return self.again

    def _count(self, what: str, seconds: float, job: Job | None = None) -> None:
        """Add to the time of this batch; what was cut off and is done again counts once."""
        for one in [job] if job is not None else self.whole.jobs:
            run = one.case.setdefault("whole_runs", {}).setdefault(self.name, {})
            before = run.get(what, 0.0)
            run[what] = round(before + seconds if what == "timed_s" else max(before, seconds), 1)

    def _load(self, began: float) -> None:
        for candidate in self.members:
            self.engines[candidate.id] = self.whole.engine(candidate, company=self.company)
            self.engines[candidate.id].start()
        for candidate in self.members:
            try:
                left = max(0.1, began + self.whole.start_limit_s - time.monotonic())
                ready = self.engines[candidate.id].wait_ready(left)
            except EngineFailed as error:
                self._fail(candidate, error.failure)
                continue
            for job in self.whole.jobs:
                if row := job.row(candidate):
                    row["ready_s"] = round(ready.startup_s, 1)
            self.whole.say(f"{candidate.id} up after {ready.startup_s:.0f} s")
        self.whole.save()

    def _fail(self, candidate: Candidate, failure: Failure, during: Job | None = None) -> None:
        """Write a failure down: of every workload, or of the one that was being timed."""
        self.engines.pop(candidate.id).close()
        whole = self.whole
        whole.say(f"{candidate.id} failed: {failure.kind} at {failure.stage}: {failure.reason[:160]}")
        if self.company and failure.kind in BY_COMPANY:
            self.again.append(candidate)
            return
        told: dict[str, Any] = {
            "stage": failure.stage,
            "kind": failure.kind,
            "reason": failure.reason[:500],
        }
        for job in whole.jobs:
            row = job.row(candidate)
            if (
                row
                and lacks(row)
                and (during in (None, job) or (failure.kind == "slow" and row.get("short")))
            ):
                row.update(failure=told, whole=None)
        if self.company and any(job.lacks(candidate) for job in whole.jobs):
            self.again.append(candidate)
        whole.save()

    def _up(self, job: Job) -> list[Candidate]:
        return [one for one in self.members if one.id in self.engines and job.lacks(one)]

    def _check(self) -> None:
        """Take the reference from `c0`, and judge the others by it."""
        whole = self.whole
        if not whole.gated:
            return
        concurrency = max(job.workload.concurrency for job in whole.jobs)
        for candidate in [one for one in self.members if one.id in self.engines]:
            whole.tick()
            rows = [row for job in whole.jobs if (row := job.row(candidate))]
            if all(row.get("short") for row in rows):
                continue
            engine = self.engines[candidate.id]
            try:
                if candidate.id == ORIGINAL_ID:
                    whole.reference = gate.take_reference(
                        engine, concurrency=concurrency, limit_s=ASK_LIMIT_S
                    )
                    found: Row = {"gate": "reference"}
                else:
                    report = gate.check(
                        engine,
                        whole.reference,
                        concurrency=concurrency,
                        limit_s=ASK_LIMIT_S,
                        whole=whole.texts,
                    )
                    found = {"gate": report.label, "gate_delta": report.mean_abs_logprob_delta}
                    if not report.passed:
                        raise EngineFailed(Failure("gate", report.kind or "garbage", report.reason))
                for row in rows:
                    row.update(found)
            except EngineFailed as error:
                self._fail(candidate, error.failure)

    def _time(self, job: Job) -> None:
        """Three windows of each for one workload, in turns; of the plainly slow one, at the end.

        Where that window says that the race was wrong, it gets three like the others.
        """
        for candidate in self._up(job):
            if not job.row(candidate).get("short"):
                self._guarded(job, candidate, self._warm_up)
        for number in range(WINDOWS):
            up = [one for one in self._up(job) if not job.row(one).get("short")]
            turn = number % max(1, len(up))
            for candidate in [*up[turn:], *up[:turn]]:
                if len(job.row(candidate)["windows"]) <= number:
                    self._guarded(job, candidate, self._window)
            self.whole.save()
        for candidate in self._up(job):
            if job.row(candidate).get("short"):
                self._guarded(job, candidate, self._short_window)
                row = job.row(candidate)
                if candidate.id in self.engines and belies(job.case, row):
                    row.update(short=False, windows=[])
                    self._guarded(job, candidate, self._warm_up)
                    while candidate.id in self.engines and job.lacks(candidate):
                        self._guarded(job, candidate, self._window)
        for candidate in self.members:
            row = job.row(candidate)
            if row and row["windows"]:
                shown = " ".join(f"{one:.5g}" for one in row["windows"])
                self.whole.say(f"{candidate.id} {job.workload.words}: {shown}")

    def _guarded(self, job: Job, candidate: Candidate, act: Callable[[Job, Candidate], None]) -> None:
        """Do something with one engine; its failure is written down."""
        self.whole.tick()
        try:
            act(job, candidate)
        except EngineFailed as error:
            failure = error.failure
            if job.row(candidate).get("short") and failure.kind == "hang":
                reason = f"one window did not end within {self.whole.slow_limit_s:.0f} s"
                failure = Failure("serve", "slow", reason)
            self._fail(candidate, failure, job)

    def _warm_up(self, job: Job, candidate: Candidate) -> None:
        """Run the shape once; the first engine settles how many rounds make a window."""
        engine, case = self.engines[candidate.id], job.case
        warm_up_windows.warm_up(engine, job.workload).finish(ASK_LIMIT_S)
        if "rounds" not in case:
            wall_s = measure.measure_window(engine, job.workload, seed=99, limit_s=ASK_LIMIT_S).wall_s
            wanted = math.ceil(job.workload.rounds * self.whole.window_s / max(wall_s, 1e-3))
            case["rounds"] = max(job.workload.rounds, min(wanted, MOST_ROUNDS))

    def _window(self, job: Job, candidate: Candidate) -> None:
        row = job.row(candidate)
        workload = replace(job.workload, rounds=job.case["rounds"])
        seed = len(row["windows"]) + 1
        self._take(job, row, candidate, workload, seed, ASK_LIMIT_S)

    def _short_window(self, job: Job, candidate: Candidate) -> None:
        """One window of one round, after one that does not count where there is time for both."""
        row, limit_s = job.row(candidate), self.whole.slow_limit_s
        began = time.monotonic()
        self._take(job, row, candidate, job.workload, 1, limit_s)
        left = limit_s - (time.monotonic() - began)
        if left > limit_s / 2:
            row["windows"].clear()
            self._take(job, row, candidate, job.workload, 2, limit_s)

    def _take(
        self, job: Job, row: Row, candidate: Candidate, workload: Workload, seed: int, limit_s: float
    ) -> None:
        engine = self.engines[candidate.id]
        found = measure.measure_window(engine, workload, seed=seed, limit_s=limit_s)
        row["windows"].append(job.objective.value(found))
        row["whole"] = median(row["windows"])
