"""Reads `data/slices.toml`: families that can be cut, and keys of a configuration that speak of layers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from autolaunch.capability.versions import VersionRange, parse_range
from autolaunch.tables import load_rows

KeyForm = Literal["count", "list", "indices"]

_TABLE = "slices"


@dataclass(frozen=True, slots=True)
class SliceFamily:
    """One family of classes whose loaders were read."""

    id: str
    title: str
    architectures: tuple[str, ...]
    layers: int
    """At least so many are kept."""
    keys: tuple[str, ...]
    """Keys with something a layer that its configurations may hold."""
    skips: VersionRange | None
    """Versions whose loader passes over tensors of layers that the model has not; None for none."""
    unread: re.Pattern[str] | None
    """Tensors of heads that no draft reads."""
    reason: str

    def skips_deeper(self, sglang: str) -> bool:
        """Whether the loader of version `sglang` passes over deeper layers; no for what is no version."""
        return self.skips is not None and self.skips.holds(sglang) is True


@cache
def slice_families() -> tuple[SliceFamily, ...]:
    """All rows `family`, in their order."""
    return tuple(
        SliceFamily(
            id=row["id"],
            title=row["title"],
            architectures=tuple(row["architectures"]),
            layers=row["layers"],
            keys=tuple(row["keys"]),
            skips=parse_range(row["skips"]) if row["skips"] else None,
            unread=re.compile(row["unread"]) if "unread" in row else None,
            reason=row["reason"],
        )
        for row in load_rows(_TABLE, "family")
    )


@cache
def key_forms() -> dict[str, KeyForm]:
    """The form of each key that speaks of layers."""
    return {row["key"]: row["form"] for row in load_rows(_TABLE, "key")}


def family_of(architecture: str) -> SliceFamily | None:
    """The family of a class, None for one whose loader nobody has read."""
    for family in slice_families():
        if any(fnmatchcase(architecture, like) for like in family.architectures):
            return family
    return None
