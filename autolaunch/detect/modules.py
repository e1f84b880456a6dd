"""Which modules of data/modules.toml an interpreter could import, by its folders alone.

A module counts as absent only where all folders are known.  Nothing is imported.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autolaunch.tables import load_rows

_LIBRARY = "contextlib.py"
"""A file that each standard library has."""
_EDITABLE = ("__editable__", "_finder.py")
"""How the names of files begin and end that find modules outside the path's folders."""
_FINDER_LIMIT = 1 << 20


@dataclass(frozen=True, slots=True)
class Module:
    """One row of data/modules.toml."""

    name: str
    package: str
    """The distribution that holds it."""
    sglang: str | None
    """The versions of SGLang that install it; None where none does."""


@cache
def asked_for() -> tuple[Module, ...]:
    """The modules of the table."""
    rows = load_rows("modules", "module")
    return tuple(Module(row["module"], row["package"], row.get("sglang")) for row in rows)


def modules_in(path: Sequence[str], installed: Collection[str]) -> dict[str, bool | None]:
    """Whether each module can be found in the folders of `path`; None where not all folders are known.

    `installed` are the names of the distributions there: some reach their modules in ways of their own.
    """
    whole = any(os.path.exists(os.path.join(folder, _LIBRARY)) for folder in path)  # noqa: PTH110, PTH118
    finders = _finders(path) if whole else ""
    found: dict[str, bool | None] = {}
    for module in asked_for():
        named = f"'{module.name.partition('.')[0]}'" in finders
        there = module.package in installed or named or _is_there(module.name, path)
        found[module.name] = True if there else (False if whole else None)
    return found


def _is_there(module: str, path: Sequence[str]) -> bool:
    """Whether one of the folders holds `module` as a folder, a file of Python or an extension."""
    *parents, name = module.split(".")
    for folder in path:
        place = Path(folder, *parents)
        try:
            if (place / name).is_dir() or (place / f"{name}.py").is_file():
                return True
            if any(place.glob(f"{name}.*.so")):
                return True
        except OSError:
            continue
    return False


def _finders(path: Sequence[str]) -> str:
    """What the finders of editable installations say, all together."""
    texts: list[str] = []
    for folder in path:
        try:
            names = [one for one in os.listdir(folder) if one.startswith(_EDITABLE[0])]  # noqa: PTH208
        except OSError:
            continue
        for name in names:
            if name.endswith(_EDITABLE[1]):
                texts.append(_head(Path(folder, name)))
    return "\n".join(texts)


def _head(file: Path) -> str:
    """The beginning of a file, empty where it cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.read(_FINDER_LIMIT).decode("utf-8", "replace")
    except OSError:
        return ""
