"""What was measured before for a start like this one: found in the store, judged, and what follows from it.

Nothing is launched here.  A profile *fits* where its fingerprint holds; it is *stale* where versions, flags
or weights differ, and `--stale` says what then; with anything else it is for another start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from autolaunch import __version__
from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.detect.software import detect_software
from autolaunch.errors import AutolaunchError, render_message
from autolaunch.profiles.fingerprint import fingerprint_of, versions_of
from autolaunch.profiles.kept import Kept
from autolaunch.profiles.matching import Match, best, judge
from autolaunch.profiles.names import gpu_slug
from autolaunch.profiles.parts import objective_json
from autolaunch.profiles.profile import Chosen, Fingerprint, Profile
from autolaunch.profiles.proofs import proof_of
from autolaunch.profiles.store import Store
from autolaunch.race.progress import Progress
from autolaunch.serve.asked import Start

if TYPE_CHECKING:
    from autolaunch.options.options import StaleWord

Word = Literal["take", "table", "race", "fail", "nothing"]
"""What follows: its choice, the table's word at once, a race all the same, an error; or there is none."""
_SHOWN_DIFFERENCES = 12


@dataclass(frozen=True, slots=True)
class Found:
    """What the store holds for one start."""

    now: Fingerprint | None
    """What a profile of this start is valid for; None where the weights are not here."""
    match: Match | None = None
    kept: Kept | None = None
    """The profile of `match`, and where it lies."""
    is_made_here: bool = False
    """Whether a race of this user made it, and each choice that may be launched by it: not what it says."""

    @property
    def profile(self) -> Profile | None:
        """The profile that was found."""
        return None if self.kept is None else self.kept.profile

    def word(self, stale: StaleWord) -> Word:
        """What follows, where `--stale` is `stale`."""
        if self.match is None or self.match.kind == "other":
            return "nothing"
        if self.match.kind == "fits":
            return "take"
        if self.is_foreign and stale in ("table", "fail"):
            return "nothing"
        words: dict[StaleWord, Word] = {"table": "table", "use": "take", "retune": "race", "fail": "fail"}
        return words[stale]

    @property
    def is_foreign(self) -> bool:
        """Whether it came with autolaunch: it was never measured here, and keeps nothing from being so."""
        return self.profile is not None and self.profile.origin == "shipped"

    @property
    def error(self) -> AutolaunchError:
        """What `--stale fail` ends in."""
        name = "" if self.kept is None else self.kept.name
        hint = "`autolaunch tune` measures anew, `--stale use` takes it as it is"
        return AutolaunchError(f"the profile {name} is stale", because=stale_words(self), hint=hint)

    @property
    def at_once(self) -> Kept | None:
        """The profile whose choice may be launched without asking the table, as the same one made it here."""
        if self.match is None or self.kept is None or self.match.kind != "fits" or self.match.differences:
            return None
        made_by = self.kept.profile.fingerprint.get("version.autolaunch")
        return self.kept if self.is_made_here and made_by == __version__ else None


@dataclass(frozen=True, slots=True)
class Pick:
    """Who of a profile is launched, and why not those before it."""

    candidate: Candidate | None
    """None where nothing is left but what nobody mistrusts: it cannot be launched today."""
    passed: tuple[str, ...] = ()


def store_of(start: Start) -> Store:
    """The profiles that this start may use, and where a new one goes."""
    options = start.invocation.options
    return Store.of(options.profile_dirs, start.invocation.folders)


def fingerprint(start: Start) -> Fingerprint | None:
    """What a profile of this start is valid for; None where its weights are not on this machine."""
    invocation, request = start.invocation, start.understood.request
    options = invocation.options
    software = detect_software(request.interpreter, invocation.environ, for_cuda=start.on_gpus)
    wishes: dict[str, Any] = {
        "admit": options.admit,
        "lossy": options.lossy,
        "nextn": options.nextn,
        "candidates": options.candidates,
    }
    return fingerprint_of(
        request,
        start.understood.catalogue,
        start.machine,
        versions_of(software, start.machine),
        invocation.environ,
        invocation.cwd,
        wishes=wishes,
        cache=invocation.folders.cache,
    )


def look(start: Start, store: Store, progress: Progress, *, exact: bool = False) -> Found:
    """The best profile for `start`, with the doubts that came up; UsageError where the named one is none.

    `exact` is for a tuning: only a profile for just this workload and objective will do.
    """
    now = fingerprint(start)
    if now is None:
        return Found(None)
    options = start.invocation.options
    says_load, says_goal = exact or options.workload, exact or options.objective or options.slo
    workload = start.workload.to_json() | {"words": start.workload.words} if says_load else None
    objective = objective_json(start.objective) if says_goal else None
    if options.profile is not None:
        from autolaunch.profiles.exchange import named

        kept = [named(store, options.profile)]
        match: Match | None = judge(kept[0].profile, now, workload, objective)
    else:
        name, config = now.get("gpu.name"), now.get("checkpoint.config")
        kept = store.candidates_for(
            gpu_slug(None if name is None else str(name)),
            str(now["model.name"]),
            config_digest=None if config is None else str(config),
        )
        found = best([one.profile for one in kept], now, workload, objective)
        match = found.match or found.nearest
    for doubt in store.doubts:
        progress.block(render_message("warning", doubt))
    if match is None:
        return Found(now)
    proof = proof_of(start.invocation.folders.proofs, match.profile) if match.kind == "fits" else None
    return Found(
        now,
        match,
        next(one for one in kept if one.profile is match.profile),
        is_made_here=match.profile.origin in ("serve", "tune") and proof is not None,
    )


def pick(
    profile: Profile,
    candidate_of: Callable[[Chosen], Candidate],
    mistrusts: Callable[[Candidate], str | None],
    refusals: Sequence[Callable[[Candidate], str | None]],
) -> Pick:
    """The first of a profile's choices that may be launched, else the original command.

    One that is quarantined or suspect is passed over, as is one that `mistrusts` has a reason against for
    what its servers did, or one of `refusals` for what it is.  Where the last is all that speaks against its
    choices, the profile is of no use today.
    """
    passed: list[str] = []
    is_mistrusted = False
    for chosen in (profile.chosen, *(one.chosen for one in profile.next_best)):
        candidate = candidate_of(chosen)
        if chosen.is_original:
            return Pick(ORIGINAL, tuple(passed))
        reason = mistrusts(candidate) or (status_words(profile) if chosen is profile.chosen else None)
        is_mistrusted |= reason is not None
        for refuse in refusals:
            reason = reason or refuse(candidate)
        if reason is None:
            return Pick(candidate, tuple(passed))
        passed.append(f"`{candidate.label}` is passed over: {reason}")
        if chosen is profile.chosen:
            passed += _fallen(profile, candidate_of)
    return Pick(ORIGINAL if is_mistrusted else None, tuple(passed))


def _fallen(profile: Profile, candidate_of: Callable[[Chosen], Candidate]) -> list[str]:
    """Why those are not launched in place of the choice that were, and whose servers failed."""
    fallen = [one for one in profile.entrants if one.rank is None and one.stage == "serve"]
    return [f"`{candidate_of(one.chosen).label}` is passed over: {one.lost}" for one in fallen]


def status_words(profile: Profile) -> str | None:
    """Why the choice of `profile` is not launched, by how its servers did; None where nothing speaks so."""
    if profile.status not in ("quarantined", "suspect"):
        return None
    since = f" since {_minute(profile.status_since)}" if profile.status_since else ""
    why = f": {profile.status_reason}" if profile.status_reason else ""
    return f"it is {profile.status}{since}{why}"


def words_of(kept: Kept) -> str:
    """Which profile, of what standing, from when and for what."""
    profile = kept.profile
    workload, objective = profile.workload.get("words"), profile.objective.get("name")
    goal = ", ".join(str(one) for one in (workload, objective) if one)
    parts = (profile.status, _minute(profile.created), f"for {goal}" if goal else "")
    return f"{kept.name} ({', '.join(part for part in parts if part)})"


def stale_words(found: Found) -> tuple[str, ...]:
    """What differs since a profile was made, each with what that may mean; of another start only why."""
    match = found.match
    if match is None:
        return ()
    telling = [one for one in match.doubts if match.kind == "stale" or one.invalidates == "identity"]
    left = len(telling) - _SHOWN_DIFFERENCES
    words = tuple(one.words for one in telling[:_SHOWN_DIFFERENCES])
    return (*words, f"{left} more fields differ") if left > 0 else words


def say_differences(found: Found, stale: StaleWord, progress: Progress, *, is_named: bool = False) -> None:
    """Which fields differ and what follows; nothing for a profile that fits wholly.

    `is_named`: the user asked for just this one, and should hear louder that it will not do.
    """
    match, kept = found.match, found.kept
    if match is None or kept is None:
        return
    if match.kind == "stale":
        follows = {
            "table": "the table decides",
            "use": "it is used all the same, as `--stale use` says",
            "retune": "it is measured anew",
            "fail": "nothing is decided, as `--stale fail` says",
        }[stale]
        if found.word(stale) == "nothing":
            follows = "it came with autolaunch, and is not used"
        hint = "`autolaunch tune` measures anew; `--stale use` takes it, `--stale retune` races first"
        what = f"the profile {kept.name} was made for something else; {follows}"
        progress.block(
            render_message("note", what, stale_words(found), hint=hint if stale == "table" else None)
        )
    elif match.kind == "other":
        named = "the profile" if is_named else "the nearest profile"
        what = f"{named} {kept.name} is for another start, and is not used"
        progress.block(render_message("warning" if is_named else "note", what, stale_words(found)))


def _minute(moment: str) -> str:
    """A time of ISO 8601 to the minute."""
    return moment[:16].replace("T", " ")
