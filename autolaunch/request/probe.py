"""Finds the `sglang` that a Python interpreter would import, without importing it.

NOTE: this file is imported by autolaunch, and it is also run by path inside other interpreters, which may
lack autolaunch and may be older; there it prints one line of JSON.  Only the standard library, and only
what Python 3.10 has.

    python probe.py WORKING_FOLDER
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.machinery import BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from pathlib import Path

UNKNOWN_VERSION = "unknown"
MARK = "autolaunch-probe "
"""Starts the line of the answer, so that it is found among what an interpreter prints at its start."""

_VERSION_LINE = re.compile(
    r"""^(?:__version__|version)\s*(?::\s*str\s*)?=[^'"#]*['"]([^'"]+)['"]""", re.MULTILINE
)
_METADATA = re.compile(r"sglang-([^-]+)\.(?:dist|egg)-info")


def locate_sglang(path: Sequence[str]) -> tuple[str, str]:
    """The folder and the version of the `sglang` that is imported when the module path is `path`.

    Follows `sys.meta_path`, so editable installs are seen.  LookupError says why there is none.
    """
    spec = _find_spec(path)
    if spec is None:
        raise LookupError("has no `sglang`")
    if spec.origin is None:
        folders = ", ".join(f"`{folder}`" for folder in spec.submodule_search_locations or ())
        raise LookupError(f"takes the plain folder {folders} for `sglang`, and that is no package")
    package = Path(spec.origin).parent
    if spec.submodule_search_locations is None or not any(package.glob("launch_server*")):
        raise LookupError(f"would import `{spec.origin}`, and there is no `launch_server` beside it")
    return str(package), _version(package, path)


def _find_spec(path: Sequence[str]) -> ModuleSpec | None:
    """What `import sglang` would find, asking the finders in the order in which import asks them."""
    for finder in sys.meta_path:
        if finder is PathFinder:
            spec = PathFinder.find_spec("sglang", list(path))
        elif finder in (BuiltinImporter, FrozenImporter):
            continue
        else:
            try:
                spec = finder.find_spec("sglang", None)
            except (ImportError, AttributeError, OSError):
                continue
        if spec is not None:
            return spec
    return None


def _version(package: Path, path: Sequence[str]) -> str:
    """The version written in the package, else in the name of the installed metadata."""
    for name in ("_version.py", "version.py"):
        try:
            written = _VERSION_LINE.search((package / name).read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if written:
            return written[1]
    for folder in (str(package.parent), *path):
        try:
            names = [entry.name for entry in Path(folder).iterdir()]
        except OSError:
            continue
        for found in filter(None, map(_METADATA.fullmatch, names)):
            return found[1]
    return UNKNOWN_VERSION


def answer(cwd: str) -> str:
    """One line of JSON after MARK: what `python -m sglang.…` would import here."""
    import json

    safe_path = bool(getattr(sys.flags, "safe_path", False))  # 3.10 has no such flag
    try:
        package, version = locate_sglang(sys.path if safe_path else [cwd, *sys.path[1:]])
        found = {"package": package, "version": version}
    except LookupError as error:
        found = {"reason": str(error.args[0])}
    return "\n" + MARK + json.dumps(found) + "\n"


if __name__ == "__main__":
    sys.stdout.write(answer(sys.argv[1]))
    sys.stdout.flush()
