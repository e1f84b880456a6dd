"""The parts of a profile as its TOML has them, and what of a file no part of this schema takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

from autolaunch.profiles.fields import presentable
from autolaunch.profiles.limits import LONGEST_TEXT
from autolaunch.profiles.profile import Chosen, Depth, Entrant, FlatValue, Measured, Origin, Status
from autolaunch.redact import redact_argv

MOST_ENTRIES: Final = 100
"""Of each list of a profile; a race has twelve candidates."""
_Name = Annotated[str, msgspec.Meta(max_length=300)]
_Text = Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)]
_Rank = Annotated[int, msgspec.Meta(ge=1, le=1000)]
_Texts = Annotated[list[_Text], msgspec.Meta(max_length=MOST_ENTRIES)]


class ChosenRow(msgspec.Struct, frozen=True):
    """`Chosen` as it is written."""

    id: _Name = "c0"
    origin: Literal["original", "table", "user"] = "original"
    dimension: _Name | None = None
    choice: _Name | None = None
    flags: Annotated[list[_Text], msgspec.Meta(max_length=256)] = []
    env: Annotated[dict[_Name, _Text], msgspec.Meta(max_length=64)] = {}

    def read(self) -> Chosen:
        """As a profile has it."""
        env = tuple(sorted(self.env.items()))
        return Chosen(tuple(self.flags), env, self.id, self.origin, self.dimension, self.choice)


class EntrantRow(msgspec.Struct, frozen=True):
    """`Entrant` as it is written."""

    chosen: ChosenRow
    rank: _Rank | None = None
    value: float | None = None
    gain: float | None = None
    lost: _Text = ""
    failure: _Name | None = None
    stage: _Name | None = None

    def read(self) -> Entrant:
        """As a profile has it."""
        return Entrant(
            self.chosen.read(), self.value, self.gain, self.lost, self.failure, self.stage, self.rank
        )


class MeasuredRow(msgspec.Struct, frozen=True):
    """`Measured` as it is written."""

    depth: Depth
    unit: _Name = ""
    value: float | None = None
    original_value: float | None = None
    figures: _Text = ""
    ended: _Text = "done"
    race_s: float | None = None
    weights: Literal["real", "synthetic", "unknown"] = "real"
    acceptance_length: float | None = None
    acceptance_source: _Text = ""
    gain: dict[_Name, int | float] | None = None

    def read(self) -> Measured:
        """As a profile has it."""
        return Measured(**{name: getattr(self, name) for name in self.__struct_fields__})


class ProfileRow(msgspec.Struct, frozen=True):
    """`Profile` as it is written."""

    schema: str
    model: Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
    origin: Origin
    created: _Name
    reason: _Text
    chosen: ChosenRow
    fingerprint: dict[_Name, FlatValue | dict[_Name, FlatValue]]
    workload: dict[_Name, Any]
    objective: dict[_Name, Any]
    measured: MeasuredRow
    entrants: Annotated[list[EntrantRow], msgspec.Meta(max_length=MOST_ENTRIES)] = []
    status: Status = "fresh"
    status_reason: _Text = ""
    status_since: _Name = ""
    warnings: _Texts = []
    provenance: _Texts = []
    notes: _Texts = []


def hidden(name: str, value: Any) -> Any:
    """`value`, hidden where `name` says that it is a secret."""
    return presentable(name, value) if isinstance(value, str) else value


def chosen_row(chosen: Chosen) -> dict[str, Any]:
    """A choice as it is written."""
    return {
        "id": chosen.id,
        "origin": chosen.origin,
        "dimension": chosen.dimension,
        "choice": chosen.choice,
        "flags": list(redact_argv(chosen.flags)),
        "env": {name: hidden(name, value) for name, value in sorted(chosen.env)} or None,
    }


def entrant_row(one: Entrant) -> dict[str, Any]:
    """An entrant as it is written."""
    row = {
        "rank": one.rank,
        "value": one.value,
        "gain": one.gain,
        "lost": one.lost or None,
        "failure": one.failure,
        "stage": one.stage,
    }
    return {**row, "chosen": chosen_row(one.chosen)}


def measured_row(measured: Measured) -> dict[str, Any]:
    """A summary as it is written."""
    row = {name: getattr(measured, name) for name in MeasuredRow.__struct_fields__}
    gain = in_order(measured.gain) if measured.gain is not None else None
    return {name: None if value == "" else value for name, value in row.items()} | {"gain": gain}


def in_order(value: Mapping[str, Any]) -> dict[str, Any]:
    """A table by its keys, tables in it after what is none."""
    pairs = sorted(value.items(), key=lambda pair: (isinstance(pair[1], Mapping), pair[0]))
    return {key: in_order(one) if isinstance(one, Mapping) else one for key, one in pairs}


def rest_of(row: Mapping[str, Any], read: msgspec.Struct) -> dict[str, Any]:
    """What of `row` was not read, table by table; entries of a list by their number."""
    rest: dict[str, Any] = {}
    for key, value in row.items():
        if key not in read.__struct_fields__:
            rest[key] = value
            continue
        known = getattr(read, key)
        if isinstance(known, msgspec.Struct):
            inner = rest_of(value, known)
        elif isinstance(known, list):
            each = {str(at): one for at, one in enumerate(known) if isinstance(one, msgspec.Struct)}
            inner = {at: left for at, one in each.items() if (left := rest_of(value[int(at)], one))}
        else:
            continue
        if inner:
            rest[key] = inner
    return rest


def merge(row: dict[str, Any], rest: Mapping[str, Any]) -> None:
    """Put what `rest_of` took back into `row`, never over what is there."""
    for key, value in rest.items():
        there = row.get(key)
        if isinstance(there, list) and isinstance(value, Mapping):
            for at, one in value.items():
                if at.isdigit() and int(at) < len(there) and isinstance(there[int(at)], dict):
                    merge(there[int(at)], one)
        elif isinstance(there, dict) and isinstance(value, Mapping):
            merge(there, value)
        elif key not in row:
            row[key] = value
