"""What a profile's text may cost and hold, looked at before and after a parser sees it.

Some texts of a few kilobytes cost a parser gigabytes: keys of many parts above all.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autolaunch.errors import visible

SIZE_LIMIT: Final = 256 << 10
"""Bytes; a profile of twelve candidates has about twenty thousand."""
MOST_NESTED: Final = 6
"""Levels of tables and lists; a profile has four."""
LONGEST_TEXT: Final = 4096
_MOST_VALUES = 5_000  # keys count too; a profile of twelve candidates has about five hundred
_MOST_INTEGER = 1 << 63
_SHOWN_PATH = 200
# Each search below begins where the last one ended, so that no text costs more than its length.
_TOKEN = re.compile(r"""["'#\[\]{}=,.\n]""")
_ENDS = {
    '"""': re.compile(r'\\.|"{3,5}', re.DOTALL),
    "'''": re.compile(r"'{3,5}"),
    '"': re.compile(r'\\.|["\n]', re.DOTALL),
    "'": re.compile(r"['\n]"),
}
"""What may end a string, by what began it: its quotes, where its line may not; and what is escaped in it."""


@dataclass(frozen=True, slots=True)
class Weight:
    """What a text of TOML holds, as far as that can be told without its parser."""

    values: int
    """At least as many as it has: values, tables and lists."""
    nesting: int
    """Levels of tables and lists, without a list of tables that a later header leads through."""
    excess: str | None = None
    """Why no parser may see the text: it would cost too much."""


def excess_in(text: str) -> str | None:
    """Why no parser may see `text`: it would cost more than a profile does."""
    return weigh(text).excess


def weigh(text: str, most_values: int = _MOST_VALUES, most_nested: int = MOST_NESTED) -> Weight:
    """What `text` holds, as far as its parser would come, and no further than to an excess."""
    values = nesting = dots = header = level = brackets = 0
    around: list[tuple[int, bool]] = []  # lists and inline tables that are open: the level, whether a table
    is_key = True
    at = 0
    while values <= most_values and nesting <= most_nested:
        found = _TOKEN.search(text, at)
        if found is None:
            break
        char, at = found[0], found.end()
        if char in "\"'":
            end = _end_of_string(text, at - 1)
            if end is None:
                break  # the parser gives up there
            at = end
        elif char == "#":
            at = text.find("\n", at)
            if at < 0:
                break
        elif char == ".":
            if is_key:
                dots += 1
                values += 1
        elif char == "\n":
            if not around:
                is_key, dots, level, brackets = True, 0, header, 0
        elif char == "=":
            values += 1
            if is_key:
                level += dots
                nesting = max(nesting, level)
                is_key = False
        elif char == "," and around:
            values += 1
            level, is_key = around[-1]
            dots = 0
        elif char == "[" and is_key and not around:  # the parser takes nothing else for a header
            values += 1
            brackets += 1
        elif char in "[{":
            values += 1
            level += 1
            nesting = max(nesting, level)
            is_key, dots = char == "{", 0
            around.append((level, is_key))
        elif char in "]}" and around:
            around.pop()
            is_key = False
        elif char == "]" and brackets:
            header = dots + brackets
            nesting = max(nesting, header)
            is_key, brackets = False, 0
    excess = f"it has more than {most_values} values" if values > most_values else None
    return Weight(values, nesting, "it is nested too deep" if nesting > most_nested else excess)


def _end_of_string(text: str, start: int) -> int | None:
    """Where the string ends that begins at `start`; None where it does not, and is no string."""
    quotes = text[start : start + 3]
    if quotes not in _ENDS:
        quotes = text[start]
    at = start + len(quotes)
    while (found := _ENDS[quotes].search(text, at)) is not None:
        at = found.end()
        if found[0][0] == quotes[0]:
            return at
        if found[0] == "\n":
            return None
    return None


def fault_in(row: Mapping[str, Any]) -> str | None:
    """Which value no profile has: one too many, too deep, too long, not finite, or not to be shown."""
    for count, (path, value, level) in enumerate(_walk(row, "", 0)):
        if count > _MOST_VALUES:
            return f"it has more than {_MOST_VALUES} values"
        if isinstance(value, str):
            if len(value) > LONGEST_TEXT:
                return f"`{path}` has more than {LONGEST_TEXT} characters"
            if not _is_plain(value):
                return f"`{path}` holds characters that cannot be shown"
        elif isinstance(value, float):
            if not math.isfinite(value):
                return f"`{path}` is no finite number"
        elif isinstance(value, int):
            if not -_MOST_INTEGER <= value < _MOST_INTEGER:
                return f"`{path}` is too large a number"
        elif not isinstance(value, bool | dict | list):
            return f"`{path}` is a date, and a profile writes dates as texts"
        elif level >= MOST_NESTED:
            return f"`{path}` is nested too deep"
    return None


def _walk(value: Any, path: str, level: int) -> Iterator[tuple[str, Any, int]]:
    """Every value below `value`, keys included, each with its place and the tables and lists it lies in."""
    if isinstance(value, Mapping):
        for key, one in value.items():
            place = f"{path}.{key}"[:_SHOWN_PATH] if path else key[:_SHOWN_PATH]
            yield visible(place), key, level
            yield visible(place), one, level
            yield from _walk(one, place, level + 1)
    elif isinstance(value, list):
        for number, one in enumerate(value):
            place = f"{path}[{number}]"[:_SHOWN_PATH]
            yield place, one, level
            yield from _walk(one, place, level + 1)


def _is_plain(text: str) -> bool:
    """Whether a terminal only shows `text`: no control characters, nothing that turns the direction."""
    if text.isprintable():
        return True
    return not any(unicodedata.category(one) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for one in text)
