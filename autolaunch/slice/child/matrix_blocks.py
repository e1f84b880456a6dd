"""What all formats share: dtypes, the blocks of a matrix that have a scale in common, and shapes.

NOTE: imported by path under SGLang's interpreter, with nothing of autolaunch importable.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

torch: Any = importlib.import_module("torch")

Shape = tuple[int, ...]

SCALES = ("weight_scale_inv", "weight_scale", "scale")
FLOATS = ("BF16", "F16", "F32", "F64")
EXPONENTS = ("U8", "F8_E8M0")
LARGEST = {"F8_E4M3": 448.0, "F8_E5M2": 57344.0, "I8": 127.0}
TORCH = {
    "BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E8M0": torch.uint8,
    "I8": torch.int8, "U8": torch.uint8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64,
    "BOOL": torch.bool,
}  # fmt: skip
"""Dtypes by their names in safetensors; exponents are handled as the bytes they are."""
ACTIVATION_PEAK = 24.0
"""What static scales of inputs allow for: behind a norm values are about 1, between the two halves of an MLP
with weights of 0.02 they are a few, with peaks of several times that."""
SMALLEST = 1e-12


class UnknownFormatError(Exception):
    """A module is stored in a way that is not known; the message says what is odd."""


@dataclass(frozen=True, slots=True)
class Stored:
    """dtype and shape of one tensor, as the header spells them."""

    dtype: str
    shape: Shape


def check_roles(parts: Mapping[str, Stored], known: set[str]) -> None:
    """UnknownFormatError where `parts` have a role that nobody would fill."""
    for role in parts:
        if role not in known:
            raise UnknownFormatError(f"`{role}` is not known beside {', '.join(sorted(known & set(parts)))}")


def stacked(shape: Shape) -> tuple[int, tuple[int, int]]:
    """How many matrices are stacked in a tensor of `shape`, and the shape of one."""
    if len(shape) == 2:
        return 1, (shape[0], shape[1])
    if len(shape) == 3:
        return shape[0], (shape[1], shape[2])
    raise UnknownFormatError(f"a matrix has two dimensions, and this one is {list(shape)}")


def item_shape(role: str, shape: Shape, items: int) -> Shape:
    """The part of `shape` that belongs to one of `items` stacked matrices."""
    if items == 1 and not (len(shape) > 2 and shape[0] == 1):
        return shape
    if not shape or shape[0] != items:
        raise UnknownFormatError(f"`{role}` is {list(shape)} for {items} stacked matrices")
    return shape[1:]


def block_of(real: tuple[int, int], scales: Shape, declared: tuple[int, int] | None) -> tuple[int, int]:
    """Rows and columns that share a scale, told from the shape of the scales."""
    rows, columns = real
    count = 1
    for size in scales:
        count *= size
    if count == 1:
        return real
    if count == rows and (len(scales) == 1 or scales[-1] == 1):
        return 1, columns
    if len(scales) == 2:
        if declared and all(-(-n // b) == s for n, b, s in zip(real, declared, scales, strict=True)):
            return declared
        sizes = [_side(size, blocks) for size, blocks in zip(real, scales, strict=True)]
        if all(sizes):
            return sizes[0], sizes[1]
    raise UnknownFormatError(f"scales of {list(scales)} fit no blocks of a matrix of {list(real)}")


def _side(size: int, blocks: int) -> int:
    """The length of one of `blocks` that cover `size`: even shares, else the next power of two; 0 if none."""
    if blocks == 1:
        return size
    if size % blocks == 0:
        return size // blocks
    length = 1 << (-(-size // blocks) - 1).bit_length()
    return length if -(-size // length) == blocks else 0


def block_peaks(values: Any, block: tuple[int, int]) -> Any:
    """The largest magnitude of every block of `values` `[n, rows, columns]`, as `[n, down, across]`."""
    n, rows, columns = values.shape
    down, across = -(-rows // block[0]), -(-columns // block[1])
    padding = (0, across * block[1] - columns, 0, down * block[0] - rows)
    if any(padding):
        values = torch.nn.functional.pad(values, padding)
    return values.reshape(n, down, block[0], across, block[1]).abs().amax(dim=(2, 4))


def spread(scales: Any, block: tuple[int, int], real: tuple[int, int]) -> Any:
    """`scales` `[n, down, across]` for every element; where one covers a side, broadcasting does it."""
    if block[0] < real[0]:
        scales = scales.repeat_interleave(block[0], 1)[:, : real[0]]
    if block[1] < real[1]:
        scales = scales.repeat_interleave(block[1], 2)[:, :, : real[1]]
    return scales


def shaped(
    made: Mapping[str, Any], shapes: Mapping[str, Shape], dtypes: Mapping[str, str], n: int, device: Any
) -> dict[str, Any]:
    """What was `made` for `n` matrices in the stored shapes; plain numbers become tensors."""
    tensors = {}
    for role, shape in shapes.items():
        value = made[role]
        if not isinstance(value, torch.Tensor):
            value = torch.full((n, *shape), value, dtype=TORCH[dtypes[role]], device=device)
        tensors[role] = value.reshape(n, *shape).contiguous()
    return tensors
