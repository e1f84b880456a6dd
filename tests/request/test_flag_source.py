"""Flags read from sources: the three layouts in small, and whole versions against their real parsers."""

from __future__ import annotations

from pathlib import Path

import pytest

from autolaunch.errors import AutolaunchError
from autolaunch.request.flag_source import read_flags
from autolaunch.request.flags import Flag
from tests.request.conftest import RealSglang

HELP = Flag(("-h", "--help"), "help", action="help", nargs=0, source="argparse")
RUN_TIME_CHOICES = {"--tool-call-parser", "--reasoning-parser", "--kv-canary-real-data"}
ACTIONS = {
    "_StoreAction": "store",
    "_StoreTrueAction": "store_true",
    "BooleanOptionalAction": "boolean_optional",
    "_HelpAction": "help",
    "LoRAPathAction": "other",
}


def package(folder: Path, **files: str) -> Path:
    """A package named `sglang` with `files`: `__` in a name stands for a folder."""
    root = folder / "sglang"
    for name, text in files.items():
        path = root / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def flags(folder: Path, **files: str) -> list[Flag]:
    """The flags of such a package, without `--help`."""
    first, *rest = read_flags(package(folder, **files))
    assert first == HELP
    return rest


def test_calls_of_add_argument(tmp_path: Path) -> None:
    found = flags(
        tmp_path,
        srt__server_args="""
import argparse
from sglang.srt.utils.common import MODULES, ALL
COLOURS = ["red", *MORE, "green"]
MORE = ("blue",)
SHAPES = {"round", "flat"}

class Kind:
    A = "a"
    B = "b"
    ALL = [A, B]

class Old(argparse.Action):
    def __init__(self, option_strings, dest, new=None, nargs=0, **kwargs): ...

class DeprecatedAlias(argparse.Action):
    def __init__(self, option_strings, dest, new=None, **kwargs): ...

class ServerArgs:
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", type=str, required=True)
        parser.add_argument("-t", "--tp", dest="tp_size", type=int, choices=[1, 2])
        parser.add_argument("--fast", action="store_true")
        parser.add_argument("--slow", action="store_false")
        parser.add_argument("--tag", action="append", help=f"{1}")
        parser.add_argument("--colour", choices=COLOURS)
        parser.add_argument("--module", nargs="*", choices=MODULES + [ALL])
        parser.add_argument("--kind", choices=Kind.ALL)
        local = set(SHAPES)
        if True:
            local.add("seen only when it runs")
        parser.add_argument("--shape", choices=local)
        parser.add_argument("--live", choices=list(registry.keys()))
        parser.add_argument("--graph", action=argparse.BooleanOptionalAction)
        parser.add_argument("--gone", action=Old)
        parser.add_argument("--renamed", action=DeprecatedAlias, dest="colour", type=json.loads)
        parser.add_argument("positional")
        parser.add_argument(computed)
        parser.add_argument("--fast", action="store_true")
        parser.add_argument("--pair", nargs=2)
        parser.add_argument("--custom", action=registry["x"])
""",
        srt__utils__common='MODULES = ["q", "k"]\nALL: str = "all"\n',
    )
    where = "srt/server_args.py:"
    shown = [(f.names, f.dest, f.action, f.nargs, f.type, f.choices) for f in found]
    assert shown == [
        (("--model-path", "--model"), "model_path", "store", None, "str", None),
        (("-t", "--tp"), "tp_size", "store", None, "int", ("1", "2")),
        (("--fast",), "fast", "store_true", 0, None, None),
        (("--slow",), "slow", "store_false", 0, None, None),
        (("--tag",), "tag", "append", None, None, None),
        (("--colour",), "colour", "store", None, None, ("red", "blue", "green")),
        (("--module",), "module", "store", "*", None, ("q", "k", "all")),
        (("--kind",), "kind", "store", None, None, ("a", "b")),
        (("--shape",), "shape", "store", None, None, ("flat", "round")),
        (("--live",), "live", "store", None, None, None),
        (("--graph", "--no-graph"), "graph", "boolean_optional", 0, None, None),
        (("--gone",), "gone", "other", 0, None, None),
        (("--renamed",), "colour", "deprecated", None, "json.loads", None),
        (("--pair",), "pair", "store", 2, None, None),
        (("--custom",), "custom", "other", None, None, None),
    ]
    assert found[0].source == f"{where}21"


FIELDS = """
from __future__ import annotations
from typing import Annotated, Dict, List, Literal, Optional, Union
from sglang.srt.arg_groups.actions import DeprecatedSwitch, PathAction
from sglang.srt.arg_groups.arg_utils import A, Arg
from sglang.srt.arg_groups.choices import BACKENDS

class {name}:
    _NS_PATH = "x"
    model_path: A[str, Arg(help="h", aliases=["--model"])]
    tp_size: A[int, Arg(aliases=["--tensor-parallel-size"]), NS("parallel")] = 1
    ratio: A[Optional[float], f"a {{help}} text"] = None
    fast: A[bool, "help"] = False
    maybe: A[Optional[bool], "help"] = None
    sizes: A[Optional[List[int]], "help"] = None
    names: A[list[str], Arg(nargs="*", choices=BACKENDS)] = ()
    pairs: A[Optional[List[str]], Arg(type_parser=json_list_type)] = None
    mode: A[Literal["a", "b"], "help"] = "a"
    level: A[Optional[Literal[1, 2]], Arg(help="h")] = 1
    either: A[Literal[None, "x"], Arg(help="h", choices=["x", "y"])] = None
    union: A[Union[str, None], Arg(cli_name="--union-name")] = None
    bar: A[int | None, "help"] = None
    wide: A[Optional[Union[str, Dict]], Arg(type_parser=json.loads)] = None
    hidden: A[int, Arg(no_cli=True)] = 0
    toggle: A[bool, Arg(action=argparse.BooleanOptionalAction)] = True
    paths: A[List[str], Arg(action=PathAction, action_kwargs={{"type": str, "nargs": "*"}})] = ()
    backend: A[str, Arg(choices=BACKENDS + ["more"])] = "x"
    const: A[Optional[str], Arg(nargs="?", const="")] = None
    plain: int = 0
    marked: A[int, NS("only")] = 0
    full: Annotated[int, "help"] = 0

    def add_cli_args(parser):
        parser.add_argument("--old-fast", action=DeprecatedSwitch, dest="fast")
"""
EXPECTED = [
    (("--model-path", "--model"), "model_path", "store", None, "str", None),
    (("--tp-size", "--tensor-parallel-size"), "tp_size", "store", None, "int", None),
    (("--ratio",), "ratio", "store", None, "float", None),
    (("--fast",), "fast", "store_true", 0, None, None),
    (("--maybe",), "maybe", "store_true", 0, None, None),
    (("--sizes",), "sizes", "store", "+", "int", None),
    (("--names",), "names", "store", "*", "str", ("one", "two")),
    (("--pairs",), "pairs", "store", None, "json_list_type", None),
    (("--mode",), "mode", "store", None, "str", ("a", "b")),
    (("--level",), "level", "store", None, "int", ("1", "2")),
    (("--either",), "either", "store", None, "str", ("x", "y")),
    (("--union-name",), "union", "store", None, "str", None),
    (("--bar",), "bar", "store", None, "int", None),
    (("--wide",), "wide", "store", None, "json.loads", None),
    (("--toggle", "--no-toggle"), "toggle", "boolean_optional", 0, None, None),
    (("--paths",), "paths", "other", "*", "str", None),
    (("--backend",), "backend", "store", None, "str", ("one", "two", "more")),
    (("--const",), "const", "store", "?", "str", None),
    (("--full",), "full", "store", None, "int", None),
]
SUPPORT = {
    "srt__arg_groups__choices": 'BACKENDS = ["one", "two"]\n',
    "srt__arg_groups__actions": """
class DeprecatedSwitch:
    def __init__(self, option_strings, dest, nargs=0, **kwargs): ...

class PathAction: ...
""",
}


def test_annotated_fields_in_server_args(tmp_path: Path) -> None:
    found = flags(tmp_path, srt__server_args=FIELDS.format(name="ServerArgs"), **SUPPORT)
    shown = [(f.names, f.dest, f.action, f.nargs, f.type, f.choices) for f in found]
    assert shown == [*EXPECTED, (("--old-fast",), "fast", "deprecated", 0, None, None)]


@pytest.mark.parametrize("listed", ["_INPUT_NAMESPACES = [Main]\n", ""])
def test_annotated_fields_in_namespaces(tmp_path: Path, listed: str) -> None:
    """By the list of namespaces; without one, every class in the folder."""
    server_args = f"""
from sglang.srt.arg_groups.fields.main import Main
{listed}
class ServerArgs:
    def add_cli_args(parser):
        parser.add_argument("--config", type=str)
"""
    files = {**SUPPORT, "srt__arg_groups__fields__main": FIELDS.format(name="Main")}
    found = flags(tmp_path, srt__server_args=server_args, **files)
    shown = [(f.names, f.dest, f.action, f.nargs, f.type, f.choices) for f in found]
    assert shown == [*EXPECTED, (("--config",), "config", "store", None, "str", None)]
    assert found[0].source == "srt/arg_groups/fields/main.py:10"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class ServerArgs:\n  def add_cli_args(parser): pass\n", "found no flags"),
        ("", "found no flags"),
        ("class ServerArgs(:\n", "cannot read the flags"),
        ("x = " + "(" * 5000 + ")" * 5000, "cannot read the flags"),
        ("x = 1 \x00", "cannot read the flags"),
        (None, "cannot read the flags"),
    ],
    ids=["no-flags", "empty", "syntax", "deep", "null-byte", "missing"],
)
def test_sources_that_cannot_be_understood(tmp_path: Path, text: str | None, said: str) -> None:
    root = tmp_path / "sglang"
    if text is not None:
        root = package(tmp_path, srt__server_args=text)
    with pytest.raises(AutolaunchError, match=said):
        read_flags(root)


def test_names_that_lead_in_circles_are_unknown(tmp_path: Path) -> None:
    found = flags(
        tmp_path,
        srt__server_args="""
from sglang.srt.other import C
A = B
B = A
class ServerArgs:
    def add_cli_args(parser):
        parser.add_argument("--a", choices=A)
        parser.add_argument("--c", choices=C)
        parser.add_argument("--k", choices=ServerArgs.K)
        parser.add_argument("--s", choices="ab" + "cd")
        parser.add_argument("--m", choices=["a"] + ("b",))
        x = x + ["y"]
        parser.add_argument("--x", choices=x)
""",
        srt__other="from sglang.srt.server_args import C\n",
    )
    assert {flag.choices for flag in found} == {None}


@pytest.mark.sglang
def test_real_parsers_have_the_same_flags(real: RealSglang) -> None:
    """Names, dests, actions, nargs, types and choices; only lists made at run time are not known."""
    theirs = {flag["names"][0]: flag for flag in real.ask([])["flags"]}
    ours = {flag.names[0]: flag for flag in read_flags(real.interpreter.package)}
    assert ours.keys() == theirs.keys()
    for name, flag in theirs.items():
        our = ours[name]
        action = flag["action"]
        assert set(our.names) == set(flag["names"]), name
        assert our.dest == flag["dest"], name
        assert our.action == ACTIONS.get(
            action, "deprecated" if action.startswith("Deprecated") else action
        ), name
        assert our.nargs == flag["nargs"], name
        assert (our.type or "").rpartition(".")[2] == (flag["type"] or ""), name
        if name not in RUN_TIME_CHOICES:
            assert (None if our.choices is None else sorted(our.choices)) == flag["choices"], name
