"""Who races: one changed dimension at a time, pins untouched, every choice left out with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from autolaunch.candidates.candidate import ORIGINAL
from autolaunch.candidates.dimensions import Choice, load_choices
from autolaunch.candidates.generate import MAX_CANDIDATES, SUSPECT, Field, generate, parse_user_candidate
from autolaunch.detect.machine import Machine
from autolaunch.errors import UsageError
from autolaunch.request.catalogue import bundled_catalogue
from autolaunch.request.command_line import Request, read_request
from autolaunch.request.flags import FlagCatalogue
from autolaunch.request.interpreter import Interpreter

CPU = Machine(platform="cpu", source="none", cores=2, memory_available_bytes=1 << 34)
CUDA = Machine(platform="cuda", source="none", cores=2, memory_available_bytes=1 << 34)


@pytest.fixture(scope="module")
def catalogue() -> FlagCatalogue:
    return bundled_catalogue("0.5.21")


def request_of(*tokens: str, catalogue: FlagCatalogue) -> Request:
    """The request behind `serve TOKENS`."""
    interpreter = Interpreter(
        python="/usr/bin/python3", package=Path("/sglang"), version="0.5.21", source="test"
    )
    return read_request(["model", *tokens], "serve", interpreter, catalogue, Path("/"), {})


def field(*tokens: str, catalogue: FlagCatalogue, **more: object) -> Field:
    """The field of a race on a CPU."""
    return generate(request_of(*tokens, catalogue=catalogue), catalogue, CPU, load_choices(), **more)  # type: ignore[arg-type]


def test_one_dimension_at_a_time(catalogue: FlagCatalogue) -> None:
    runners = field(catalogue=catalogue)
    assert runners.candidates[0] == ORIGINAL
    assert [one.flags for one in runners.challengers][:2] == [
        ("--disable-overlap-schedule",),
        ("--disable-radix-cache",),
    ]
    assert [one.id for one in runners.candidates] == [f"c{n}" for n in range(len(runners.candidates))]
    assert {one.resolved_as for one in runners.challengers} == {
        "disable_overlap_schedule",
        "disable_radix_cache",
        "attention_backend",
    }
    assert runners.dropped == ()


@pytest.mark.parametrize(
    "pin", [("--attention-backend", "triton"), ("--attention-backend=triton",), ("--attention-b", "triton")]
)
def test_a_pinned_dimension_is_never_changed(pin: tuple[str, ...], catalogue: FlagCatalogue) -> None:
    runners = field(*pin, catalogue=catalogue)
    assert all("--attention-backend" not in one.flags for one in runners.challengers)
    reasons = [one.reason for one in runners.dropped]
    assert reasons and all("you pinned" in reason for reason in reasons)


def test_another_platform_has_its_own_rows(catalogue: FlagCatalogue) -> None:
    request = request_of(catalogue=catalogue)
    assert generate(request, catalogue, CUDA, load_choices()).candidates == (ORIGINAL,)


def test_a_flag_this_version_lacks_is_left_out(catalogue: FlagCatalogue) -> None:
    row = Choice("cpu.x.y", "cpu", "--no-such-flag", None, (), 1, "r", ())
    runners = generate(request_of(catalogue=catalogue), catalogue, CPU, [row])
    assert runners.dropped[0].reason == "SGLang 0.5.21 has no `--no-such-flag`"


def test_a_value_this_version_lacks_is_left_out(catalogue: FlagCatalogue) -> None:
    row = Choice("cpu.x.y", "cpu", "--attention-backend", "abacus", (), 1, "r", ())
    runners = generate(request_of(catalogue=catalogue), catalogue, CPU, [row])
    assert "does not offer `abacus`" in runners.dropped[0].reason


def test_a_suspect_is_left_out(catalogue: FlagCatalogue) -> None:
    runners = field(catalogue=catalogue, suspects=frozenset({("--disable-radix-cache",)}))
    assert [one.reason for one in runners.dropped] == [
        "the last server started with it ended before it was healthy"
    ]


def test_at_most_twelve(catalogue: FlagCatalogue) -> None:
    mine = [f"--max-running-requests {n}" for n in range(1, 12)]
    runners = field(catalogue=catalogue, user_candidates=mine)
    assert len(runners.candidates) == MAX_CANDIDATES
    assert all("at most 12" in one.reason for one in runners.dropped) and runners.dropped


def test_user_candidates(catalogue: FlagCatalogue) -> None:
    one = parse_user_candidate("TRITON_INTERPRET=1 --attention-backend triton", "c1", catalogue)
    assert (one.env, one.flags) == ((("TRITON_INTERPRET", "1"),), ("--attention-backend", "triton"))
    assert (one.dimension, one.choice, one.resolved_as) == (
        "--attention-backend",
        "triton",
        "attention_backend",
    )
    two = parse_user_candidate("--attention-backend=triton --disable-radix-cache", "c1", catalogue)
    assert (two.dimension, two.choice, two.resolved_as) == (None, None, None)
    three = parse_user_candidate("--attention-backend=triton", "c1", catalogue)
    assert three.choice == "triton"


def test_the_table_does_not_repeat_what_the_user_races(catalogue: FlagCatalogue) -> None:
    runners = field(catalogue=catalogue, user_candidates=["--disable-radix-cache"])
    assert [one.origin for one in runners.candidates if one.flags == ("--disable-radix-cache",)] == ["user"]


@pytest.mark.parametrize("text", ["", "   ", "triton", "A=1", "1A=2 --x", "'--open", "-x"])
def test_bad_user_candidates(text: str, catalogue: FlagCatalogue) -> None:
    with pytest.raises(UsageError):
        parse_user_candidate(text, "c1", catalogue)


def test_a_suspect_is_left_out_also_when_the_user_names_it(catalogue: FlagCatalogue) -> None:
    runners = field(
        catalogue=catalogue,
        user_candidates=["--disable-radix-cache"],
        suspects=frozenset({("--disable-radix-cache",)}),
    )
    assert all("--disable-radix-cache" not in one.flags for one in runners.candidates)
    assert {one.reason for one in runners.dropped} == {SUSPECT}
