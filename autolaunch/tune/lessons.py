"""What a race and earlier starts teach: failures that are sure to be a choice's own.

Nothing is taught by a race in which nothing was sound, by an engine that may have been ended from outside, by
memory that others took.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from autolaunch.candidates.candidate import ORIGINAL_ID, Candidate
from autolaunch.launch.attempt_record import Attempt
from autolaunch.launch.mistrust import Fallback
from autolaunch.profiles.failed import LEARNED, Failed, Key, Setting
from autolaunch.race.outcomes import Failure
from autolaunch.race.result import RaceResult, Trial
from autolaunch.redact import redact_choice
from autolaunch.units import now_utc

if TYPE_CHECKING:
    from autolaunch.assessment import Assessment
    from autolaunch.capability.table import Table
    from autolaunch.slice.plan import SlicePlan

_OF_THE_HOST: Final = "oom.host"
"""The row of data/failures.toml for memory that is not a GPU's."""


@dataclass(frozen=True, slots=True)
class Change:
    """What a candidate changes, as far as rules can say it."""

    dimension: str = ""
    choice: str = ""
    beside: tuple[tuple[str, str], ...] = ()
    """Repairs of other flags that it holds."""


def of_race(
    result: RaceResult,
    setting: Setting,
    table: Table,
    assessment: Assessment | None = None,
    *,
    depth: str = "",
    crowded: bool = False,
) -> tuple[tuple[Failed, ...], tuple[tuple[Key, Setting], ...]]:
    """The failures of a race that tell of their candidates, and what was sound.

    Nothing is told where nothing was sound: then something else may be to blame.  `crowded` says that others
    were on the GPUs too.
    """
    sound = [one for one in result.trials if one.failure is None and one.windows]
    if not sound:
        return (), ()
    now = now_utc()
    found = []
    for trial in result.trials:
        failure, candidate = trial.failure, trial.candidate
        if failure is None or not _tells(trial, failure, crowded=crowded):
            continue
        change = change_of(candidate, assessment)
        if candidate.origin == "user" and table.dimension(change.dimension) is None:
            continue
        flags, env = redact_choice(candidate.flags, candidate.env)
        found.append(
            Failed(
                flags=flags,
                kind=failure.kind,
                stage=failure.stage,
                reason=failure.reason,
                where="race",
                date=now,
                setting=setting,
                env=env,
                dimension=change.dimension,
                choice=change.choice,
                beside=change.beside,
                depth=depth,
            )
        )
    fine = tuple((redact_choice(one.candidate.flags, one.candidate.env), setting) for one in sound)
    return tuple(found), fine


def depth_of(piece: SlicePlan | None) -> str:
    """What of the model engines of a race loaded, where it was not all of it."""
    if piece is None:
        return ""
    made_up = " and made-up weights" if piece.kind == "synthetic" else ""
    return f"the first {piece.layers} of {piece.total_layers} layers{made_up}"


def _tells(trial: Trial, failure: Failure, *, crowded: bool) -> bool:
    """Whether `failure` tells of the candidate rather than of the day."""
    if trial.candidate.id == ORIGINAL_ID or failure.kind not in LEARNED or not failure.said_error:
        return False
    return failure.kind != "oom" or not (crowded or failure.rule == _OF_THE_HOST)


def change_of(candidate: Candidate, assessment: Assessment | None) -> Change:
    """What `candidate` changes; the repairs among it are those of `assessment`."""
    repairs = assessment.evaluation.repairs if assessment is not None else ()
    held = [
        one for one in repairs if one.dimension != candidate.dimension and _holds(candidate.flags, one.tokens)
    ]
    beside = tuple((one.dimension, one.value) for one in held) if candidate.origin != "user" else ()
    return Change(candidate.dimension or "", candidate.choice or "", beside)


def _holds(flags: tuple[str, ...], tokens: tuple[str, ...]) -> bool:
    """Whether `tokens` stand in `flags`, one after the other."""
    return any(flags[at : at + len(tokens)] == tokens for at in range(len(flags) - len(tokens) + 1))


# Starts ----------------------------------------------------------------------------------------


def of_past(past: Fallback) -> tuple[Failed, ...]:
    """What earlier starts of a command tell of their choices."""
    found = (
        from_attempt(one.attempt, one.kind, one.words)
        for one in past.mistrusted
        if one.status == "failed" and one.kind and one.attempt is not None
    )
    return tuple(one for one in found if one is not None)


def from_attempt(attempt: Attempt, kind: str, words: str) -> Failed | None:
    """The failure of `attempt`, whose choice is to blame; None where nobody wrote down what it is bound to.

    `kind` is a failure kind, `words` what its server did.
    """
    row = attempt.setting
    known = next((one for one in LEARNED if one == kind), None)
    if row is None or known is None or not attempt.is_choice:
        return None
    try:
        setting = Setting.from_json(row["setting"])
        dimension, choice = str(row["dimension"]), str(row["choice"])
        beside = tuple((str(flag), str(value)) for flag, value in row["beside"])
    except (KeyError, TypeError, ValueError):
        return None
    flags, env = redact_choice(attempt.candidate_flags, attempt.candidate_env)
    judged = attempt.verdict is not None and attempt.healthy is not None
    return Failed(
        flags=flags,
        kind=known,
        stage="serve" if judged else "start",
        reason=attempt.verdict.reason if attempt.verdict is not None and judged else f"its server {words}",
        where="verify" if judged else "start",
        date=attempt.healthy or attempt.started,
        setting=setting,
        env=env,
        dimension=dimension,
        choice=choice,
        beside=beside,
    )
