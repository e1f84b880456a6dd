"""What earlier starts say of choices: which are not launched again, and when nothing is raced.

A choice that *failed* ended by itself before its server was sound, or answered garbage.  One that is
*suspect* ended in a way that may have been somebody's wish.  Neither is launched again until a server with
it was sound.  One end by a signal that people and supervisors send is forgiven; a second is not, and none
while starts fail in a row: the probe of a supervisor ends a start that hangs by the same signal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from autolaunch.candidates.candidate import Candidate
from autolaunch.launch.attempt_record import Attempt
from autolaunch.redact import redact_choice

STARTS_BEFORE_FALLBACK: Final = 2
STARTS_BEFORE_ORIGINAL: Final = 3
CUT_SHORT_BEFORE_FALLBACK: Final = 3
"""Servers in a row that were healthy and ended before their first answers were judged, nobody saw how: people
stop a server a moment after they started it, but a choice may also end at its first real batch."""
End = Literal["wish", "unclear", "own"]
Written = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""Flags and variables of a choice as a record holds them: secrets hidden."""

_WISHES = frozenset({"SIGTERM", "SIGINT", "SIGHUP", "exit 143", "exit 130", "exit 129"})
"""Ends that people and supervisors ask for, as the kernel or a handler reports them."""
_CRASHES = frozenset({"SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGSYS"})
"""Signals that a process gets for what it does itself."""
_GIVING_UP = frozenset({"SIGKILL", "SIGQUIT", "exit 0", "exit 137"})
"""How SGLang ends where one of its processes failed; by themselves they may come from anywhere."""
_NOT_SEEN = "unknown"


@dataclass(frozen=True, slots=True)
class Mistrust:
    """A choice that is not launched again, and why."""

    choice: Written
    status: Literal["suspect", "failed"]
    words: str
    """What its server did, as the end of a sentence: `ended before it was seen healthy (SIGKILL)`."""
    kind: str = ""
    """The failure kind (`candidates.candidate`) where it is sure; empty where others may be to blame."""
    attempt: Attempt | None = None
    """The start that tells."""

    @property
    def reason(self) -> str:
        """One sentence without a full stop."""
        return f"the last server started with `{label_of(self.choice)}` {self.words}"


@dataclass(frozen=True, slots=True)
class Fallback:
    """What earlier starts forbid."""

    no_race: bool
    """Two starts in a row came to nothing: measure nothing."""
    suspects: frozenset[tuple[str, ...]]
    """The flags of choices that are not launched again, whichever way they ended."""
    reason: str
    """One sentence without a full stop; empty when nothing is forbidden."""
    mistrusted: tuple[Mistrust, ...] = ()
    """The same choices in full."""
    only_original: bool = False
    """What was launched in the place of a bad choice came to nothing too: candidate 0 is what is left."""

    def why_not(self, candidate: Candidate) -> str | None:
        """Why `candidate` is not launched, as one sentence; None where it may be."""
        choice = written(candidate)
        if choice == ((), ()):
            return None
        found = next((one.reason for one in self.mistrusted if one.choice == choice), None)
        if found is None and choice[0] in self.suspects and not self.mistrusted:
            found = self.reason
        return found or (self.reason if self.only_original else None)


NOTHING: Final = Fallback(False, frozenset(), "")


def written(candidate: Candidate) -> Written:
    """Flags and variables of `candidate` as a record holds them."""
    return redact_choice(candidate.flags, candidate.env)


def choice_of(attempt: Attempt) -> Written:
    """What `attempt` launched on top of the original command."""
    return attempt.candidate_flags, tuple(sorted(attempt.candidate_env))


def label_of(choice: Written) -> str:
    """The choice as typed."""
    flags, env = choice
    return " ".join([*(f"{name}={value}" for name, value in env), *flags])


# One start ----------------------------------------------------------------------------------------


def end_of(attempt: Attempt) -> End:
    """Whether `attempt`, which is over, ended by itself, by somebody's wish, or nobody can say.

    Once its socket was open, SGLang turns signals into exit statuses and into killing its own.
    """
    ended = attempt.ended or _NOT_SEEN
    if attempt.excuse or ended in _WISHES or (attempt.healthy and ended == "exit 0"):
        return "wish"
    if ended in _CRASHES:
        return "own"
    if attempt.listened or attempt.healthy:
        return "unclear"
    if ended in _GIVING_UP:
        return "own" if attempt.gave_up else "unclear"
    return "own" if ended.startswith("exit ") else "unclear"


def came_up(attempt: Attempt) -> bool:
    """Whether the server of `attempt` was healthy, and was not ended by its first requests."""
    return attempt.healthy is not None and not (_is_unjudged(attempt) and end_of(attempt) == "own")


def was_cut_short(attempt: Attempt) -> bool:
    """Whether the server of `attempt` ended while its first answers were judged, by whatever."""
    return attempt.healthy is not None and _is_unjudged(attempt) and end_of(attempt) == "unclear"


def _is_unjudged(attempt: Attempt) -> bool:
    """Whether it is over before its answers were judged, which was asked for."""
    asked = attempt.verify != "off" and attempt.verdict is None and attempt.verified is None
    return asked and not attempt.running


def was_bad(attempt: Attempt) -> bool:
    """Whether nobody could use the server of `attempt`."""
    return not came_up(attempt) or _is_quarantined(attempt)


def _is_quarantined(attempt: Attempt) -> bool:
    return attempt.verdict is not None and attempt.verdict.status == "quarantined"


# All of them --------------------------------------------------------------------------------------


def verdict(attempts: Sequence[Attempt]) -> Fallback:
    """What `attempts`, oldest first, forbid the next start; those still on their way say nothing."""
    over = [attempt for attempt in attempts if not attempt.running]
    row = _bad_in_a_row(over)
    no_race = len(row) >= STARTS_BEFORE_FALLBACK
    mistrusted = tuple(_mistrusted(attempts, forgiving=not no_race))
    changed = sum(attempt.is_choice for attempt in row)
    original = any(attempt.phase == "launch" and not attempt.is_choice for attempt in row)
    only_original = no_race and (
        original or changed >= STARTS_BEFORE_FALLBACK or len(row) >= STARTS_BEFORE_ORIGINAL
    )
    if no_race:
        what = "ended before the server was seen healthy"
        if any(attempt.healthy for attempt in row):
            what = "came to nothing, before the server was seen healthy or by what it answered"
        reason = f"the last {len(row)} starts of this command {what}; nothing is raced until one is"
        reason = reason if what.startswith("ended") else reason.replace("one is", "one is sound")
    else:
        reason = "; ".join(one.reason for one in mistrusted)
    flags = frozenset(one.choice[0] for one in mistrusted if one.choice[0])
    return Fallback(no_race, flags, reason, mistrusted, only_original)


def _bad_in_a_row(over: Sequence[Attempt]) -> list[Attempt]:
    """The latest attempts, up to the last one whose server could be used."""
    row: list[Attempt] = []
    for attempt in reversed(over):
        if attempt.forgiven:
            continue
        if not was_bad(attempt):
            break
        row.append(attempt)
    return row


@dataclass(slots=True)
class _Past:
    """What one choice did since a server with it was last sound."""

    ends: list[tuple[int, Attempt]] = field(default_factory=list)
    """The ends before that, each with its place among all attempts."""
    cut_short: list[Attempt] = field(default_factory=list)
    """Those since then that were healthy, and over before anybody had judged them."""
    garbage: Attempt | None = None


def _mistrusted(attempts: Sequence[Attempt], *, forgiving: bool) -> Iterator[Mistrust]:
    """The choices that are not launched again, in the order of their labels."""
    pasts: dict[Written, _Past] = {}
    for place, attempt in enumerate(attempts):
        if attempt.phase != "launch" or not attempt.is_choice or attempt.forgiven:
            continue
        past = pasts.setdefault(choice_of(attempt), _Past())
        if _is_quarantined(attempt):
            past.garbage = attempt  # NOTE: stays; one sound start proves little against it
        elif attempt.running:
            continue
        elif was_cut_short(attempt):
            past.ends.clear()
            past.cut_short.append(attempt)
        elif came_up(attempt):
            past.ends.clear()
            past.cut_short.clear()
        else:
            past.ends.append((place, attempt))
    for choice in sorted(pasts, key=label_of):
        found = _judge(choice, pasts[choice], attempts, forgiving=forgiving)
        if found is not None:
            yield found


def _judge(choice: Written, past: _Past, attempts: Sequence[Attempt], *, forgiving: bool) -> Mistrust | None:
    """What follows for `choice` from its `past`."""
    if past.garbage is not None and past.garbage.verdict is not None:
        told = past.garbage.verdict
        words = f"was not sound: {told.reason}" if told.reason else "was not sound"
        return Mistrust(choice, "failed", words, told.kind or "garbage", past.garbage)
    if not past.ends and len(past.cut_short) < CUT_SHORT_BEFORE_FALLBACK:
        return None
    if not past.ends:
        return Mistrust(choice, "suspect", _words(past.cut_short, past.cut_short[-1]), "", past.cut_short[-1])
    place, last = next(((n, a) for n, a in reversed(past.ends) if end_of(a) == "own"), past.ends[-1])
    words = _words([attempt for _, attempt in past.ends], last)
    end = end_of(last)
    if end == "own" and not _original_fared_alike(place, attempts):
        return Mistrust(choice, "failed", words, "crash", last)
    if end == "own":
        return Mistrust(choice, "suspect", f"{words}, as one of the original command did", "", last)
    if end == "wish" and len(past.ends) == 1 and forgiving:
        return None
    if end == "unclear" and _next_came_up(place, attempts):
        return Mistrust(choice, "failed", f"{words}, and the next one without it did not", "", last)
    return Mistrust(choice, "suspect", words, "", last)


def _words(ends: Sequence[Attempt], last: Attempt) -> str:
    """How the servers of a choice ended."""
    what = "ended before it was seen healthy" if last.healthy is None else "ended under its first requests"
    how = [attempt.ended for attempt in ends if attempt.ended and attempt.ended != _NOT_SEEN]
    times = f", {len(ends)} times in a row" if len(ends) > 1 else ""
    excuse = f"; {last.excuse}" if last.excuse else ""
    return f"{what}{times}{' (' + ', '.join(how) + ')' if how else ''}{excuse}"


def _next_came_up(place: int, attempts: Sequence[Attempt]) -> bool:
    """Whether the next server that was launched after `place` came up."""
    later = (one for one in attempts[place + 1 :] if one.phase == "launch" and not one.running)
    following = next(later, None)
    return following is not None and not was_bad(following)


def _original_fared_alike(place: int, attempts: Sequence[Attempt]) -> bool:
    """Whether the original ended too, in the same row of bad starts: then the choice is not to blame."""
    for step in (1, -1):
        at = place + step
        while 0 <= at < len(attempts) and not attempts[at].running and was_bad(attempts[at]):
            one = attempts[at]
            if one.phase == "launch" and not one.is_choice and end_of(one) != "wish":
                return True
            at += step
    return False
