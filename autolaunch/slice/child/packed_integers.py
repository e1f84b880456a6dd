"""Matrices of packed integers: what compressed-tensors packs into I32, AWQ, GPTQ, and W4AFP8.

NOTE: imported by path under SGLang's interpreter, with nothing of autolaunch importable.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

torch: Any = importlib.import_module("torch")
blocks: Any = importlib.import_module("matrix_blocks")
float4: Any = importlib.import_module("float4")

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight columns is the n-th half byte of a word, lowest first."""


class HalfBytes:
    """Signed four-bit integers, two a byte, the lower half first, with a scale a group (W4AFP8)."""

    transposed = False
    main = "weight"

    def __init__(self, parts: Mapping[str, Any]) -> None:
        """A format of modules like `parts`."""
        self.scale = next((role for role in blocks.SCALES if role in parts), "")
        if not self.scale:
            raise blocks.UnknownFormatError(f"it is {parts['weight'].dtype} and has no scale")
        blocks.check_roles(parts, {"weight", self.scale, "input_scale"})
        self.items, (rows, half) = blocks.stacked(parts["weight"].shape)
        self.real = rows, 2 * half
        self.roles = tuple(parts)
        self.dtypes = {role: part.dtype for role, part in parts.items()}
        self.shapes = {role: blocks.item_shape(role, part.shape, self.items) for role, part in parts.items()}
        self.block = blocks.block_of(self.real, self.shapes[self.scale], None)
        self.name = f"int4 {self.block[0]}x{self.block[1]}"

    def encode(self, values: Any) -> dict[str, Any]:
        """`values` `[n, rows, columns]` as tensors `[n, …]` by role."""
        codes, kept = to_integers(values, self.block, 4, self.dtypes[self.scale])
        made = {"weight": float4.pack_halves(codes & 15), self.scale: kept}
        made["input_scale"] = blocks.ACTIVATION_PEAK / blocks.LARGEST["F8_E4M3"]
        return _shaped(made, self, len(values), values.device)

    def decode(self, parts: Mapping[str, Any]) -> Any:
        """What `encode` made, as float32 `[n, rows, columns]`."""
        codes = float4.unpack_halves(parts["weight"].view(torch.uint8)).int()
        scale = parts[self.scale].float().reshape(len(codes), *_grid(self))
        return ((codes ^ 8) - 8).float() * blocks.spread(scale, self.block, self.real)


class PackedWords:
    """Integers of 4 or 8 bits packed along a row into I32 by compressed-tensors, symmetric."""

    transposed = False
    main = "weight_packed"

    def __init__(self, parts: Mapping[str, Any]) -> None:
        """A format of modules like `parts`; the bits follow from the shape of the scales."""
        blocks.check_roles(
            parts, {"weight_packed", "weight_scale", "weight_shape", "weight_g_idx", "input_scale"}
        )
        self.scale = "weight_scale"
        if self.scale not in parts:
            raise blocks.UnknownFormatError("it is packed and has no scale")
        self.items, (rows, words) = blocks.stacked(parts[self.main].shape)
        self.bits = 4
        self.real = rows, words * 8
        self.roles = tuple(parts)
        self.dtypes = {role: part.dtype for role, part in parts.items()}
        self.shapes = {role: blocks.item_shape(role, part.shape, self.items) for role, part in parts.items()}
        self.block = blocks.block_of(self.real, self.shapes[self.scale], None)
        self.name = f"int4 words {self.block[0]}x{self.block[1]}"

    def encode(self, values: Any) -> dict[str, Any]:
        """`values` `[n, rows, columns]` as tensors `[n, …]` by role."""
        n = len(values)
        codes, kept = to_integers(values, self.block, self.bits, self.dtypes[self.scale])
        made = {self.main: pack_words(codes + (1 << (self.bits - 1)), self.bits), self.scale: kept}
        if "weight_shape" in self.shapes:
            dtype = blocks.TORCH[self.dtypes["weight_shape"]]
            made["weight_shape"] = torch.tensor(self.real, dtype=dtype, device=values.device).expand(n, 2)
        if "weight_g_idx" in self.shapes:
            made["weight_g_idx"] = _order(self.real[1], self.block[1], n, values.device)
        made["input_scale"] = blocks.ACTIVATION_PEAK / blocks.LARGEST["F8_E4M3"]
        return _shaped(made, self, n, values.device)

    def decode(self, parts: Mapping[str, Any]) -> Any:
        """What `encode` made, as float32 `[n, rows, columns]`."""
        codes = unpack_words(parts[self.main], self.bits) - (1 << (self.bits - 1))
        scale = parts[self.scale].float().reshape(len(codes), *_grid(self))
        return codes.float() * blocks.spread(scale, self.block, self.real)


class Words:
    """AWQ and GPTQ: `[inputs, outputs]`, packed along the outputs (AWQ) or the inputs (GPTQ)."""

    transposed = False
    main = "qweight"
    scale = "scales"

    def __init__(self, parts: Mapping[str, Any]) -> None:
        """A format of modules like `parts`; GPTQ is told by equal columns of weights and scales."""
        blocks.check_roles(parts, {"qweight", "qzeros", "scales", "g_idx"})
        if not {"qzeros", "scales"} <= set(parts):
            raise blocks.UnknownFormatError("it has qweight, and no qzeros or no scales")
        self.items, (down, across) = blocks.stacked(parts["qweight"].shape)
        self.roles = tuple(parts)
        self.dtypes = {role: part.dtype for role, part in parts.items()}
        self.shapes = {role: blocks.item_shape(role, part.shape, self.items) for role, part in parts.items()}
        groups, outputs = self.shapes["scales"]
        zero_words = self.shapes["qzeros"][1]
        factor = outputs // zero_words if zero_words and outputs % zero_words == 0 else 0
        self.awq = across != outputs
        inputs = down if self.awq else down * factor
        fits = factor == 8 and across * 8 == outputs if self.awq else factor in (4, 8)
        if not fits or not groups or inputs % groups:
            zeros = list(self.shapes["qzeros"])
            raise blocks.UnknownFormatError(
                f"qweight {[down, across]}, scales {[groups, outputs]} and qzeros {zeros} do not fit"
            )
        self.bits = 32 // factor
        self.real = outputs, inputs
        self.block = 1, inputs // groups
        self.name = f"{'awq' if self.awq else 'gptq'} int{self.bits} group {self.block[1]}"

    def encode(self, values: Any) -> dict[str, Any]:
        """`values` `[n, outputs, inputs]` as tensors `[n, …]` by role."""
        n, middle = len(values), 1 << (self.bits - 1)
        codes, kept = to_integers(values, self.block, self.bits, self.dtypes["scales"])
        codes = (codes + middle).transpose(1, 2)
        zeros = torch.full((n, *kept.transpose(1, 2).shape[1:]), middle, device=values.device)
        if self.awq:
            words, packed_zeros = pack_words(codes, 4, AWQ_ORDER), pack_words(zeros, 4, AWQ_ORDER)
        else:
            words = pack_words(codes.transpose(1, 2), self.bits).transpose(1, 2)
            packed_zeros = pack_words(zeros - 1, self.bits)  # GPTQ stores one less
        made = {"qweight": words, "qzeros": packed_zeros, "scales": kept.transpose(1, 2)}
        if "g_idx" in self.shapes:
            made["g_idx"] = _order(self.real[1], self.block[1], n, values.device)
        return _shaped(made, self, n, values.device)

    def decode(self, parts: Mapping[str, Any]) -> Any:
        """What `encode` made, as float32 `[n, outputs, inputs]`; groups are taken to be in order."""
        if self.awq:
            codes = unpack_words(parts["qweight"], 4, AWQ_ORDER)
            zeros = unpack_words(parts["qzeros"], 4, AWQ_ORDER)
        else:
            codes = unpack_words(parts["qweight"].transpose(1, 2), self.bits).transpose(1, 2)
            zeros = unpack_words(parts["qzeros"], self.bits) + 1
        group = self.block[1]
        wide = [one.float().repeat_interleave(group, 1) for one in (zeros, parts["scales"])]
        return ((codes.float() - wide[0]) * wide[1]).transpose(1, 2)


def _shaped(made: Mapping[str, Any], layout: Any, n: int, device: Any) -> dict[str, Any]:
    """What was `made`, in the stored shapes of `layout`."""
    shaped: dict[str, Any] = blocks.shaped(made, layout.shapes, layout.dtypes, n, device)
    return shaped


def _grid(layout: Any) -> tuple[int, int]:
    """How many blocks there are down and across."""
    return -(-layout.real[0] // layout.block[0]), -(-layout.real[1] // layout.block[1])


def _order(columns: int, group: int, n: int, device: Any) -> Any:
    """The group of every column, `[n, columns]`, in order."""
    return (torch.arange(columns, dtype=torch.int32, device=device) // group).expand(n, columns)


def to_integers(values: Any, block: tuple[int, int], bits: int, scale_dtype: str) -> tuple[Any, Any]:
    """Signed integers of `bits` for `values` `[n, rows, columns]`, and their scales `[n, down, across]`."""
    largest = (1 << (bits - 1)) - 1
    peaks = blocks.block_peaks(values, block).clamp(min=blocks.SMALLEST)
    kept = (peaks / largest).to(blocks.TORCH[scale_dtype])
    real = values.shape[1], values.shape[2]
    codes = (values / blocks.spread(kept.float(), block, real)).round_().clamp_(-largest - 1, largest)
    return codes.to(torch.int32), kept


def pack_words(codes: Any, bits: int, order: tuple[int, ...] | None = None) -> Any:
    """Codes of `bits` along the last dimension as I32, in `order` within a word, lowest bits first."""
    count = 32 // bits
    grouped = codes.to(torch.int32).unflatten(-1, (-1, count))
    words = torch.zeros_like(grouped[..., 0])
    for place, column in enumerate(order or range(count)):
        words |= grouped[..., column] << (bits * place)
    return words


def unpack_words(words: Any, bits: int, order: tuple[int, ...] | None = None) -> Any:
    """The codes that `pack_words` packed."""
    count = 32 // bits
    places = list(order or range(count))
    shifts = torch.tensor([bits * places.index(column) for column in range(count)], device=words.device)
    return ((words.unsqueeze(-1) >> shifts.int()) & ((1 << bits) - 1)).flatten(-2)
