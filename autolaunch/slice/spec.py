"""Headers of a checkpoint into the tensors that somebody is to make: names, dtypes, shapes and files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autolaunch.checkpoint.raw import RawCheckpoint
from autolaunch.slice.problems import SliceError


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor, without its data."""

    name: str
    dtype: str
    """As the header spells it: `BF16`, `F8_E4M3`, `U8` …"""
    shape: tuple[int, ...]
    file: str
    """The weight file that holds it."""


def specs_of(raw: RawCheckpoint, wanted: Mapping[str, str] | None = None) -> tuple[TensorSpec, ...]:
    """The tensors of `raw`, of which `wanted` gives the new names by the old ones; all of them without it.

    SliceError names a wanted tensor that is not there, or of which no header tells dtype and shape.
    """
    if raw.tensors is None:
        raise SliceError(
            f"nothing tells which tensors `{raw.path}` has",
            because=("there is no index and no safetensors file",),
        )
    specs = []
    for group in raw.tensors.groups:
        for part in group.parts:
            for name in part.names():
                new = name if wanted is None else wanted.get(name)
                if new is None:
                    continue
                if group.dtype is None or group.shape is None:
                    raise SliceError(
                        f"nothing tells dtype and shape of `{name}`",
                        because=(f"no header of `{part.file}`, or of a layer like it, was read",),
                    )
                specs.append(TensorSpec(new, group.dtype, group.shape, part.file))
    if wanted is not None and len(specs) != len(wanted):
        made = {spec.name for spec in specs}
        missing = next((old for old, new in wanted.items() if new not in made), None)
        if missing is not None:
            raise SliceError(f"`{raw.path}` has no tensor `{missing}`")
    return tuple(specs)
