"""The two ways in which there is no slice: one that cannot be planned, and one that cannot be made."""

from __future__ import annotations

from dataclasses import dataclass

from autolaunch.errors import AutolaunchError


@dataclass(frozen=True, slots=True)
class NoSlice:
    """That a checkpoint cannot be cut, so the race needs the whole model."""

    reason: str
    because: tuple[str, ...] = ()


class SliceError(AutolaunchError):
    """A slice could not be made; nothing of it is left."""
