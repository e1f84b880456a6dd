"""Profiles as TOML, and back: `to_toml` writes what `from_toml` reads, strictly, within limits.

A file may come from anybody.  What is read is bounded in size, depth and counts before a parser sees it, each
value has its type, and what a newer autolaunch added under the same schema is kept, unread, in `extra`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

import msgspec

from autolaunch.errors import AutolaunchError, visible
from autolaunch.profiles.fields import presentable
from autolaunch.profiles.limits import SIZE_LIMIT, excess_in, fault_in
from autolaunch.profiles.profile import SCHEMA, FlatValue, Profile
from autolaunch.profiles.rows import (
    MOST_ENTRIES,
    ProfileRow,
    chosen_row,
    entrant_row,
    hidden,
    in_order,
    measured_row,
    merge,
    rest_of,
)
from autolaunch.redact import redact
from autolaunch.tables import toml

__all__ = ["SIZE_LIMIT", "NewerProfileError", "ProfileError", "from_toml", "to_toml"]

_FAMILY = "autolaunch.profile/"
_HINT = "`autolaunch profile list` shows those that can be read"
_PART = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)


class ProfileError(AutolaunchError):
    """A file is no profile, or not one that this autolaunch reads."""


class NewerProfileError(ProfileError):
    """A file is a profile of a schema that this autolaunch does not know."""


def to_toml(profile: Profile) -> str:
    """`profile` as a text that people can read and compare; secrets are hidden, what is None is left out."""
    import tomli_w  # here, because most starts write nothing

    row: dict[str, Any] = {
        "schema": SCHEMA,
        "model": profile.model,
        "status": profile.status,
        "status_reason": profile.status_reason or None,
        "status_since": profile.status_since or None,
        "origin": profile.origin,
        "created": profile.created,
        "reason": profile.reason,
        "warnings": list(profile.warnings[:MOST_ENTRIES]) or None,
        "provenance": list(profile.provenance[:MOST_ENTRIES]) or None,
        "notes": list(profile.notes[:MOST_ENTRIES]) or None,
        "chosen": chosen_row(profile.chosen),
        "measured": measured_row(profile.measured),
        "workload": in_order(profile.workload),
        "objective": in_order(profile.objective),
        "fingerprint": _nested(profile.fingerprint),
        "entrants": [entrant_row(one) for one in profile.entrants[:MOST_ENTRIES]] or None,
    }
    merge(row, profile.extra)
    written = cast(dict[str, Any], _clean(row))
    return tomli_w.dumps(written, indent=2)


def from_toml(text: bytes, *, where: str) -> Profile:
    """The profile in `text`, which lies at `where`; ProfileError names the field that is wrong."""
    if len(text) > SIZE_LIMIT:
        raise _fault(where, f"it has more than {SIZE_LIMIT >> 10} KiB")
    try:
        decoded = text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _fault(where, f"byte {error.start} is not UTF-8") from error
    excess = excess_in(decoded)
    if excess is not None:
        raise _fault(where, excess)
    try:
        row = toml.loads(decoded)
    except (ValueError, RecursionError) as error:
        raise _fault(where, f"it is not TOML: {error}") from error
    schema = row.get("schema")
    if schema != SCHEMA:
        raise _other_schema(schema, where)
    odd = fault_in(row)
    if odd is not None:
        raise _fault(where, odd)
    try:
        read = msgspec.convert(row, ProfileRow)
    except msgspec.ValidationError as error:
        raise _fault(where, _in_words(error)) from error
    return _profile(read, row, where)


def _profile(read: ProfileRow, row: Mapping[str, Any], where: str) -> Profile:
    """What was read as a value."""
    try:
        made = datetime.fromisoformat(read.created)
    except ValueError as error:
        raise _fault(where, f"`created`: `{read.created}` is no date of ISO 8601") from error
    if made.tzinfo is None:
        raise _fault(where, f"`created`: `{read.created}` has no time zone")
    return Profile(
        model=read.model,
        chosen=read.chosen.read(),
        reason=read.reason,
        origin=read.origin,
        created=read.created,
        fingerprint=_flat(read.fingerprint, where),
        workload=read.workload,
        objective=read.objective,
        measured=read.measured.read(),
        entrants=tuple(one.read() for one in read.entrants),
        status=read.status,
        status_reason=read.status_reason,
        status_since=read.status_since,
        warnings=tuple(read.warnings),
        provenance=tuple(read.provenance),
        notes=tuple(read.notes),
        extra=rest_of(row, read),
    )


def _flat(nested: Mapping[str, FlatValue | dict[str, FlatValue]], where: str) -> dict[str, FlatValue]:
    """A fingerprint's fields by their dotted names."""
    found: dict[str, FlatValue] = {}
    for name, value in nested.items():
        table = value.items() if isinstance(value, dict) else [(None, value)]
        for key, one in table:
            field = name if key is None else f"{name}.{key}"
            if not all(_PART.fullmatch(part) for part in (name, key) if part is not None):
                raise _fault(where, f"`fingerprint.{field}` is no name of a field")
            found[field] = one
    return dict(sorted(found.items()))


def _nested(fingerprint: Mapping[str, FlatValue]) -> dict[str, Any]:
    """A fingerprint by the first part of its names, plain fields before tables."""
    plain: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for name, value in sorted(fingerprint.items()):
        head, dot, rest = name.partition(".")
        if dot:
            tables.setdefault(head, {})[rest] = presentable(name, value)
        else:
            plain[name] = presentable(name, value)
    return {**plain, **tables}


def _clean(value: Any) -> Any:
    """`value` as TOML can hold it: without None and what is not finite, texts in one line, secrets hidden."""
    if isinstance(value, Mapping):
        cleaned = ((key, _clean(hidden(key, one))) for key, one in value.items())
        return {visible(str(key)): one for key, one in cleaned if one is not None}
    if isinstance(value, list | tuple):
        return [one for one in map(_clean, value) if one is not None]
    if isinstance(value, str):
        return visible(redact(value))
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _in_words(error: msgspec.ValidationError) -> str:
    """What msgspec found, the field first."""
    what, _, place = str(error).partition(" - at `$")
    field = place.rstrip("`").lstrip(".")
    what = what[:1].lower() + what[1:]
    return f"`{field}`: {what}" if field else what


def _other_schema(schema: object, where: str) -> ProfileError:
    """The error about a file that says it is something else."""
    if schema is None:
        return _fault(where, "it has no `schema`")
    if not isinstance(schema, str):  # not shown: a number may have more digits than Python makes a text of
        return _fault(where, f"its schema is no text, and should be `{SCHEMA}`")
    shown = visible(schema)[:80]
    if re.fullmatch(rf"{re.escape(_FAMILY)}[0-9]{{1,6}}", schema, re.ASCII):
        return NewerProfileError(
            f"`{where}` was written by a newer autolaunch",
            because=(f"its schema is `{shown}`, and this one reads `{SCHEMA}`",),
            hint="update autolaunch, or tune again",
        )
    return _fault(where, f"its schema is `{shown}`, not `{SCHEMA}`")


def _fault(where: str, because: str) -> ProfileError:
    """The error about a file that is no profile."""
    return ProfileError(f"`{where}` is no profile", because=(because,), hint=_HINT)
