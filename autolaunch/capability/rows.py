"""Reads the rows of a table file strictly: known keys, right types, evidence, one id once.

A row that is wrong is a `RowError` with file, id and what is wrong, so that whoever wrote it finds it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from autolaunch.cached_json import read_object, write_object
from autolaunch.capability.conditions import ALWAYS, Condition, compile_condition
from autolaunch.capability.fact_names import fact_kind
from autolaunch.capability.versions import VersionRange, parse_range
from autolaunch.tables import toml

EVIDENCE_KINDS: Final = ("source", "docs", "issue", "measured")

_ID = re.compile(r"[a-z0-9_-]+(\.[A-Za-z0-9_+-]+)+")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class RowError(ValueError):
    """A row that does not say what a row must say."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where a fact comes from: kind `source`, `docs`, `issue` or `measured`, and where to look."""

    kind: str
    ref: str


@dataclass(frozen=True, slots=True)
class Scope:
    """When a row applies: its condition, its exception, and the versions it was checked for."""

    when: Condition
    unless: Condition | None
    sglang: VersionRange | None
    flashinfer: VersionRange | None


class Row:
    """One row that is being read; each key may be taken once and none may be left."""

    def __init__(self, file: str, kind: str, values: Mapping[str, Any]) -> None:
        """`file` and `kind` are for messages; `values` are the row as TOML has it."""
        self._left = dict(values)
        self.id = str(values.get("id", "without an id"))
        self._where = f"{file}: {kind} {self.id}"

    def wrong(self, what: str) -> RowError:
        """The error to raise, with the place in it."""
        return RowError(f"{self._where}: {what}")

    def text(self, key: str, default: str | None = None, among: Collection[str] = ()) -> str:
        """A string, one of `among` where that is given."""
        value = self._left.pop(key, default)
        if not isinstance(value, str):
            raise self.wrong(f"lacks `{key}`" if value is None else f"`{key}` is no string")
        if among and value not in among:
            raise self.wrong(f"`{key}` is `{value}`, not one of {', '.join(among)}")
        return value

    def identifier(self) -> str:
        """The dotted id."""
        value = self.text("id")
        if not _ID.fullmatch(value):
            raise self.wrong("an id is dotted, such as `fp4_gemm.flashinfer_trtllm.sm`")
        return value

    def sentence(self, key: str, default: str | None = None) -> str:
        """A sentence without a full stop; `{fact}` in it stands for the fact's value."""
        value = self.text(key, default)
        if value.endswith(".") or value != value.strip() or (default is None and not value):
            raise self.wrong(f"`{key}` is one sentence without a full stop")
        for name in _PLACEHOLDER.findall(value):
            if fact_kind(name) is None:
                raise self.wrong(f"`{key}` names `{{{name}}}`, which is no fact")
        return value

    def strings(self, key: str, default: Any = None) -> tuple[str, ...]:
        """A string or a list of strings."""
        value = self._left.pop(key, default)
        if isinstance(value, str):
            return (value,)
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise self.wrong(f"lacks `{key}`" if value is None else f"`{key}` is no list of strings")
        return tuple(value)

    def number(self, key: str, default: int) -> int:
        """A whole number."""
        value = self._left.pop(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(f"`{key}` is no number")
        return value

    def switch(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self._left.pop(key, default)
        if not isinstance(value, bool):
            raise self.wrong(f"`{key}` is neither true nor false")
        return value

    def table(self, key: str) -> Mapping[str, Any] | None:
        """A table, or None when it is not there."""
        value = self._left.pop(key, None)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(f"`{key}` is no table")
        return value

    def condition(self, key: str) -> Condition | None:
        """A condition, or None when the key is absent or its table empty."""
        value = self._left.pop(key, None)
        if value is None or value == {}:
            return None
        try:
            return compile_condition(value)
        except ValueError as error:
            raise self.wrong(f"`{key}`: {error}") from error

    def range(self, key: str) -> VersionRange | None:
        """A range of versions; None where the row holds for every version."""
        text = self.text(key, "")
        try:
            return parse_range(text) if text else None
        except ValueError as error:
            raise self.wrong(f"`{key}`: {error}") from error

    def scope(self) -> Scope:
        """The keys `when`, `unless`, `sglang` and `flashinfer` together."""
        return Scope(
            when=self.condition("when") or ALWAYS,
            unless=self.condition("unless"),
            sglang=self.range("sglang"),
            flashinfer=self.range("flashinfer"),
        )

    def evidence(self) -> tuple[Evidence, ...]:
        """At least one piece of evidence of a known kind."""
        items = self._left.pop("evidence", None)
        if not isinstance(items, list) or not items:
            raise self.wrong("needs evidence")
        found = []
        for item in items:
            if not isinstance(item, Mapping) or set(item) - {"kind", "ref", "checked"}:
                raise self.wrong("evidence is { kind = …, ref = …, checked = a date }")
            kind, ref = item.get("kind"), item.get("ref")
            if kind not in EVIDENCE_KINDS or not isinstance(ref, str) or len(ref) < 8:
                raise self.wrong(f"evidence needs a kind ({', '.join(EVIDENCE_KINDS)}) and a ref")
            found.append(Evidence(kind, ref))
        return tuple(found)

    def done(self) -> None:
        """RowError when keys are left that nobody knows."""
        if self._left:
            raise self.wrong(f"has unknown keys {', '.join(sorted(self._left))}")


def read_rows(file: Traversable, kinds: Collection[str], cache: Path | None = None) -> dict[str, list[Row]]:
    """The rows of a TOML file by kind, in order; only tables of `kinds` may be in it.

    `cache` is a folder for parsed files; it need not exist.
    """
    content = _content(file, cache)
    unknown = set(content) - set(kinds)
    if unknown:
        raise RowError(f"{file.name}: has unknown tables {', '.join(sorted(unknown))}")
    rows: dict[str, list[Row]] = {}
    for kind in kinds:
        values = content.get(kind, [])
        if not isinstance(values, list) or not all(isinstance(one, Mapping) for one in values):
            raise RowError(f"{file.name}: write [[{kind}]], not [{kind}]")
        rows[kind] = [Row(file.name, kind, one) for one in values]
    return rows


def _content(file: Traversable, cache: Path | None) -> Mapping[str, Any]:
    """What a TOML file says; from `cache`, with dates as text, if these very bytes were parsed before.

    Parsing TOML takes twenty times as long as JSON, 50 ms for 400 rows.
    """
    data = file.read_bytes()
    path = cache / f"{hashlib.sha256(data).hexdigest()[:32]}.json" if cache is not None else None
    if path is not None:
        found = read_object(path)
        if found is not None:
            return found
    try:
        content = toml.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RowError(f"{file.name}: no TOML: {error}") from error
    if path is not None:
        with suppress(OSError):  # a read-only home only costs the time to parse again
            write_object(path, content, default=str)
    return content


def fill(sentence: str, facts: Mapping[str, object]) -> str:
    """`sentence` with the value of each fact it names."""
    return _PLACEHOLDER.sub(lambda found: str(facts.get(found[1], "unknown")), sentence)
