"""A start and the profile that was found for it into who is launched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from autolaunch.candidates.candidate import ORIGINAL_ID, Candidate
from autolaunch.errors import AutolaunchError, render_message
from autolaunch.launch import attempts
from autolaunch.launch.breaker import profile_marks
from autolaunch.launch.report import Reporter
from autolaunch.profiles import files
from autolaunch.profiles.kept import Kept, path_of
from autolaunch.profiles.names import place_of
from autolaunch.profiles.parts import chosen_of
from autolaunch.profiles.proofs import proof_of
from autolaunch.profiles.status import Outcome, after
from autolaunch.profiles.store import Store
from autolaunch.race.progress import PREFIX, Progress
from autolaunch.redact import redact_choice
from autolaunch.serve import launchable, stages, unmeasured
from autolaunch.serve.asked import Asked, Start
from autolaunch.serve.lookup import Found, look, pick, say_differences, store_of, words_of
from autolaunch.serve.settled import Settled

MARKING_LIMIT_S: Final = 1.0
"""For others to give a store back, before a server starts without its profiles being marked."""


def sought(start: Start, progress: Progress, reporter: Reporter) -> Found:
    """Stage `profile`: what the store holds for this start, said where something differs."""
    reporter.stage("profile", stages.QUICK_STAGE_LIMIT_S)
    options = start.invocation.options
    store = store_of(start)
    mark_profiles(start, store, progress)
    found = look(start, store, progress)
    if found.now is None and options.profile is not None:
        what = f"the profile `{options.profile}` is not used"
        because = ("the weights are not on this machine, so nothing tells whether it is for them",)
        progress.block(render_message("warning", what, because))
    say_differences(found, options.stale, progress, is_named=options.profile is not None)
    return found


def at_once(start: Start, found: Found, progress: Progress) -> Settled | None:
    """The choice of a profile that fits wholly, without the table, whose earlier warnings are said again.

    None where there is none, nothing of it can be launched, or somebody wants to see the table.
    """
    kept = found.at_once
    if kept is None or start.invocation.options.wants_document or has_failed(start, kept):
        return None
    typed, refused = partial(launchable.as_typed, start), partial(launchable.why_not, start)
    picked = pick(kept.profile, typed, start.past.why_not, (refused,))
    if picked.candidate is None:
        return None
    for warning in kept.profile.warnings:
        progress.block(render_message("warning", warning))
    for notice in start.machine.notes:
        progress.block(render_message("warning", notice.text, notice.because, notice.evidence, notice.hint))
    return by_profile(kept, picked.candidate, picked.passed, progress)


def reused(asked: Asked, kept: Kept, progress: Progress) -> Settled | None:
    """The choice of a profile, as far as the table has nothing against it; None where it is of no use."""
    typed = partial(launchable.as_typed, asked)
    refusals = (partial(launchable.why_not, asked), partial(launchable.excluded_now, asked))
    picked = pick(kept.profile, typed, asked.past.why_not, refusals)
    if picked.candidate is None:
        for words in picked.passed:
            progress.say(f"the profile {kept.name}: {words}")
        return None
    if asked.assessment is not None:
        unmeasured.say(progress, asked.assessment, picked.candidate)
    return by_profile(kept, picked.candidate, picked.passed, progress)


def by_profile(kept: Kept, candidate: Candidate, passed: Sequence[str], progress: Progress) -> Settled:
    """What a profile says, with the reason why its own choice is passed over where it is."""
    for words in passed:
        progress.say(words)
    reason = "the next best of the profile" if passed else kept.profile.reason
    if passed and candidate.id == ORIGINAL_ID:
        reason = "nothing else of the profile is left"
    words = words_of(kept)
    line = f"{PREFIX}launching {candidate.label} by the profile {words}: {reason}"
    return Settled(candidate, f"profile {words}: {reason}", line, kept=kept)


def has_failed(start: Start, kept: Kept) -> bool:
    """Whether a choice of a profile failed anywhere here: whether that counts, the table has to say."""
    if not start.learned:
        return False
    choices = (kept.profile.chosen, *(one.chosen for one in kept.profile.next_best))
    keys = {redact_choice(one.flags, one.env) for one in choices}
    return any(one.key in keys for one in start.learned)


def handle_of(kept: Kept, store: Sequence[Path]) -> str:
    """What a record calls a profile: its name in the store, or the file that lies elsewhere."""
    return kept.name if any(kept.path == path_of(folder, kept.name) for folder in store) else str(kept.path)


def setting_before(start: Start, kept: Kept, candidate: Candidate) -> dict[str, Any] | None:
    """What a failure of `candidate` is bound to, as whoever made its profile wrote down."""
    if candidate.id == ORIGINAL_ID:
        return None
    proof = proof_of(start.invocation.folders.proofs, kept.profile)
    return None if proof is None else proof.setting_of(chosen_of(candidate))


def mark_profiles(start: Start, store: Store, progress: Progress) -> None:
    """Let profiles know what became of servers that ended before their watcher could say so."""
    if start.invocation.options.dry_run:
        return
    history = attempts.history(start.invocation.folders.attempts, start.invocation.original)
    with files.patience(MARKING_LIMIT_S):
        for handle, outcome in profile_marks(history):
            place = place_of(handle)
            try:
                kept = store.read_file(place) if isinstance(place, Path) else store.find(place)
                if kept is not None and _is_news(kept, outcome):
                    store.learn(place, outcome)
            except (OSError, AutolaunchError) as error:
                because = ((error.strerror or str(error)) if isinstance(error, OSError) else error.what,)
                what = f"the profile {handle} could not be marked as {outcome.status}"
                progress.block(render_message("warning", what, because))


def _is_news(kept: Kept, outcome: Outcome) -> bool:
    """Whether `outcome` changes what a profile says of its choices; not merely when it was said."""
    profile = kept.profile
    then = after(profile, outcome)
    return (then.status, then.entrants) != (profile.status, profile.entrants)
