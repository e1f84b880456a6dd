"""Finds constants in Python sources by following names, attributes and imports through parsed files.

Nothing is imported or run: lists, tuples, sets, `+`, `*rest`, `list(…)` and names of such things are
folded, everything else is an UnknownValueError.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

_DEPTH_LIMIT = 24  # names that lead to names; a cycle ends here
_COLLECTIONS: Mapping[str, Callable[[Any], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": set,
    "sorted": sorted,
}


class UnknownValueError(Exception):
    """An expression whose value the sources alone do not tell."""


class Sources:
    """The parsed files of one package, each read once."""

    def __init__(self, package: Path) -> None:
        """The files under `package`, a folder named as the package is; nothing is read yet."""
        self.package = package
        self.digests: dict[str, str] = {}
        """SHA-256 of every file read, by its path inside the package."""
        self._modules: dict[str, Module] = {}

    def module(self, path: str) -> Module:
        """The file `path` of the package; OSError, SyntaxError or ValueError when it is unreadable."""
        if path not in self._modules:
            content = (self.package / path).read_bytes()
            self.digests[path] = hashlib.sha256(content).hexdigest()
            self._modules[path] = Module(self, path, ast.parse(content))
        return self._modules[path]

    def imported(self, dotted: str) -> Module | None:
        """The module `sglang.a.b`, if it is a file of this package that can be parsed."""
        root, *parts = dotted.split(".")
        if root != self.package.name or not parts:
            return None
        path = "/".join(parts)
        for candidate in (f"{path}.py", f"{path}/__init__.py"):
            if (self.package / candidate).is_file():
                try:
                    return self.module(candidate)
                except (OSError, SyntaxError, ValueError):
                    return None
        return None

    def files_in(self, folder: str) -> list[str]:
        """The Python files of `folder`, sorted, relative to the package."""
        return sorted(f"{folder}/{path.name}" for path in (self.package / folder).glob("*.py"))


class Module:
    """What one file defines at its top level."""

    def __init__(self, sources: Sources, path: str, tree: ast.Module) -> None:
        """The names in `tree`, which is the file `path`; imports are followed through `sources`."""
        self.path = path
        self.assigned: dict[str, ast.expr] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.imports: dict[str, tuple[str, str]] = {}
        """Local name to (module, name there)."""
        self._sources = sources
        self._index(tree.body)

    def within(self, block: ast.FunctionDef | ast.ClassDef) -> Module:
        """This module as seen from inside `block`, with the names that it defines."""
        inner = Module(self._sources, self.path, ast.Module(body=block.body, type_ignores=[]))
        inner.assigned = {**self.assigned, **inner.assigned}
        inner.classes = {**self.classes, **inner.classes}
        inner.imports = {**self.imports, **inner.imports}
        return inner

    def find_class(self, name: str, depth: int = 0) -> tuple[Module, ast.ClassDef] | None:
        """The class `name` means here, with the module that defines it."""
        if name in self.classes:
            return self, self.classes[name]
        if name in self.imports and depth < _DEPTH_LIMIT:
            dotted, original = self.imports[name]
            module = self._sources.imported(dotted)
            return module.find_class(original, depth + 1) if module else None
        return None

    def value_or(self, node: ast.expr | None, default: Any) -> Any:
        """The value of `node`, or `default` when there is no node or the sources do not tell."""
        if node is None:
            return default
        try:
            return self.value(node)
        except UnknownValueError:
            return default

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """The value of the expression `node`."""
        if depth > _DEPTH_LIMIT:
            raise UnknownValueError(node)
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self._named(node.id, depth + 1)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return self._attribute(node.value.id, node.attr, depth + 1)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return self._display(node, depth + 1)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._sum(node, depth + 1)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) == 1:
            make = _COLLECTIONS.get(node.func.id)
            inner = self.value(node.args[0], depth + 1)
            if make is not None and isinstance(inner, list | tuple | set) and not node.keywords:
                return make(inner)
        raise UnknownValueError(node)

    def _named(self, name: str, depth: int) -> Any:
        if name in self.assigned:
            return self.value(self.assigned[name], depth)
        if name in self.imports and depth <= _DEPTH_LIMIT:
            dotted, original = self.imports[name]
            module = self._sources.imported(dotted)
            if module is not None:
                return module._named(original, depth + 1)
        raise UnknownValueError(name)

    def _attribute(self, owner: str, name: str, depth: int) -> Any:
        """A constant of a class, such as `Backend.ALL`, which may name its neighbours."""
        found = self.find_class(owner)
        if found is None:
            raise UnknownValueError(name)
        module, cls = found
        scope = module.within(cls)
        return scope._named(name, depth)

    def _display(self, node: ast.List | ast.Tuple | ast.Set, depth: int) -> Any:
        values: list[Any] = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                values += self.value(element.value, depth)
            else:
                values.append(self.value(element, depth))
        return {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)](values)

    def _sum(self, node: ast.BinOp, depth: int) -> Any:
        left, right = self.value(node.left, depth), self.value(node.right, depth)
        if type(left) is not type(right) or not isinstance(left, str | list | tuple):
            raise UnknownValueError(node)
        return left + right

    def _index(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    if isinstance(target, ast.Name):
                        self.assigned[target.id] = statement.value
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                if statement.value is not None:
                    self.assigned[statement.target.id] = statement.value
            elif isinstance(statement, ast.ClassDef):
                self.classes[statement.name] = statement
            elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
                for alias in statement.names:
                    self.imports[alias.asname or alias.name] = (statement.module, alias.name)
            elif isinstance(statement, ast.If | ast.Try):
                self._index(statement.body)


def without_none(kind: ast.expr) -> ast.expr:
    """`X` for `Optional[X]`, `Union[X, None]` and `X | None`; anything else as it is."""
    if isinstance(kind, ast.Subscript) and last_name(kind.value) == "Optional":
        return without_none(kind.slice)  # `Optional[Union[A, B]]` stays, as SGLang leaves it alone
    if (
        isinstance(kind, ast.Subscript)
        and last_name(kind.value) == "Union"
        and isinstance(kind.slice, ast.Tuple)
    ):
        parts = kind.slice.elts
    elif isinstance(kind, ast.BinOp) and isinstance(kind.op, ast.BitOr):
        parts = [kind.left, kind.right]
    else:
        return kind
    others = [part for part in parts if not (isinstance(part, ast.Constant) and part.value is None)]
    return others[0] if len(others) == 1 else kind


def dict_items(node: ast.expr | None) -> Iterator[tuple[str, ast.expr]]:
    """The items of a dict display with constant keys."""
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield str(key.value), value


def written(node: ast.expr | None) -> str | None:
    """`node` as written."""
    return None if node is None else ast.unparse(node)


def last_name(node: ast.AST | None) -> str:
    """`c` for `a.b.c` and for `c`; nothing for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""
