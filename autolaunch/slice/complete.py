"""A plan into the tensors that its layers lack against others of their kind.

A scale that a converter forgot in one layer changes the answers of every engine in the same way, so no gate
that compares engines can see it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from autolaunch.checkpoint.tensors import Group, Tensors
from autolaunch.slice.part import DECODER_LAYER
from autolaunch.slice.plan import SlicePlan

FEWEST_ALIKE = 2
"""Layers of a kind besides the one that is looked at; of fewer nothing follows."""
MOST_HAVE = 0.75
"""A tensor is expected where at least this share of the layers of its kind have it."""

_MATRICES = (".weight", ".weight_packed", ".qweight")
"""What the numbers of a matrix are called; its other tensors depend on how those are stored."""

_Layer = Mapping[str, list[Group]]


def lacking(plan: SlicePlan) -> tuple[str, ...]:
    """Names of tensors that the slice's layers lack against their like, or against the plan's own source.

    A layer that stores a matrix in another dtype than its like needs other scales, and lacks none of theirs.
    """
    if plan.whole is None:
        return ()
    layers = _by_layer(plan.whole)
    found: list[str] = []
    origins = {plan.origin(name) for name in plan.tensors}
    for layer in plan.kept:
        mine = layers.get(layer, {})
        alike = [
            layers[other]
            for other, kind in enumerate(plan.kinds)
            if other != layer and kind == plan.kinds[layer] and other in layers
        ]
        if len(alike) >= FEWEST_ALIKE:
            found += _missing(layer, mine, alike)
        found += (
            name for groups in mine.values() for one in groups for name in one.names() if name not in origins
        )
    return tuple(dict.fromkeys(found))


def _by_layer(tensors: Tensors) -> dict[int, dict[str, list[Group]]]:
    """The groups of every decoder layer by pattern."""
    found: dict[int, dict[str, list[Group]]] = {}
    for group in tensors.groups:
        if group.layer is not None and DECODER_LAYER.match(group.pattern):
            found.setdefault(group.layer, {}).setdefault(group.pattern, []).append(group)
    return found


def _missing(layer: int, mine: _Layer, alike: Sequence[_Layer]) -> Iterator[str]:
    """Names that layer number `layer` should have."""
    have = Counter(pattern for other in alike for pattern in other)
    for pattern, many in sorted(have.items()):
        if many < MOST_HAVE * len(alike):
            continue
        owners = [other for other in alike if pattern in other]
        counts = Counter(_count(other, pattern) for other in owners)
        usual, times = counts.most_common(1)[0]
        if times < MOST_HAVE * len(owners) or _count(mine, pattern) >= usual:
            continue
        model = next(other for other in owners if _count(other, pattern) == usual)
        if _stored(mine, pattern) not in {None, _stored(model, pattern)}:
            continue
        names = {name for one in mine.get(pattern, ()) for name in one.names()}
        yield from sorted(
            wanted
            for one in model[pattern]
            for name in one.names()
            if (wanted := _in_layer(name, layer)) not in names
        )


def _count(layer: _Layer, pattern: str) -> int:
    """How many tensors of `pattern` a layer has."""
    return sum(group.count for group in layer.get(pattern, ()))


def _stored(layer: _Layer, pattern: str) -> tuple[str, frozenset[str | None]] | None:
    """How a layer stores the numbers of the matrix that `pattern` belongs to; None where it has none."""
    module = pattern.rpartition(".")[0]
    for end in _MATRICES:
        groups = layer.get(module + end)
        if groups:
            return end, frozenset(group.dtype for group in groups)
    return None


def _in_layer(name: str, layer: int) -> str:
    """The same tensor of another layer."""
    match = DECODER_LAYER.match(name)
    return name if match is None else f"{name[: match.start(1)]}{layer}{name[match.end(1) :]}"
