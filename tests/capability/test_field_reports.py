"""What the table says of starts that people reported in public: failures are foreseen, what works is left alone.

Two sets: those with a known model and all of engine, GPU, flags and a dimension (`decidable`), and the rest, whose
models are put together from what the reports say of them.  Of the rest, those count that name their GPU and flags.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import pytest

from autolaunch.request.catalogue import bundled_versions
from tests.capability.replay import HARMFUL, REPORTS, Replay, replay

MENDED = {
    "F027": "the reserve for graphs grew before 0.5.9",
    "F483": "vision attention on SM 10.0 was no longer fixed to fa3 in 0.5.9",
    "F535": "Triton became the default for hybrid models before 0.5.9",
}
"""Decidable failures on versions before the first known one, which does not have them any more."""


def chosen(kind: str) -> list[Mapping[str, Any]]:
    """The reports of a set that count."""
    return [
        one
        for one in REPORTS
        if one["set"] == kind
        and (kind == "decidable" or (one["sm"] is not None and (one["flags"] or "env" in one)))
    ]


@functools.cache
def replayed(kind: str) -> tuple[Replay, ...]:
    """The reports of a set, played again."""
    return tuple(map(replay, chosen(kind)))


def share(found: list[Replay], of: list[Replay]) -> float:
    """How many of `of` are in `found`."""
    return len(found) / len(of)


def named(found: list[Replay]) -> str:
    """The reports in short, for a failure."""
    return "\n".join(f"{one.report['id']} {one.report['url']} {one.about}" for one in found)


@pytest.mark.parametrize(("kind", "least"), [("decidable", 0.9), ("other", 0.8)])
def test_failures_are_excluded_or_warned_of(kind: str, least: float) -> None:
    harmful = [one for one in replayed(kind) if one.harmful]
    answered = [one for one in harmful if one.answered]
    assert share(answered, harmful) >= least, named([one for one in harmful if not one.answered])


@pytest.mark.parametrize(("kind", "most"), [("decidable", 0.03), ("other", 0.03)])
def test_what_works_is_not_excluded(kind: str, most: float) -> None:
    working = [one for one in replayed(kind) if not one.harmful]
    excluded = [one for one in working if one.excluded]
    assert share(excluded, working) <= most, named(excluded)


@pytest.mark.parametrize(("kind", "most"), [("decidable", 0.25), ("other", 0.25)])
def test_what_works_is_seldom_warned_of(kind: str, most: float) -> None:
    working = [one for one in replayed(kind) if not one.harmful]
    warned = [one for one in working if one.answered]
    assert share(warned, working) <= most, named(warned)


def test_silence_has_a_reason() -> None:
    """A decidable failure that nothing is said of was mended before the first known version."""
    silent = {one.report["id"] for one in replayed("decidable") if one.harmful and not one.answered}
    assert silent <= MENDED.keys()


def test_the_decidable_reports_are_all_there() -> None:
    reports = chosen("decidable")
    assert len(reports) == 54
    assert sum(one["outcome"] in HARMFUL for one in reports) == 41


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report["id"])
def test_a_report_is_typed_right(report: Mapping[str, Any]) -> None:
    assert report["sglang"] in bundled_versions()
    assert report["how"] in ("release", "main", "before", "after")
    assert report["outcome"] in HARMFUL | {"works"}
    assert report["url"].startswith("https://")
