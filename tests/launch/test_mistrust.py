"""What ends of servers say of choices: a table of histories, and what each forbids the next start."""

from __future__ import annotations

import pytest

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.launch.mistrust import NOTHING, Fallback, came_up, end_of, verdict
from tests.launch.pasts import CHOICES, attempt, past

ENDS = [
    # What people and supervisors send, and what a shell or a handler makes of it.
    ("c1 SIGTERM", "wish"),
    ("c1 SIGINT", "wish"),
    ("c1 SIGHUP", "wish"),
    ("c1 exit 143", "wish"),
    ("c1 exit 130", "wish"),
    ("c1 given up SIGINT", "wish"),
    ("c1 busy", "wish"),
    # What a process gets for what it does.
    *[(f"c1 {name}", "own") for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP")],
    ("c1 listening SIGSEGV", "own"),
    ("c1 judged SIGABRT", "own"),
    ("c1 exit 1", "own"),
    ("c1 exit 2", "own"),
    ("c1 given up exit 1", "own"),
    # SGLang's own way to give up: it kills its processes, the watcher among them, then itself.
    ("c1 given up SIGKILL", "own"),
    ("c1 given up SIGQUIT", "own"),
    ("c1 given up exit 0", "own"),
    # From outside, or by itself: nobody can say.
    ("c1 gone", "unclear"),
    ("c1 unknown", "unclear"),
    ("c1 given up unknown", "unclear"),
    ("c1 SIGKILL", "unclear"),
    ("c1 SIGQUIT", "unclear"),
    ("c1 exit 0", "unclear"),
    ("c1 exit 137", "unclear"),
    ("c1 SIGUSR1", "unclear"),
    ("c1 signal 40", "unclear"),
    # With an open socket, a Ctrl-C makes uvicorn exit with 1, and a SIGTERM makes SGLang kill itself.
    ("c1 listening exit 1", "unclear"),
    ("c1 listening SIGKILL", "unclear"),
    ("c1 listening SIGTERM", "wish"),
    ("c1 judged exit 1", "unclear"),
    ("c1 judged gone", "unclear"),
    ("c1 judged SIGKILL", "unclear"),
    ("c1 judged exit 0", "wish"),
]


@pytest.mark.parametrize(("text", "end"), ENDS)
def test_an_end_is_ones_own_a_wish_or_unclear(text: str, end: str) -> None:
    assert end_of(attempt(text)) == end


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("c1 healthy", True),
        ("c1 verified", True),
        ("c1 garbage", True),
        ("c1 warned", True),
        ("c1 unasked", True),
        ("c1 judged SIGTERM", True),
        ("c1 judged SIGSEGV", False),
        ("c1 judged gone", True),
        ("c1 judged exit 1", True),
        ("c1 exit 1", False),
        ("c1 gone", False),
        ("race gone", False),
    ],
)
def test_a_server_came_up_unless_it_ended_before_its_answers_were_judged(text: str, expected: bool) -> None:
    assert came_up(attempt(text)) is expected


SUSPECT, FAILED = "suspect", "failed"
HISTORIES: list[tuple[str, dict[str, str], str]] = [
    # (starts, who is not trusted, what else: `race` forbidden, `original` alone is left)
    ("", {}, ""),
    ("c0 gone", {}, ""),
    ("c1 healthy", {}, ""),
    ("c1 verified", {}, ""),
    ("c1 running", {}, ""),
    # It failed by itself: once is enough.
    ("c1 exit 1", {"c1": FAILED}, ""),
    ("c1 SIGSEGV", {"c1": FAILED}, ""),
    ("c1 given up SIGKILL", {"c1": FAILED}, ""),
    ("c1 exit 1; c0 healthy", {"c1": FAILED}, ""),
    ("c1 exit 1; c2 healthy; c0 healthy", {"c1": FAILED}, ""),
    ("c1 exit 1; c1 healthy", {}, ""),
    ("c1 healthy; c1 exit 1", {"c1": FAILED}, ""),
    # Nobody can say: suspect, and not launched again; failed where the next one without it came up.
    ("c1 gone", {"c1": SUSPECT}, ""),
    ("c1 SIGKILL", {"c1": SUSPECT}, ""),
    ("c1 exit 0", {"c1": SUSPECT}, ""),
    ("c1 listening exit 1", {"c1": SUSPECT}, ""),
    ("c1 gone; c0 healthy", {"c1": FAILED}, ""),
    ("c1 gone; c2 verified", {"c1": FAILED}, ""),
    ("c1 gone; c1 healthy", {}, ""),
    ("c1 gone; race gone", {"c1": SUSPECT}, "race"),
    ("c1 gone; c0 running", {"c1": SUSPECT}, ""),
    # Somebody's wish: forgiven once, and not while starts fail in a row.
    ("c1 SIGTERM", {}, ""),
    ("c1 SIGINT", {}, ""),
    ("c1 busy", {}, ""),
    ("c1 SIGTERM; c0 healthy", {}, ""),
    ("c1 SIGTERM; c1 healthy; c1 SIGTERM", {}, ""),
    ("c1 SIGTERM; c1 SIGTERM", {"c1": SUSPECT}, "race original"),
    ("c1 SIGTERM; c1 SIGTERM; c0 healthy", {"c1": SUSPECT}, ""),
    ("c1 SIGTERM; c0 healthy; c1 SIGTERM", {"c1": SUSPECT}, ""),
    ("c1 SIGTERM; race gone", {"c1": SUSPECT}, "race"),
    ("c1 SIGTERM; race gone; c0 healthy", {}, ""),
    ("c1 SIGTERM; c1 exit 1", {"c1": FAILED}, "race original"),
    ("c1 exit 1; c1 SIGTERM", {"c1": FAILED}, "race original"),
    ("c1 busy; c1 busy", {"c1": SUSPECT}, "race original"),
    # It answered garbage, and a sound start proves little against that.
    ("c1 garbage", {"c1": FAILED}, ""),
    ("c1 garbage; c0 healthy", {"c1": FAILED}, ""),
    ("c1 garbage; c1 verified", {"c1": FAILED}, ""),
    ("c1 warned", {}, ""),
    ("c0 warned", {}, ""),
    # Its first requests ended it: or was it stopped by hand, three times in a row?
    ("c1 judged SIGSEGV", {"c1": FAILED}, ""),
    ("c1 judged gone", {}, ""),
    ("c1 judged gone; c1 judged gone", {}, ""),
    ("c1 judged gone; c1 judged gone; c1 judged SIGKILL", {"c1": SUSPECT}, ""),
    ("c1 judged gone; c1 judged gone; c1 verified; c1 judged gone", {}, ""),
    ("c1 judged gone; c1 judged gone; c0 healthy; c1 judged gone", {"c1": SUSPECT}, ""),
    ("c1 judged SIGTERM; c1 judged exit 0; c1 judged exit 0", {}, ""),
    ("c0 judged gone; c0 judged gone; c0 judged gone", {}, ""),
    ("c1 gone; c1 judged gone", {}, ""),
    ("c1 judged gone; c1 gone", {"c1": SUSPECT}, ""),
    # The original fared alike: the choice is not to blame, and is not launched either.
    ("c1 exit 1; c0 exit 1", {"c1": SUSPECT}, "race original"),
    ("c0 exit 1; c1 exit 1", {"c1": SUSPECT}, "race original"),
    ("c1 exit 1; c0 exit 1; c0 healthy", {"c1": SUSPECT}, ""),
    ("c1 exit 1; c0 SIGTERM", {"c1": FAILED}, "race original"),
    # Two starts in a row that came to nothing: no race.
    ("race gone; race gone", {}, "race"),
    ("c0 gone; c0 gone", {}, "race original"),
    ("c0 gone; c0 gone; c0 healthy", {}, ""),
    ("race gone; c1 exit 1", {"c1": FAILED}, "race"),
    ("race gone; c1 exit 1; c2 exit 1", {"c1": FAILED, "c2": FAILED}, "race original"),
    ("race gone; race gone; c1 SIGTERM", {"c1": SUSPECT}, "race original"),
    ("c1 exit 1; c2 exit 1", {"c1": FAILED, "c2": FAILED}, "race original"),
    ("c1 exit 1; c2 garbage", {"c1": FAILED, "c2": FAILED}, "race original"),
    ("c1 garbage; c2 garbage", {"c1": FAILED, "c2": FAILED}, "race original"),
    ("c1 garbage; c0 gone", {"c1": FAILED}, "race original"),
    ("c1 exit 1; c0 running", {"c1": FAILED}, ""),
]


@pytest.mark.parametrize(("text", "mistrusted", "more"), HISTORIES, ids=[one[0] or "-" for one in HISTORIES])
def test_what_a_history_forbids(text: str, mistrusted: dict[str, str], more: str) -> None:
    found = verdict(past(text))
    names = {CHOICES[name].flags: name for name in CHOICES}
    assert {names[one.choice[0]]: one.status for one in found.mistrusted} == mistrusted
    assert found.suspects == {CHOICES[name].flags for name in mistrusted}
    assert (found.no_race, found.only_original) == ("race" in more, "original" in more)
    assert bool(found.reason) == bool(mistrusted or more)
    for name, candidate in CHOICES.items():
        assert (found.why_not(candidate) is not None) == (name in mistrusted or "original" in more)
    assert found.why_not(ORIGINAL) is None


def test_each_reason_is_in_words() -> None:
    reasons = {text: verdict(past(text)).reason for text in (
        "c1 gone", "c1 exit 1", "c1 garbage", "c1 judged SIGSEGV", "c1 SIGTERM; c0 healthy; c1 SIGTERM",
        "c1 exit 1; c0 exit 1; c0 healthy", "c1 judged gone; c1 judged gone; c1 judged gone", "c1 gone; c0 healthy", "c1 busy; c0 healthy; c1 busy",
        "race gone; race gone", "c1 exit 1; c2 garbage",
    )}  # fmt: skip
    assert reasons == {
        "c1 gone": "the last server started with `--flag-1` ended before it was seen healthy",
        "c1 exit 1": "the last server started with `--flag-1` ended before it was seen healthy (exit 1)",
        "c1 garbage": "the last server started with `--flag-1` was not sound: "
        "12 of 15 answers are one token over and over",
        "c1 judged SIGSEGV": "the last server started with `--flag-1` ended under its first requests (SIGSEGV)",
        "c1 SIGTERM; c0 healthy; c1 SIGTERM": "the last server started with `--flag-1` ended before it was "
        "seen healthy, 2 times in a row (SIGTERM, SIGTERM)",
        "c1 exit 1; c0 exit 1; c0 healthy": "the last server started with `--flag-1` ended before it was seen "
        "healthy (exit 1), as one of the original command did",
        "c1 judged gone; c1 judged gone; c1 judged gone": "the last server started with `--flag-1` ended "
        "under its first requests, 3 times in a row",
        "c1 gone; c0 healthy": "the last server started with `--flag-1` ended before it was seen healthy, and "
        "the next one without it did not",
        "c1 busy; c0 healthy; c1 busy": "the last server started with `--flag-1` ended before it was seen "
        "healthy, 2 times in a row (exit 1, exit 1); another process listened on its port",
        "race gone; race gone": "the last 2 starts of this command ended before the server was seen healthy; "
        "nothing is raced until one is",
        "c1 exit 1; c2 garbage": "the last 2 starts of this command came to nothing, before the server was seen "
        "healthy or by what it answered; nothing is raced until one is sound",
    }


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("c1 exit 1", "crash"),
        ("c1 garbage", "garbage"),
        ("c1 gone", ""),
        ("c1 gone; c0 healthy", ""),
        ("c1 exit 1; c0 exit 1", ""),
        ("c1 judged SIGSEGV", "crash"),
        ("c1 judged gone; c1 judged gone; c1 judged gone", ""),
    ],
)
def test_only_what_is_sure_has_a_kind_of_failure(text: str, kind: str) -> None:
    (one,) = verdict(past(text)).mistrusted
    assert one.kind == kind
    assert one.attempt is not None and one.attempt.is_choice


def test_choices_with_the_same_flags_and_other_variables_are_two() -> None:
    first = Candidate("c1", ("--flag-1",), (("NAME", "1"),))
    failed = [attempt("c1 exit 1", candidate_env=first.env)]
    found = verdict(failed)
    assert found.why_not(first) is not None
    assert found.why_not(CHOICES["c1"]) is None


def test_variables_alone_are_a_choice_too() -> None:
    one = Candidate("c1", (), (("NAME", "1"),))
    found = verdict([attempt("c1 exit 1", candidate_flags=(), candidate_env=one.env)])
    assert found.why_not(one) is not None
    assert found.why_not(ORIGINAL) is None
    assert found.suspects == frozenset()


def test_secrets_do_not_hide_a_choice_from_its_record() -> None:
    secret = Candidate("c1", ("--api-key", "sk-very-secret-value-12345"))
    from autolaunch.launch.mistrust import written

    failed = attempt("c1 exit 1", candidate_flags=written(secret)[0])
    assert "secret" not in str(failed.candidate_flags)
    assert verdict([failed]).why_not(secret) is not None


def test_what_is_forgiven_says_nothing_any_more() -> None:
    starts = [attempt("c1 exit 1", forgiven=True), attempt("c1 exit 1", forgiven=True)]
    assert verdict(starts) == NOTHING


def test_a_fallback_that_knows_flags_alone_still_says_no() -> None:
    one = Fallback(False, frozenset({("--flag-1",)}), "it failed before")
    assert one.why_not(CHOICES["c1"]) == "it failed before"
    assert one.why_not(CHOICES["c2"]) is None


def test_the_order_of_variables_makes_no_other_choice() -> None:
    typed = Candidate("c1", ("--flag-1",), (("B", "2"), ("A", "1")), "user")
    failed = attempt("c1 exit 1", candidate_env=typed.env)
    again = Candidate("c1", ("--flag-1",), (("A", "1"), ("B", "2")), "user")
    assert verdict([failed]).why_not(again) is not None
