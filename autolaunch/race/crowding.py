"""What becomes of engines that ran out of memory in company, which are not to blame.

Each is handed back, to be tried once more with nothing loading beside it.
"""

from __future__ import annotations

from autolaunch.candidates.candidate import Candidate, Dropped
from autolaunch.race.outcomes import Failure
from autolaunch.race.trials import Trials
from autolaunch.race.wave import Wave

BY_COMPANY = frozenset({"oom", "memory"})
"""Failures that company can cause."""


class Crowding:
    """The engines of one race that ran out of memory beside others."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self.crowded: list[Candidate] = []
        """Those of the last wave that are to be tried once more."""
        self.retried: set[str] = set()
        """Ids of those that are tried again, or were; it only grows."""

    def begin(self) -> None:
        """A wave begins."""
        self.crowded = []

    def failed(self, name: str, failure: Failure, wave: Wave) -> None:
        """An engine of `wave` had too little memory, by its own fault or by its company."""
        candidate = self._trials[name].candidate
        if wave.start > 1:
            self._trials.rest([name], f"its start number {wave.start} found too little memory")
        elif wave.shared and name not in self.retried:
            self._trials.close(name)
            self._trials.update(name, ready=None, gate=None)
            self._trials.journal.write("crowded", id=name, **failure.to_json())
            self._trials.progress.say(
                f"{name} ran out of memory beside others, and is tried once more: {candidate.label}"
            )
            self.retried.add(name)
            self.crowded.append(candidate)
        elif name in self.retried and len(self._trials.engines) > 1:
            others = len(self._trials.engines) - 1
            reason = f"no memory for it beside {others} other engines, twice: {failure.reason}"
            self._trials.forget(name, Dropped(candidate.label, failure.stage, reason, kind="memory"))
        else:
            self._trials.fail(name, failure)
