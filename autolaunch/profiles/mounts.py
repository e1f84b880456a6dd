"""A folder into how long it lasts: what lies on a container's own layer is gone with the container.

Told by the kernel's table of mounts (`/proc/self/mountinfo`).
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_LAYERED: Final = frozenset({"overlay", "overlayfs", "aufs", "fuse.fuse-overlayfs", "unionfs"})
# What a runtime leaves inside its containers, below their root.
_MARKS: Final = (".dockerenv", "run/.containerenv", "var/run/secrets/kubernetes.io")
# The kubelet's own folder for volumes that live as long as their pod.
_EMPTY_DIR: Final = "kubernetes.io~empty-dir"
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of the table."""

    root: str
    """What of the file system is mounted."""
    point: str
    kind: str


def container_layer(path: Path, *, mounts: Path = _MOUNTS, root: Path = Path("/")) -> str | None:
    """Why what is written at `path` does not outlive this container, in words; None where nothing says so.

    `path` need not exist yet.  `root` is where a container's marks are looked for.
    """
    mount = mount_of(os.path.realpath(path), mounts)
    if mount is None:
        return None
    if _EMPTY_DIR in mount.root:
        return f"`{path}` is an emptyDir, which Kubernetes removes with the pod"
    if mount.point != "/":
        return None
    if mount.kind in _LAYERED:
        return f"`{path}` is on the container's own layer ({mount.kind}), which is removed with the container"
    if any((root / mark).exists() for mark in _MARKS):
        return f"`{path}` is on the root of what looks like a container ({mount.kind}), and may go with it"
    return None


def mount_of(path: str, mounts: Path = _MOUNTS) -> Mount | None:
    """The mount on which the absolute `path` lies; None where the table cannot be read."""
    try:
        text = mounts.read_text(errors="surrogateescape")
    except OSError:
        return None
    found: Mount | None = None
    for line in text.splitlines():
        mount = _mount(line)
        # Of two mounts at one point the later hides the earlier.
        if (
            mount is not None
            and _is_below(path, mount.point)
            and (found is None or len(mount.point) >= len(found.point))
        ):
            found = mount
    return found


def _mount(line: str) -> Mount | None:
    """The mount that `line` describes: `id parent device root point options [tags] - kind source options`."""
    before, dash, after = line.partition(" - ")
    words = before.split(" ")
    if not dash or len(words) < 6 or not after:
        return None
    return Mount(_unescaped(words[3]), _unescaped(words[4]), after.split(" ")[0])


def _unescaped(text: str) -> str:
    """`text` with the kernel's octal escapes of spaces and the like resolved."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def _is_below(path: str, point: str) -> bool:
    """Whether `path` is `point` or lies in it."""
    return point == "/" or path == point or path.startswith(f"{point}/")
