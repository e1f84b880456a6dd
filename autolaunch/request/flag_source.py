"""Reads the flags of an installed SGLang from its sources, importing and running nothing of it.

Three layouts are known, and they overlap, so all are read at once:

  * `parser.add_argument(…)` calls in `ServerArgs.add_cli_args` (all of 0.5.9 to 0.5.11, the rest later);
  * annotated fields `name: A[type, Arg(…)]` of `ServerArgs` (0.5.14, 0.5.17);
  * the same fields in the classes that `_INPUT_NAMESPACES` lists, one file each under
    `srt/arg_groups/fields/` (since 0.5.20).

What a field becomes follows SGLang's `add_cli_args_from_dataclass`.  Not to be had from sources, hence
without choices here: `--tool-call-parser`, `--reasoning-parser` and `--kv-canary-real-data`, whose lists
are built at run time; the same holds for whatever plugins add.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from autolaunch.errors import AutolaunchError
from autolaunch.request.arguments import choices_of, make_flag
from autolaunch.request.flags import Flag
from autolaunch.request.source_values import (
    Module,
    Sources,
    dict_items,
    last_name,
    without_none,
    written,
)

SERVER_ARGS = "srt/server_args.py"
FIELDS_FOLDER = "srt/arg_groups/fields"

_HELP = Flag(("-h", "--help"), "help", action="help", nargs=0, source="argparse")
_SCALARS = ("str", "int", "float")


def read_flags(package: Path) -> tuple[Flag, ...]:
    """Every flag of the SGLang in the folder `package`; AutolaunchError when its sources cannot be read."""
    return read_flags_from(Sources(package))


def read_flags_from(sources: Sources) -> tuple[Flag, ...]:
    """As `read_flags`; afterwards `sources` knows which files the flags came from."""
    try:
        server_args = sources.module(SERVER_ARGS)
        flags = [_HELP, *_flags(sources, server_args)]
    except (OSError, SyntaxError, ValueError, RecursionError) as error:
        raise AutolaunchError(
            f"cannot read the flags of the SGLang in `{sources.package}`",
            because=(f"{type(error).__name__}: {error}",),
        ) from error
    if len(flags) == 1:
        raise AutolaunchError(
            f"found no flags in `{sources.package / SERVER_ARGS}`",
            because=("its layout is none of those autolaunch knows",),
        )
    known: dict[str, Flag] = {}
    for flag in flags:  # the first wins, should two branches of an `if` define the same
        if not any(name in known for name in flag.names):
            known.update(dict.fromkeys(flag.names, flag))
    return tuple(dict.fromkeys(known.values()))


def _flags(sources: Sources, server_args: Module) -> Iterator[Flag]:
    """The flags of all fields, then those of all `add_argument` calls."""
    record = server_args.classes.get("ServerArgs")
    for module, namespace in [(server_args, record), *_namespaces(sources, server_args)]:
        for statement in namespace.body if namespace else ():
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                flag = _field_flag(module, statement.target.id, statement.annotation)
                if flag:
                    yield flag
    renamed = _renamed(record) if record else {}
    for function in ast.walk(record) if record else ():
        if isinstance(function, ast.FunctionDef) and function.name == "add_cli_args":
            scope = server_args.within(function)
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and last_name(node.func) == "add_argument":
                    flag = _argument_flag(scope, node)
                    if flag:
                        yield replace(flag, dest=renamed.get(flag.dest, flag.dest))


def _namespaces(sources: Sources, server_args: Module) -> Iterator[tuple[Module, ast.ClassDef]]:
    """The classes whose fields are flags, with the modules that hold them."""
    listed = server_args.assigned.get("_INPUT_NAMESPACES")
    if isinstance(listed, ast.List):
        for name in listed.elts:
            if isinstance(name, ast.Name):
                found = server_args.find_class(name.id)
                if found:
                    yield found
        return
    for path in sources.files_in(FIELDS_FOLDER):
        module = sources.module(path)
        yield from ((module, cls) for cls in module.classes.values())


def _renamed(record: ast.ClassDef) -> dict[str, str]:
    """Until 0.5.11 the parser had other names: `args.tp_size = args.tensor_parallel_size`, by the latter."""
    found = {}
    for function in record.body:
        if isinstance(function, ast.FunctionDef) and function.name == "from_cli_args":
            for statement in function.body:
                match statement:
                    case ast.Assign(
                        targets=[ast.Attribute(value=ast.Name(id="args"), attr=attribute)],
                        value=ast.Attribute(value=ast.Name(id="args"), attr=parsed),
                    ):
                        found[parsed] = attribute
    return found


def _field_flag(module: Module, name: str, annotation: ast.expr) -> Flag | None:
    """The flag of the field `name: A[type, metadata, …]`; None when it has no place on the command line."""
    if not (isinstance(annotation, ast.Subscript) and last_name(annotation.value) in ("A", "Annotated")):
        return None
    if not isinstance(annotation.slice, ast.Tuple):
        return None
    kind, *metadata = annotation.slice.elts
    given = _metadata(module, metadata)
    if given is None or module.value_or(given.get("no_cli"), False):
        return None
    names = [
        module.value_or(given.get("cli_name"), None) or "--" + name.replace("_", "-"),
        *(module.value_or(given.get("aliases"), None) or ()),
    ]
    if "action" in given:
        for key, value in dict_items(given.get("action_kwargs")):
            given.setdefault(key, value)
        return make_flag(module, names, name, given, given["action"], annotation.lineno)
    kind = without_none(kind)
    literal = _literal(module, kind)
    if literal is not None:
        # SGLang passes neither `nargs` nor an action on for these.
        choices = choices_of(module, given.get("choices")) or tuple(
            str(value) for value in literal if value is not None
        )
        converter = written(given.get("type_parser")) or _scalar(
            type(literal[0]).__name__ if literal else "str"
        )
        return Flag(
            tuple(names), name, type=converter, choices=choices, source=f"{module.path}:{annotation.lineno}"
        )
    if isinstance(kind, ast.Name) and kind.id == "bool":
        return make_flag(module, names, name, {}, ast.Constant("store_true"), annotation.lineno)
    if last_name(getattr(kind, "value", kind)) in ("List", "list") and "type_parser" not in given:
        element = kind.slice if isinstance(kind, ast.Subscript) else None
        given.setdefault("nargs", ast.Constant("+"))
        given["type"] = ast.Name(_scalar(last_name(element) if element else "str"))
    else:
        given["type"] = given.get("type_parser") or ast.Name(_scalar(last_name(kind)))
    return make_flag(module, names, name, given, None, annotation.lineno)


def _metadata(module: Module, metadata: list[ast.expr]) -> dict[str, ast.expr] | None:
    """The keywords of the first `Arg(…)`, or none for a help text alone; None when there is neither."""
    for item in metadata:
        if isinstance(item, ast.Call):
            if last_name(item.func) == "Arg":
                return {keyword.arg: keyword.value for keyword in item.keywords if keyword.arg}
        elif isinstance(item, ast.JoinedStr) or isinstance(module.value_or(item, None), str):
            return {}
    return None


def _argument_flag(module: Module, call: ast.Call) -> Flag | None:
    """The flag of one `add_argument` call; None for a positional or a computed name."""
    names = [name for name in (module.value_or(arg, None) for arg in call.args) if isinstance(name, str)]
    if not names or len(names) != len(call.args) or not names[0].startswith("-"):
        return None
    given = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    long_names = [name for name in names if name.startswith("--")]
    dest = module.value_or(given.get("dest"), None)
    if not isinstance(dest, str):
        dest = (long_names or names)[0].lstrip("-").replace("-", "_")
    return make_flag(module, names, dest, given, given.get("action"), call.lineno)


def _literal(module: Module, kind: ast.expr) -> list[Any] | None:
    """The values of `Literal[…]`."""
    if not (isinstance(kind, ast.Subscript) and last_name(kind.value) == "Literal"):
        return None
    values = module.value_or(kind.slice, None)
    return list(values) if isinstance(values, tuple) else [values]


def _scalar(name: str) -> str:
    """The converter SGLang infers from a type; whatever is no plain scalar stays text."""
    return name if name in _SCALARS else "str"
