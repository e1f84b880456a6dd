"""The kernels of a shallow slice into the time of one more layer.

Layers repeat: a kernel that every layer launches once (attention, a norm, a copy into the cache) divides
the row of kernels into spans of exactly one layer each, from the middle of one layer to the middle of the
next.  The spans at the end repeat also where the first layers are of another kind, as dense layers in
front of experts.  Where no kernel divides the row into spans that repeat, there is no figure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import pairwise, takewhile
from statistics import fmean, median

from autolaunch.race.steps import ALIKE, likeness
from autolaunch.race.trace_file import Kernel, busy_us

LAST_AGAIN = 0.6
"""Share of a span's kernels that must come again after the last divider, for the last layer to be alike."""
COVERED = 0.3
"""Share of all kernels that spans of the layers must hold; the rest is outside of them, or of drafts."""
AGREEMENT = 0.1
"""How far, in parts of their median, the figures of different dividers may lie apart."""


def layer_us(
    kernels: Sequence[Kernel],
    layers: int,
    *,
    period: int = 1,
    tail_layers: int | None = None,
    draft_layers: int = 0,
) -> float | None:
    """Microseconds of one layer in the `kernels` of any number of passes, summed over the passes.

    `period` is the number of layers after which the kinds of layers repeat, as in a hybrid, where the
    figure is an average over the kinds.  `tail_layers` is how many of the last layers are of the kinds
    that repeat, where it is known.  `draft_layers` follow the layers in each pass and launch the same.
    None where the layers cannot be told apart.
    """
    periods = layers // period
    usable = (layers if tail_layers is None else min(tail_layers, layers)) // period - 1
    if layers % period or usable < 1:
        return None
    places: dict[str, list[int]] = defaultdict(list)
    for at, kernel in enumerate(kernels):
        places[kernel.name].append(at)
    figures: list[float] = []
    for row in places.values():
        # A kernel of every layer, or one that only one layer of each period has.
        for in_pass in {layers, periods}:
            if len(row) % (in_pass + draft_layers) == 0:
                figure = _divided(kernels, row, in_pass, in_pass // periods, draft_layers, usable)
                if figure is not None:
                    figures.append(figure)
    if not figures:
        return None
    middle = median(figures)
    near = [us for us in figures if abs(us - middle) <= AGREEMENT * middle]
    return median(near) / period if 2 * len(near) > len(figures) else None


def _divided(
    kernels: Sequence[Kernel], at: Sequence[int], in_pass: int, stride: int, drafts: int, usable: int
) -> float | None:
    """The time of one of the spans that repeat at the end, summed over the passes; None where none do."""
    total_us, covered = 0.0, 0
    for first in range(0, len(at), in_pass + drafts):
        own = at[first : first + in_pass : stride]
        after = at[first + in_pass] if first + in_pass < len(at) else len(kernels)
        spans = [kernels[start:end] for start, end in pairwise(own)][-usable:]
        last, *former = [_names(span) for span in reversed(spans)]
        again = (_names(kernels[own[-1] : after]) & last).total()
        if again < LAST_AGAIN * last.total():
            return None
        alike = 1 + sum(1 for _ in takewhile(partial(_is_like, last), former))
        total_us += fmean(busy_us(span) for span in spans[-alike:])
        covered += last.total() * len(own)
    return total_us if covered >= COVERED * len(kernels) else None


def _is_like(one: Counter[str], other: Counter[str]) -> bool:
    return likeness(one, other) >= ALIKE


def _names(kernels: Sequence[Kernel]) -> Counter[str]:
    return Counter(kernel.name for kernel in kernels)
