"""The tensors of a checkpoint as groups: same pattern, same layer, same dtype and shape.

A checkpoint of 397B parameters names 371,111 tensors but holds some thousand groups; whoever asks about
kinds, layers or bytes walks `groups` and never the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from autolaunch.checkpoint.headers import BITS, tensor_bytes
from autolaunch.checkpoint.masks import Bundle, Part, collapse


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """What is known of one tensor; `dtype`, `shape` and `bytes` are None where no header was read."""

    dtype: str | None
    shape: tuple[int, ...] | None
    file: str
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Group:
    """Tensors that differ in nothing but the numbers after the first in their names."""

    pattern: str
    """The name with every number between dots as `N`: `model.layers.N.mlp.experts.N.up_proj.weight`."""
    layer: int | None
    """The first number in the names (all have the same); None where the names hold none."""
    count: int
    dtype: str | None
    """As the header spells it (`BF16`, `F8_E4M3`, `U8`); None where no header was read."""
    shape: tuple[int, ...] | None
    bytes: int | None
    """Of all `count` tensors together; None where no header was read or the dtype is not known."""
    files: tuple[str, ...]
    """Where they lie; of experts that are alike, where the first one lies."""
    sampled: bool = False
    """Whether dtype and shape were taken from another layer of the same pattern."""
    parts: tuple[Part, ...] = field(default=(), repr=False, compare=False)

    def names(self) -> Iterator[str]:
        """The full names."""
        for part in self.parts:
            yield from part.names()

    def numbers(self, position: int = 1) -> frozenset[int]:
        """The distinct numbers at `position` in the names (0 is the layer, 1 the expert, …)."""
        return frozenset().union(*(part.numbers(position) for part in self.parts))


@dataclass(frozen=True, slots=True)
class Tensors:
    """All tensors of a checkpoint, those of files that the index does not name included."""

    groups: tuple[Group, ...]
    complete: bool
    """Whether dtype and shape of every tensor come from a header (of experts that are alike, the first)."""
    total_bytes: int | None
    """Data bytes of all tensors in files that SGLang loads; None without headers."""
    unindexed: frozenset[str] = frozenset()
    """Files with tensors that the index does not name (empty without an index)."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """`__metadata__` of the first shard."""
    _by_pattern: Mapping[str, tuple[Group, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the groups by pattern."""
        found: dict[str, list[Group]] = {}
        for group in self.groups:
            found.setdefault(group.pattern, []).append(group)
        object.__setattr__(self, "_by_pattern", {name: tuple(groups) for name, groups in found.items()})

    def __len__(self) -> int:
        """How many tensors there are."""
        return sum(group.count for group in self.groups)

    def __contains__(self, name: str) -> bool:
        """Whether there is a tensor `name`."""
        return self.get(name) is not None

    def patterns(self) -> Mapping[str, tuple[Group, ...]]:
        """The groups by pattern, in the order of the files."""
        return self._by_pattern

    def names(self) -> Iterator[str]:
        """Every name; 371k strings for the largest models, so ask the groups where they do."""
        for group in self.groups:
            yield from group.names()

    def get(self, name: str) -> TensorInfo | None:
        """One tensor by its full name."""
        for group in self._by_pattern.get(collapse(name), ()):
            for part in group.parts:
                if name in part.names():
                    size = group.bytes if group.bytes is None else group.bytes // group.count
                    return TensorInfo(group.dtype, group.shape, part.file, size)
        return None

    def matching(self, prefix: str) -> tuple[Group, ...]:
        """The groups with a name that begins with `prefix`, in which numbers may stand as `N`."""
        wanted = collapse(prefix)
        return tuple(
            group
            for pattern, groups in self._by_pattern.items()
            if pattern.startswith(wanted)
            for group in groups
            if wanted == prefix or any(part.begins_with(prefix) for part in group.parts)
        )

    def count(self, prefix: str) -> int:
        """How many names begin with `prefix`, in which numbers may stand as `N`."""
        groups = self.matching(prefix)
        if prefix == collapse(prefix):
            return sum(group.count for group in groups)
        return sum(name.startswith(prefix) for group in groups for name in group.names())


def grouped(found: Iterable[Bundle]) -> tuple[Group, ...]:
    """The bundles of all files as groups."""
    alike: dict[tuple[str, int | None, str | None, tuple[int, ...] | None], list[Part]] = {}
    for bundle in found:
        alike.setdefault((bundle.pattern, bundle.layer, bundle.dtype, bundle.shape), []).append(bundle.part)
    groups = []
    for (pattern, layer, dtype, shape), parts in alike.items():
        count = sum(part.count for part in parts)
        size = tensor_bytes(dtype, shape) * count if dtype in BITS else None
        files = tuple(dict.fromkeys(part.file for part in parts))
        groups.append(Group(pattern, layer, count, dtype, shape, size, files, parts=tuple(parts)))
    return tuple(groups)


def sampled(groups: tuple[Group, ...], known: tuple[Group, ...]) -> tuple[Group, ...]:
    """`groups` of an index with dtype and shape of `known` groups of headers, of the nearest layer."""
    by_pattern: dict[str, list[Group]] = {}
    for group in known:
        by_pattern.setdefault(group.pattern, []).append(group)

    def filled(group: Group) -> Group:
        alike = by_pattern.get(group.pattern)
        if not alike:
            return group
        near = min(alike, key=lambda one: abs((one.layer or 0) - (group.layer or 0)))
        size = None if near.bytes is None else near.bytes // near.count * group.count
        other = near.layer != group.layer
        return replace(group, dtype=near.dtype, shape=near.shape, bytes=size, sampled=other)

    return tuple(map(filled, groups))
