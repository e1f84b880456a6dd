"""What a server's end or answers make of a profile."""

from __future__ import annotations

from typing import Any

import pytest

from autolaunch.profiles.profile import Chosen, Status
from autolaunch.profiles.status import Outcome, after
from tests.profiles.made import FA3, TRITON, made

NOW = "2026-12-01T08:00:00+00:00"


def outcome(status: Status, **more: Any) -> Outcome:
    """Something that happened now."""
    return Outcome(status, f"it was {status}", NOW, **more)


@pytest.mark.parametrize(
    ("before", "happened", "then"),
    [
        ("fresh", "verified", "verified"),
        ("fresh", "suspect", "suspect"),
        ("fresh", "quarantined", "quarantined"),
        ("verified", "suspect", "suspect"),
        ("verified", "quarantined", "quarantined"),
        ("suspect", "verified", "verified"),
        ("suspect", "quarantined", "quarantined"),
        ("quarantined", "verified", "quarantined"),
        ("quarantined", "suspect", "quarantined"),
        ("quarantined", "fresh", "quarantined"),
    ],
)
def test_the_next_status(before: Status, happened: Status, then: Status) -> None:
    profile = after(made(status=before, status_reason="earlier"), outcome(happened))
    assert profile.status == then
    changed = before != "quarantined"
    assert profile.status_reason == (f"it was {happened}" if changed else "earlier")
    assert profile.status_since == (NOW if changed else "")


@pytest.mark.parametrize(
    ("happened", "then"), [("verified", "suspect"), ("suspect", "suspect"), ("quarantined", "quarantined")]
)
def test_what_is_older_than_what_is_known_teaches_only_the_worst(happened: Status, then: Status) -> None:
    profile = made(status="suspect", status_reason="later", status_since="2026-12-01T10:00:00+02:00")
    learned = after(profile, outcome(happened))
    assert learned.status == then
    assert learned.status_reason == (f"it was {happened}" if happened == then != "suspect" else "later")


def test_the_servers_readings_are_kept() -> None:
    profile = after(
        made(),
        outcome(
            "verified", launched=TRITON, acceptance_length=2.7, resolved=(("--attention-backend", "triton"),)
        ),
    )
    assert profile.measured.acceptance_length == 2.7
    assert "2026-12-01" in profile.measured.acceptance_source
    assert profile.extra["resolved"] == {"--attention-backend": "triton"}


def test_another_candidate_says_nothing_of_the_choice() -> None:
    for status in ("verified", "suspect"):
        assert after(made(), outcome(status, launched=FA3)) == made()  # type: ignore[arg-type]


def test_another_candidate_that_failed_is_never_launched_again() -> None:
    profile = after(made(), outcome("quarantined", launched=FA3))
    assert profile.status == "fresh"
    entrant = profile.entrants[1]
    assert (entrant.chosen, entrant.rank, entrant.stage) == (FA3, None, "serve")
    assert entrant.lost == "it was quarantined" and entrant.failure
    assert FA3 not in [one.chosen for one in profile.next_best]


def test_the_original_is_never_put_away() -> None:
    assert after(made(), outcome("quarantined", launched=Chosen())) == made()


def test_secrets_do_not_get_in() -> None:
    happened = Outcome(
        "quarantined",
        "HF_TOKEN=hf_abcdefghijkl was refused",
        NOW,
        resolved=(("--api-key", "Bearer abcdefgh"),),
    )
    profile = after(made(), happened)
    assert "abcdefgh" not in f"{profile.status_reason}{profile.extra}"
