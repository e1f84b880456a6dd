"""Profiles in lines for a person: a list of them, one in full, and what two differ in."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from autolaunch.explain.screen import EMPTY, Line, Style
from autolaunch.profiles.kept import Kept
from autolaunch.profiles.matching import Difference
from autolaunch.profiles.profile import Chosen, Entrant, Profile
from autolaunch.profiles.status import RESOLVED, moment
from autolaunch.redact import redact, redact_argv

_UNITS: Final = {"output_tok_per_s": "tok/s", "latency_ms": "ms"}
_STYLES: Final[dict[str, Style]] = {"verified": "good", "suspect": "warn", "quarantined": "bad"}
_NOTHING: Final = "–"
_DEPTHS: Final = {"slice": "on a slice", "whole": "on the whole model", "none": "not measured here"}
_ORIGINS: Final = {
    "serve": "by a start of `serve`",
    "tune": "by `tune`",
    "shipped": "came with autolaunch",
    "imported": "brought in by hand",
}
_SPANS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def lines_of_list(kept: Sequence[Kept], now_s: float) -> Iterator[Line]:
    """One line a profile."""
    rows = [("name", "status", "result", "age", "workload", "choice")]
    for one in kept:
        profile = one.profile
        age = age_words(now_s - moment(profile.created))
        rows.append(
            (one.name, profile.status, result(profile), age, workload(profile), choice(profile.chosen))
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for number, row in enumerate(rows):
        cells = [text.ljust(width) for text, width in zip(row[:5], widths, strict=True)]
        style: Style = "head" if number == 0 else _STYLES.get(row[1], "")
        yield Line("  ".join(cells), f"  {row[5]}", style=style)


def lines_of_profile(kept: Kept) -> Iterator[Line]:
    """All that a person may want to know of a profile."""
    profile = kept.profile
    yield Line(kept.name, style="head")
    since = f", since {profile.status_since}" if profile.status_since else ""
    why = f": {profile.status_reason}" if profile.status_reason else ""
    yield Line("status: ", f"{profile.status}{why}{since}", style=_STYLES.get(profile.status, ""))
    yield Line("choice: ", choice(profile.chosen))
    yield Line("because: ", profile.reason)
    yield Line("result: ", f"{result(profile)}, {_how(profile)}")
    yield Line("workload: ", f"{workload(profile)}; {objective(profile)}")
    yield Line("made: ", f"{profile.created}, {_ORIGINS[profile.origin]}; {kept.path}")
    if profile.measured.acceptance_length is not None:
        source = f", {profile.measured.acceptance_source}" if profile.measured.acceptance_source else ""
        yield Line("acceptance: ", f"{profile.measured.acceptance_length:g} tokens a step{source}")
    for label, texts in (("warning: ", profile.warnings), ("from: ", profile.provenance)):
        yield from (Line(label, text) for text in texts)
    yield from (Line("note: ", text) for text in profile.notes)
    yield from _entrants(profile)
    yield from _mapping("valid for:", profile.fingerprint)
    resolved = profile.extra.get(RESOLVED)
    if isinstance(resolved, dict):
        yield from _mapping("the server said it uses:", resolved)


def lines_of_diff(
    first: Kept, second: Kept, changes: Iterable[tuple[str, str, str]], differences: Sequence[Difference]
) -> Iterator[Line]:
    """What `second` has in another way than `first`: what was found, and what each is valid for."""
    yield Line(f"{first.name} → {second.name}", style="head")
    some = False
    for field, then, now in changes:
        some = True
        yield Line(f"{field}: ", f"{then} → {now}")
    if differences:
        some = True
        yield EMPTY
        yield Line("valid for:", style="head")
        for one in differences:
            yield Line(
                f"{one.field}: ",
                f"{_value(one.then)} → {_value(one.now)}; {one.invalidates}: {one.consequence}",
                indent=2,
            )
    if not some:
        yield Line("they differ in nothing")


def changes(first: Profile, second: Profile) -> list[tuple[str, str, str]]:
    """What was chosen, measured and seen, where the two differ; their fingerprints are compared apart."""
    told: dict[str, Callable[[Profile], str]] = {
        "choice": lambda one: choice(one.chosen),
        "reason": lambda one: one.reason,
        "result": result,
        "depth": lambda one: one.measured.depth,
        "workload": workload,
        "objective": objective,
        "status": lambda one: one.status,
        "origin": lambda one: one.origin,
        "created": lambda one: one.created,
    }
    rows = ((name, tell(first), tell(second)) for name, tell in told.items())
    return [row for row in rows if row[1] != row[2]]


def choice(chosen: Chosen) -> str:
    """What is typed for `chosen`."""
    if chosen.is_original:
        return "the original command"
    env = [redact(f"{name}={value}") for name, value in chosen.env]
    return " ".join([*map(shlex.quote, env), shlex.join(redact_argv(chosen.flags))]).strip()


def result(profile: Profile) -> str:
    """What was measured, in a few words."""
    measured = profile.measured
    value = (
        "" if measured.value is None else f"{measured.value:.4g} {_UNITS.get(measured.unit, measured.unit)}"
    )
    mean = (measured.gain or {}).get("mean")
    if mean is None and measured.value and measured.original_value and measured.unit != "latency_ms":
        mean = measured.value / measured.original_value - 1
    gain = "" if mean is None or profile.chosen.is_original else f"{mean:+.1%}"
    return f"{value} ({gain})" if value and gain else value or gain or _NOTHING


def workload(profile: Profile) -> str:
    """The workload as a person types it."""
    return str(profile.workload.get("words") or _NOTHING)


def objective(profile: Profile) -> str:
    """What was better, with ceilings where there were some."""
    known = {"name", "unit", "higher_is_better"}
    more = [f"{key} {value}" for key, value in profile.objective.items() if key not in known and value]
    return ", ".join([str(profile.objective.get("name") or _NOTHING), *more])


def age_words(seconds: float) -> str:
    """How long ago, roughly: `3 d`, `5 h`, `12 min`."""
    for span, unit in _SPANS:
        if seconds >= span:
            return f"{int(seconds // span)} {unit}"
    return "now" if seconds >= -60 else _NOTHING


def _how(profile: Profile) -> str:
    """How it was measured."""
    measured = profile.measured
    parts = [_DEPTHS[measured.depth]]
    if measured.original_value is not None:
        parts.append(f"the original {measured.original_value:.4g}")
    if measured.weights != "real":
        parts.append(f"{measured.weights} weights")
    if measured.figures:
        parts.append(measured.figures)
    return "; ".join(parts)


def _entrants(profile: Profile) -> Iterator[Line]:
    """Who else was in the race, and why each is not the choice."""
    if profile.entrants:
        yield EMPTY
        yield Line("in the race:", style="head")
    for one in sorted(profile.entrants, key=lambda one: (one.rank is None, one.rank or 0)):
        yield Line(f"{one.chosen.id}  ", choice(one.chosen), style="bad" if one.failure else "", indent=2)
        words = _showing(profile, one)
        if words:
            yield Line("", words, indent=6)


def _showing(profile: Profile, one: Entrant) -> str:
    """What one entrant showed and why it is not the choice."""
    unit = _UNITS.get(profile.measured.unit, profile.measured.unit)
    parts = [] if one.value is None else [f"{one.value:.4g} {unit}".strip()]
    if one.gain is not None and not one.chosen.is_original:
        parts.append(f"{one.gain:+.1%}")
    if one.failure:
        parts.append(f"{one.failure} at {one.stage}" if one.stage else one.failure)
    if one.lost:
        parts.append(one.lost)
    return "; ".join(parts)


def _mapping(title: str, values: Any) -> Iterator[Line]:
    """Names and values, one a line."""
    if values:
        yield EMPTY
        yield Line(title, style="head")
    for name in sorted(values):
        yield Line(f"{name}: ", _value(values[name]), indent=2)


def _value(value: object) -> str:
    """A value of a fingerprint for a person."""
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else str(value)
