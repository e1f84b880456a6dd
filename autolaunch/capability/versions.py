"""Versions and ranges of versions, in the plain order a table needs.

PEP 440's own ranges surprise: there `>0.5.10` refuses 0.5.10.post1, and `<0.5.11` refuses 0.5.11rc1.
Here a range is the order of versions and nothing else, local parts (`+cu130`) do not count, and a
pre-release or development build stands for the release it leads to, whose sources it nearly has.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

_VERSION = re.compile(
    r"v?(?P<release>\d+(?:\.\d+)*)"
    r"(?P<early>[-_.]?(?:a|b|c|rc|alpha|beta|pre|preview)[-_.]?\d*)?"
    r"(?:[-_.]?(?:post|rev|r)[-_.]?(?P<post>\d*)|-(?P<dash>\d+))?"
    r"(?P<dev>[-_.]?dev[-_.]?\d*)?"
    r"(?:\+[a-z0-9._-]+)?",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"(===|==|!=|~=|<=|>=|<|>)\s*([^\s,]+)")

Key = tuple[tuple[int, ...], int]
"""The release without trailing zeros, and the number of its post-release, -1 for none."""

_ORDER: Final[dict[str, Callable[[Key, Key], bool]]] = {
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
}


@lru_cache(maxsize=1024)
def version_key(text: str) -> Key | None:
    """What versions are ordered by; None when `text` is no version."""
    found = _VERSION.fullmatch(text.strip())
    if found is None:
        return None
    release = [int(part) for part in found["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    post = found["post"] if found["post"] is not None else found["dash"]
    early = found["early"] or (found["dev"] and post is None)
    return tuple(release), -1 if early or post is None else int(post or 0)


def is_early(text: str) -> bool:
    """Whether `text` is a pre-release or development build, which stands for its release here."""
    found = _VERSION.fullmatch(text.strip())
    return found is not None and bool(found["early"] or found["dev"])


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Clauses that all must hold; none at all is every version."""

    text: str
    clauses: tuple[tuple[str, str], ...]

    def holds(self, version: str) -> bool | None:
        """Whether `version` lies in the range; None when it is no version."""
        key = version_key(version)
        if key is None:
            return None
        return all(_clause_holds(operator, bound, key) for operator, bound in self.clauses)

    def bounds(self) -> tuple[str, ...]:
        """The versions named in it."""
        return tuple(bound.removesuffix(".*") for _, bound in self.clauses)


@lru_cache(maxsize=1024)
def parse_range(text: str) -> VersionRange:
    """The range that `text` says, such as `>=0.5.14,<0.5.20`; ValueError when it says none."""
    clauses: list[tuple[str, str]] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        found = _CLAUSE.fullmatch(part)
        if found is None or found[1] == "===":
            raise ValueError(f"`{part}` is no version comparison, such as `>=0.5.14`")
        operator, bound = found[1], found[2]
        if version_key(bound.removesuffix(".*")) is None:
            raise ValueError(f"`{bound}` is no version")
        if bound.endswith(".*") and operator not in ("==", "!="):
            raise ValueError(f"`{part}`: `.*` goes with `==` and `!=` only")
        if operator == "~=" and len(bound.split(".")) < 2:
            raise ValueError(f"`{part}`: `~=` needs two parts")
        clauses.append((operator, bound))
    return VersionRange(text, tuple(clauses))


def _clause_holds(operator: str, bound: str, key: Key) -> bool:
    """Whether one comparison holds for the version with `key`."""
    limit = version_key(bound.removesuffix(".*"))
    if limit is None:  # parse_range let only versions in
        return False
    if bound.endswith(".*"):
        return _starts_with(key, bound.removesuffix(".*")) == (operator == "==")
    if operator == "~=":
        return key >= limit and _starts_with(key, bound.rpartition(".")[0])
    return _ORDER[operator](key, limit)


def _starts_with(key: Key, prefix: str) -> bool:
    """Whether the release of `key` begins with the numbers of `prefix`."""
    wanted = [int(part) for part in re.findall(r"\d+", prefix)]
    release = list(key[0]) + [0] * len(wanted)
    return release[: len(wanted)] == wanted
