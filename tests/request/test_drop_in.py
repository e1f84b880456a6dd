"""Whatever SGLang takes comes out of autolaunch as it went in, and means the same to SGLang."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from autolaunch.cli import own_option_names, serve
from autolaunch.options.options import split_own
from autolaunch.request.catalogue import bundled_versions
from autolaunch.request.command_line import Pin, read_request, sglang_argv
from autolaunch.request.flags import Flag, FlagCatalogue
from autolaunch.request.interpreter import Interpreter
from tests.request.conftest import RealSglang, catalogue_of
from tests.request.random_lines import random_line

LINES = 10_000
OWN = (
    ["--plain"],
    ["--strict"],
    ["--dry-run"],
    ["--budget", "30s"],
    ["--budget=1m"],
    ["--python", "/p"],
    ["--tune", "off"],
)
# What a race appends; each is in every version compared.
RACED = (
    ["--attention-backend", "triton"],
    ["--disable-overlap-schedule"],
    ["--disable-radix-cache"],
    ["--moe-runner-backend", "triton", "--fp8-gemm-backend", "auto"],
)  # fmt: skip


@pytest.mark.parametrize("version", bundled_versions())
def test_tokens_come_out_as_they_went_in(version: str, make_interpreter: Interpreter, tmp_path: Path) -> None:
    """A share of 10,000 random lines, with own options strewn in between the flags."""
    rng = random.Random(f"drop-in {version}")
    catalogue = catalogue_of(version)
    for _ in range(LINES // len(bundled_versions())):
        theirs = random_line(rng, catalogue, rng.randrange(12))
        ours = rng.sample(OWN, rng.randrange(3))
        mixed = _mixed(rng, catalogue, theirs, ours)
        own, rest = split_own(mixed, serve.params)
        assert own == [token for option in ours for token in option]
        assert rest == theirs
        # A model that is not here and not known is a language model.
        assert sglang_argv(rest, "serve", environ={}, cwd=tmp_path) == (
            "launch_server",
            ("--model-path", *theirs),
        )
        flags = theirs[1:]
        assert sglang_argv(flags, "launch_server", environ={}, cwd=tmp_path) == (
            "launch_server",
            tuple(flags),
        )
        request = read_request(rest, "serve", make_interpreter, catalogue, tmp_path, {})
        assert request.notices == ()
        assert request.model == theirs[0]
        assert request.argv == ("--model-path", *theirs)


def _mixed(
    rng: random.Random, catalogue: FlagCatalogue, theirs: list[str], ours: list[list[str]]
) -> list[str]:
    """`theirs` with each of `ours`, in this order, in front of a flag, behind the model or at the end."""
    places = [0, len(theirs), *(at for at, token in enumerate(theirs) if at and catalogue.match(token))]
    chosen = sorted(rng.choices(places, k=len(ours)))
    mixed = list(theirs)
    for at, option in reversed(list(zip(chosen, ours, strict=True))):
        mixed[at:at] = option
    return mixed


@pytest.mark.parametrize("version", bundled_versions())
def test_no_own_option_is_a_flag_or_short_for_one(version: str) -> None:
    names = list(catalogue_of(version).names())
    for own in own_option_names():
        assert [name for name in names if name.startswith(own)] == [], own
        # Nor may a flag be short for an own option: that one is matched in full only, yet would read badly.
        assert [name for name in names if own.startswith(f"{name}-")] == [], own


@pytest.mark.sglang
def test_real_parsers_read_the_same(real: RealSglang, tmp_path: Path) -> None:
    """The line that is exec'ed parses to the original's result plus the raced flags; pins are what it sets."""
    rng = random.Random(f"real {real.interpreter.version}")
    catalogue = catalogue_of(real.interpreter.version)
    requests, lines = [], [["--model-path", "m", *raced] for raced in RACED]
    for _ in range(1000):
        tokens = random_line(rng, catalogue, rng.randrange(1, 14))
        request = read_request(tokens, "serve", real.interpreter, catalogue, tmp_path, {})
        requests.append(request)
        lines += [["--model-path", *tokens], [*request.argv, *RACED[len(requests) % len(RACED)]]]
    results = real.ask(lines)["results"]
    raced_alone, results = results[: len(RACED)], results[len(RACED) :]
    for number, request in enumerate(requests, 1):
        original, launched = results[2 * number - 2], results[2 * number - 1]
        assert "error" not in original, (request.argv, original)
        raced = raced_alone[number % len(RACED)]
        changed = {dest: raced["parsed"][dest] for dest in raced["explicit"] if dest != "model_path"}
        assert launched["parsed"] == {**original["parsed"], **changed}, request.argv
        assert original["explicit"].keys() <= request.pins.keys(), request.argv
        for dest, pin in request.pins.items():
            flag = catalogue.resolve(pin.flag)
            assert flag is not None
            # A flag without any effect any more is pinned all the same.
            assert dest in original["explicit"] or flag.action == "deprecated", request.argv
            if flag.action not in ("deprecated", "other"):  # those store what their own code makes of it
                assert _as_argparse(pin, flag) == original["explicit"][dest], request.argv


def _as_argparse(pin: Pin, flag: Flag) -> object:
    """The raw value that argparse stores for `pin`."""
    if flag.action == "store_true":
        return True
    if flag.action == "boolean_optional":
        return pin.values != ("false",)
    if flag.nargs in ("+", "*") or isinstance(flag.nargs, int):
        return list(pin.values)
    return pin.values[0] if pin.values else ""  # the constant of the one flag with an optional value
