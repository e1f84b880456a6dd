"""What a tuning found, as a value and as the JSON object for programs: a race and what was chosen after it.

A candidate that failed keeps its stage, kind and reason and gets no figure; every sample of the others is
there, and every choice that was never tried with its reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from autolaunch.assessment import Assessment
from autolaunch.choose.choose import Choice
from autolaunch.command import Command
from autolaunch.explain.document import chosen_document
from autolaunch.explain.words import redacted_env
from autolaunch.profiles.kept import Kept
from autolaunch.profiles.parts import objective_json
from autolaunch.race.objective import Objective
from autolaunch.race.result import RaceResult, Trial
from autolaunch.race.scale import Scale
from autolaunch.race.workload import Workload
from autolaunch.redact import redact, redact_argv


@dataclass(frozen=True, slots=True)
class Tuned:
    """One tuning, from what was asked to what was chosen."""

    assessment: Assessment
    result: RaceResult
    choice: Choice
    workload: Workload
    objective: Objective
    kept: Kept | None = None
    """The profile that was made of it for the next start, or the earlier one that stands in for a race."""
    is_earlier: bool = False
    """Whether `kept` stands in for a race."""
    on_slice: Tuned | None = None
    """The race on a slice before it, whose best it repeated on the whole model."""

    @property
    def command(self) -> Command:
        """What serves the choice, secrets hidden."""
        command = self.assessment.original.with_candidate(self.choice.candidate)
        env = redacted_env(dict(command.env))
        return replace(command, argv=redact_argv(command.argv), env=tuple(env.items()))

    @property
    def scale(self) -> Scale:
        """What the figures of this race are made of."""
        return Scale.of(self.result, self.objective)

    @property
    def measured(self) -> tuple[Trial, ...]:
        """Who was timed and did not fail."""
        scale = self.scale
        return tuple(one for one in self.result.trials if scale.value(one) is not None)


def is_worth_keeping(result: RaceResult, choice: Choice) -> bool:
    """Whether a later start may do without a race: this one came to its end, or at least compared some."""
    measured = any(trial.failure is None and trial.windows for trial in result.trials)
    return measured and (result.ended == "done" or (result.ended == "budget" and bool(choice.gains)))


def document_of(tuned: Tuned) -> dict[str, Any]:
    """The object of `tune --format json`: that of a dry run, with the trials, and how the race went."""
    value = chosen_document(tuned.assessment, tuned.choice, tuned.command)
    value["dropped"] = [one.to_json() | {"label": redact(one.label)} for one in tuned.result.dropped]
    for one in (*value["candidates"], value["chosen"]):
        one["flags"] = list(redact_argv(one["flags"]))
        if "env" in one:
            one["env"] = redacted_env(one["env"])
    value |= _raced(tuned)
    value["on_slice"] = tuned.on_slice and _raced(tuned.on_slice)
    value["profile"] = None if tuned.kept is None else profile_json(tuned.kept, is_earlier=tuned.is_earlier)
    return value


def profile_json(kept: Kept, *, is_earlier: bool) -> dict[str, Any]:
    """A profile in a document: which, of what standing, and what was measured."""
    profile, measured = kept.profile, kept.profile.measured
    return {
        "name": kept.name,
        "path": str(kept.path),
        "status": profile.status,
        "status_reason": profile.status_reason or None,
        "origin": profile.origin,
        "created": profile.created,
        "reused": is_earlier,
        "workload": profile.workload.get("words"),
        "objective": profile.objective.get("name"),
        "measured": {
            "depth": measured.depth,
            "unit": measured.unit,
            "value": measured.value,
            "original_value": measured.original_value,
            "gain": None if measured.gain is None else dict(measured.gain),
            "figures": measured.figures,
        },
    }


def _raced(tuned: Tuned) -> dict[str, Any]:
    """A race: who was tried, and how it went."""
    return {
        "trials": [_trial(tuned, one) for one in tuned.result.trials],
        "race": {
            "ended": tuned.result.ended,
            "race_s": tuned.result.race_s,
            "workload": tuned.workload.to_json() | {"words": tuned.workload.words},
            "objective": objective_json(tuned.objective),
            "figures": tuned.scale.words if tuned.measured else None,
        },
    }


def _trial(tuned: Tuned, trial: Trial) -> dict[str, Any]:
    """One trial as the interface has it."""
    failure = trial.failure
    believed = failure is None or failure.stage == "serve"
    windows = [("screen", trial.screen)] if trial.screen is not None else []
    samples = [*windows, *(("round", window) for window in trial.rounds)]
    found: dict[str, Any] = {
        "id": trial.candidate.id,
        "flags": list(redact_argv(trial.candidate.flags)),
        "overlay": list(redact_argv(getattr(trial, "overlay", ()))),
        "resolved": None if trial.ready is None else dict(trial.ready.resolved),
        "kernels": _kernels(trial),
        "stage": "serve" if failure is None else failure.stage,
        "failure": failure and failure.to_json(),
        "gate": trial.gate and trial.gate.to_json(),
        "samples": [{"role": role, **window.to_json()} for role, window in samples] if believed else [],
        "summary": _summary(tuned, trial),
    }
    if trial.candidate.env:
        found["env"] = redacted_env(dict(trial.candidate.env))
    if trial.merged_into is not None:
        found["merged_into"] = trial.merged_into
    if trial.acceptance is not None:
        found["acceptance"] = trial.acceptance.to_json()
    lost = tuned.choice.lost.get(trial.candidate.id)
    found["lost"] = lost and {"reason": redact(lost.reason), "failure": lost.kind}
    return found


def _kernels(trial: Trial) -> list[dict[str, Any]] | None:
    """The largest kernels of the last traced window; None where nothing was traced."""
    traced = [window.gpu for window in trial.windows if window.gpu is not None]
    return [kernel.to_json() for kernel in traced[-1].kernels] if traced else None


def _summary(tuned: Tuned, trial: Trial) -> dict[str, Any] | None:
    """The figures of a trial; None where it has none."""
    value = tuned.scale.value(trial)
    if value is None:
        return None
    scale = tuned.scale
    costs = [cost for window in trial.windows if (cost := scale.cost(trial, window)) < math.inf]
    values = [tuned.objective.shown(cost) for cost in costs]
    gain = tuned.choice.gains.get(trial.candidate.id)
    return {
        "value": value,
        "unit": tuned.objective.unit,
        "higher_is_better": tuned.objective.higher_is_better,
        "lowest": min(values),
        "highest": max(values),
        "windows": len(values),
        "gain": gain and gain.to_json(),
        "startup_s": trial.ready and trial.ready.startup_s,
    }
