"""Which SMs FlashInfer declares for a backend: of the installed version, else of a bundled snapshot.

Sources, in order: the snapshot of that version if the installed files are the same; the user's cache if the
installed version is unchanged; the installed sources (about a second); the snapshot of an assumed version.
Between two known versions, what both say is known and the rest is not.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from autolaunch.cached_json import UNREADABLE, read_object, same_content, write_object
from autolaunch.capability.flashinfer_source import SMs, read_declarations
from autolaunch.capability.versions import version_key
from autolaunch.folders import is_file, is_folder

SCHEMA: Final = "autolaunch.flashinfer/1"
SNAPSHOTS: Final = Path(__file__).parent.parent / "data" / "flashinfer"

_PREFIX = "flashinfer-"


@dataclass(frozen=True, slots=True)
class Declarations:
    """What one FlashInfer version declares, by function and backend."""

    version: str
    origin: str
    """`installed`, `cache` or `bundled`."""
    functions: Mapping[str, Mapping[str, SMs]]

    def supports(self, function: str, backend: str, sm: int) -> bool | None:
        """Whether `backend` of `function` is declared for `sm`; None when nothing is declared.

        A backend that a known function does not have supports nothing.
        """
        backends = self.functions.get(function)
        if backends is None:
            return None
        if backend not in backends:
            return False
        sms = backends[backend]
        return None if sms is None else sm in sms


@dataclass(frozen=True, slots=True)
class DeclaredSms:
    """The declarations to go by: one version's, or its two known neighbours'."""

    versions: tuple[Declarations, ...]

    def supports(self, function: str, backend: str, sm: int) -> bool | None:
        """What all versions agree on; None where they differ, or where there is none."""
        answers = {one.supports(function, backend, sm) for one in self.versions}
        return answers.pop() if len(answers) == 1 else None


def declared_sms(version: str | None, package: Path | None = None, cache: Path | None = None) -> DeclaredSms:
    """The declarations of the FlashInfer in the folder `package`, else of `version`; never raises.

    A version after the newest known one goes by that one; before the oldest nothing is known.
    """
    if package is not None and is_folder(package):
        return DeclaredSms((_installed(package, version or "unknown", cache),))
    key = version_key(version) if version else None
    if key is None:
        return DeclaredSms(())
    known = bundled_flashinfer_versions()
    below = [one for one in known if (version_key(one) or key) <= key]
    above = [one for one in known if (version_key(one) or key) >= key]
    if not below:
        return DeclaredSms(())
    around = dict.fromkeys([below[-1], *above[:1]])
    return DeclaredSms(tuple(filter(None, map(bundled_declarations, around))))


@lru_cache(maxsize=1)
def bundled_flashinfer_versions() -> tuple[str, ...]:
    """The FlashInfer versions whose declarations are bundled, oldest first."""
    names = [path.name for path in SNAPSHOTS.glob(f"{_PREFIX}*.json")]
    return tuple(sorted((name.removeprefix(_PREFIX).removesuffix(".json") for name in names), key=_order))


@lru_cache(maxsize=8)
def bundled_declarations(version: str) -> Declarations | None:
    """The declarations of a version in `bundled_flashinfer_versions()`; None for any other."""
    row = _snapshot(version)
    return None if row is None else _declarations(row, "bundled")


def snapshot_json(
    version: str, functions: Mapping[str, Mapping[str, SMs]], digests: Mapping[str, str]
) -> dict[str, Any]:
    """The declarations with the digests of their files, as snapshots and the cache hold them."""
    return {
        "schema": SCHEMA,
        "version": version,
        "sources": dict(sorted(digests.items())),
        "functions": {
            name: {backend: None if sms is None else list(sms) for backend, sms in backends.items()}
            for name, backends in functions.items()
        },
    }


def _installed(package: Path, version: str, cache: Path | None) -> Declarations:
    """What the sources in `package` declare, from the cheapest source that is known to be right."""
    snapshot = _snapshot(version)
    if snapshot is not None and same_content(snapshot["sources"], package):
        return _declarations(snapshot, "installed")
    path = None
    if cache is not None:
        digest = hashlib.sha256(f"{package}\n{version}\n{_changed_at(package)}".encode()).hexdigest()
        path = cache / "flashinfer" / f"{digest[:24]}.json"
        row = read_object(path, SCHEMA)
        if row is not None:
            with suppress(*UNREADABLE):
                return _declarations(row, "cache")
    functions, digests = read_declarations(package)
    row = snapshot_json(version, functions, digests)
    if path is not None:
        with suppress(OSError):  # a read-only home only costs the time to read again
            write_object(path, row)
    return _declarations(row, "installed")


def _changed_at(package: Path) -> int:
    """When the package was last changed, as far as its first folders tell; 0 when nobody says."""
    times = [0]
    for folder in (package, package / "gemm", package / "fused_moe", package / "utils.py"):
        with suppress(OSError):
            times.append(folder.stat().st_mtime_ns)
    return max(times)


def _declarations(row: Mapping[str, Any], origin: str) -> Declarations:
    """The declarations that `snapshot_json` wrote."""
    functions = {
        str(name): {
            str(backend): None if sms is None else tuple(map(int, sms)) for backend, sms in backends.items()
        }
        for name, backends in row["functions"].items()
    }
    return Declarations(str(row["version"]), origin, functions)


@lru_cache(maxsize=8)
def _snapshot(version: str) -> dict[str, Any] | None:
    """The bundled snapshot of `version`, if there is one; a local part of the version does not count."""
    public = version.partition("+")[0]
    if not re.fullmatch(r"[\w.]+", public):  # it becomes part of a path
        return None
    return read_object(SNAPSHOTS / f"{_PREFIX}{public}.json", SCHEMA)


def _order(version: str) -> tuple[tuple[int, ...], int]:
    """What versions are sorted by."""
    return version_key(version) or ((), 0)


def site_package(site: Iterable[str]) -> Path | None:
    """The installed FlashInfer in the first of the `site` folders that holds one."""
    for folder in site:
        package = Path(folder, "flashinfer")
        if is_file(package / "__init__.py"):
            return package
    return None
