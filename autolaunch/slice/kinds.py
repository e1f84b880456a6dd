"""A configuration into the kind of each layer, and kinds into how many layers show all that repeats.

Two layers are of one kind when nothing that the configuration says of layers tells them apart: attention,
dense or experts, the letter of a pattern, who chooses what is attended to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from autolaunch.checkpoint.config import Config
from autolaunch.checkpoint.layers import layers_of
from autolaunch.slice.families import key_forms

MOST_START = 64
"""No model has more layers before its pattern begins, nor a longer period."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """The first layers that show a pattern twice."""

    start: int
    """Layers before the pattern begins."""
    period: int
    """Layers of the pattern; 0 where none repeats."""
    layers: int
    """How many layers that takes."""


def kinds_of(config: Config, total: int) -> tuple[str, ...]:
    """The kind of each of `total` layers of `config`, whose class defaults are already in it."""
    said: list[Sequence[object]] = []
    attention = layers_of(config).kinds
    if len(attention) == total:
        said.append(attention)
    for key, form in key_forms().items():
        value = config.data.get(key)
        if form == "list" and isinstance(value, list | tuple | str) and len(value) >= total:
            said.append(value[:total])
    said += (
        [_mlp(config, layer) for layer in range(total)],
        [_chooses(config, layer) for layer in range(total)],
    )
    return (
        tuple(" ".join(str(part) for part in parts if part != "") for parts in zip(*said, strict=True))
        or ("",) * total
    )


def find_repeat(kinds: Sequence[str], least: int) -> Repeat:
    """The fewest layers, `least` or more, that show a repeating pattern twice and whole, and every kind.

    The pattern may end before the last layer, as in Nemotron 3, but makes up half of them.  Where there is
    none, or it takes long to begin: the layers up to the second of each kind.
    """
    pattern, twice = _pattern(kinds, least), _each_twice(kinds, least)
    return twice if pattern is None or 2 * twice.layers <= pattern.layers else pattern


def _pattern(kinds: Sequence[str], least: int) -> Repeat | None:
    """The first layers that show a pattern twice, which makes up half of all layers at least."""
    total = len(kinds)
    for shown in range(2, total + 1):
        for period in range(1, min(shown // 2, MOST_START) + 1):
            start = shown - 2 * period
            if start > MOST_START or 2 * _length(kinds, start, period) < total:
                continue
            layers = shown
            while layers <= total and (layers < least or set(kinds[:layers]) != set(kinds)):
                layers += period
            if layers <= total:
                return Repeat(start, period, layers)
    return None


def _each_twice(kinds: Sequence[str], least: int) -> Repeat:
    """The first layers in which every kind occurs twice, or once where it does so in all of them."""
    wanted = {kind: min(2, many) for kind, many in Counter(kinds).items()}
    seen: Counter[str] = Counter()
    for layer, kind in enumerate(kinds):
        seen[kind] += 1
        if layer + 1 >= least and all(seen[one] >= many for one, many in wanted.items()):
            return Repeat(0, 0, layer + 1)
    return Repeat(0, 0, len(kinds))


def whole_periods(repeat: Repeat, layers: int) -> int:
    """`layers` as a user asks for them, rounded up to whole periods; at least one."""
    if repeat.period == 0:
        return max(layers, 1)
    beyond = max(layers - repeat.start, 1)
    return repeat.start + -(-beyond // repeat.period) * repeat.period


def _length(kinds: Sequence[str], start: int, period: int) -> int:
    """For how many layers the pattern of `period` goes on from `start`; 0 where it is not shown twice."""
    layer = start + period
    while layer < len(kinds) and kinds[layer] == kinds[layer - period]:
        layer += 1
    return layer - start if layer >= start + 2 * period else 0


def _mlp(config: Config, layer: int) -> str:
    """`dense`, or nothing: what keys other than lists say of the part behind the attention."""
    first = config.integer("first_k_dense_replace")
    if first is not None and layer < first:
        return "dense"
    every = config.data.get("moe_layer_freq")
    if isinstance(every, int) and every > 1 and layer % every:
        return "dense"
    only = config.data.get("mlp_only_layers")
    if isinstance(only, list) and layer in only:
        return "dense"
    step = config.data.get("decoder_sparse_step")
    return "dense" if isinstance(step, int) and step > 1 and (layer + 1) % step else ""


def _chooses(config: Config, layer: int) -> str:
    """`shared` where a sparse attention takes the choice of a layer before.

    As SGLang has it (0.5.23 configs/model_config.py:506-524).
    """
    every = config.data.get("index_topk_freq")
    if not isinstance(every, int) or every < 2:
        return ""
    offset = config.data.get("index_skip_topk_offset")
    first = offset if isinstance(offset, int) and offset > 0 else 2
    return "shared" if max(layer - first + 1, 0) % every else ""
