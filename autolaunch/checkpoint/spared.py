"""Lists of modules in quantization files into parts: those left alone, and those named one by one.

Lists name modules in full, with wildcards, or as regular expressions after `re:`, and they name norms, biases
and routers, which nobody quantizes, beside the matrices that matter.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autolaunch.checkpoint.weights import part_of

_NUMBER = re.compile(r"(?<![A-Za-z0-9_])\d+(?![A-Za-z0-9_])")
_HEADS = re.compile(r"^(\*|model\.|language_model\.)*mtp(\*|\.|_|$)")
_LAYER = re.compile(r"(^|\.)layers\.N(\*|\.\*|\.|)$")
_MATRIX_ASIDE = re.compile(r"norm|bias|conv\d?d?|(^|\.)gate\*?$|router")


@dataclass(frozen=True, slots=True)
class _Entry:
    """One entry of a list."""

    part: str
    last: str
    """Its last word."""
    layer: int | None
    """The layer it names; None where it means all."""


def spared_parts(entries: Sequence[str], expected: Mapping[str, int], total: int) -> frozenset[str]:
    """The parts that `entries` leave alone in at least half of the layers, and not only in one projection.

    `expected` has the number of layers of each part, 0 where it is not known; `total` is that of all layers.
    """
    read = [entry for text in entries if (entry := _entry(text)) is not None]
    whole = {entry.layer for entry in read if entry.part == "layer" and entry.layer is not None}
    spared = {"mtp"} if total and any(layer >= total for layer in whole) else set()
    if 0 < expected.get("dense", 0) < total and set(range(expected["dense"])) <= whole:
        spared.add("dense")
    for part in {entry.part for entry in read} - {"layer"}:
        own = [entry for entry in read if entry.part == part]
        layers = {entry.layer for entry in own if entry.layer is not None} | whole
        last = {entry.last for entry in own}
        many = expected.get(part) or total
        everywhere = any(entry.layer is None for entry in own)
        single = len(last) == 1 and next(iter(last)).endswith("_proj")
        if not single and (everywhere or (many and 2 * len(layers) >= many) or (not many and layers)):
            spared.add(part)
    return frozenset(spared)


def listed_parts(layers: Mapping[str, str]) -> dict[str, str]:
    """The commonest scheme of each part whose modules a file lists with their schemes."""
    tally: dict[str, Counter[str]] = {}
    for name, scheme in layers.items():
        entry = _entry(name)
        part = "experts" if name == "experts" else entry.part if entry is not None else "other"
        tally.setdefault(part, Counter())[scheme] += 1
    return {part: counts.most_common(1)[0][0] for part, counts in tally.items()}


def _entry(text: str) -> _Entry | None:
    """One entry of a list as what it means; None for what is no matrix."""
    plain = text.removeprefix("re:").replace("\\.", ".").replace(".*", "*").rstrip("$")
    if _HEADS.match(plain):
        return _Entry("mtp", "", None)
    number = _NUMBER.search(plain)
    layer = int(number[0]) if number and len(number[0]) < 10 else None
    name = _NUMBER.sub("N", plain)
    if _LAYER.search(name):
        return _Entry("layer", "", layer)
    last = name.rsplit(".", 1)[-1]
    return None if _MATRIX_ASIDE.search(last) else _Entry(part_of(name), last, layer)
