"""The tables of facts in `data/*.toml`, as rows; what a row means is the business of whoever asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

try:
    import tomli as toml
except ImportError:  # installed without its requirements: a server starts all the same, a little later
    import tomllib as toml  # type: ignore[no-redef]

__all__ = ["DATA", "load_rows", "load_table", "toml"]

DATA: Final = Path(__file__).with_name("data")
"""The folder itself: what finds files of packages in general costs a start several milliseconds."""


def load_table(table: str) -> dict[str, Any]:
    """All of `data/TABLE.toml`."""
    return toml.loads((DATA / f"{table}.toml").read_text(encoding="utf-8"))


def load_rows(table: str, key: str) -> list[dict[str, Any]]:
    """The rows `[[key]]` of `data/TABLE.toml`, in their order."""
    rows: list[dict[str, Any]] = load_table(table)[key]
    return rows
