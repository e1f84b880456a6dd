"""Who is launched, and why: what every way to decide ends in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from autolaunch.candidates.candidate import Candidate
from autolaunch.launch import attempts

if TYPE_CHECKING:
    from autolaunch.choose.choose import Choice
    from autolaunch.profiles.kept import Kept


@dataclass(frozen=True, slots=True)
class Settled:
    """Who is launched, and why."""

    candidate: Candidate
    reason: str
    line: str = ""
    """What is said of it just before the exec; empty where it was said before."""
    choice: Choice | None = None
    """All that a race showed, where one decided."""
    ticket: attempts.Ticket | None = None
    """The record of this start, where it was opened before a race."""
    kept: Kept | None = None
    """The profile it comes from, or that was made of the race."""
