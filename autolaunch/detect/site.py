"""The packages an interpreter would import, by the names and versions in their metadata; none is imported.

Another interpreter than ours is asked for its module path, which costs one start of it (some 20 ms) and is
the only way that is right for virtual environments, conda, Debian's folders and `.pth` files alike.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autolaunch.folders import is_folder
from autolaunch.request.interpreter import Interpreter

PROBE_TIMEOUT_S = 10.0

_METADATA_FOLDER = re.compile(r"(?P<name>[A-Za-z0-9._]+?)-(?P<version>[^-]+)(?:-.*)?\.(?:dist|egg)-info")
_SEPARATORS = re.compile(r"[-_.]+")
_VERSION_LINE = re.compile(r"^Version:[ \t]*(\S+)[ \t]*$", re.MULTILINE)
_CUDA_LINE = re.compile(r"""^cuda\s*(?::[^=\n]*)?=\s*(?:(None)|['"]([^'"]+)['"])""", re.MULTILINE)
_CUDA_TAG = re.compile(r"\+.*?cu(\d+)(\d)\b")
_HEAD_BYTES = 4096
_PROBE = "import json, sys; sys.stdout.write(chr(10) + 'path ' + json.dumps(sys.path) + chr(10))"


@dataclass(frozen=True, slots=True)
class Distribution:
    """One installed distribution."""

    name: str
    """Lower case, with dashes."""
    version: str
    where: str
    """Its metadata's folder."""


def module_path(interpreter: Interpreter, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The folders `interpreter` imports from, the one that holds its SGLang first.

    Only that one is sure when the interpreter cannot be asked.
    """
    folders = [str(interpreter.package.parent)]
    same_path = environ.get("PYTHONPATH") == os.environ.get("PYTHONPATH")
    if interpreter.python == sys.executable and same_path:
        folders += sys.path[1:]
    else:
        folders += _asked(interpreter.python, environ)
    return tuple(dict.fromkeys(folder for folder in folders if folder and is_folder(Path(folder))))


def _asked(python: str, environ: Mapping[str, str]) -> list[str]:
    """What `python` says its module path is; [] when it does not say."""
    import subprocess  # here, because the usual Python is the one that runs this

    try:
        done = subprocess.run(
            [python, "-c", _PROBE],
            cwd="/",
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
        line = next(
            (one for one in reversed(done.stdout.splitlines()) if one.startswith(b"path ")), b"path []"
        )
        found = json.loads(line[5:])
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


def distributions(path: Sequence[str]) -> dict[str, Distribution]:
    """Every distribution in the folders of `path`; of two with one name, the one import would find first."""
    found: dict[str, Distribution] = {}
    for folder in path:
        try:
            names = sorted(os.listdir(folder))  # noqa: PTH208  thousands of names, and no Path is needed
        except OSError:
            continue  # a zip file, or a folder that is not there
        for name in names:
            one = _distribution(folder, name)
            if one is not None:
                found.setdefault(one.name, one)
    return found


def _distribution(folder: str, entry: str) -> Distribution | None:
    """The distribution that `entry` describes, read from its name alone where that has all."""
    if not entry.endswith("-info"):
        return None
    where = os.path.join(folder, entry)  # noqa: PTH118  thousands of these; Path costs more than reading
    read = _METADATA_FOLDER.fullmatch(entry)
    if read is not None:
        return Distribution(_normal(read["name"]), read["version"], where)
    bare = re.fullmatch(r"([A-Za-z0-9._]+)\.egg-info", entry)  # a checkout: the version is inside
    version = _written_version(Path(where, "PKG-INFO")) if bare else None
    return Distribution(_normal(bare[1]), version, where) if bare and version else None


def _written_version(metadata: Path) -> str | None:
    """The version that a metadata file states."""
    try:
        with metadata.open("rb") as file:
            line = _VERSION_LINE.search(file.read(_HEAD_BYTES).decode("utf-8", "replace"))
    except OSError:
        return None
    return line[1] if line else None


def _normal(name: str) -> str:
    """A distribution's name as indexes compare it."""
    return _SEPARATORS.sub("-", name).lower()


def torch_cuda(torch: Distribution) -> tuple[str | None, str]:
    """The CUDA a PyTorch was built for, None for one without, and where that is written.

    Its own `version.py` first: wheels of the package index carry no `+cu130` in their metadata.
    """
    written = Path(torch.where).parent / "torch" / "version.py"
    try:
        with written.open("rb") as file:
            line = _CUDA_LINE.search(file.read(_HEAD_BYTES).decode("utf-8", "replace"))
    except OSError:
        line = None
    if line is not None:
        return line[2], str(written)
    tag = _CUDA_TAG.search(torch.version)
    return (f"{tag[1]}.{tag[2]}" if tag else None), torch.where
