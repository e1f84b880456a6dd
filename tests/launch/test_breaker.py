"""Who is launched after what, one start after another, whatever the starts come to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.launch.attempt_record import Attempt
from autolaunch.launch.breaker import fall_back, profile_marks
from autolaunch.launch.mistrust import came_up, end_of, verdict, was_bad
from tests.launch.pasts import CHOICES, WHEN, attempt, past, who_is

RANKED = [CHOICES["c1"], CHOICES["c2"], CHOICES["c3"]]


@pytest.mark.parametrize(
    ("text", "launched"),
    [
        ("", "c1"),
        ("c1 verified", "c1"),
        ("c1 exit 1", "c2"),
        ("c1 gone", "c2"),
        ("c1 garbage", "c2"),
        ("c1 SIGTERM", "c1"),
        ("c1 SIGTERM; c1 SIGTERM", "c0"),
        ("c1 exit 1; c2 healthy", "c2"),
        ("c1 exit 1; c2 garbage", "c0"),
        ("c1 exit 1; c2 exit 1", "c0"),
        ("c1 exit 1; c2 exit 1; c0 healthy", "c3"),
        ("c1 exit 1; c2 exit 1; c0 healthy; c3 exit 1", "c0"),
        ("race gone; race gone", "c1"),
        ("race gone; c1 exit 1", "c2"),
        ("c0 gone; c0 gone", "c0"),
    ],
)
def test_the_best_that_is_left_is_launched(text: str, launched: str) -> None:
    candidate, reason = fall_back(verdict(past(text)), RANKED)
    assert who_is(candidate) == launched
    assert bool(reason) == (launched != "c1")


def test_the_reason_names_who_is_passed_over_and_who_is_launched() -> None:
    assert fall_back(verdict(past("c1 exit 1")), RANKED)[1] == (
        "the last server started with `--flag-1` ended before it was seen healthy (exit 1), "
        "so the next best, `--flag-2`, is launched in its place"
    )
    assert fall_back(verdict(past("c1 exit 1; c2 garbage")), RANKED[:1])[1] == (
        "the last server started with `--flag-1` ended before it was seen healthy (exit 1), "
        "so the original command is launched in its place"
    )
    assert fall_back(verdict(past("race gone; race gone; c1 exit 1")), RANKED[1:])[1] == (
        "the last 3 starts of this command ended before the server was seen healthy; nothing is raced until "
        "one is, so the original command is launched in its place"
    )


def test_the_original_has_its_own_place_in_a_ranking() -> None:
    failed = verdict(past("c1 exit 1"))
    assert fall_back(failed, [ORIGINAL, CHOICES["c2"]]) == (ORIGINAL, "")
    assert fall_back(failed, [CHOICES["c1"], ORIGINAL, CHOICES["c2"]])[0] == ORIGINAL
    assert fall_back(failed, []) == (ORIGINAL, "")


# Every course of starts ---------------------------------------------------------------------------

OUTCOMES = [
    *("gone", "SIGKILL", "SIGTERM", "SIGINT", "exit 1", "exit 0", "SIGSEGV", "given up SIGKILL", "busy"),
    *(
        "listening exit 1",
        "healthy",
        "verified",
        "garbage",
        "judged SIGSEGV",
        "judged gone",
        "judged SIGTERM",
    ),
]
RACES = st.lists(st.sampled_from(["gone", "done"]), min_size=30, max_size=30)


def course(outcomes: list[str], races: list[str], ranked: list[Candidate]) -> list[tuple[Attempt, bool]]:
    """Starts one after another as `serve` would do them, each with whether it raced; all are over."""
    starts: list[tuple[Attempt, bool]] = []
    for place, outcome in enumerate(outcomes):
        found = verdict([one for one, _ in starts])
        raced = not found.no_race
        if raced and races[place] == "gone":
            starts.append((attempt("race gone", id=str(place)), True))
            continue
        candidate, _ = fall_back(found, ranked)
        starts.append((attempt(f"{who_is(candidate)} {outcome}", id=str(place)), raced))
    return starts


COURSES = {
    "outcomes": st.lists(st.sampled_from(OUTCOMES), max_size=30),
    "races": RACES,
    "many": st.integers(0, 5),
}


@settings(max_examples=400, deadline=None)
@given(**COURSES)
def test_a_failed_choice_is_never_launched_again(outcomes: list[str], races: list[str], many: int) -> None:
    starts = [one for one, _ in course(outcomes, races, list(CHOICES.values())[:many])]
    failed = set()
    for one in starts:
        assert not one.is_choice or one.candidate_flags not in failed
        own = not came_up(one) and end_of(one) == "own"
        if one.is_choice and (own or (one.verdict is not None and one.verdict.status == "quarantined")):
            failed.add(one.candidate_flags)


@settings(max_examples=400, deadline=None)
@given(**COURSES)
def test_no_choice_has_three_bad_starts(outcomes: list[str], races: list[str], many: int) -> None:
    starts = [one for one, _ in course(outcomes, races, list(CHOICES.values())[:many])]
    bad: dict[tuple[str, ...], int] = {}
    for one in starts:
        if one.is_choice:
            bad[one.candidate_flags] = bad.get(one.candidate_flags, 0) + 1 if was_bad(one) else 0
            assert bad[one.candidate_flags] <= 2


@settings(max_examples=400, deadline=None)
@given(**COURSES)
def test_after_two_bad_starts_nothing_is_raced_and_the_original_is_near(
    outcomes: list[str], races: list[str], many: int
) -> None:
    starts = course(outcomes, races, list(CHOICES.values())[:many])
    row: list[Attempt] = []
    for one, raced in starts:
        if len(row) >= 2:
            assert not raced
        if len(row) >= 3 or sum(bad.is_choice for bad in row) >= 2:
            assert one.phase == "launch" and not one.is_choice, "candidate 0 is what is left"
        row = [*row, one] if was_bad(one) else []


@settings(max_examples=200, deadline=None)
@given(**COURSES)
def test_candidate_0_is_always_reachable(outcomes: list[str], races: list[str], many: int) -> None:
    """From wherever things are, at most three more bad starts lead to it."""
    ranked = list(CHOICES.values())[:many]
    before = [one for one, _ in course(outcomes, races, ranked)]
    for _ in range(3):
        candidate, _ = fall_back(verdict(before), ranked)
        if candidate == ORIGINAL:
            return
        before.append(attempt(f"{who_is(candidate)} exit 1"))
    assert fall_back(verdict(before), ranked)[0] == ORIGINAL


@settings(max_examples=200, deadline=None)
@given(**COURSES)
def test_the_original_is_taken_where_it_came_up_and_no_choice_is_left(
    outcomes: list[str], races: list[str], many: int
) -> None:
    ranked = list(CHOICES.values())[:many]
    before = [one for one, _ in course(outcomes, races, ranked)]
    found = verdict(before)
    candidate, reason = fall_back(found, ranked)
    trusted = [one for one in ranked if found.why_not(one) is None]
    assert candidate == (trusted[0] if trusted else ORIGINAL)
    assert bool(reason) == bool(ranked and candidate != ranked[0])


@pytest.mark.parametrize("first", [one for one in OUTCOMES if "healthy" not in one and "verified" not in one])
@pytest.mark.parametrize("second", ["exit 1", "SIGTERM", "gone", "garbage", "judged gone"])
def test_the_third_start_is_the_original_after_two_bad_ones(first: str, second: str) -> None:
    starts: list[Attempt] = []
    for outcome in (first, second):
        candidate, _ = fall_back(verdict(starts), RANKED)
        starts.append(attempt(f"{who_is(candidate)} {outcome}"))
    if all(map(was_bad, starts)):
        assert fall_back(verdict(starts), RANKED)[0] == ORIGINAL


# Profiles -----------------------------------------------------------------------------------------


def marks(text: str) -> dict[str, str]:
    """The statuses that profiles get after a history."""
    return {name: outcome.status for name, outcome in profile_marks(past(text))}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("c0 gone", {}),
        ("c1 running", {}),
        ("c1 healthy", {}),
        ("c1 verified", {"h200/c1": "verified"}),
        ("c1 exit 1", {"h200/c1": "quarantined"}),
        ("c1 gone", {"h200/c1": "suspect"}),
        ("c1 gone; c1 verified", {"h200/c1": "verified"}),
        ("c1 gone; c0 healthy", {"h200/c1": "quarantined"}),
        ("c1 SIGTERM", {}),
        ("c1 SIGTERM; c1 SIGTERM", {"h200/c1": "suspect"}),
        ("c1 garbage", {"h200/c1": "quarantined"}),
        ("c1 garbage; c2 exit 1; c3 verified", {
            "h200/c1": "quarantined", "h200/c2": "quarantined", "h200/c3": "verified",
        }),
    ],
)  # fmt: skip
def test_profiles_are_told_what_the_watcher_could_not(text: str, expected: dict[str, str]) -> None:
    assert marks(text) == expected


def test_a_mark_says_what_was_launched_and_why() -> None:
    ((name, outcome),) = profile_marks(past("c1 exit 1"))
    assert (name, outcome.when) == ("h200/c1", WHEN)
    assert outcome.reason == "a server with it ended before it was seen healthy (exit 1)"
    assert outcome.launched is not None
    assert outcome.launched.flags == CHOICES["c1"].flags


def test_a_start_from_no_profile_marks_none() -> None:
    assert profile_marks([attempt("c1 exit 1", profile=None)]) == []


def test_a_time_that_is_none_is_now() -> None:
    ((_, outcome),) = profile_marks([attempt("c1 exit 1", started="yesterday")])
    assert outcome.when.startswith("20")


def test_two_choices_of_one_profile_are_told_apart() -> None:
    starts = [attempt("c1 exit 1", profile="h200/x"), attempt("c2 verified", profile="h200/x")]
    assert [(name, one.status) for name, one in profile_marks(starts)] == [
        ("h200/x", "quarantined"),
        ("h200/x", "verified"),
    ]
