"""The candidates of a race that wait for a start, in order, and whether a start is still worth it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Set

from autolaunch.candidates.candidate import ORIGINAL_ID, Candidate, Dropped
from autolaunch.race.pace import Pace
from autolaunch.race.stopwatch import Stopwatch
from autolaunch.race.trials import Trials
from autolaunch.units import format_bytes, format_duration

MEMORY_MARGIN = 1.2
"""Times `c0`'s memory that must be free before another engine starts beside it, where nothing was planned."""


class Waiting:
    """Those of one race; a candidate that leaves is started, or dropped with its reason."""

    def __init__(
        self,
        candidates: Iterable[Candidate],
        trials: Trials,
        pace: Pace,
        stopwatch: Stopwatch,
        memory_available: Callable[[], int],
        retried: Set[str],
    ) -> None:
        """`retried` holds, at any time, the ids of those that ran out of memory in company, and start alone.

        `memory_available` tells the free bytes of the host.
        """
        self._candidates = list(candidates)
        self._trials, self._pace, self._stopwatch = trials, pace, stopwatch
        self._memory_available = memory_available
        self._retried = retried
        self._engine_bytes = 0
        """What one engine took of the host's memory, at the most so far."""

    def __bool__(self) -> bool:
        return bool(self._candidates)

    @property
    def next_is_retried(self) -> bool:
        """Whether the next one found too little memory beside others before."""
        return bool(self._candidates) and self._candidates[0].id in self._retried

    def skip(self) -> None:
        """Drop those whose turn it is and that are not worth a start, up to the first that is."""
        while self._candidates and (dropped := self._why_skip(self._candidates[0])) is not None:
            self._drop(self._candidates.pop(0), dropped)

    def take(self, most: int) -> list[Candidate]:
        """The next that start together, `most` of them or fewer."""
        wave: list[Candidate] = []
        while self._candidates and len(wave) < most:
            alone = self.next_is_retried
            if alone and wave:
                break
            candidate = self._candidates.pop(0)
            dropped = self._why_skip(candidate)
            if dropped is not None:
                self._drop(candidate, dropped)
                continue
            wave.append(candidate)
            if alone:
                break
        return wave

    def put_last(self, candidates: Iterable[Candidate]) -> None:
        """Let `candidates` wait once more, after all others."""
        self._candidates += candidates

    def put_back(self, candidates: Iterable[Candidate]) -> None:
        """Let those of `candidates` that neither failed nor were dropped wait again, before all others."""
        dropped = {one.label for one in self._trials.dropped}
        back = [one for one in candidates if one.id not in self._trials and one.label not in dropped]
        self._candidates = back + self._candidates

    @contextlib.contextmanager
    def weighing(self, engines: int) -> Iterator[None]:
        """Note what each of as many `engines` as start meanwhile takes of the host's memory."""
        free_bytes = self._memory_available()
        yield
        self._engine_bytes = max(self._engine_bytes, (free_bytes - self._memory_available()) // engines)

    def _drop(self, candidate: Candidate, dropped: Dropped) -> None:
        """Drop a candidate that was, or was not yet, tried."""
        if candidate.id in self._trials:
            self._trials.forget(candidate.id, dropped)
        else:
            self._trials.drop(dropped)

    def _why_skip(self, candidate: Candidate) -> Dropped | None:
        """A reason known before the engine is started."""
        original = self._trials.original
        if candidate.id == ORIGINAL_ID or original is None or original.ready is None:
            return None
        twin = self._trials.twin_of_original(candidate)
        if twin is not None:
            return twin
        left_s = self._pace.left_s
        needed_s = original.ready.startup_s + self._stopwatch.final_s
        if left_s < needed_s:
            left, needed = format_duration(left_s), format_duration(needed_s)
            reason = f"{left} of the budget were left and about {needed} needed"
            return Dropped(candidate.label, "table", reason)
        needed_bytes = int(self._engine_bytes * MEMORY_MARGIN)
        free_bytes = self._memory_available()
        if free_bytes < needed_bytes:
            free, wanted = format_bytes(free_bytes), format_bytes(needed_bytes)
            reason = f"{free} of memory are free and {wanted} needed"
            return Dropped(candidate.label, "table", reason, kind="memory")
        return None
