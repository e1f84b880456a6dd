"""What one GPU of a start would hold, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """What one GPU of the start would hold; a figure that cannot be told is None."""

    fits: bool | None
    """None where machine or weights are not known, or the figures are too close to call."""
    reason: str
    """One sentence without full stop, with the arithmetic."""
    weight_bytes_per_gpu: int | None = None
    """Of the fullest GPU: draft and vision parts included."""
    draft_bytes_per_gpu: int | None = None
    """The part of it that NEXTN adds; 0 where nothing drafts."""
    vision_bytes_per_gpu: int | None = None
    kv_bytes_per_token: int | None = None
    """All layers of one GPU, in full-attention tokens; draft layers included where something drafts."""
    state_bytes_per_request: int | None = None
    """What linear-attention layers keep for each request, whatever its length."""
    kv_tokens: int | None = None
    """Tokens that the cache would hold, about; 0 where nothing is left."""
    reserve_bytes: int | None = None
    """What SGLang leaves free for activations and CUDA graphs."""
    memory_bytes: int | None = None
    """Of the smallest GPU in use."""
    mem_fraction: float | None = None
    """`--mem-fraction-static` as pinned, else what SGLang would compute."""
    mem_fraction_pinned: bool = False
    mem_fraction_min: float | None = None
    """The smallest fraction at which the weights fit, without any cache."""
    mem_fraction_max: float | None = None
    """The largest fraction that leaves any room for activations and CUDA graphs."""
    mem_fraction_fits: float | None = None
    """The fraction to name where a pinned one leaves no room; None where none would do."""
    smallest_tp: int | None = None
    """The smallest `--tp` with which the model fits on GPUs like these; None where none up to 64 does."""
    hint: str | None = None
    """One thing to do where it does not fit."""
    notes: tuple[str, ...] = ()
    """What the figures rest on or leave out, one sentence each."""

    def to_json(self) -> dict[str, Any]:
        """As `explain --format json` prints it."""
        return {
            "fits": self.fits,
            "weight_bytes_per_gpu": self.weight_bytes_per_gpu,
            "draft_bytes_per_gpu": self.draft_bytes_per_gpu,
            "vision_bytes_per_gpu": self.vision_bytes_per_gpu,
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "state_bytes_per_request": self.state_bytes_per_request,
            "kv_tokens": self.kv_tokens,
            "reserve_bytes": self.reserve_bytes,
            "memory_bytes": self.memory_bytes,
            "mem_fraction": self.mem_fraction,
            "mem_fraction_pinned": self.mem_fraction_pinned,
            "mem_fraction_min": self.mem_fraction_min,
            "mem_fraction_max": self.mem_fraction_max,
            "mem_fraction_fits": self.mem_fraction_fits,
            "smallest_tp": self.smallest_tp,
            "reason": self.reason,
            "hint": self.hint,
            "notes": list(self.notes),
        }
