"""Judges candidate 0 itself, by the truth: it agrees with itself even where it is wrong."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from autolaunch.race.gate_reference import SHALLOW, Reference, Truth
from autolaunch.race.gate_statistics import Logprobs, difference, load_limit, rounded, unrelatedness
from autolaunch.race.outcomes import GateReport


def judge_original(reference: Reference, truth: Truth | None, *, whole: bool = True) -> GateReport:
    """Judge candidate 0, whose answers `reference` holds, by the truth; without one it is only looked at.

    It fails as `garbage` when its answers have little to do with the truth.
    """
    details: dict[str, Any] = {"at_once": reference.at_once, "decode": reference.decode}
    wrong, right = None, "its log-probabilities agree with themselves, and there is nothing to compare with"
    if truth is not None:
        found = truth.distances(reference.logprobs)
        wrong = why_unrelated(reference.logprobs, truth)
        right = f"log-probabilities are {fmean(found):.3f} away from {truth.name} on average"
        details |= {
            "unrelatedness": unrelatedness(reference.logprobs, truth.logprobs),
            "distances": rounded(found),
        }
    if not whole:
        details["slice"] = SHALLOW
    return GateReport(
        passed=wrong is None,
        kind=None if wrong is None else "garbage",
        reason=wrong or (right if whole else f"{right}; {SHALLOW}"),
        mean_abs_logprob_delta=0.0,
        label="ungated" if truth is None else "gated",
        sample_text=reference.texts[0],
        details=details,
    )


def why_unrelated(found: Logprobs, truth: Truth) -> str | None:
    """A reason when what an engine found has little to do with the truth, whatever others found."""
    known = truth.logprobs[: len(found)]
    share = unrelatedness(found, known)
    if share <= load_limit("unrelated"):
        return None
    return (
        f"log-probabilities are {difference(found, known):.2f} away from {truth.name} on average, "
        f"{share:.2f} times what those of other tokens are (limit {load_limit('unrelated'):.2f})"
    )
