"""The dimensions of the table, `data/dimensions_gpu.toml`: flags that select something, through all versions.

A flag that was renamed is one dimension with its newest spelling; the attribute of its newest version names
the fact `flag.<dest>`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path

from autolaunch.capability.conditions import Condition
from autolaunch.capability.rows import Row, read_rows
from autolaunch.capability.rules import Numerics
from autolaunch.request.flags import Flag, FlagCatalogue

_FLAG = re.compile(r"--[a-z][a-z0-9-]*")


@dataclass(frozen=True, slots=True)
class Dimension:
    """One flag of SGLang that selects something."""

    flag: str
    """The newest spelling."""
    also: tuple[str, ...]
    """Older spellings of the same thing."""
    dest: str
    title: str
    when: Condition | None
    """What makes it matter; None for always."""
    raced: bool
    """Whether its choices are candidates of the race."""
    kernel: bool
    """Whether it selects a kernel, so that every known choice must have a row."""
    order: int
    """Where it is shown; the order in the file is the order of resolving."""
    values: tuple[str, ...]
    """What to show of a flag that has no list of choices."""
    auto_words: tuple[str, ...]
    """Values that leave the choice to SGLang."""
    numerics: Numerics
    unraced: tuple[str, ...]
    """Choices that work and are too slow to be worth an engine; a rule that warns of it says why."""
    rules: tuple[str, ...]
    """Files of `data/rules` that speak of it, without `.toml`."""

    @property
    def stem(self) -> str:
        """The flag without its dashes, as files are named."""
        return self.flag.removeprefix("--")

    def in_version(self, catalogue: FlagCatalogue) -> Flag | None:
        """The flag in a version that has it, under whichever spelling."""
        for name in (self.flag, *self.also):
            flag = catalogue.resolve(name)
            if flag is not None and name in flag.names:
                return flag
        return None

    def choices(self, flag: Flag) -> tuple[str, ...]:
        """The choices `flag` offers, without those that leave it to SGLang."""
        if not flag.takes_value:
            return ("on", "off") if flag.action == "boolean_optional" else ("on",)
        offered = flag.choices if flag.choices is not None else self.values
        return tuple(choice for choice in offered if choice not in self.auto_words)


def load_dimensions(file: Traversable, cache: Path | None = None) -> tuple[Dimension, ...]:
    """Every dimension, in the order in which they are resolved; RowError for a row that is wrong."""
    return tuple(_dimension(row) for row in read_rows(file, ("dimension",), cache)["dimension"])


def _dimension(row: Row) -> Dimension:
    """Check one row and make it a dimension."""
    flag = row.text("flag")
    row.id = flag
    found = Dimension(
        flag=flag,
        also=row.strings("also", ()),
        dest=row.text("dest"),
        title=row.text("title"),
        when=row.condition("when"),
        raced=row.switch("raced", False),
        kernel=row.switch("kernel", True),
        order=row.number("order", 100),
        values=row.strings("values", ()),
        auto_words=row.strings("auto_words", ("auto",)),
        numerics=row.text("numerics", "same", among=("same", "lossy", "unknown")),  # type: ignore[arg-type]
        unraced=row.strings("unraced", ()),
        rules=row.strings("rules", (flag.removeprefix("--"),)),
    )
    row.done()
    if not all(_FLAG.fullmatch(name) for name in (flag, *found.also)):
        raise row.wrong("`flag` and `also` are long flags")
    return found
