"""The books of a race: what every candidate has shown so far, whose engine is up, and who is out and why.

Whatever is entered is in the journal at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autolaunch.candidates.candidate import ORIGINAL_ID, Candidate, Dropped
from autolaunch.race.engine import Engine
from autolaunch.race.journal import Journal
from autolaunch.race.outcomes import Failure
from autolaunch.race.progress import Progress
from autolaunch.race.result import Acceptance, Trial


class Trials:
    """Trials by candidate id, in the order in which they were begun."""

    def __init__(
        self,
        dropped: tuple[Dropped, ...],
        journal: Journal,
        progress: Progress,
        acceptances: Mapping[str, Acceptance] | None = None,
    ) -> None:
        self.journal = journal
        self.progress = progress
        self.dropped = list(dropped)
        self.engines: dict[str, Engine] = {}
        """Engines that are up or on the way, by candidate id."""
        self._acceptances = acceptances or {}
        self._trials: dict[str, Trial] = {}

    def __getitem__(self, candidate_id: str) -> Trial:
        return self._trials[candidate_id]

    def __contains__(self, candidate_id: str) -> bool:
        return candidate_id in self._trials

    def __iter__(self) -> Iterator[Trial]:
        return iter(tuple(self._trials.values()))

    @property
    def original(self) -> Trial | None:
        """The trial of `c0`, once it was begun."""
        return self._trials.get(ORIGINAL_ID)

    @property
    def standing(self) -> list[str]:
        """Ids of those that did not fail and whose engine is up."""
        return [one for one in self.engines if one in self._trials and not self._trials[one].failure]

    def twin_of_original(self, candidate: Candidate) -> Dropped | None:
        """Why `candidate` need not be tried: the original resolved to the same; None before that is known."""
        ready = self.original.ready if self.original is not None else None
        if candidate.id == ORIGINAL_ID or ready is None or not candidate.resolved_as:
            return None
        if ready.resolved.get(candidate.resolved_as) != candidate.choice:
            return None
        reason = f"the original command already resolves to `{candidate.choice}`"
        return Dropped(candidate.label, "table", reason)

    def begin(self, candidate: Candidate, engine: Engine) -> None:
        """A candidate is tried; once more, where its first engine was ended without a fault of its own."""
        self.engines[candidate.id] = engine
        acceptance = self._acceptances.get(candidate.id)
        self._trials.setdefault(candidate.id, Trial(candidate, acceptance=acceptance, overlay=engine.overlay))

    def update(self, candidate_id: str, **fields: Any) -> Trial:
        """Put the newest state of a trial in its place."""
        trial = self._trials[candidate_id] = replace(self._trials[candidate_id], **fields)
        return trial

    def fail(self, candidate_id: str, failure: Failure, *, quiet: bool = False) -> None:
        """End a candidate's engine and write down why."""
        self.close(candidate_id)
        trial = self.update(candidate_id, failure=failure)
        self.journal.write("failed", id=candidate_id, **failure.to_json())
        if not quiet:
            end = f"{candidate_id} out at {failure.stage}, {failure.kind}"
            self.progress.say(f"{end}: {trial.candidate.label}: {failure.reason}")

    def drop(self, dropped: Dropped) -> None:
        """Write down a candidate that is not tried, or that a race had no time or room for."""
        self.dropped.append(dropped)
        self.journal.write("dropped", label=dropped.label, stage=dropped.stage, reason=dropped.reason)
        self.progress.say(f"not tried: {dropped.label}: {dropped.reason}")

    def forget(self, candidate_id: str, dropped: Dropped) -> None:
        """End an engine that is not to blame, and drop its candidate instead of failing it."""
        self.close(candidate_id)
        self._trials.pop(candidate_id, None)
        self.drop(dropped)

    def set_back(self, candidate_id: str) -> None:
        """As if a candidate had not been tried, unless it failed by itself."""
        self.close(candidate_id)
        trial = self._trials.get(candidate_id)
        if trial is not None and trial.failure is None:
            del self._trials[candidate_id]
            self.journal.write("set-back", id=candidate_id)

    def merge(self, candidate_id: str, into: str, why: str) -> None:
        """End an engine that runs what another one runs."""
        self.close(candidate_id)
        trial = self.update(candidate_id, merged_into=into)
        self.journal.write("merged", id=candidate_id, into=into, reason=why)
        self.progress.say(f"{candidate_id} is the same as {into}: {trial.candidate.label}: {why}")

    def rest(self, candidate_ids: Sequence[str], why: str) -> None:
        """End healthy engines that are not timed again."""
        self.close_all(candidate_ids)
        for candidate_id in candidate_ids:
            self.journal.write("rested", id=candidate_id, reason=why)

    def close(self, candidate_id: str) -> None:
        """End an engine, if it is up."""
        engine = self.engines.pop(candidate_id, None)
        if engine is not None:
            engine.close()

    def close_all(self, names: Iterable[str] | None = None) -> None:
        """End the engines of `names`, or every one, all at the same time."""
        ended = list(self.engines if names is None else names)
        for candidate_id in ended:
            if candidate_id in self.engines:
                self.engines[candidate_id].let_go()
        for candidate_id in ended:
            self.close(candidate_id)

    def sort_out(self, candidates: tuple[Candidate, ...], ended: str) -> None:
        """Drop, at the end, those that were not timed and those that were not tried; nothing vanishes."""
        for trial in self:
            if trial.screen is None and trial.failure is None and trial.merged_into is None:
                reason = f"the race ended ({ended}) before it was timed"
                del self._trials[trial.candidate.id]
                self.drop(Dropped(label=trial.candidate.label, stage="start", reason=reason))
        first = "the race was interrupted" if ended == "interrupted" else "the budget ended"
        for candidate in candidates:
            if candidate.id in self or any(one.label == candidate.label for one in self.dropped):
                continue
            self.drop(Dropped(label=candidate.label, stage="table", reason=f"{first} first"))
