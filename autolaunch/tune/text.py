"""What a tuning found, in lines for a person: who was tried and how, who was not, and the pick."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from autolaunch.candidates.candidate import ORIGINAL_ID
from autolaunch.explain.screen import EMPTY, Line
from autolaunch.explain.words import machine_name, model_name, software_name
from autolaunch.race.objective import Objective
from autolaunch.race.result import Trial
from autolaunch.redact import redact, redact_argv
from autolaunch.tune.result import Tuned
from autolaunch.units import format_duration

_ENDED: Final = {"done": "", "budget": ", ended by the budget", "interrupted": ", interrupted"}
_NO_FIGURE: Final = "–"


def lines_of(tuned: Tuned) -> list[Line]:
    """The report for a person."""
    before = [] if tuned.on_slice is None else [*_race(tuned.on_slice, "slice: "), *_trials(tuned.on_slice)]
    return [*_head(tuned), *before, *_race(tuned), *_trials(tuned), *_dropped(tuned), *_end(tuned)]


def _head(tuned: Tuned) -> Iterator[Line]:
    """What was tuned, on what, for what."""
    assessment = tuned.assessment
    yield Line(f"{model_name(assessment)} on {machine_name(assessment.machine)}", style="head")
    yield Line("software: ", software_name(assessment))
    direction = "higher" if tuned.objective.higher_is_better else "lower"
    unit = unit_words(tuned.objective)
    yield Line(
        "workload: ", f"{tuned.workload.words}; {tuned.objective.name} ({unit}, {direction} is better)"
    )
    if not tuned.result.trials:
        yield EMPTY


def _race(tuned: Tuned, label: str = "race: ") -> Iterator[Line]:
    """How a race went; nothing where there was none."""
    result = tuned.result
    if result.trials:
        failed = sum(one.failure is not None for one in result.trials)
        tried = f"{len(result.trials)} tried, {failed} failed, in {format_duration(result.race_s)}"
        yield Line(label, f"{tried}{_ENDED[result.ended]}")
        if tuned.measured:
            yield Line("figures: ", tuned.scale.words)
        yield EMPTY


def _trials(tuned: Tuned) -> Iterator[Line]:
    """Who was tried: a table, and below a row that needs them the reasons."""
    if not tuned.result.trials:
        return
    rows = [("id", unit_words(tuned.objective), f"against {ORIGINAL_ID}", "gate", "flags")]
    rows += [_row(tuned, one) for one in tuned.result.trials]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for number, row in enumerate(rows):
        cells = [text.ljust(width) for text, width in zip(row, widths, strict=False)]
        trial = tuned.result.trials[number - 1] if number else None
        chosen = trial is not None and trial.candidate.id == tuned.choice.candidate.id
        style = "head" if trial is None else "good" if chosen else "bad" if trial.failure else ""
        yield Line("  ".join(cells), f"  {row[4]}", style=style)  # type: ignore[arg-type]
        if trial is not None and trial.failure is not None:
            failure = trial.failure
            yield Line(f"{failure.kind} at {failure.stage}: ", redact(failure.reason), indent=4)
        elif trial is not None and not chosen and trial.candidate.id in tuned.choice.lost:
            yield Line("not chosen: ", redact(tuned.choice.lost[trial.candidate.id].reason), indent=4)
    yield EMPTY


def _row(tuned: Tuned, trial: Trial) -> tuple[str, str, str, str, str]:
    """The cells of one trial."""
    value = tuned.scale.value(trial)
    gain = tuned.choice.gains.get(trial.candidate.id)
    against = ""
    if trial.merged_into is not None:
        against = f"same kernels as {trial.merged_into}"
    elif gain is not None and value is not None:
        mean, low, high = (f"{100 * part:+.1f}" for part in (gain.mean, gain.low, gain.high))
        against = f"{mean} % ({low} to {high})"
    gate = _NO_FIGURE
    if trial.gate is not None:
        gate = trial.gate.label if trial.gate.passed else "failed"
    elif trial.candidate.id == ORIGINAL_ID and value is not None:
        gate = "reference"
    figure = _NO_FIGURE if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"
    flags = [f"{name}={text}" for name, text in trial.candidate.env] + list(trial.candidate.flags)
    words = " ".join(redact_argv(flags)) or trial.candidate.label
    return trial.candidate.id, figure, against, gate, words


def _dropped(tuned: Tuned) -> Iterator[Line]:
    """Who was never tried, and why."""
    if not tuned.result.dropped:
        return
    yield Line("not tried:", style="head")
    for one in tuned.result.dropped:
        yield Line(redact(one.label), f": {one.reason}", indent=2)
    yield EMPTY


def _end(tuned: Tuned) -> Iterator[Line]:
    """The pick, why, and how to serve it."""
    candidate = tuned.choice.candidate
    kept = tuned.kept
    if kept is not None and tuned.is_earlier:
        yield Line("already tuned: ", f"{kept.profile.created}, {kept.profile.status}, {kept.path}")
    if tuned.assessment.hopeless is not None or (tuned.result.trials and not tuned.measured):
        yield Line("chosen: ", f"none; {tuned.choice.reason}", style="bad")
        return
    yield Line("chosen: ", f"{redact(candidate.label)}: {tuned.choice.reason}", style="good")
    yield Line("serve it: ", tuned.command.shell())
    if kept is not None and not tuned.is_earlier:
        yield Line("kept: ", f"{kept.path}; `autolaunch serve` with the same flags uses it")


def unit_words(objective: Objective) -> str:
    """The unit of an objective for a person."""
    return {"output_tok_per_s": "output tok/s", "latency_ms": "ms"}.get(objective.unit, objective.unit)
