"""Matrices of four-bit floats: NVFP4 and MXFP4 of ModelOpt, compressed-tensors, gpt-oss and DeepSeek.

NOTE: imported by path under SGLang's interpreter, with nothing of autolaunch importable.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

torch: Any = importlib.import_module("torch")
blocks: Any = importlib.import_module("matrix_blocks")

FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""What the three bits below the sign mean."""
BETWEEN = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0)
FP4_LARGEST = 6.0
FP4_TOP_EXPONENT = 2


class Floats:
    """FP4, two a byte, the lower half first; scales are FP8 with a global one, or exponents."""

    def __init__(self, parts: Mapping[str, Any], main: str) -> None:
        """A format of modules like `parts`, of which `main` holds the half bytes."""
        self.main = main
        self.scale = next((role for role in ("scales", *blocks.SCALES) if role in parts), "")
        if not self.scale:
            raise blocks.UnknownFormatError("it is packed and has no scale")
        shape = parts[main].shape
        # gpt-oss keeps the blocks of a row apart: [experts, rows, blocks, 16 bytes].
        flat = (*shape[:-2], shape[-2] * shape[-1]) if main == "blocks" and len(shape) == 4 else shape
        self.items, (rows, half) = blocks.stacked(flat)
        self.real = rows, 2 * half
        self.roles = tuple(parts)
        self.dtypes = {role: part.dtype for role, part in parts.items()}
        self.shapes = {role: blocks.item_shape(role, part.shape, self.items) for role, part in parts.items()}
        scales = self.shapes[self.scale]
        if len(scales) != 2 or scales[0] != rows or self.real[1] % scales[1]:
            raise blocks.UnknownFormatError(
                f"`{self.scale}` is {list(scales)} for a matrix of {list(self.real)}"
            )
        self.group = self.real[1] // scales[1]
        self.exponents = self.dtypes[self.scale] in blocks.EXPONENTS
        self.transposed = main == "blocks"
        self.name = f"{'mxfp4' if self.exponents else 'nvfp4'} group {self.group}"
        known = {main, self.scale, "input_scale", "input_global_scale"}
        blocks.check_roles(parts, known | {"weight_scale_2", "weight_global_scale"})

    def encode(self, values: Any) -> dict[str, Any]:
        """`values` `[n, rows, columns]` as tensors `[n, …]` by role."""
        n, block = len(values), (1, self.group)
        peaks = blocks.block_peaks(values, block).clamp(min=blocks.SMALLEST)
        made: dict[str, Any] = {}
        if self.exponents:
            exponents = (torch.floor(torch.log2(peaks)) - FP4_TOP_EXPONENT).clamp(-127, 127)
            made[self.scale] = (exponents + 127).to(torch.uint8)
            scale = torch.exp2(exponents)
        else:
            whole = peaks.amax(dim=(1, 2)) / (FP4_LARGEST * blocks.LARGEST["F8_E4M3"])
            if not {"weight_scale_2", "weight_global_scale"} & set(self.roles):
                whole = torch.ones_like(whole)
            kept = (peaks / FP4_LARGEST / whole[:, None, None]).clamp(max=blocks.LARGEST["F8_E4M3"])
            made[self.scale] = kept.to(torch.float8_e4m3fn)
            scale = made[self.scale].float().clamp(min=2.0**-9) * whole[:, None, None]
            made["weight_scale_2"] = whole
            made["weight_global_scale"] = 1 / whole
        made[self.main] = pack_halves(to_fp4(values / blocks.spread(scale, block, self.real)))
        made["input_scale"] = blocks.ACTIVATION_PEAK / (FP4_LARGEST * blocks.LARGEST["F8_E4M3"])
        made["input_global_scale"] = FP4_LARGEST * blocks.LARGEST["F8_E4M3"] / blocks.ACTIVATION_PEAK
        tensors: dict[str, Any] = blocks.shaped(made, self.shapes, self.dtypes, n, values.device)
        return tensors

    def decode(self, parts: Mapping[str, Any]) -> Any:
        """What `encode` made, as float32 `[n, rows, columns]`."""
        kept = parts[self.scale].reshape(-1, self.real[0], self.real[1] // self.group)
        scale = from_exponents(kept) if self.exponents else kept.float()
        if "weight_scale_2" in parts:
            scale = scale * parts["weight_scale_2"].float().reshape(-1, 1, 1)
        elif "weight_global_scale" in parts:
            scale = scale / parts["weight_global_scale"].float().reshape(-1, 1, 1)
        halves = unpack_halves(parts[self.main].reshape(len(kept), self.real[0], -1).view(torch.uint8))
        return from_fp4(halves) * blocks.spread(scale, (1, self.group), self.real)


def from_exponents(kept: Any) -> Any:
    """Powers of two from bytes that hold the exponent plus 127."""
    return torch.exp2(kept.view(torch.uint8).float() - 127)


def to_fp4(values: Any) -> Any:
    """The nearest FP4 codes of `values`, as bytes."""
    edges = torch.tensor(BETWEEN, device=values.device, dtype=values.dtype)
    codes = torch.bucketize(values.abs(), edges, out_int32=True).to(torch.uint8)
    return codes | (values < 0).to(torch.uint8) << 3


def from_fp4(codes: Any) -> Any:
    """FP4 codes as float32."""
    table = torch.tensor([*FP4, *(-one for one in FP4)], device=codes.device, dtype=torch.float32)
    return table[codes.int()]


def pack_halves(codes: Any) -> Any:
    """Pairs of four-bit codes along the last dimension as bytes, the first of a pair in the lower half."""
    codes = codes.to(torch.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << 4


def unpack_halves(packed: Any) -> Any:
    """The codes that `pack_halves` packed."""
    return torch.stack((packed & 15, packed >> 4), dim=-1).flatten(-2)
