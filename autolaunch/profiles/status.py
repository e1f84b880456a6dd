"""What became of a server into what the profile says of its choice from then on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from autolaunch.profiles.profile import Chosen, Entrant, Profile, Status
from autolaunch.redact import redact, redact_choice

_LONGEST_REASON = 1000
Written = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""Flags and variables of a choice as a profile holds them: secrets hidden."""
RESOLVED: Final = "resolved"
"""Where a profile keeps what its server said it uses."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one server."""

    status: Status
    reason: str
    """One sentence without a full stop."""
    when: str
    """UTC, ISO 8601."""
    launched: Chosen | None = None
    """What it was started with; None: the profile's choice."""
    acceptance_length: float | None = None
    resolved: tuple[tuple[str, str], ...] = ()
    """Flags and what the server said it uses."""


def after(profile: Profile, outcome: Outcome) -> Profile:
    """`profile` as it is known since `outcome`; itself where that teaches nothing.

    A quarantine stays: a server that answered soundly once proves little against one that did not, and
    faults of concurrency come and go.  Only a new race, or an import by hand, makes a choice fresh again.
    What is older than what is known counts only where it is that bad.  What another candidate than the
    choice did is noted with that candidate.
    """
    reason = redact(outcome.reason)[:_LONGEST_REASON]
    if outcome.launched is not None and written(outcome.launched) != written(profile.chosen):
        return _after_another(profile, outcome, written(outcome.launched), reason)
    is_known = bool(profile.status_since) and moment(outcome.when) <= moment(profile.status_since)
    if profile.status == "quarantined" or (is_known and outcome.status != "quarantined"):
        return profile
    measured = profile.measured
    if outcome.acceptance_length is not None:
        measured = replace(
            measured,
            acceptance_length=outcome.acceptance_length,
            acceptance_source=f"read from the server, {outcome.when[:10]}",
        )
    extra: dict[str, Any] = dict(profile.extra)
    if outcome.resolved:
        extra[RESOLVED] = dict(map(_hidden, outcome.resolved))
    return replace(
        profile,
        status=outcome.status,
        status_reason=reason,
        status_since=outcome.when,
        measured=measured,
        extra=extra,
    )


def written(chosen: Chosen) -> Written:
    """Flags and variables of `chosen` as a profile holds them: secrets hidden."""
    return redact_choice(chosen.flags, chosen.env)


def _hidden(named: tuple[str, str]) -> tuple[str, str]:
    """A name and its value, hidden where it is a secret."""
    name, value = named
    return redact(name), redact(f"{name}={value}")[len(redact(f"{name}=")) :]


def _after_another(
    profile: Profile,
    outcome: Outcome,
    launched: Written,
    reason: str,
) -> Profile:
    """`profile` after a server with one of its other entrants: one that failed may not be launched again."""
    if outcome.status != "quarantined" or launched == ((), ()):
        return profile

    def judged(one: Entrant) -> Entrant:
        if written(one.chosen) != launched or one.rank is None:
            return one
        return replace(one, rank=None, lost=reason, failure=one.failure or "garbage", stage="serve")

    return replace(profile, entrants=tuple(map(judged, profile.entrants)))


def moment(created: str) -> float:
    """The time that `created` names, as seconds of the epoch; 0 where it names none."""
    try:
        when = datetime.fromisoformat(created)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return 0.0
