"""Names of GPU kernels into the choices that they show to have run, by `data/kernels.toml`.

SGLang's own report says `auto` for several dimensions; the kernels say what ran.  Kernels that every
choice has (norms, copies, sampling) match no row, and that is no fault.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from autolaunch.race.outcomes import GpuTimes, Phase
from autolaunch.tables import load_rows

SHORTENED = 160
"""Characters of a kernel's name that are kept; C++ templates can be thousands long."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a kernel shows."""

    dimension: str
    """The flag that selects it."""
    backend: str
    """Its choice, as SGLang spells it."""


@cache
def classify(name: str, phase: Phase) -> Shown | None:
    """What the kernel `name` shows in `phase`; None for a kernel no row is about."""
    for pattern, row_phase, shown in _rows():
        if row_phase in (None, phase) and pattern.search(name):
            return shown
    return None


def shorten(name: str) -> str:
    """A kernel's name without `void` and with the middle of a long template left out."""
    name = name.removeprefix("void ").strip()
    if len(name) <= SHORTENED:
        return name
    half = SHORTENED // 2
    return f"{name[:half]}…{name[-(half - 1) :]}"


def same_kernels(left: GpuTimes, right: GpuTimes) -> bool:
    """Whether two candidates ran the same kernels in both phases, so that they are one candidate.

    Kernels are the same by name and by block, registers and shared memory; in a decode step their numbers
    are equal as well.  How often one ran in a prefill depends on how its prompts came together.
    """
    return bool(left.decode_signature and left.prefill_signature) and (
        (left.prefill_signature, left.decode_signature) == (right.prefill_signature, right.decode_signature)
    )


@cache
def _rows() -> tuple[tuple[re.Pattern[str], Phase | None, Shown], ...]:
    return tuple(
        (re.compile(row["pattern"]), row.get("phase"), Shown(row["dimension"], row["backend"]))
        for row in load_rows("kernels", "kernel")
    )
