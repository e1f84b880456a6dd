"""FlashInfer's sources into the SMs it declares for each backend of its functions, by `ast`.

FlashInfer marks a backend's check with `@supported_compute_capability([100, 103])` and a function with
`@backend_requirement({"trtllm": that_check})`.  These two decorators are read and nothing is imported.
What they declare is FlashInfer's guard: the kernels behind it may be fewer.
"""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SMs = tuple[int, ...] | None
"""Sorted compute capabilities; None where nothing is declared."""

WITHOUT_BACKEND = ""
"""The backend of a function that has one implementation only."""

_MARKS = (b"supported_compute_capability", b"backend_requirement")
_SIZE_LIMIT_BYTES = 8 << 20
_PARSE_ERRORS = (SyntaxError, ValueError, RecursionError)


@dataclass
class _Found:
    """What one package declares, while its files are read."""

    checks: dict[tuple[str, str], SMs] = field(default_factory=dict)
    """By file and function: the SMs of a marked function."""
    functions: dict[str, list[tuple[str, dict[str, str], str | None]]] = field(default_factory=dict)
    """By function: file, names of the checks by backend, name of the common check."""


def read_declarations(package: Path) -> tuple[dict[str, dict[str, SMs]], dict[str, str]]:
    """The SMs by function and backend in the FlashInfer `package`, and the digest of every file they are in.

    A file that does not parse is left out: what it declares is unknown then.
    """
    found = _Found()
    digests: dict[str, str] = {}
    for path in _python_files(package):
        try:
            if path.stat().st_size > _SIZE_LIMIT_BYTES:
                continue
            content = path.read_bytes()
        except OSError:
            continue
        if not any(mark in content for mark in _MARKS):
            continue
        name = path.relative_to(package).as_posix()
        try:
            _read(ast.parse(content), name, found)
        except _PARSE_ERRORS:
            continue
        digests[name] = hashlib.sha256(content).hexdigest()
    return _resolved(found), digests


def _python_files(package: Path) -> Iterator[Path]:
    """The package's own modules, without the C++ it carries along."""
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(f for f in folders if f not in ("data", "__pycache__", "tests"))
        for file in sorted(files):
            if file.endswith(".py"):
                yield Path(folder, file)


def _read(tree: ast.Module, file: str, found: _Found) -> None:
    """Every decorated function of one module."""
    constants: dict[str, SMs] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name):
                constants[target.id] = _numbers(statement.value, constants)
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in node.decorator_list:
            if not isinstance(decorator, ast.Call):
                continue
            called = decorator.func
            name = called.id if isinstance(called, ast.Name) else getattr(called, "attr", "")
            if name == "supported_compute_capability":
                found.checks[file, node.name] = _numbers(_argument(decorator, "supported_ccs"), constants)
            elif name == "backend_requirement":
                backends = _names(_argument(decorator, "backend_checks"))
                common = _argument(decorator, "common_check", 1)
                common_name = common.id if isinstance(common, ast.Name) else None
                found.functions.setdefault(node.name, []).append((file, backends, common_name))


def _argument(call: ast.Call, name: str, position: int = 0) -> ast.expr | None:
    """The argument `name` of a call, given by position or by name."""
    if len(call.args) > position:
        return call.args[position]
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _numbers(node: ast.expr | None, constants: Mapping[str, SMs]) -> SMs:
    """A list of numbers, written out or by the name of a constant."""
    if isinstance(node, ast.Name):
        return constants.get(node.id)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        values = [one.value for one in node.elts if isinstance(one, ast.Constant)]
        numbers = [value for value in values if isinstance(value, int) and not isinstance(value, bool)]
        return tuple(sorted(set(numbers))) if len(numbers) == len(node.elts) else None
    return None


def _names(node: ast.expr | None) -> dict[str, str]:
    """A dictionary from backend to the name of its check."""
    if not isinstance(node, ast.Dict):
        return {}
    return {
        key.value: value.id if isinstance(value, ast.Name) else getattr(value, "attr", "")
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def _resolved(found: _Found) -> dict[str, dict[str, SMs]]:
    """Checks put in place of their names; a function declared twice keeps what both agree on."""
    by_name: dict[str, set[SMs]] = {}
    for (_, name), sms in found.checks.items():
        by_name.setdefault(name, set()).add(sms)

    def check(file: str, name: str | None) -> SMs:
        if name is None:
            return None
        if (file, name) in found.checks:
            return found.checks[file, name]
        everywhere = by_name.get(name, set())
        return next(iter(everywhere)) if len(everywhere) == 1 else None

    functions: dict[str, dict[str, SMs]] = {}
    for (_, name), sms in found.checks.items():
        if name not in found.functions and not name.startswith("_") and len(by_name[name]) == 1:
            functions[name] = {WITHOUT_BACKEND: sms}
    for name, places in found.functions.items():
        declared = [
            {backend: check(file, one) for backend, one in backends.items()}
            or {WITHOUT_BACKEND: check(file, common)}
            for file, backends, common in places
        ]
        functions[name] = declared[0] if all(one == declared[0] for one in declared) else {}
    return dict(sorted((name, backends) for name, backends in functions.items() if backends))
