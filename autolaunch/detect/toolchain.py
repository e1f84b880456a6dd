"""What just-in-time compilation of kernels would find here: nvcc, CUDA's folder, ninja, a C++ compiler.

Nothing is run: an executable's path is looked up as SGLang's kernel packages look it up, and versions are
read from files beside it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autolaunch.folders import is_file, is_folder, is_there

_FOLDERS = ("CUDA_HOME", "CUDA_PATH")
_DEFAULT_FOLDER = "usr/local/cuda"
_VERSION_LINE = re.compile(r"CUDA Version (\d+\.\d+(?:\.\d+)?)")
_FILE_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True)
class Toolchain:
    """What just-in-time compilation finds; a path is None when it was looked for and is not there."""

    nvcc: Path | None = None
    nvcc_version: str | None = None
    """None also when the files beside it do not tell."""
    cuda_home: Path | None = None
    cuda_home_source: str | None = None
    """`CUDA_HOME`, `nvcc` on PATH, …"""
    ninja: Path | None = None
    compiler: Path | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of what is not there."""
        parts = (("nvcc", self.nvcc), ("ninja", self.ninja), ("a C++ compiler", self.compiler))
        return tuple(name for name, path in parts if path is None)


def find_toolchain(
    environ: Mapping[str, str], python: str | None, site: Sequence[str], root: Path = Path("/")
) -> Toolchain:
    """The toolchain that a server started by `python` would use.

    CUDA's folder, in order: `CUDA_HOME`, `CUDA_PATH`, the folder of `nvcc` on PATH, `/usr/local/cuda`, the
    one that the Python packages of CUDA 13 make in `site`.
    """
    # An environment's own scripts count: ninja is found there by the packages that call it as a module.
    beside = str(Path(python).parent) if python else None
    path = [*environ.get("PATH", os.defpath).split(os.pathsep), *([beside] if beside else [])]
    home, source = _cuda_home(environ, path, site, root)
    nvcc = (home / "bin" / "nvcc") if home is not None else None
    if nvcc is None or not _is_executable(nvcc):
        nvcc = _on(path, "nvcc")
    compiler = environ.get("CXX")
    return Toolchain(
        nvcc=nvcc,
        nvcc_version=_version(nvcc.parent.parent) if nvcc else None,
        cuda_home=home,
        cuda_home_source=source,
        ninja=_on(path, "ninja"),
        compiler=next(filter(None, (_on(path, name) for name in (compiler, "c++", "g++", "clang++"))), None),
    )


def _cuda_home(
    environ: Mapping[str, str], path: Sequence[str], site: Sequence[str], root: Path
) -> tuple[Path | None, str | None]:
    """CUDA's folder and who named it."""
    for variable in _FOLDERS:
        if environ.get(variable):
            return Path(environ[variable]), f"`{variable}`"
    nvcc = _on(path, "nvcc")
    if nvcc is not None:
        return nvcc.parent.parent, "`nvcc` on PATH"  # links are not followed: nobody does
    default = root / _DEFAULT_FOLDER
    if is_folder(default):
        return default, f"`/{_DEFAULT_FOLDER}`"
    for folder in site:
        for packaged in _children(Path(folder, "nvidia")):
            if is_there(packaged / "bin" / "nvcc"):
                return packaged, "the Python package of nvcc"
    return None, None


def _children(folder: Path) -> Iterator[Path]:
    """`nvidia/cu13` and its like."""
    try:
        yield from sorted(one for one in folder.iterdir() if one.name.startswith("cu"))
    except OSError:
        return  # no CUDA libraries are installed as Python packages


def _on(path: Sequence[str], name: str | None) -> Path | None:
    """The first executable called `name` in the folders of `path`."""
    if not name:
        return None
    if os.sep in name:
        return Path(name) if _is_executable(Path(name)) else None
    return next(
        (Path(folder, name) for folder in path if folder and _is_executable(Path(folder, name))), None
    )


def _is_executable(path: Path) -> bool:
    """Whether `path` can be run."""
    return is_file(path) and os.access(path, os.X_OK)


def _version(home: Path) -> str | None:
    """CUDA's version as its own folder writes it: `version.json`, or `version.txt` of old ones."""
    try:
        with (home / "version.json").open("rb") as file:
            told = json.loads(file.read(_FILE_LIMIT))
        return str((told.get("cuda_nvcc") or told["cuda"])["version"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        pass  # not every packager ships it
    try:
        with (home / "version.txt").open("rb") as file:
            line = _VERSION_LINE.search(file.read(_FILE_LIMIT).decode("utf-8", "replace"))
    except OSError:
        return None
    return line[1] if line else None
