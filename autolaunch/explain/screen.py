"""Lines for a person: neutral, wrapped where a terminal shows them, coloured where nobody minds.

Names, notes and flags come from outside; whatever a terminal would obey in them, or what would turn a line
around, is written out as an escape.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal, TextIO

from autolaunch.errors import AutolaunchError

Style = Literal["", "good", "bad", "warn", "head", "dim"]

_CODES: Final[Mapping[str, str]] = {"good": "32", "bad": "31", "warn": "33", "head": "1", "dim": "2"}
_NARROWEST = 40
_LONGEST = 4000


@dataclass(frozen=True, slots=True)
class Line:
    """One line: a coloured beginning, the rest, and how far it is indented when it is wrapped."""

    head: str
    body: str = ""
    style: Style = ""
    indent: int = 0
    """Columns before the head."""
    hang: int = 2
    """Further columns before what is wrapped."""


EMPTY: Final = Line("")


@dataclass(frozen=True, slots=True)
class Screen:
    """What the lines are written for."""

    colour: bool = False
    width: int | None = None
    """Columns to wrap at; None for a file or a pipe, where each line stays whole."""

    def render(self, lines: Iterable[Line]) -> str:
        """`lines` as text that ends with a line feed."""
        return "".join(f"{self._line(line)}\n" for line in lines)

    def _line(self, line: Line) -> str:
        """One line, perhaps wrapped into several."""
        margin = " " * line.indent
        text = plain(f"{line.head}{line.body}")
        if self.width is not None and len(margin) + len(text) > self.width:
            import textwrap  # here, because only a terminal needs it

            text = textwrap.fill(
                text,
                max(self.width - line.indent, _NARROWEST),
                subsequent_indent=" " * line.hang,
                break_long_words=False,
                break_on_hyphens=False,
            ).replace("\n", f"\n{margin}")
        head = plain(line.head)
        if self.colour and line.style and head.strip() and text.startswith(head):
            text = f"\x1b[{_CODES[line.style]}m{head}\x1b[0m{text[len(head) :]}"
        return f"{margin}{text}".rstrip()


def screen_of(stream: TextIO | None, environ: Mapping[str, str]) -> Screen:
    """The screen behind `stream`: coloured and wrapped for a terminal, plain for anything else."""
    if stream is None or not _is_terminal(stream):
        return Screen()
    import shutil  # as above

    columns = shutil.get_terminal_size().columns
    return Screen(wants_colour(stream, environ), max(columns, _NARROWEST))


def wants_colour(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Whether `stream` is a terminal that shows colours, and nobody minds (https://no-color.org)."""
    if environ.get("NO_COLOR") or environ.get("TERM", "") in ("", "dumb"):
        return False
    return stream is not None and _is_terminal(stream)


def _is_terminal(stream: TextIO) -> bool:
    """Whether `stream` is one, which a closed stream is not."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def emit(text: str, stream: TextIO | None) -> bool:
    """Write `text` to `stream`; False when its reader has gone away.

    AutolaunchError when it cannot be written, as on a full disk; None is what Python has for a stream that
    was closed before it started (`>&-`).
    """
    if stream is None:
        raise AutolaunchError("the answer could not be written to stdout", because=("it is closed",))
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")  # a terminal without `×` shows an escape
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        with suppress(OSError, ValueError):  # or Python tries once more at its end, and complains
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
        if isinstance(error, BrokenPipeError):
            return False
        raise AutolaunchError(
            "the answer could not be written to stdout", because=(str(error.strerror),)
        ) from error
    return True


def plain(text: str) -> str:
    """`text` on one line, without what a terminal would obey or what changes the direction of writing."""
    if text.isprintable():
        return text[:_LONGEST]
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "backslashreplace").decode("ascii")
        for one in text[:_LONGEST]
    )
