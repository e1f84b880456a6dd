"""Known GPUs by name, from `data/products.toml`: to plan for one, and for what NVML leaves out of one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from autolaunch.errors import UsageError
from autolaunch.tables import load_table

# Words that tell nothing apart; "edition" and "generation" only end names.
_NOISE = re.compile(r"nvidia|geforce|tesla|edition|generation|\(r\)|\(tm\)")
_NO_LETTERS = re.compile(r"[^a-z0-9]")
_NAME_LIMIT = 200
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Product:
    """One GPU model."""

    id: str
    name: str
    """As NVML names it."""
    aliases: tuple[str, ...]
    nvml: tuple[str, ...]
    """Other names NVML has been seen to give it."""
    sm: int
    sm_count: int | None
    memory_bytes: int | None
    unified: bool
    reason: str | None
    evidence: tuple[Mapping[str, Any], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every name it answers to."""
        return (self.name, self.id, *self.nvml, *self.aliases)


@dataclass(frozen=True, slots=True)
class Products:
    """The table, with its lookups."""

    rows: tuple[Product, ...]
    cores_per_sm: Mapping[int, int]
    """By compute capability."""
    by_key: Mapping[str, Product]

    def named(self, name: str | None) -> Product | None:
        """The row of a name as NVML or a person writes it, also of a MIG slice; None when it is not known."""
        return self.by_key.get(key_of(name.partition(" MIG ")[0])) if name else None


@cache
def products() -> Products:
    """The bundled table; ValueError says which row is wrong (the tests load it)."""
    table = load_table("products")
    sources = table["sources"]
    rows = tuple(_product(row, sources) for row in table["product"])
    by_key: dict[str, Product] = {}
    for row in rows:
        for key in map(key_of, row.names):
            if by_key.setdefault(key, row) is not row:
                raise ValueError(f"`{key}` names both {by_key[key].id} and {row.id}")
    cores = {sm: row["cores_per_sm"] for row in table["generation"] for sm in row["sm"]}
    return Products(rows, cores, by_key)


def _product(row: Mapping[str, Any], sources: Mapping[str, Mapping[str, Any]]) -> Product:
    """One row as a value."""
    memory_mib = row.get("memory_mib")
    return Product(
        id=row["id"],
        name=row["name"],
        aliases=tuple(row["aliases"]),
        nvml=tuple(row.get("nvml", ())),
        sm=row["sm"],
        sm_count=row.get("sm_count"),
        memory_bytes=None if memory_mib is None else memory_mib << 20,
        unified=row.get("unified", False),
        reason=row.get("reason"),
        evidence=tuple(sources[key] for key in row["evidence"]),
    )


def key_of(name: str) -> str:
    """`name` without case, punctuation and words that tell nothing apart."""
    lower = name[:_NAME_LIMIT].lower()
    return _NO_LETTERS.sub("", _NOISE.sub(" ", lower)) or _NO_LETTERS.sub("", lower)


def product_for(name: str) -> Product:
    """The product a user names; UsageError with what was probably meant."""
    found = products().named(name)
    if found is not None:
        return found
    shown = name if len(name) <= 60 else name[:57] + "..."
    meant = list(_meant(name))
    known = ", ".join(f"`{one}`" for one in ("H200", "B200", "RTX PRO 6000", "DGX Spark"))
    raise UsageError(
        f"`--for-gpu {shown!r}` names no GPU that autolaunch knows"
        if not shown.isprintable()
        else f"`--for-gpu {shown}` names no GPU that autolaunch knows",
        because=(
            (f"the nearest are {', '.join(f'`{one}`' for one in meant)}",)
            if meant
            else (f"names are such as {known}",)
        ),
        hint=f"did you mean `--for-gpu '{meant[0]}'`?"
        if meant
        else "give the compute capability: `--for-sm 90`",
    )


def _meant(name: str) -> Iterator[str]:
    """Names near to `name`, nearest first, one a product."""
    import difflib

    table = products()
    key, seen = key_of(name), set[str]()
    near = difflib.get_close_matches(key, table.by_key, n=12, cutoff=0.6)
    inside = [one for one in table.by_key if len(key) >= 2 and key in one]
    for one in [*near[:1], *sorted(inside, key=len), *near]:
        row = table.by_key[one]
        if row.id not in seen and len(seen) < _SHOWN:
            seen.add(row.id)
            yield _as_typed(row, one)


def _as_typed(row: Product, key: str) -> str:
    """The name of `row` that `key` came from."""
    return next(name for name in row.names if key_of(name) == key)
