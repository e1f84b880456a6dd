"""Turns what several engines found, where none of them is known to be right, into who is the odd one out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from autolaunch.candidates.candidate import ORIGINAL_ID
from autolaunch.race.gate_reference import Reference
from autolaunch.race.gate_statistics import Logprobs, are_finite, find_odd
from autolaunch.race.outcomes import GateLabel, GateReport

AGREEMENT: Final[GateLabel] = "agreement"


@dataclass(frozen=True, slots=True)
class Checked(GateReport):
    """A report that still holds what it was made from, for `settle`."""

    alone: Logprobs = field(default=(), repr=False)
    """Of the first few sequences of the reference, one at a time."""

    def to_json(self) -> dict[str, Any]:
        """The report alone."""
        return {name: value for name, value in GateReport.to_json(self).items() if name != "alone"}


def settle(reference: Reference, reports: Mapping[str, GateReport]) -> dict[str, GateReport]:
    """Reports of those that `check` let pass, or candidate 0 itself, and that are far from everybody else.

    To be asked once all challengers were checked without a truth; `reports` are by candidate.  Who agrees
    with nobody while others agree with each other is wrong.
    """
    judged = {
        name: report
        for name, report in reports.items()
        if isinstance(report, Checked) and report.label == AGREEMENT and are_finite(report.alone)
    }
    voices = {name: report.alone for name, report in judged.items() if report.alone}
    odd = find_odd({ORIGINAL_ID: reference.alone, **voices})
    settled: dict[str, GateReport] = {
        name: replace(judged[name], passed=False, kind="garbage", reason=reason)
        for name, reason in odd.items()
        if name in judged and judged[name].passed
    }
    if ORIGINAL_ID in odd:
        text = reference.texts[0]
        settled[ORIGINAL_ID] = GateReport(
            False, odd[ORIGINAL_ID], "garbage", label=AGREEMENT, sample_text=text
        )
    return settled
