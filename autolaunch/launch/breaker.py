"""Keeps a container that restarts in a loop from meeting the same bad choice again.

From the best down: the first that earlier starts do not forbid, at last the original command.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from autolaunch.candidates.candidate import ORIGINAL, ORIGINAL_ID, Candidate
from autolaunch.launch.attempt_record import Attempt
from autolaunch.launch.mistrust import Fallback, Mistrust, choice_of, verdict
from autolaunch.profiles.profile import Chosen, Status
from autolaunch.profiles.status import Outcome
from autolaunch.units import now_utc

_STATUSES: dict[Literal["suspect", "failed"], Status] = {"suspect": "suspect", "failed": "quarantined"}


def fall_back(past: Fallback, ranked: Sequence[Candidate]) -> tuple[Candidate, str]:
    """The first of `ranked`, the best first, that `past` allows, else the original command.

    The reason is one sentence without a full stop; it is empty where the best itself is taken.
    """
    passed: list[str] = []
    for candidate in ranked:
        if candidate.id == ORIGINAL_ID or not (candidate.flags or candidate.env):
            return ORIGINAL, _reason(passed, "the original command")
        why_not = past.why_not(candidate)
        if why_not is None:
            return candidate, _reason(passed, f"the next best, `{candidate.label}`,")
        if why_not not in passed:
            passed.append(why_not)
    return ORIGINAL, _reason(passed, "the original command")


def _reason(passed: Sequence[str], instead: str) -> str:
    """Why not the best, and who is launched in its place."""
    return f"{'; '.join(passed)}, so {instead} is launched in its place" if passed else ""


def profile_marks(history: Sequence[Attempt]) -> list[tuple[str, Outcome]]:
    """What the profiles that `history`, oldest first, was launched from should know: names and outcomes.

    The watcher writes what it judges itself; here is what it could not: servers that ended before.
    """
    mistrusted = {one.choice: one for one in verdict(history).mistrusted}
    marks: dict[tuple[str, tuple[object, ...]], Outcome] = {}
    for attempt in history:
        if attempt.phase != "launch" or attempt.profile is None or not attempt.is_choice:
            continue
        outcome = _outcome(attempt, mistrusted.get(choice_of(attempt)))
        key = (attempt.profile, choice_of(attempt))
        if outcome is not None:
            marks[key] = outcome
        elif not attempt.running:
            marks.pop(key, None)  # it was healthy later, or forgiven
    return [(name, outcome) for (name, _), outcome in marks.items()]


def _outcome(attempt: Attempt, mistrust: Mistrust | None) -> Outcome | None:
    """What `attempt` means for its profile; None where it means nothing new."""
    launched = Chosen(flags=attempt.candidate_flags, env=attempt.candidate_env)
    if mistrust is not None:
        return Outcome(
            _STATUSES[mistrust.status], f"a server with it {mistrust.words}", _when(attempt), launched
        )
    if attempt.verified is not None:
        return Outcome("verified", "its answers were sound", attempt.verified, launched)
    return None


def _when(attempt: Attempt) -> str:
    """When it started, where that is a time at all."""
    try:
        datetime.fromisoformat(attempt.started)
    except ValueError:
        return now_utc()
    return attempt.started
