"""The local Hugging Face cache: which snapshot a model id means there, and what has a similar name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autolaunch.folders import is_folder

_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?"
_HUB_ID = re.compile(rf"(?:{_PART}/)?{_PART}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ID_LIMIT = 200  # characters; the hub allows 96 for a name


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One revision of one model in the cache."""

    folder: Path
    revision: str


def is_hub_id(model: str) -> bool:
    """Whether the hub allows `model` as `owner/name` or `name`."""
    return (
        len(model) <= _ID_LIMIT
        and _HUB_ID.fullmatch(model) is not None
        and not any(odd in model for odd in ("--", "..", ".git/"))
        and not model.endswith(".git")
    )


def hub_cache(environ: Mapping[str, str]) -> Path:
    """Where huggingface-hub keeps its snapshots, by the variables it reads, in its order."""
    for variable, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
    ):
        if environ.get(variable):
            return Path(_expanded(environ[variable]), below)
    return Path(_expanded(environ.get("HOME") or "~"), ".cache/huggingface/hub")


def hub_entry(model: str, environ: Mapping[str, str]) -> Path:
    """The folder of the hub id `model` in the cache; it need not exist."""
    return hub_cache(environ) / f"models--{model.replace('/', '--')}"


def cached_snapshot(model: str, environ: Mapping[str, str], revision: str | None = None) -> Snapshot | None:
    """The snapshot of `model` that huggingface-hub would take without asking the network, or None."""
    entry = hub_entry(model, environ)
    wanted = revision or "main"
    if not wanted.isprintable() or ".." in wanted.split("/"):
        return None
    commit = wanted if _COMMIT.fullmatch(wanted) else _read_ref(entry / "refs" / wanted)
    if commit is None:
        return None
    folder = entry / "snapshots" / commit
    return Snapshot(folder, commit) if is_folder(folder) else None


def similar_models(name: str, environ: Mapping[str, str], limit: int = 3) -> tuple[str, ...]:
    """Ids of cached models whose name is `name` with any owner, or nearly so, best first."""
    from difflib import get_close_matches  # here, because only a name that is not here needs it

    cached = []
    try:
        with os.scandir(hub_cache(environ)) as entries:
            for entry in entries:
                kind, _, rest = entry.name.partition("--")
                if kind == "models" and rest.isprintable():
                    cached.append(rest.replace("--", "/", 1))
    except OSError:
        return ()  # no cache, so nothing in it is similar
    bare = {model: model.rpartition("/")[2].lower() for model in sorted(cached)}
    wanted = name.rpartition("/")[2].lower()
    near = get_close_matches(wanted, bare.values(), n=limit, cutoff=0.8)
    return tuple(
        sorted((one for one in bare if bare[one] in near), key=lambda one: near.index(bare[one]))[:limit]
    )


def _expanded(path: str) -> str:
    """`path` with `~` and variables replaced, as huggingface-hub does it."""
    return os.path.expandvars(os.path.expanduser(path))  # noqa: PTH111  (pathlib's raises for unknown users)


def _read_ref(path: Path) -> str | None:
    """The commit that a file of refs/ names."""
    try:
        with path.open("rb") as stream:
            commit = stream.read(64).decode("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None  # this revision was never downloaded
    return commit if _COMMIT.fullmatch(commit) else None
