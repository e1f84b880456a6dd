"""The flag catalogue of an installed SGLang, from the cheapest source that is known to be right.

In this order: the snapshot bundled for that version, if the files it was read from are byte for byte the
installed ones; the user's cache, if path, size and time of those files are unchanged; the sources
themselves, which takes 0.1 to 0.3 s and refills the cache.  A cache that is corrupt or cannot be written
costs time only.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autolaunch.cached_json import UNREADABLE, read_object, same_content, write_object
from autolaunch.errors import AutolaunchError
from autolaunch.request.flags import FlagCatalogue
from autolaunch.request.interpreter import Interpreter

if TYPE_CHECKING:
    from autolaunch.request.source_values import Sources

SCHEMA = "autolaunch.flags/1"
SNAPSHOTS = Path(__file__).parent.parent / "data" / "flags"

_PREFIX = "sglang-"
_FIELDS_FOLDER = "srt/arg_groups/fields"  # where a new file would mean new flags


def load_catalogue(interpreter: Interpreter, cache: Path) -> FlagCatalogue:
    """The flags of the SGLang in `interpreter`; AutolaunchError when its sources cannot be understood.

    `cache` is the user's cache folder; it need not exist.
    """
    snapshot = _snapshot(interpreter.version)
    if snapshot is not None and same_content(snapshot["sources"], interpreter.package):
        return FlagCatalogue.from_json(snapshot, "bundled")
    path = cache / "flags" / f"{hashlib.sha256(os.fsencode(interpreter.package)).hexdigest()[:24]}.json"
    cached = _cached(path, interpreter)
    if cached is not None:
        return cached
    # Here, because the usual case needs no parser of Python.
    from autolaunch.request.flag_source import read_flags_from
    from autolaunch.request.source_values import Sources

    sources = Sources(interpreter.package)
    catalogue = FlagCatalogue(interpreter.version, "installed", read_flags_from(sources))
    with suppress(OSError):  # a read-only home only costs the time to read again
        row = snapshot_json(catalogue, sources)
        write_object(path, {**row, "state": _state(interpreter.package, row["sources"])})
    return catalogue


def bundled_versions() -> tuple[str, ...]:
    """The SGLang versions whose flags are known without an installation, oldest first."""
    versions = [
        path.name.removeprefix(_PREFIX).removesuffix(".json") for path in SNAPSHOTS.glob(f"{_PREFIX}*.json")
    ]
    return tuple(sorted(versions, key=lambda version: [int(part) for part in re.findall(r"\d+", version)]))


def bundled_catalogue(version: str) -> FlagCatalogue:
    """The flags of a version in `bundled_versions()`; AutolaunchError for any other."""
    snapshot = _snapshot(version)
    if snapshot is None:
        raise AutolaunchError(
            f"the flags of SGLang {version} are not known without an installation",
            because=(f"known are {', '.join(bundled_versions())}",),
        )
    return FlagCatalogue.from_json(snapshot, "bundled")


def snapshot_json(catalogue: FlagCatalogue, sources: Sources) -> dict[str, Any]:
    """`catalogue` with the digests of the files it was read from, as snapshots and the cache hold it."""
    return {"schema": SCHEMA, "sources": dict(sorted(sources.digests.items())), **catalogue.to_json()}


def _snapshot(version: str) -> dict[str, Any] | None:
    """The bundled snapshot of `version`, if there is one."""
    if not re.fullmatch(r"[\w.+]+", version):  # it becomes part of a path
        return None
    return read_object(SNAPSHOTS / f"{_PREFIX}{version}.json", SCHEMA)


def _cached(path: Path, interpreter: Interpreter) -> FlagCatalogue | None:
    """The catalogue in the cache, if it still describes the installed files."""
    row = read_object(path, SCHEMA)
    try:
        if row is None or row["version"] != interpreter.version:
            return None
        if row["state"] != _state(interpreter.package, row["sources"]):
            return None
        return FlagCatalogue.from_json(row, "cache")
    except UNREADABLE:
        return None


def _state(package: Path, paths: Mapping[str, str]) -> list[list[Any]]:
    """Path, size and time of each source file, and of the folder in which a new one would appear."""
    rows: list[list[Any]] = [["", str(package), 0]]
    for path in (_FIELDS_FOLDER, *paths):
        with suppress(FileNotFoundError):
            status = (package / path).stat()
            rows.append([path, 0 if path == _FIELDS_FOLDER else status.st_size, status.st_mtime_ns])
    return rows
