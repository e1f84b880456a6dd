"""Names of tensors into the heads that predict several tokens, and keys into the number that is promised.

Forms of heads are rows of `data/mtp_tensors.toml`.  A decoder layer is a head only if its number is beyond
the last layer *and* it holds what only heads have, or the configuration announces it: no layer is one by its
number alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from autolaunch.checkpoint.config import Config
from autolaunch.checkpoint.tensors import Group, Tensors
from autolaunch.tables import load_rows

_EXPERTS = re.compile(r"\.experts\.N\.")
_STACKED = re.compile(r"\.experts\.(gate_up_proj|gate_proj|up_proj|w1|w13)|\.moe\.(gate|up)_proj")


@dataclass(frozen=True, slots=True)
class Heads:
    """The tensors of the heads, before anything is said of them."""

    form: Mapping[str, Any]
    groups: tuple[Group, ...]
    prefix: str
    """As in the names, with the number of the first extra layer."""


@cache
def _rows(table: str) -> tuple[Mapping[str, Any], ...]:
    """The rows `table` of `data/mtp_tensors.toml`."""
    return tuple(load_rows("mtp_tensors", table))


def find_heads(tensors: Tensors, num_layers: int | None, announced: int) -> Heads | None:
    """The heads among `tensors` of a model with `num_layers` decoder layers, None without any.

    `announced` is the number that the configuration promises.
    """
    patterns = tensors.patterns()
    for form in _rows("form"):
        prefix = re.compile(form["prefix"])
        marks = [re.compile(mark) for mark in form["marks"]]
        within = {pattern: match.end() for pattern in patterns if (match := prefix.match(pattern))}
        if not within:
            continue
        if not form.get("extra_layer"):
            if any(mark.search(pattern[end:]) for pattern, end in within.items() for mark in marks):
                groups = tuple(group for pattern in within for group in patterns[pattern])
                first = next(iter(within))
                return Heads(form, groups, first[: within[first]])
            continue
        marked = {
            (pattern[:end], group.layer)
            for pattern, end in within.items()
            for group in patterns[pattern]
            if group.layer is not None
            and num_layers is not None
            and group.layer >= num_layers
            and (group.layer < num_layers + announced or any(mark.search(pattern[end:]) for mark in marks))
        }
        if marked:
            groups = tuple(
                group
                for pattern, end in within.items()
                for group in patterns[pattern]
                if (pattern[:end], group.layer) in marked
            )
            start, number = min(marked, key=lambda one: one[1] or 0)
            return Heads(form, groups, start.replace(".N.", f".{number}."))
    return None


def announced_heads(config: Config) -> tuple[int | None, tuple[str, ...]]:
    """The number of heads the configuration promises (None: it says nothing), and the keys."""
    counts: list[int] = []
    keys: list[str] = []
    for row in _rows("announce"):
        place, _, key = str(row["key"]).rpartition(".")
        data = config.mapping(place) if place else config.data
        value = (data or {}).get(key)
        if value is None and not place:
            value = config.outer.get(key)
        if value is None:
            continue
        if row["count"] == "one":
            count = 1 if value else 0
        elif isinstance(value, int) and not isinstance(value, bool):
            count = max(value, 0)
        else:
            continue
        if "unless" in row and config.get(row["unless"]) is False:
            count = 0
        counts.append(count)
        keys.append(config.name(str(row["key"])))
    return (max(counts), tuple(keys)) if counts else (None, ())


def count_heads(heads: Heads) -> tuple[int, bool]:
    """How many heads there are, and whether each has the projection that makes it one.

    One head may be several blocks (Nemotron-H), so heads are counted by projections where those are numbered.
    """
    needs = [re.compile(need) for need in heads.form["needs"]]
    start = re.compile(heads.form["prefix"])
    joined: set[int | None] = set()
    numbers: set[int | None] = set()
    for group in heads.groups:
        match = start.match(group.pattern)
        rest = group.pattern[match.end() :] if match else group.pattern
        numbers.add(group.layer)
        if any(need.search(rest) for need in needs):
            joined.add(group.layer)
    numbered = {one for one in joined if one is not None} if heads.form["nextn"] else set()
    layers = len(numbered) or len({one for one in numbers if one is not None}) or 1
    return layers, bool(joined)


def experts_of(heads: Heads) -> int:
    """Routed experts of one head: by their numbers in the names, or by a stacked shape."""
    most = 0
    for group in heads.groups:
        match = _EXPERTS.search(group.pattern)
        if match:
            position = group.pattern[: match.end() - 1].count(".N") - 1
            most = max(most, len(group.numbers(position)))
        elif group.shape is not None and len(group.shape) >= 3 and _STACKED.search(group.pattern):
            most = max(most, group.shape[0])
    return most
