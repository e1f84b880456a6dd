"""Real matrices into what a quantized checkpoint stores of them, and back.

A *module* is one matrix, or several of equal shape stacked in one tensor, stored as tensors that differ in
the last word of their names: its *roles* (`weight`, `weight_scale_inv`, `qweight`, …).  A format is
recognized by roles, dtypes and shapes alone; both directions go through it, so that a weight and its scales
belong together.

NOTE: imported by path under SGLang's interpreter, with nothing of autolaunch importable.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

torch: Any = importlib.import_module("torch")
blocks: Any = importlib.import_module("matrix_blocks")
float4: Any = importlib.import_module("float4")
packed_integers: Any = importlib.import_module("packed_integers")

ROLE = re.compile(
    r"^(?P<module>.+?)[._](?P<role>weight_packed|weight_scale_inv|weight_scale_2|weight_scale|weight_shape"
    r"|weight_global_scale|input_global_scale|weight_zero_point|weight_g_idx|weight_offset|input_scale"
    r"|activation_scale|qweight|qzeros|scales|g_idx|blocks|weight|scale_inv|scale)$"
)
KV_SCALE = re.compile(r"[._][kvq]_scale$")
"""Scales of the KV cache are tensors of their own."""
SAME_ROLE = {"scale_inv": "weight_scale_inv"}
"""Experts stacked in one tensor have no `weight` in its name, and so none in the name of its scale."""


def split_role(name: str) -> tuple[str, str]:
    """The module and the role of the tensor `name`."""
    match = None if KV_SCALE.search(name) else ROLE.match(name)
    if match is None:
        return name, "weight"
    return match["module"], SAME_ROLE.get(match["role"], match["role"])


class Plain:
    """A tensor that stands for itself."""

    name = "plain"
    roles = ("weight",)
    transposed = False


class Scaled:
    """FP8 and INT8: each block of a matrix divided by its scale.

    Blocks may be the whole matrix, a row, or a group of a row; MXFP8 keeps exponents as scales.
    """

    transposed = False
    main = "weight"

    def __init__(self, parts: Mapping[str, Any], declared: tuple[int, int] | None) -> None:
        """A format of modules like `parts`, of which `declared` are the rows and columns of a block."""
        weight = parts["weight"]
        self.scale = next((role for role in blocks.SCALES if role in parts), "")
        if not self.scale:
            raise blocks.UnknownFormatError(f"it is {weight.dtype} and has no scale")
        self.roles = tuple(parts)
        self.items, (rows, columns) = blocks.stacked(weight.shape)
        self.real = rows, columns
        self.dtypes = {role: part.dtype for role, part in parts.items()}
        self.shapes = {role: blocks.item_shape(role, part.shape, self.items) for role, part in parts.items()}
        self.exponents = self.dtypes[self.scale] in blocks.EXPONENTS
        self.block = blocks.block_of(self.real, self.shapes[self.scale], declared)
        self.name = f"{weight.dtype} {self.block[0]}x{self.block[1]}"
        blocks.check_roles(parts, {"weight", self.scale, "input_scale", "activation_scale", "weight_offset"})

    def encode(self, values: Any) -> dict[str, Any]:
        """`values` `[n, rows, columns]` as tensors `[n, …]` by role."""
        dtype = self.dtypes["weight"]
        largest = blocks.LARGEST[dtype]
        scale = blocks.block_peaks(values, self.block).clamp(min=blocks.SMALLEST) / largest
        if self.exponents:
            exponents = torch.ceil(torch.log2(scale)).clamp(-127, 127)
            kept, scale = (exponents + 127).to(torch.uint8), torch.exp2(exponents)
        else:
            kept = scale.to(blocks.TORCH[self.dtypes[self.scale]])
            scale = kept.float()
        quotients = values / blocks.spread(scale, self.block, self.real)
        if dtype == "I8":
            quotients = quotients.round_()
        made = {
            "weight": quotients.clamp_(-largest, largest).to(blocks.TORCH[dtype]),
            self.scale: kept,
            "input_scale": blocks.ACTIVATION_PEAK / largest,
            "activation_scale": blocks.ACTIVATION_PEAK / largest,
            "weight_offset": 0.0,
        }
        tensors: dict[str, Any] = blocks.shaped(made, self.shapes, self.dtypes, len(values), values.device)
        return tensors

    def decode(self, parts: Mapping[str, Any]) -> Any:
        """What `encode` made, as float32 `[n, rows, columns]`."""
        kept = parts[self.scale]
        scale = float4.from_exponents(kept) if self.exponents else kept.float()
        down, across = (-(-size // block) for size, block in zip(self.real, self.block, strict=True))
        scale = scale.reshape(-1, down, across)
        return parts["weight"].float() * blocks.spread(scale, self.block, self.real)


def recognize(parts: Mapping[str, Any], declared: tuple[int, int] | None = None) -> Any:
    """The format of a module with these `parts` by role; UnknownFormatError where there is none."""
    weight = parts.get("weight")
    if "qweight" in parts:
        return packed_integers.Words(parts)
    if "blocks" in parts:
        return float4.Floats(parts, "blocks")
    if "weight_packed" in parts:
        words = parts["weight_packed"].dtype == "I32"
        return packed_integers.PackedWords(parts) if words else float4.Floats(parts, "weight_packed")
    if weight is None:
        if len(parts) == 1:
            return Plain()  # a lone `scale`, as of a router
        raise blocks.UnknownFormatError(f"it has {', '.join(sorted(parts))} and no weight")
    if len(parts) == 1 and (weight.dtype in blocks.FLOATS or weight.dtype not in blocks.LARGEST):
        return Plain()
    if weight.dtype == "U8" or (weight.dtype == "I8" and _has_half_bytes(parts)):
        return float4.Floats(parts, "weight") if _is_float4(parts) else packed_integers.HalfBytes(parts)
    if weight.dtype in blocks.LARGEST:
        return Scaled(parts, declared)
    raise blocks.UnknownFormatError(
        f"it is {weight.dtype} and has {', '.join(sorted(set(parts) - {'weight'}))}"
    )


def _has_half_bytes(parts: Mapping[str, Any]) -> bool:
    """Whether I8 holds two numbers a byte: scales of groups of at most 64 bytes of every row."""
    scale = next((parts[role] for role in blocks.SCALES if role in parts), None)
    shape = parts["weight"].shape
    if scale is None or len(scale.shape) != len(shape) or scale.shape[-1] < 2:
        return False
    return scale.shape[-2] == shape[-2] and (
        scale.dtype in blocks.EXPONENTS or shape[-1] // scale.shape[-1] <= 64
    )


def _is_float4(parts: Mapping[str, Any]) -> bool:
    """Whether half bytes are floats: their scales are FP8 or exponents."""
    scale = next((parts[role] for role in blocks.SCALES if role in parts), None)
    return scale is not None and scale.dtype in ("F8_E4M3", *blocks.EXPONENTS)
