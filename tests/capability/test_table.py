"""The bundled table as a whole: every row loads, names only what exists, and every known choice has a row.

For one file while writing it: `pytest tests/capability/test_table.py -k attention-backend`.
"""

from __future__ import annotations

import pytest

from autolaunch.capability.check import problems, uncovered, without_auto
from autolaunch.capability.table import bundled_table

TABLE = bundled_table()
FILES = [f"rules/{stem}" for stem in TABLE.rule_files()] + [f"auto/{stem}" for stem in TABLE.auto_files()]


@pytest.mark.parametrize("file", FILES)
def test_each_file_is_right(file: str) -> None:
    """No row of the file says what cannot be."""
    assert problems(TABLE, [file]) == ()


def test_the_table_is_right_as_a_whole() -> None:
    """Ids are unique over all files and the dimensions exist; the test below is about what is missing."""
    left = set(problems(TABLE)) - set(uncovered(TABLE))
    assert not left


@pytest.mark.parametrize("dimension", [d.flag for d in TABLE.dimensions if d.kernel])
def test_every_known_choice_has_a_row(dimension: str) -> None:
    """A choice without a row would be an accidental unknown; a known unknown has a row that says so."""
    assert [one for one in uncovered(TABLE) if one.startswith(f"{dimension} ")] == []


def test_every_dimension_has_an_automatic_choice() -> None:
    """Otherwise what runs is unknown, and no rule on it can speak."""
    assert without_auto(TABLE) == ()
