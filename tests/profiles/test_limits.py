"""What a text of TOML weighs before its parser sees it: never more work than its length, and what the parser finds."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from typing import Any

import pytest
import tomli
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autolaunch.profiles.limits import MOST_NESTED, SIZE_LIMIT, excess_in, fault_in, weigh
from tests.real_server import ROOT

N = SIZE_LIMIT - 100


def filled(unit: str, before: str = "", after: str = "") -> str:
    """As many of `unit` as fit into a profile."""
    return before + unit * (N // len(unit.encode())) + after


OPEN = {
    **{f"{mark} that closes nowhere, {unit!r}": filled(unit, f"a={mark}") for mark in ('"""', "'''", '"', "'") for unit in ("x", "\\", '\\"', "'\n", '"\n', "\r\n", "''", '""', "\\\n", "#")},
    **{f"{unit!r} again and again": filled(unit) for unit in ('\\""" "\n', "\\''' '\n", '"""', "'''", '""""', "''''", '"', "'", '"\n', "'\n", '\\"', "'\"", "\"'", "#\n", "#", "\r\n", "[", "]", "[]", "{", "{}", "}", ".", "a.", "=", "a=", ",", " ", "\t", "a", "\\", "[[", "[\n", '""".', "'.", "a=[", "a={", "a=1\n", "[a]\n", "[[a]]\n", "é", "\x00")},
    "an escape that the text ends in": filled("x", 'a="', "\\"),
}  # fmt: skip


@pytest.mark.parametrize("text", OPEN.values(), ids=OPEN)
def test_no_text_costs_more_than_its_length(text: str) -> None:
    started = time.process_time()
    excess_in(text)
    assert time.process_time() - started < 3, "some hundredths of a second where nobody else computes"


MOST = """
import resource, sys, time, tomli
from autolaunch.profiles.limits import SIZE_LIMIT, excess_in, weigh
def most(line, before="", after=""):
    low, high = 1, 200_000
    while high - low > 64:
        middle = (low + high) // 2
        text = before + "".join(map(line, range(middle))) + after
        low, high = (middle, high) if len(text) <= SIZE_LIMIT and excess_in(text) is None else (low, middle)
    return before + "".join(map(line, range(low))) + after
CASES = [
    most(lambda n: f"{n:x}.a.a.a.a.a.a=1\\n"), most(lambda n: f"[{n:x}.a.a.a.a.a]\\n"), most(lambda n: f"[[{n:x}.a.a.a.a]]\\n"),
    most(lambda n: f"[{n:x}.a.a]\\na.a.a.a=1\\n"), most(lambda n: f"{n:x}={{a.a.a.a.a.a=1}}\\n"), most(lambda n: f"{n:x}=[[[[[[]]]]]]\\n"),
    most(lambda n: f"{n:x}={{}}\\n"), most(lambda n: "{},", "a=[", "]"), most(lambda n: "1,", "a=[", "]"), most(lambda n: f"{n:x}=1,", "a={", "a=1}"),
    most(lambda n: "[[a]]\\n"), most(lambda n: "[[a.a]]\\n", "[[a]]\\n"), most(lambda n: "#\\n"), most(lambda n: "\\r\\n"), most(lambda n: "\\\\n", 'a="', '"'),
    most(lambda n: "x", "a='", "'"), most(lambda n: "x", "", "=1"), most(lambda n: f"{n:x}=1\\n", "[" + "x" * 100_000 + "]\\n"),
    most(lambda n: "\\\\\\n \\n", 'a=\"\"\"', '\"\"\"'), most(lambda n: "''\\n", "a='''", "'''"), most(lambda n: "f", "a=0x"), most(lambda n: "9", "a=0."), most(lambda n: "1_", "a=", "1"),
    most(lambda n: "\\u00e9", "'", "'=1"), most(lambda n: "\\n#x\\n", "a=[", "]"),
]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for text in CASES:
    assert len(text) > 1000, text
    started = time.process_time()
    try:
        tomli.loads(text)
    except ValueError:
        pass
    assert time.process_time() - started < 3, text[:100]
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_the_most_that_is_let_through_costs_the_parser_little() -> None:
    done = subprocess.run([sys.executable, "-c", MOST], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100, "MiB"


# What the parser finds -----------------------------------------------------------------------------


def depth(value: Any) -> int:
    """Levels of tables and lists below `value`."""
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max((depth(one) + isinstance(one, dict | list) for one in below), default=0)


def count(value: Any) -> int:
    """Values below `value`, tables and lists too."""
    below = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(1 + count(one) for one in below)


def agree(text: str) -> None:
    """Have the scanner tell of `text` what the parser finds; where that finds nothing, anything will do."""
    weight = weigh(text, SIZE_LIMIT, SIZE_LIMIT)
    try:
        row = tomli.loads(text)
    except ValueError:
        return
    found = depth(row)
    assert count(row) <= weight.values
    if "[[" in text:  # perhaps a list of tables, which a later header leads through
        assert weight.nesting <= found <= 2 * weight.nesting
    else:
        assert weight.nesting == found
    deep = excess_in(text) == "it is nested too deep" or "nested too deep" in (fault_in(row) or "")
    assert deep == (found > MOST_NESTED)


KEYS = st.sampled_from(["a", "b", "c", "d-1", "2", '"e"', "'f'", '"#"', "'='", '"]"', '"\\""', "'['", '"x.y"', '""', "''", "'\"'", "true"])  # fmt: skip
SPACE = st.sampled_from(["", "", " ", "\t"])
DOTTED = st.lists(KEYS, min_size=1, max_size=3).flatmap(
    lambda keys: SPACE.map(lambda space: f"{space}.{space}".join(keys))
)
PIECES = st.lists(st.sampled_from(["a", "[", "{", "=", ".", "#", ",", "]", "}"]), max_size=4).map("".join)
SCALARS = st.one_of(
    st.sampled_from(["1", "-1.5", "1e3", "0x1f", "true", "inf", "1979-05-27T07:32:00.5Z", "07:32:00.25"]),
    PIECES.flatmap(lambda text: st.sampled_from([f'"{text}"', f"'{text}'", f'"{text}\\"{text}"', f'"{text}\\\\"', f"'{text}\\'", f'"{text}\'"', f"'{text}\"'"])),
    st.tuples(PIECES, st.sampled_from(["", "\n", '"', '""', '\\"', '\\"""', "\\\\", "\\\n  ", "'", "'''", "\n#"]), PIECES, st.sampled_from(["", '"', '""', "\\\\", '\\""'])).map(lambda parts: f'"""{"".join(parts)}"""'),
    st.tuples(PIECES, st.sampled_from(["", "\n", "'", "''", '"', '"""', "\\", "\n#"]), PIECES, st.sampled_from(["", "'", "''", "\\"])).map(lambda parts: f"'''{''.join(parts)}'''"),
)  # fmt: skip
COMMENTS = st.sampled_from(["", "", " # 'a", '# """', "#[{=.", "# a.b.c = ["])
FILLER = COMMENTS.map(lambda text: f"{text}\n" if text else "")


def inner(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Lists and inline tables of `values`."""
    lists = st.tuples(
        st.lists(st.tuples(FILLER, values, FILLER).map("".join), max_size=3),
        st.sampled_from(["", ","]),
        FILLER,
    )
    tables = st.lists(
        st.tuples(FILLER, DOTTED, SPACE, values), max_size=3
    )  # over several lines since TOML 1.1
    return st.one_of(
        lists.map(lambda parts: f"[{','.join(parts[0])}{parts[1] if parts[0] else ''}{parts[2]}]"),
        tables.map(lambda rows: "{" + ", ".join(f"{filler}{key}{space}={space}{value}" for filler, key, space, value in rows) + "}"),
    )  # fmt: skip


VALUES = st.recursive(SCALARS, inner, max_leaves=8)
PAIRS = st.tuples(SPACE, DOTTED, SPACE, VALUES).map(
    lambda parts: f"{parts[0]}{parts[1]}{parts[2]}={parts[3]}"
)
HEADERS = st.tuples(SPACE, DOTTED, SPACE).map("".join).map(lambda text: f"[{text}]")
STATEMENTS = st.tuples(PAIRS | PAIRS | HEADERS | HEADERS.map(lambda text: f"[{text}]"), COMMENTS).map("".join)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A text of TOML: each statement that its parser takes after those before it."""
    text = ""
    newline = draw(st.sampled_from(["\n", "\r\n"]))
    for statement in draw(st.lists(STATEMENTS, max_size=8)):
        with contextlib.suppress(ValueError):
            longer = text + statement.replace("\n", newline) + newline
            tomli.loads(longer)
            text = longer
    return text


@settings(deadline=None, max_examples=300)
@given(documents())
@example("[[a]]\n[[a.b]]\n[[a.b.c]]\n[a.b.c.d]\n")
@example('a."".b = 1')
@example('a = """x""""" # [[\nb = 1')
@example("a.b.c.d.e.f.g = 1")
@example("a.b.c.d.e.f.g.h = 1")
@example("[a.b.c.d.e.f]\nx = 1.5")
@example("[a.b.c.d.e.f]\nx = [1]")
@example("[a.b.c]\nd.e = {f = [{}, 1.5], g.h = 1}")
def test_the_scanner_tells_what_the_parser_finds(text: str) -> None:
    agree(text)


@settings(deadline=None, max_examples=400)
@given(st.one_of(st.text("[]{}.=\"'#\\\n\r ,a1", max_size=60), st.tuples(documents(), st.text("[]{}.=\"'#\\\n\r ,a1", max_size=6), documents()).map("".join)))  # fmt: skip
def test_whatever_the_parser_takes_the_scanner_understood(text: str) -> None:
    agree(text)


@pytest.mark.parametrize("text", ["a." * 60_000 + "a=1", "[" + "a." * 60_000 + "a]", "a={" + "a." * 60_000 + "a=1}", "a=[{" + "a ." * 60_000 + "a=1}]"])  # fmt: skip
@pytest.mark.parametrize("before", ['a=""\n', "a='''''''\n", 'a="""\\""""\n', "a='#'\n", "#'''\n", "[x] # [\n", 'a="\\\\"\n', "a=[[],[\n]]\r\n"])  # fmt: skip
def test_a_long_key_hides_behind_nothing(before: str, text: str) -> None:
    assert excess_in(before + text) is not None
