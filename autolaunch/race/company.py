"""Plans how many engines load at the same time, and how many may be up together.

Start-up dominates a race, so engines load together where memory and cores allow; while a window is timed
none does.  Of a GPU each engine takes the weights of the slice, its cache of keys and values, and a round
sum for the rest; the GPU with the least free memory decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autolaunch.candidates.candidate import Candidate
from autolaunch.units import format_bytes

GIB = 1 << 30
ENGINE_RESERVE_BYTES = 6 * GIB
"""CUDA context (0.5 GiB), FlashInfer's workspace (0.4), CUDA graphs, activations, logits of given tokens.

14 engines came up and were gated in 139 GiB, each with 1 GiB of weights or more and 1 GiB of cache (H200,
sglang 0.5.17, 2026-11-30); those captured two graphs, a server's default is tens of them.
"""
FILL = 0.85
"""Of the free memory that is given away: a fraction of 0.9 of what is free must still hold for the last."""
ENGINES_PER_CORE = 14 / 16
"""14 engines at once came up on 16 cores in 118 s, 8 in 57 s (H200, sglang 0.5.17, 2026-11-30)."""
PROCESSES = 3
"""Of one engine with one GPU: host, scheduler, detokenizer; each further GPU adds a scheduler."""
HOST_BYTES = 6 * GIB
"""Of the host's memory for one engine; 14 came up in 128 GiB (the same measurement)."""
ALONE_FROM_TP = 4
"""Ranks from which engines load one after another: each has as many processes and communicators."""
START_S, START_EACH_S, START_CORES = 40.0, 5.5, 16
"""What one start takes, and each further one at the same time on that many cores (the same measurement)."""
WINDOW_S = 3.0
"""One window with all around it, about."""
WINDOWS_EACH, FINAL_WINDOWS = 2, 16
"""Windows of every engine before the final, warm-up included, and of the shortest final of four."""


@dataclass(frozen=True, slots=True)
class Company:
    """How many engines load and live at the same time; one after another unless told otherwise."""

    at_once: int = 1
    """May load at the same time."""
    together: int | None = None
    """May be up at the same time; None: as many as the host's memory holds, which is looked at each time."""
    reason: str = "engines start one after another"
    truth_slots: int = 0
    """How many of `at_once` the gate's reference engine takes the place of, in the first wave."""

    @property
    def shared(self) -> bool:
        """Whether engines are up beside others on the same GPUs, and need the overlay for company."""
        return self.together is not None and not self.in_turn

    @property
    def in_turn(self) -> bool:
        """Whether there is no room for a final: each candidate takes its rounds while it is up."""
        return self.together is not None and self.together < 3

    def waves(self, count: int, kept: int = 0) -> tuple[int, ...]:
        """Sizes of the waves in which `count` engines start, `kept` of each wave staying up."""
        sizes: list[int] = []
        size, up = self.at_once - self.truth_slots, 0
        while sum(sizes) < count:
            room = size if self.together is None else min(size, self.together - up)
            sizes.append(max(1, min(count - sum(sizes), room)))
            size, up = self.at_once, min(kept, sum(sizes))
        return tuple(sizes)

    def expected_s(self, count: int, cores: int, window_s: float = WINDOW_S) -> float:
        """Seconds that a race of `count` engines takes, about; for deciding whether it can be begun."""
        starts = sum(
            START_S + START_EACH_S * (size - 1) * START_CORES / max(1, cores)
            for size in self.waves(count, kept=min(4, max(0, (self.together or 5) - 1)))
        )
        return starts + window_s * (WINDOWS_EACH * count + FINAL_WINDOWS)

    def to_json(self) -> dict[str, object]:
        """What a journal keeps of it."""
        return {"at_once": self.at_once, "together": self.together, "reason": self.reason}


ONE_BY_ONE = Company()


def plan_company(
    candidates: Sequence[Candidate],
    *,
    slice_bytes: int,
    kv_bytes: int,
    free_gpu_bytes: Sequence[int],
    cores: int,
    tp: int = 1,
    host_free_bytes: int | None = None,
    truth_bytes: int = 0,
    whole: bool = False,
) -> Company:
    """How `candidates` load, `tp` processes of each on GPUs of which `free_gpu_bytes` are free.

    `slice_bytes` are the weights on one GPU, `whole` says that they are the whole model's; `truth_bytes` are
    those of the gate's reference engine, 0 without one.  Without GPUs engines start one after another.
    """
    if not free_gpu_bytes:
        return ONE_BY_ONE
    each = slice_bytes + kv_bytes + ENGINE_RESERVE_BYTES
    usable = int(min(free_gpu_bytes) * FILL)
    fit = usable // each
    by_cores = int(cores * ENGINES_PER_CORE * PROCESSES / (tp - 1 + PROCESSES))
    by_host = host_free_bytes // HOST_BYTES if host_free_bytes is not None else by_cores
    sums = f"{fit} engines of {format_bytes(each)} fit into {format_bytes(usable)} of each GPU"
    together = max(1, fit)
    if whole:
        return Company(1, together, f"one after another: the whole model is loaded, and {sums}")
    if tp >= ALONE_FROM_TP:
        return Company(1, together, f"one after another: every engine has {tp} ranks; {sums}")
    slots = -(-(truth_bytes + kv_bytes + ENGINE_RESERVE_BYTES) // each) if truth_bytes else 0
    wanted = len(candidates) + slots
    at_once = max(1, min(wanted, fit, by_cores, by_host))
    if at_once <= slots:
        slots = max(0, at_once - 1)
    limit = f"{cores} cores start {by_cores} at once"
    if by_host < by_cores:
        limit = f"{format_bytes(host_free_bytes or 0)} of the host's memory hold {by_host}"
    return Company(at_once, together, f"{at_once} at once: {sums}, and {limit}", slots)
