"""Weights into bytes by part, and into the number of parameters they stand for."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from autolaunch.checkpoint.stored import stored_scheme
from autolaunch.checkpoint.tensors import Group, Tensors
from autolaunch.checkpoint.weights import Weight

# Parts that are small and never quantized by themselves.
_SMALL = frozenset({"router", "indexer"})


def bytes_by_part(weights: Sequence[Weight]) -> dict[str, int]:
    """Bytes of each part, what is small (norms, routers) under `other`; empty where a header is missing."""
    sizes: dict[str, int] = {}
    for weight in weights:
        part = "other" if weight.part in _SMALL else weight.part
        for group in weight.tensors.values():
            if group.bytes is None:
                return {}
            sizes[part] = sizes.get(part, 0) + group.bytes
    return sizes


def parameters_of(weights: Sequence[Weight], tensors: Tensors | None) -> int | None:
    """Numbers that the weights stand for: scales are left out, packed ones counted in full."""
    if tensors is None:
        return None
    total = 0
    for weight in weights:
        stored = stored_scheme(weight)
        if stored is not None and stored.elements:
            total += stored.elements
        elif stored is None:
            total += sum(
                _elements(group) for suffix, group in weight.tensors.items() if suffix in {"weight", "bias"}
            )
        else:
            return None
    return total


def _elements(group: Group) -> int:
    """Elements of all tensors of `group`."""
    return prod(group.shape) * group.count if group.shape is not None else 0
