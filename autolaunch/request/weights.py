"""Whether a model's weights lie on this machine: a folder, or a snapshot in the local Hugging Face cache.

Of the model only names of files are looked at, and no network is asked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from autolaunch.request.hub_cache import cached_snapshot, hub_entry, is_hub_id

_WEIGHT_SUFFIXES = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf"})


def model_folder(model: str | None, *, cwd: Path, environ: Mapping[str, str] = os.environ) -> Path | None:
    """The folder that holds `model`: the path itself, or the snapshot of a hub id in the cache.

    That is the one huggingface-hub would take for `main`, else the newest: a revision may have been named.
    """
    if not model:
        return None
    path = cwd / model
    try:
        if path.exists():
            return path if path.is_dir() else path.parent
    except OSError:
        return None  # a name too long for a file is none
    if not is_hub_id(model):
        return None
    try:
        snapshot = cached_snapshot(model, environ)
        if snapshot is not None:
            return snapshot.folder
        found = [entry for entry in (hub_entry(model, environ) / "snapshots").iterdir() if entry.is_dir()]
        return max(found, key=lambda entry: entry.stat().st_mtime, default=None)
    except OSError:
        return None  # never downloaded, or not readable: not here either way


def weights_are_local(model: str | None, *, cwd: Path, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether `model` names weights that are already on this machine."""
    folder = model_folder(model, cwd=cwd, environ=environ)
    if folder is None:
        return False
    try:
        return any(entry.suffix in _WEIGHT_SUFFIXES for entry in folder.iterdir())
    except OSError:
        return False
