"""When a profile holds for a start: the fields in which the two differ, and what each difference means.

A profile *fits* where nothing differs that matters, is *stale* where speed or trust is in doubt, and is about
*another* start where something of its identity differs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from autolaunch.profiles.fields import INVALIDATES, FieldRule, Invalidates, consequence_of
from autolaunch.profiles.profile import Fingerprint, FlatValue, Profile, Status

Kind = Literal["fits", "stale", "other"]
NOT_SET: Final = "not set"
_KINDS: Final = ("fits", "stale", "other")
_MAKER = "version.autolaunch"
_BAD: Final[frozenset[Status]] = frozenset({"suspect", "quarantined"})
_IMPLIED: Final = ("unit", "higher_is_better")
"""What the name of an objective says already."""
_WORDS: Final = "words"
"""The part of a workload that only people read."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that is not what it was."""

    field: str
    then: FlatValue | None
    """None: not set."""
    now: FlatValue | None
    invalidates: Invalidates
    consequence: str

    @property
    def words(self) -> str:
        """One sentence without a full stop."""
        return f"`{self.field}` was {_shown(self.then)} and is {_shown(self.now)}: {self.consequence}"


@dataclass(frozen=True, slots=True)
class Match:
    """A profile, and how it stands to a start."""

    profile: Profile
    differences: tuple[Difference, ...]
    """The gravest first."""
    not_stated: tuple[str, ...] = ()
    """Fields of the start of which the profile says nothing, and need not."""

    @property
    def gravest(self) -> Invalidates:
        """The most that is invalidated."""
        return self.differences[0].invalidates if self.differences else "nothing"

    @property
    def kind(self) -> Kind:
        """What follows from that."""
        return "other" if self.gravest == "identity" else "fits" if self.gravest == "nothing" else "stale"

    @property
    def doubts(self) -> tuple[Difference, ...]:
        """The differences that invalidate something."""
        return tuple(one for one in self.differences if one.invalidates != "nothing")


@dataclass(frozen=True, slots=True)
class Best:
    """What was found for a start."""

    match: Match | None = None
    """The one that fits, or that is stale."""
    nearest: Match | None = None
    """Of the profiles of this model that are about another start, the one with the fewest differences."""


def differences(then: Fingerprint, now: Fingerprint, *, shipped: bool) -> tuple[Difference, ...]:
    """What differs between the start a profile was made for and this one, the gravest first.

    A `shipped` profile need not state every field.
    """
    found, _ = _compared(then, now, shipped=shipped)
    return found


def judge(
    profile: Profile,
    now: Fingerprint,
    workload: Mapping[str, Any] | None,
    objective: Mapping[str, Any] | None,
) -> Match:
    """How `profile` stands to the start `now`; any workload or objective will do where none is given."""
    then = profile.fingerprint
    found, silent = _compared(then, now, shipped=profile.origin == "shipped")
    extra = []
    if not _is_same_model(then, now, profile.model):
        extra.append(_difference("model", profile.model, now.get("model.name")))
    if workload is not None and not _is_same(profile.workload, workload):
        extra.append(_difference("workload", _described(profile.workload), _described(workload)))
    if objective is not None and not _is_same(profile.objective, objective):
        extra.append(_difference("objective", _described(profile.objective), _described(objective)))
    return Match(profile, _sorted((*extra, *found)), silent)


def best(
    profiles: Iterable[Profile],
    now: Fingerprint,
    workload: Mapping[str, Any] | None,
    objective: Mapping[str, Any] | None,
) -> Best:
    """The profile to use: one that fits before a stale one, a sound one before others, the newest first.

    One that was made here comes before a shipped one; where both are equally new, the earlier in `profiles`.
    """
    judged = [judge(one, now, workload, objective) for one in profiles]
    usable = [one for one in judged if one.kind != "other"]
    others = [
        one
        for one in judged
        if one.kind == "other" and _is_same_model(one.profile.fingerprint, now, one.profile.model)
    ]
    usable.sort(key=_made, reverse=True)
    usable.sort(key=_order)
    others.sort(key=_made, reverse=True)
    others.sort(key=lambda one: sum(each.invalidates == "identity" for each in one.differences))
    return Best(next(iter(usable), None), next(iter(others), None))


def _made(match: Match) -> datetime:
    """When a profile was made; long ago where it does not say."""
    try:
        made = datetime.fromisoformat(match.profile.created)
    except ValueError:
        made = datetime.min
    return made if made.tzinfo is not None else made.replace(tzinfo=UTC)


def _order(match: Match) -> tuple[int, bool, bool]:
    """What comes first, but for age."""
    profile = match.profile
    return _KINDS.index(match.kind), profile.status in _BAD, profile.origin == "shipped"


def _compared(
    then: Fingerprint, now: Fingerprint, *, shipped: bool
) -> tuple[tuple[Difference, ...], tuple[str, ...]]:
    """The differences, the gravest first, and the fields on which the profile is rightly silent."""
    older = then.get(_MAKER) != now.get(_MAKER)
    found, silent = [], []
    for field in sorted({*then, *now}):
        rule = consequence_of(field)
        before, after = then.get(field, rule.default), now.get(field, rule.default)
        if _equal(before, after, rule.within):
            continue
        if field not in then and _may_be_silent(rule, shipped=shipped, older=older):
            silent.append(field)
            continue
        found.append(Difference(field, before, after, rule.invalidates, rule.consequence))
    return _sorted(found), tuple(silent)


def _may_be_silent(rule: FieldRule, *, shipped: bool, older: bool) -> bool:
    """Whether a profile may leave the field of `rule` out."""
    return (shipped and rule.absence != "counts") or (older and rule.absence == "older")


def _equal(then: FlatValue | None, now: FlatValue | None, within: float | None) -> bool:
    """Whether two values of a field are the same; `8` and `"8"` are, as a person may write either."""
    if then == now and isinstance(then, bool) == isinstance(now, bool):
        return True
    if then is None or now is None or isinstance(then, bool) or isinstance(now, bool):
        return False
    if within is not None and isinstance(then, int | float) and isinstance(now, int | float):
        return math.isclose(then, now, rel_tol=within)
    return str(then) == str(now)


def _is_same_model(then: Fingerprint, now: Fingerprint, name: str) -> bool:
    """Whether both are about one model: by its name, or by its configuration."""
    config = then.get("checkpoint.config")
    return (config is not None and config == now.get("checkpoint.config")) or now.get("model.name") in (
        name,
        then.get("model.name", name),
    )


def _is_same(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether two workloads or objectives say the same; what is None is not said."""
    return bool(_plain(then) == _plain(now))


def _plain(value: Any) -> Any:
    """`value` without what is None or words, so that what was read compares with what is at hand."""
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items() if one is not None and key != _WORDS}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _described(value: Mapping[str, Any]) -> str:
    """A workload or an objective in one line."""
    words = value.get(_WORDS)
    if isinstance(words, str) and words:
        return words
    told = {key: one for key, one in _plain(value).items() if not isinstance(one, dict | list)}
    for implied in _IMPLIED if "name" in told else ():
        told.pop(implied, None)
    return ", ".join(str(one) if key == "name" else f"{key}={one}" for key, one in told.items())


def _difference(field: str, then: FlatValue | None, now: FlatValue | None) -> Difference:
    """The difference in a field, whatever the values are."""
    rule = consequence_of(field)
    return Difference(field, then, now, rule.invalidates, rule.consequence)


def _sorted(found: Iterable[Difference]) -> tuple[Difference, ...]:
    """The gravest first, otherwise as they come."""
    return tuple(sorted(found, key=lambda one: -INVALIDATES.index(one.invalidates)))


def _shown(value: FlatValue | None) -> str:
    """A value in a sentence."""
    if value is None:
        return NOT_SET
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
