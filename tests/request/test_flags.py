"""Resolution of typed options, compared with argparse itself on the flags of real versions."""

from __future__ import annotations

import argparse
import random
from typing import Any, NoReturn

import pytest

from autolaunch.request.catalogue import bundled_versions
from autolaunch.request.command_line import read_request
from autolaunch.request.flags import Flag, FlagCatalogue
from autolaunch.request.interpreter import Interpreter
from tests.request.conftest import catalogue_of

SMALL = FlagCatalogue(
    "0",
    "bundled",
    (
        Flag(("-h", "--help"), "help", action="help", nargs=0),
        Flag(("--model-path", "--model"), "model_path", type="str"),
        Flag(("--tp-size", "--tensor-parallel-size"), "tp_size", type="int"),
        Flag(("--enable-x", "--no-enable-x"), "enable_x", action="boolean_optional", nargs=0),
        Flag(("--old-tp",), "tp_size", action="deprecated"),
        Flag(("--sizes",), "sizes", nargs="+", type="int", choices=("1", "2")),
    ),
)


@pytest.mark.parametrize(
    ("typed", "dest"),
    [
        ("--model", "model_path"),
        ("--model-path", "model_path"),
        ("--model-", "model_path"),
        ("--mode", None),  # two spellings of one flag are ambiguous to argparse
        ("--tp", "tp_size"),
        ("--tp=8", "tp_size"),
        ("--tensor", "tp_size"),
        ("--t", None),
        ("--no-e", "enable_x"),
        ("--s=1", "sizes"),
        ("--", None),
        ("--unknown", None),
        ("-h", "help"),
        ("-hx", "help"),
        ("-", None),
        ("", None),
        ("model", None),
        ("-1", None),
    ],
)
def test_resolve(typed: str, dest: str | None) -> None:
    flag = SMALL.resolve(typed)
    assert (flag.dest if flag else None) == dest


def test_flag_by_dest_prefers_the_current_one() -> None:
    found = SMALL.flag("tp_size")
    assert found is not None
    assert found.names[0] == "--tp-size"
    assert SMALL.flag("nothing") is None
    old_first = FlagCatalogue("0", "bundled", tuple(reversed(SMALL.flags)))
    found = old_first.flag("tp_size")
    assert found is not None
    assert found.names[0] == "--tp-size"


def test_json_round_trip() -> None:
    assert FlagCatalogue.from_json(SMALL.to_json(), "bundled") == SMALL
    for version in bundled_versions():
        catalogue = catalogue_of(version)
        assert FlagCatalogue.from_json(catalogue.to_json(), "bundled") == catalogue


class Parser(argparse.ArgumentParser):
    """argparse with the flags of a catalogue, all values kept as typed."""

    def __init__(self, catalogue: FlagCatalogue) -> None:
        super().__init__(argument_default=argparse.SUPPRESS, add_help=False)
        for flag in catalogue.flags:
            options: dict[str, Any] = {"dest": flag.dest}
            if flag.action == "boolean_optional":
                positive = [name for name in flag.names if not name.startswith("--no-")]
                self.add_argument(*positive, action=argparse.BooleanOptionalAction, **options)
                continue
            if flag.action == "help" or (flag.nargs == 0 and flag.action != "store_false"):
                options["action"] = "store_true"
            elif flag.action == "store_false":
                options["action"] = "store_false"
            else:
                options["nargs"] = flag.nargs
            self.add_argument(*flag.names, **options)

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


HOSTILE = (
    "--", "-", "", "--=", "--=x", "-1", "-1e5", "-.5", "-x", "-h", "-hx", "--a b", "--tp-size x", "a=b",
    "--no-", "--no", "--n", "--m", "--model=", "--model==x", "--cuda", "--disable-", "--en=1", "- x", "-1 2",
)  # fmt: skip


@pytest.mark.parametrize("version", bundled_versions())
def test_any_tokens_are_read_as_argparse_reads_them(version: str, make_interpreter: Interpreter) -> None:
    """Valid lines give the same flags and values; refused ones give a notice."""
    catalogue = catalogue_of(version)
    parser = Parser(catalogue)
    names = list(catalogue.names())
    rng = random.Random(f"argparse {version}")
    refused = 0
    for _ in range(400):
        line = [_token(rng, names) for _ in range(rng.randint(1, 6))]
        if "--config" in line:
            continue
        cwd = make_interpreter.package
        request = read_request(line, "launch_server", make_interpreter, catalogue, cwd, {})
        try:
            parsed = vars(parser.parse_args(line))
        except ValueError:
            refused += 1
            assert request.notices, line
            continue
        assert [notice for notice in request.notices if notice.id != "request.config-ignored"] == [], line
        ignored = {"help", "config", "version"}
        assert {dest: _pinned(value) for dest, value in parsed.items() if dest not in ignored} == {
            dest: pin.values for dest, pin in request.pins.items()
        }, line
    assert 50 < refused < 390


def _token(rng: random.Random, names: list[str]) -> str:
    kind = rng.random()
    name = rng.choice(names)
    if kind < 0.35:
        return name
    if kind < 0.5:
        return name[: rng.randint(2, len(name))]
    if kind < 0.6:
        # `--x=--` is left out: until 3.12 argparse loses that value on its way.
        return f"{name[: rng.randint(2, len(name))]}={rng.choice(HOSTILE[1:])}"
    if kind < 0.7:
        return rng.choice(HOSTILE)
    return rng.choice(("x", "8", "a b", '{"a": 1}', "-3"))


def _pinned(value: object) -> tuple[str, ...]:
    """The values of a pin for what argparse stored."""
    if value is True:
        return ()
    if value is False:
        return ("false",)
    if isinstance(value, list):
        return tuple(value)
    return () if value is None else (str(value),)
