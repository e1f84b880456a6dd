"""Attempts as records hold them, written short: `c1 exit 1`, `c0 healthy`, `race`, `c2 garbage`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.launch.attempt_record import Answers, Attempt
from autolaunch.launch.mistrust import written

WHEN = "2026-11-30T12:00:00+00:00"
CHOICES = {f"c{n}": Candidate(f"c{n}", (f"--flag-{n}",)) for n in range(1, 6)}


def attempt(text: str, **more: Any) -> Attempt:
    """One start: who, and what became of it.

    Who: `race`, which ended in the race, `c0`, `c1`, …  What: `gone` (nobody saw how), how it ended, `given
    up SIGKILL` (it killed the watcher first), `listening exit 1` (its socket was open), `healthy` (and asked
    nothing), `verified`, `garbage`, `warned`, `unasked`, `judged SIGSEGV` (while its answers were judged),
    `running`, `busy` (another has its port).
    """
    who, _, what = text.partition(" ")
    one = Attempt("", WHEN, 2**22 + 1, 1, "boot", "pids", "race" if who == "race" else "launch")
    if who not in ("race", "c0"):
        flags, env = written(CHOICES[who])
        one = replace(one, candidate_flags=flags, candidate_env=env, origin="table", profile=f"h200/{who}")
    words = what.split(" ")
    if words[:2] == ["given", "up"]:
        one = replace(one, gave_up=True, ended=" ".join(words[2:]) or None)
    elif words[0] == "listening":
        one = replace(one, listened=True, ended=" ".join(words[1:]))
    elif words[0] == "judged":
        how = " ".join(words[1:])
        one = replace(one, healthy=WHEN, verify="on", ended=None if how == "gone" else how)
    elif what == "healthy":
        one = replace(one, healthy=WHEN)
    elif what == "verified":
        one = replace(one, healthy=WHEN, verify="on", verified=WHEN, verdict=Answers("verified"))
    elif what in ("warned", "unasked"):
        one = replace(one, healthy=WHEN, verify="warn", verdict=Answers(what, "why"))
    elif what == "garbage":
        told = Answers("quarantined", "12 of 15 answers are one token over and over", "garbage")
        one = replace(one, healthy=WHEN, verify="on", verdict=told)
    elif what == "running":
        one = replace(one, running=True)
    elif what == "busy":
        one = replace(one, ended="exit 1", excuse="another process listened on its port")
    elif what != "gone":
        one = replace(one, ended=what or None)
    return replace(one, **more)


def past(text: str) -> list[Attempt]:
    """Starts one after another, parted by `;`."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    return [attempt(part, id=str(place)) for place, part in enumerate(parts)]


def who_is(candidate: Candidate) -> str:
    """`c0`, `c1`, …"""
    return "c0" if candidate == ORIGINAL else candidate.id
