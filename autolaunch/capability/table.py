"""The whole table, read file by file when a dimension asks for it.

TOML is slow to parse, so a file is read once a process, only where its dimension matters, and kept parsed
in the user's cache.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from autolaunch.capability.autos import AutoTable, load_autos
from autolaunch.capability.dimensions import Dimension, load_dimensions
from autolaunch.capability.rules import Rule, load_rules

COMBINATIONS: Final = "combinations"
"""The file of `data/rules` with the rules on combinations of flags."""


@dataclass(frozen=True, slots=True)
class Table:
    """Dimensions, rules and automatic choices in a folder laid out as `autolaunch/data`."""

    folder: Traversable
    dimensions: tuple[Dimension, ...]
    cache: Path | None = None
    """A folder for parsed files."""
    learned: tuple[Rule, ...] = ()
    """What failed here before, after the rules of the files."""
    _rules: dict[str, tuple[Rule, ...]] = field(default_factory=dict, repr=False, compare=False)
    _autos: dict[str, AutoTable] = field(default_factory=dict, repr=False, compare=False)

    def dimension(self, flag: str) -> Dimension | None:
        """The dimension that `flag` spells, in its newest or an older spelling."""
        for dimension in self.dimensions:
            if flag == dimension.flag or flag in dimension.also:
                return dimension
        return None

    def rules(self, stem: str) -> tuple[Rule, ...]:
        """The rules of one file; none when nobody has written it."""
        if stem not in self._rules:
            file = self.folder / "rules" / f"{stem}.toml"
            self._rules[stem] = load_rules(file, self.cache) if file.is_file() else ()
        return self._rules[stem]

    def rules_of(self, dimension: Dimension) -> tuple[Rule, ...]:
        """The rules about `dimension`, in the order of its files."""
        of_files = (rule for stem in dimension.rules for rule in self.rules(stem))
        return tuple(rule for rule in (*of_files, *self.learned) if dimension.flag in rule.dimensions)

    def autos(self, dimension: Dimension) -> AutoTable:
        """What SGLang picks by itself, and what to prefer where that is wrong."""
        stem = dimension.stem
        if stem not in self._autos:
            file = self.folder / "auto" / f"{stem}.toml"
            self._autos[stem] = (
                load_autos(file, dimension.flag, self.cache) if file.is_file() else AutoTable((), ())
            )
        return self._autos[stem]

    def combinations(self) -> tuple[Rule, ...]:
        """The rules on combinations of flags."""
        return (*self.rules(COMBINATIONS), *(rule for rule in self.learned if not rule.dimensions))

    def with_rules(self, learned: tuple[Rule, ...]) -> Table:
        """This table and `learned` after it, which were seen here."""
        return replace(self, learned=learned) if learned else self

    def rule_files(self) -> tuple[str, ...]:
        """Every file of rules there is, sorted, without `.toml`."""
        return _stems(self.folder / "rules")

    def auto_files(self) -> tuple[str, ...]:
        """Every file of automatic choices there is, sorted, without `.toml`."""
        return _stems(self.folder / "auto")


def read_table(folder: Traversable, cache: Path | None = None) -> Table:
    """The table in `folder`; RowError for a dimension that is wrong, and later for a row that is.

    `cache` is the user's cache folder; it need not exist.
    """
    parsed = cache / "table" if cache is not None else None
    return Table(folder, load_dimensions(folder / "dimensions_gpu.toml", parsed), parsed)


@lru_cache(maxsize=2)
def bundled_table(cache: Path | None = None) -> Table:
    """The table that comes with autolaunch."""
    return read_table(resources.files("autolaunch") / "data", cache)


def _stems(folder: Traversable) -> tuple[str, ...]:
    """The names of the TOML files in `folder`, sorted."""
    if not folder.is_dir():
        return ()
    return tuple(sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml")))
