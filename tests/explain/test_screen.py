"""Lines on screens of all kinds, and texts that would like to steer them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from autolaunch.explain.markdown import markdown_of
from autolaunch.explain.screen import EMPTY, Line, Screen, plain, screen_of, wants_colour
from autolaunch.explain.text import lines_of
from tests.explain.cases import ask

EVIL = "\x1b[31mred\x1b]0;title\x07 \x9b2J \u202eback\u2066 \u200bzero\r\nnew\x00 \ud800 `code` <b>|*_"


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


@pytest.mark.parametrize(
    ("environ", "colour"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_colours_are_for_terminals_where_nobody_minds(environ: dict[str, str], colour: bool) -> None:
    assert wants_colour(Terminal(), environ) is colour
    assert wants_colour(io.StringIO(), environ) is False


def test_a_pipe_is_plain_and_not_wrapped() -> None:
    assert screen_of(io.StringIO(), {"TERM": "xterm"}) == Screen()
    closed = io.StringIO()
    closed.close()
    assert screen_of(closed, {"TERM": "xterm"}) == Screen()
    assert screen_of(Terminal(), {"TERM": "xterm"}).width is not None


def test_a_long_line_hangs_below_its_head() -> None:
    line = Line("warning: ", "one two three four five six seven eight nine ten", "bad", indent=2, hang=4)
    assert Screen(width=40).render([line, EMPTY]) == (
        "  warning: one two three four five six\n      seven eight nine ten\n\n"
    )
    assert Screen(colour=True, width=40).render([line]).startswith("  \x1b[31mwarning: \x1b[0mone two")


def test_nothing_from_outside_steers_a_terminal() -> None:
    text = plain(EVIL)
    assert text.isprintable()
    assert (
        "\\x1b[31mred\\x1b]0;title\\x07 \\x9b2J \\u202eback\\u2066 \\u200bzero\\r\\nnew\\x00 \\ud800" in text
    )


def test_metadata_of_a_model_is_neutralised_everywhere(tmp_path: Path) -> None:
    """Escapes in every text of the configuration and in the folder's name."""
    name = "model \x1b[31m\u202e"
    folder = tmp_path / name
    folder.mkdir()
    config = {
        "architectures": [EVIL],
        "model_type": EVIL,
        "dtype": EVIL,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "quantization_config": {"quant_method": EVIL, "kv_cache_scheme": EVIL, "quant_algo": EVIL},
    }
    (folder / "config.json").write_text(json.dumps(config))
    assessment = ask(folder, "--served-model-name", EVIL.replace("\x00", ""), gpu="H200")
    for text in (
        Screen().render(lines_of(assessment)),
        Screen(width=80).render(lines_of(assessment, brief=True)),
        markdown_of(assessment),
    ):
        assert all(line.isprintable() for line in text.split("\n"))
        assert "\\x1b[31mred" in text
    page = markdown_of(assessment).split("```sh")[0]  # what is fenced is no markup
    assert "\\<b" in page
    assert "<b>" not in page.replace("\\<b", "")
