"""Weights into the schemes they are stored in, by the rows `stored` of `data/schemes.toml`.

Names of tensors tell most (`qweight`, `weight_scale_2`); dtypes and shapes tell the rest: a scale with one
entry a row is per channel, one with fewer rows than the weight is per block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from math import ceil, prod
from typing import Any

from autolaunch.checkpoint.weights import Weight, scheme_rows

_Shape = tuple[str, str | None, tuple[int, ...] | None]
_Tensor = tuple[str | None, tuple[int, ...] | None]

PLAIN_BY_NAME = "plain"
"""Scheme of a weight without scales whose header was not read."""
PLAIN = {"BF16": "bf16", "F16": "fp16", "F32": "fp32", "F64": "fp64"}
# What is never quantized by itself and says nothing about a part.
_ASIDE = ("norm", "rotary", "inv_freq", "A_log", "dt_bias", "conv1d", "sinks", "sink_bias", "router")


@dataclass(frozen=True, slots=True)
class Stored:
    """How one weight is stored."""

    scheme: str
    elements: int
    """Numbers it stands for, over all experts and layers of the group; 0 without a header."""
    block: tuple[int, int] | None = None
    group: int | None = None
    also: tuple[str, ...] = ()
    """Schemes that look the same as far as could be seen."""


def stored_scheme(weight: Weight) -> Stored | None:
    """How `weight` is stored; None where it is no matrix, or no header and no name tells."""
    shapes = tuple((suffix, group.dtype, group.shape) for suffix, group in weight.tensors.items())
    found = _recognised(shapes)
    if found is None:
        return None
    main, one = found
    return replace(one, elements=one.elements * weight.tensors[main].count) if one.elements else one


@cache
def _recognised(shapes: tuple[_Shape, ...]) -> tuple[str, Stored] | None:
    """The name of the main tensor among `shapes` and how a single such weight is stored."""
    tensors = {suffix: (dtype, shape) for suffix, dtype, shape in shapes}
    for row in scheme_rows("stored"):
        if all(suffix in tensors for suffix in row["has"]) and not any(
            suffix in tensors for suffix in row.get("lacks", ())
        ):
            name = row.get("weight", "weight")
            scale = tensors.get(row["scale"]) if "scale" in row else _any_scale(tensors)
            if name in tensors and _fits(row, *tensors[name], scale):
                return name, _described(row, *tensors[name], scale, tensors.get("qzeros"))
    dtype, shape = tensors.get("weight", (None, None))
    if dtype in PLAIN and shape is not None and len(shape) >= 2:
        return "weight", Stored(PLAIN[dtype], prod(shape))
    if "weight" in tensors and dtype is None and tensors.keys() <= {"weight", "bias"}:
        return "weight", Stored(PLAIN_BY_NAME, 0)
    return None


def is_matrix(weight: Weight) -> bool:
    """Whether `weight` says something about how its part is quantized: no norm, no convolution, no router."""
    last = weight.module.rsplit(".", 1)[-1]
    return weight.part != "router" and not any(word in last for word in _ASIDE)


def _any_scale(tensors: Mapping[str, _Tensor]) -> _Tensor | None:
    """The tensor that holds the scales, under whichever name."""
    names = ("weight_scale_inv", "weight_scale", "scale", "scales")
    return next((tensors[name] for name in names if name in tensors), None)


def _fits(
    row: Mapping[str, Any], dtype: str | None, shape: tuple[int, ...] | None, scale: _Tensor | None
) -> bool:
    """Whether dtypes and shapes are what `row` says; without headers only rows `by_name` do."""
    if dtype is None or shape is None:
        return bool(row.get("by_name", False))
    if "dtypes" in row and dtype not in row["dtypes"]:
        return False
    if "scale_dtypes" in row and (scale is None or scale[0] not in row["scale_dtypes"]):
        return False
    if row.get("columns") == "equal" and (
        scale is None or not scale[1] or not shape or shape[-1] != scale[1][-1]
    ):
        return False
    if "spread" in row:
        return scale is not None and _spread(int(row.get("packed", 1)), shape, scale[1]) == row["spread"]
    return True


def _spread(packed: int, main: tuple[int, ...], scale: tuple[int, ...] | None) -> str | None:
    """How many weights share a scale: `scalar`, `row`, `group` of a row, or `block` of several rows."""
    if scale is None or len(main) < 2:
        return None
    shape, rows, columns = list(scale), main[-2], main[-1] * packed
    stacked = list(main[:-2])
    if stacked and shape[: len(stacked)] == stacked:
        shape = shape[len(stacked) :]
    if prod(shape) == 1:
        return "scalar"
    if prod(shape) == rows and shape[0] == rows:
        return "row"
    if len(shape) == 2 and shape[0] == rows and 1 < shape[1] < columns:
        return "group"
    return "block" if len(shape) == 2 and shape[0] <= rows and shape[1] <= columns else None


def _described(
    row: Mapping[str, Any],
    dtype: str | None,
    shape: tuple[int, ...] | None,
    scale: _Tensor | None,
    zeros: _Tensor | None,
) -> Stored:
    """The scheme of `row` with what the shapes add: the block, the group, the bits of packed integers."""
    scheme, packed, group = str(row["scheme"]), int(row.get("packed", 1)), row.get("group")
    scales = scale[1] if scale is not None else None
    also = tuple(row.get("also", ()))
    if dtype is None or shape is None:
        return Stored(scheme, 0, group=group, also=also)
    if scheme.startswith(("awq", "gptq")):
        words = shape if scheme.startswith("awq") else zeros[1] if zeros is not None else None
        bits = _bits(words, scales)
        scheme, packed = scheme.replace("4", str(bits)), 32 // bits
    elements, block = prod(shape) * packed, None
    if scales is not None and len(scales) >= 2 and len(shape) >= 2 and 0 not in scales:
        rows, columns = shape[-2], shape[-1] * packed
        if scheme in {"fp8_block", "int8_block"}:
            block = (_step(rows, scales[-2]), _step(columns, scales[-1]))
        elif scheme.startswith(("gptq", "awq")):
            group = (rows * packed if scheme.startswith("gptq") else rows) // scales[-2]
        elif group is None and scales[-1] > 1:
            group = columns // scales[-1]
    return Stored(scheme, elements, block, group, also if row.get("unsure") else ())


def _bits(words: tuple[int, ...] | None, scales: tuple[int, ...] | None) -> int:
    """Bits of integers packed into `words` of 32 along the columns, which `scales` has in full."""
    bits = 32 * words[-1] // scales[-1] if words and scales and scales[-1] else 4
    return bits if bits in {2, 3, 4, 8} else 4


def _step(length: int, parts: int) -> int:
    """The block length of which `parts` cover `length`: the power of two that does."""
    if parts <= 0:
        return length
    step = ceil(length / parts)
    power = 1 << max(0, step - 1).bit_length()
    return power if ceil(length / power) == parts else step


def dominant(found: Iterable[Stored]) -> Stored | None:
    """The one of `found` whose scheme holds most numbers; without headers the one that comes most often."""
    weight: dict[str, list[int]] = {}
    first: dict[str, Stored] = {}
    for one in found:
        first.setdefault(one.scheme, one)
        tally = weight.setdefault(one.scheme, [0, 0])
        tally[0] += one.elements
        tally[1] += 1
    if not first:
        return None
    return first[max(first, key=lambda scheme: tuple(weight[scheme]))]
