"""What safetensors files hold, as numbers, read without torch: a second opinion on what was written."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def fp8(byte: int) -> float:
    """One E4M3 number."""
    sign, exponent, mantissa = -1.0 if byte & 0x80 else 1.0, byte >> 3 & 15, byte & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


def fp4(code: int) -> float:
    """One E2M1 number."""
    return -FP4[code & 7] if code & 8 else FP4[code]


def bf16(low: int, high: int) -> float:
    """One bfloat16 number."""
    return float(struct.unpack("<f", bytes((0, 0, low, high)))[0])


READ: dict[str, Callable[[bytes], list[float]]] = {
    "F8_E4M3": lambda data: [fp8(byte) for byte in data],
    "BF16": lambda data: [bf16(*data[n : n + 2]) for n in range(0, len(data), 2)],
    "F16": lambda data: list(struct.unpack(f"<{len(data) // 2}e", data)),
    "F32": lambda data: list(struct.unpack(f"<{len(data) // 4}f", data)),
    "U8": lambda data: [float(byte) for byte in data],
    "F8_E8M0": lambda data: [2.0 ** (byte - 127) for byte in data],
    "I8": lambda data: [float(one) for one in struct.unpack(f"<{len(data)}b", data)],
    "I32": lambda data: [float(one) for one in struct.unpack(f"<{len(data) // 4}i", data)],
    "I64": lambda data: [float(one) for one in struct.unpack(f"<{len(data) // 8}q", data)],
}


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def values(self) -> list[float]:
        """Its numbers, row by row."""
        return READ[self.dtype](self.data)


def read_folder(folder: Path) -> dict[str, Stored]:
    """Every tensor of the checkpoint in `folder`; each is where the index says, and the files have no holes."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    found: dict[str, Stored] = {}
    for file in sorted(folder.glob("*.safetensors")):
        content = file.read_bytes()
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length])
        assert header.pop("__metadata__") == {"format": "pt"}
        reached = 0
        for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            start, end = entry["data_offsets"]
            assert start == reached, f"{file}: {name}"
            reached = end
            assert index["weight_map"][name] == file.name
            data = content[8 + length + start : 8 + length + end]
            found[name] = Stored(entry["dtype"], tuple(entry["shape"]), data)
        assert 8 + length + reached == len(content)
    assert found.keys() == index["weight_map"].keys()
    assert index["metadata"]["total_size"] == sum(len(one.data) for one in found.values())
    return found


def spread(values: Sequence[float]) -> float:
    """The root of the mean square."""
    return math.sqrt(sum(one * one for one in values) / len(values))
