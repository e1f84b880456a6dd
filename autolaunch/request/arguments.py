"""One call of `add_argument`, written or implied by a field, turned into a flag as argparse would."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from autolaunch.request.flags import Action, Flag
from autolaunch.request.source_values import Module, UnknownValueError, last_name, written

_PLAIN_ACTIONS: Mapping[str, Action] = {
    "store": "store",
    "store_true": "store_true",
    "store_false": "store_false",
    "append": "append",
    "help": "help",
    "version": "version",
}
_WITHOUT_VALUE = ("store_true", "store_false", "help", "version")


def make_flag(
    module: Module,
    names: list[str],
    dest: str,
    given: Mapping[str, ast.expr],
    action: ast.expr | None,
    line: int,
) -> Flag:
    """One flag from the keywords that argparse would be given."""
    kind, nargs = _action(module, action)
    if "nargs" in given:
        nargs = module.value_or(given["nargs"], nargs)
    if kind == "boolean_optional":
        names = [*names, *(f"--no-{name[2:]}" for name in names if name.startswith("--"))]
    return Flag(
        names=tuple(names),
        dest=dest,
        action=kind,
        nargs=nargs,
        type=written(given.get("type")),
        choices=choices_of(module, given.get("choices")),
        source=f"{module.path}:{line}",
    )


def _action(module: Module, action: ast.expr | None) -> tuple[Action, str | int | None]:
    """The kind of `action`, and the `nargs` it has by itself."""
    if action is None:
        return "store", None
    if isinstance(action, ast.Constant):
        kind = _PLAIN_ACTIONS.get(str(action.value), "other")
        return kind, 0 if kind in _WITHOUT_VALUE else None
    name = last_name(action)
    if name == "BooleanOptionalAction":
        return "boolean_optional", 0
    return ("deprecated" if name.startswith("Deprecated") else "other"), _default_nargs(module, name)


def _default_nargs(module: Module, action: str) -> str | int | None:
    """The default of `nargs` in the constructor of SGLang's own action class `action`."""
    found = module.find_class(action)
    if found is None:
        return None
    owner, cls = found
    for function in cls.body:
        if isinstance(function, ast.FunctionDef) and function.name == "__init__":
            arguments = function.args.args
            defaults = function.args.defaults
            pairs = zip(arguments[len(arguments) - len(defaults) :], defaults, strict=True)
            for argument, default in pairs:
                if argument.arg == "nargs":
                    nargs = owner.value_or(default, None)
                    return nargs if isinstance(nargs, str | int) else None
    return None


def choices_of(module: Module, node: ast.expr | None) -> tuple[str, ...] | None:
    """The choices that `node` lists, as typed on a command line; None when they are not known."""
    if node is None:
        return None
    try:
        values = module.value(node)
    except UnknownValueError:
        return None
    if not isinstance(values, list | tuple | set):
        return None
    ordered = sorted(values, key=str) if isinstance(values, set) else values
    return tuple(str(value) for value in ordered if value is not None)
