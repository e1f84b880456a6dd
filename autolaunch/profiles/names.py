"""The name of a profile: GPU, model, how many ranks, what for, and a digest of all it is valid for.

`h200/Qwen3-8B.tp1.throughput.1f6c02aa`; the file is that below a store, with `.toml`.  What a profile holds
may come from anybody: a name is made of letters, digits, `.`, `_` and `-`, and cannot leave its folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from autolaunch.profiles.profile import Profile

SUFFIX: Final = ".toml"
_LONGEST: Final = {"gpu": 80, "model": 100, "objective": 24}
_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_EDGES: Final = "._-"
_MAKER = re.compile(r"\b(?:nvidia|geforce|tesla)\b|\((?:r|tm)\)", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}/[A-Za-z0-9][A-Za-z0-9._-]{0,199}", re.ASCII)
_DIGEST_LENGTH = 8


def slug(text: str, longest: int, otherwise: str) -> str:
    """`text` in the letters of a name, at most `longest` of them; `otherwise` where none is left."""
    return _OTHER.sub("-", text[: longest * 4]).strip(_EDGES)[:longest].rstrip(_EDGES) or otherwise


def gpu_slug(gpu_name: str | None) -> str:
    """The folder of profiles for the GPU that NVML calls `gpu_name`; `cpu` where there is none."""
    if not gpu_name:
        return "cpu"
    return slug(_MAKER.sub(" ", gpu_name[:400]).strip().lower(), _LONGEST["gpu"], "gpu")


def model_slug(model: str) -> str:
    """How names of profiles for `model` begin."""
    return slug(model.rstrip("/").rpartition("/")[2], _LONGEST["model"], "model")


def name_of(profile: Profile) -> str:
    """The name under which `profile` is kept: the same for whatever holds for the same start."""
    gpu = profile.fingerprint.get("gpu.name")
    ranks = profile.fingerprint.get("parallel.tp", 1)
    tp = ranks if isinstance(ranks, int) and not isinstance(ranks, bool) and 0 < ranks < 10**6 else 1
    objective = slug(str(profile.objective.get("name", "")), _LONGEST["objective"], "throughput")
    folder = gpu_slug(None if gpu is None else str(gpu))
    return f"{folder}/{model_slug(profile.model)}.tp{tp}.{objective}.{digest_of(profile)}"


def digest_of(profile: Profile, digits: int = _DIGEST_LENGTH) -> str:
    """Hexadecimal digits of all that `profile` is valid for, at most 64."""
    valid_for = [_said(one) for one in (profile.fingerprint, profile.workload, profile.objective)]
    text = json.dumps(valid_for, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def _said(value: Any) -> Any:
    """`value` without what is None, which a file does not hold: a profile that was read has the same name."""
    if isinstance(value, Mapping):
        return {key: _said(one) for key, one in value.items() if one is not None}
    return [_said(one) for one in value] if isinstance(value, list | tuple) else value


def place_of(handle: str) -> str | Path:
    """What a record or the watcher calls a profile: a file, by its whole path, or a name in a store."""
    return Path(handle) if handle.startswith("/") else handle


def is_name(text: str) -> bool:
    """Whether `text` is the name of a profile, which says nothing of whether there is one."""
    return _NAME.fullmatch(text) is not None
