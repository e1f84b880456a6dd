"""What a profile is made of, to and from what the stages hand on: candidates and objectives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.profiles.profile import Chosen

if TYPE_CHECKING:
    from autolaunch.race.objective import Objective


def chosen_of(candidate: Candidate) -> Chosen:
    """A candidate as a profile holds it."""
    return Chosen(
        flags=candidate.flags,
        env=candidate.env,
        id=candidate.id,
        origin=candidate.origin,
        dimension=candidate.dimension,
        choice=candidate.choice,
    )


def candidate_of(chosen: Chosen) -> Candidate:
    """What a profile holds, as a candidate; data still: whoever launches it has checked it."""
    if chosen.is_original:
        return ORIGINAL
    return Candidate(
        id=chosen.id,
        flags=chosen.flags,
        env=chosen.env,
        origin=chosen.origin,
        dimension=chosen.dimension,
        choice=chosen.choice,
    )


def objective_json(objective: Objective) -> dict[str, Any]:
    """An objective as plain values; ceilings only where there are some."""
    found: dict[str, Any] = {
        "name": objective.name,
        "unit": objective.unit,
        "higher_is_better": objective.higher_is_better,
    }
    ceilings = {"slo_ttft_ms": objective.slo_ttft_ms, "slo_tpot_ms": objective.slo_tpot_ms}
    return found | {name: value for name, value in ceilings.items() if value is not None}
