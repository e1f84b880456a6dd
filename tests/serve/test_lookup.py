"""What follows from a profile: who of it is launched, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autolaunch import __version__
from autolaunch.candidates.candidate import ORIGINAL_ID, Candidate
from autolaunch.launch.mistrust import NOTHING
from autolaunch.options.options import ServeOptions
from autolaunch.profiles.kept import Kept
from autolaunch.profiles.matching import judge
from autolaunch.profiles.parts import candidate_of
from autolaunch.profiles.profile import Chosen, Entrant, Measured, Profile
from autolaunch.profiles.tuned_flags import flags_and_values
from autolaunch.race.progress import Progress
from autolaunch.serve.asked import Start
from autolaunch.serve.by_profile import has_failed
from autolaunch.serve.lookup import Found, pick, say_differences, stale_words, words_of

BEST = Chosen(("--attention-backend", "triton"), (), "c1", "table", "--attention-backend", "triton")
SECOND = Chosen(("--disable-radix-cache",), (), "c2", "table")
NOW = {"platform": "cpu", "model.name": "m", "version.sglang": "2", "version.autolaunch": __version__}


def profile(**changes: Any) -> Profile:
    """One that was made here."""
    entrants = (Entrant(Chosen()), Entrant(BEST, rank=1), Entrant(SECOND, rank=2))
    made = Profile("m", BEST, "faster", "tune", "2026-12-01T03:04:05+00:00", NOW, {}, {}, Measured("whole"))
    return replace(replace(made, entrants=entrants), **changes)


def found(one: Profile, **now: Any) -> Found:
    """What a look into the store came to."""
    start = {**NOW, **now}
    kept = Kept(one, Path("/s/cpu/x.toml"), "cpu/x", True)
    return Found(start, judge(one, start, None, None), kept, is_made_here=one.origin in ("serve", "tune"))


def nobody(_: Candidate) -> None:
    """Nothing speaks against anybody."""


def against(*ids: str) -> Any:
    """Something speaks against these."""
    return lambda one: "it is so" if one.id in ids else None


@pytest.mark.parametrize(
    ("status", "mistrusted", "refused", "expected", "passed"),
    [
        ("fresh", (), (), "c1", 0),
        ("verified", (), (), "c1", 0),
        ("suspect", (), (), "c2", 1),
        ("quarantined", (), (), "c2", 1),
        ("fresh", ("c1",), (), "c2", 1),
        ("fresh", (), ("c1",), "c2", 1),
        ("quarantined", ("c2",), (), ORIGINAL_ID, 2),
        ("quarantined", (), ("c2",), ORIGINAL_ID, 2),
        ("fresh", ("c1", "c2"), (), ORIGINAL_ID, 2),
        ("fresh", (), ("c1", "c2"), None, 2),
    ],
)
def test_the_next_best_stands_in_and_at_last_the_original(
    status: Any, mistrusted: tuple[str, ...], refused: tuple[str, ...], expected: str | None, passed: int
) -> None:
    picked = pick(profile(status=status), candidate_of, against(*mistrusted), (nobody, against(*refused)))
    assert (None if picked.candidate is None else picked.candidate.id) == expected
    assert len(picked.passed) == passed


def test_the_original_is_launched_where_it_won() -> None:
    picked = pick(profile(chosen=Chosen(), status="suspect"), candidate_of, nobody, ())
    assert picked.candidate is not None and picked.candidate.id == ORIGINAL_ID
    assert picked.passed == ()


def test_who_was_quarantined_since_when_and_why_is_said() -> None:
    one = profile(
        status="quarantined", status_since="2026-12-02T10:11:12+00:00", status_reason="it said !!!!"
    )
    (words,) = pick(one, candidate_of, nobody, ()).passed
    assert words == (
        "`--attention-backend triton` is passed over: it is quarantined since 2026-12-02 10:11: it said !!!!"
    )


@pytest.mark.parametrize(
    ("stale", "word"), [("table", "table"), ("use", "take"), ("retune", "race"), ("fail", "fail")]
)
def test_stale_says_what_follows(stale: Any, word: str) -> None:
    other = found(profile(), **{"version.sglang": "3"})
    assert other.word(stale) == word
    assert found(profile()).word(stale) == "take"
    assert found(profile(), platform="cuda").word(stale) == "nothing"
    assert Found(NOW).word(stale) == "nothing"


@pytest.mark.parametrize(
    ("stale", "word"), [("table", "nothing"), ("use", "take"), ("retune", "race"), ("fail", "nothing")]
)
def test_a_stale_profile_that_came_with_autolaunch_keeps_nothing_from_being_measured(
    stale: Any, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = found(profile(origin="shipped"), **{"version.sglang": "3"})
    assert other.word(stale) == word
    say_differences(other, stale, Progress())
    assert ("it came with autolaunch, and is not used" in capsys.readouterr().err) is (word == "nothing")


def test_each_difference_is_named_with_its_consequence() -> None:
    other = found(profile(), **{"version.sglang": "3", "env.NCCL_X": "1"})
    words = stale_words(other)
    assert words[0].startswith("`version.sglang` was 2 and is 3: ")
    assert words[1].startswith("`env.NCCL_X` was not set and is 1: ")
    many = found(profile(), **{f"env.NCCL_{number}": "1" for number in range(30)})
    assert len(stale_words(many)) == 13
    assert stale_words(many)[-1] == "18 more fields differ"
    assert "18 more fields differ" in str(many.error)


@pytest.mark.parametrize(
    ("one", "now", "is_at_once"),
    [
        (profile(), {}, True),
        (profile(origin="serve"), {}, True),
        (profile(origin="imported"), {}, False),
        (profile(origin="shipped"), {}, False),
        (profile(), {"version.sglang": "3"}, False),
        (profile(fingerprint={**NOW, "version.autolaunch": "0.0.1"}), {}, False),
        (profile(fingerprint={**NOW, "model.name": "n"}), {}, False),
    ],
)
def test_only_what_this_autolaunch_made_here_needs_no_table(
    one: Profile, now: dict[str, Any], is_at_once: bool
) -> None:
    seen = found(one, **now)
    assert (seen.at_once is not None) is is_at_once
    assert replace(seen, is_made_here=False).at_once is None, "whatever it says of itself"


@pytest.mark.parametrize(
    ("flags", "failed"), [(BEST.flags, True), (SECOND.flags, True), (("--page-size", "1"), False)]
)
def test_what_failed_anywhere_is_for_the_table_to_judge(flags: tuple[str, ...], failed: bool) -> None:
    start = SimpleNamespace(learned=(SimpleNamespace(key=(flags, ())),))
    kept = found(profile()).kept
    assert kept is not None
    assert has_failed(start, kept) is failed  # type: ignore[arg-type]


def test_a_profile_in_a_line() -> None:
    one = profile(
        status="verified", workload={"words": "in=1,out=2,concurrency=3"}, objective={"name": "latency"}
    )
    kept = Kept(one, Path("/s/cpu/x.toml"), "cpu/x", True)
    assert words_of(kept) == "cpu/x (verified, 2026-12-01 03:04, for in=1,out=2,concurrency=3, latency)"
    assert words_of(replace(kept, profile=profile())) == "cpu/x (fresh, 2026-12-01 03:04)"


def test_flags_and_their_values() -> None:
    flags = ("--a", "1", "--b", "--c=2", "--d", "3", "4")
    assert list(flags_and_values(flags)) == [
        ("--a", ("1",)),
        ("--b", ()),
        ("--c", ("2",)),
        ("--d", ("3", "4")),
    ]


class Pinned:
    """As much of a start as its readiness for a profile takes."""

    def __init__(self, entry: str = "launch_server", model: str | None = "m", **pins: str) -> None:
        self.request = SimpleNamespace(
            entry=entry,
            model=model,
            pins={name: SimpleNamespace(values=(one,)) for name, one in pins.items()},
        )

    def start(self, **options: Any) -> Start:
        """The start."""
        invocation, understood = (
            SimpleNamespace(options=ServeOptions(**options)),
            SimpleNamespace(request=self.request),
        )
        return Start(invocation, understood, None, NOTHING)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("pinned", "options", "may"),
    [
        (Pinned(), {}, True),
        (Pinned(), {"tune": "off"}, False),
        (Pinned(), {"tune": "quick"}, False),
        (Pinned(), {"tune": "off", "profile": "x"}, True),
        (Pinned(nnodes="1"), {}, True),
        (Pinned(nnodes="2"), {}, False),
        (Pinned(nnodes="2"), {"profile": "x"}, True),
        (Pinned(entry="diffusion"), {"profile": "x"}, False),
        (Pinned(model=None), {}, False),
    ],
)
def test_when_a_profile_may_decide(pinned: Pinned, options: dict[str, Any], may: bool) -> None:
    """Ranks on several nodes must choose alike, and each node has profiles of its own."""
    assert pinned.start(**options).may_reuse is may
