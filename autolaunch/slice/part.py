"""Names of tensors into those of a slice: which have a place there, and what they are called.

Parts outside the layers, such as embeddings, the head and vision towers, are always whole: the engine builds
them whatever the number of layers.  Heads that are decoder layers after the last get the numbers after the
last one that is kept, where drafts look for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.checkpoint.config import Config
from autolaunch.checkpoint.heads import announced_heads, find_heads
from autolaunch.checkpoint.tensors import Tensors
from autolaunch.slice.families import SliceFamily

DECODER_LAYER = re.compile(
    r"^(?:(?:model|language_model|text_model|llm|thinker|backbone|transformer)\.)*layers\.(\d+|N)\."
)
"""A tensor of a decoder layer; towers that see or hear have other words before `layers`."""


@dataclass(frozen=True, slots=True)
class Part:
    """The first `layers` of `total`, with the heads where `mtp`."""

    layers: int
    total: int
    mtp: bool
    heads: frozenset[str]
    """All tensors of heads, wanted or not."""
    numbered: bool
    """Whether the heads are decoder layers after the last."""
    unread: re.Pattern[str] | None
    """Tensors of heads that no draft reads."""
    notes: tuple[str, ...] = ()

    def layer(self, name: str) -> int | None:
        """The decoder layer that `name` belongs to; None for heads and for what is in no layer."""
        match = None if name in self.heads else DECODER_LAYER.match(name)
        return int(match[1]) if match else None

    def is_deeper(self, name: str) -> bool:
        """Whether `name` belongs to a decoder layer that the slice has not."""
        layer = self.layer(name)
        return layer is not None and layer >= self.layers

    def new_name(self, name: str) -> str | None:
        """What the slice calls the tensor `name`; None where it has no place there."""
        if name not in self.heads:
            return None if self.is_deeper(name) else name
        if not self.mtp or (self.unread is not None and self.unread.search(name)):
            return None
        match = DECODER_LAYER.match(name) if self.numbered else None
        if match is None:
            return name
        return f"{name[: match.start(1)]}{int(match[1]) - self.total + self.layers}{name[match.end(1) :]}"

    def renamed(self) -> dict[str, str]:
        """The old names of the tensors with a new one."""
        names = {self.new_name(name): name for name in self.heads} if self.mtp and self.numbered else {}
        return {new: name for new, name in names.items() if new is not None and new != name}


def part_of(
    tensors: Tensors,
    config: Config,
    checkpoint: Checkpoint,
    family: SliceFamily,
    *,
    layers: int,
    total: int,
    mtp: bool,
) -> Part:
    """The first `layers` of `total` of a checkpoint, with the heads where they are asked for and usable."""
    found = find_heads(tensors, total, announced_heads(config)[0] or 0)
    notes = []
    if mtp and not checkpoint.mtp.usable:
        notes.append(f"without heads, since {checkpoint.mtp.reason}")
    if checkpoint.multimodal:
        notes.append("what sees or hears is kept whole")
    return Part(
        layers=layers,
        total=total,
        mtp=mtp and checkpoint.mtp.usable,
        heads=frozenset(name for group in found.groups for name in group.names()) if found else frozenset(),
        numbered=bool(found and found.form.get("extra_layer")),
        unread=family.unread,
        notes=tuple(notes),
    )
