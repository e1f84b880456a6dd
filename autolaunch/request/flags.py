"""The flags of one SGLang version, and how its parser resolves what was typed to one of them.

SGLang parses with argparse, abbreviations on.  The rules here are CPython's own (`_parse_optional` and
`_get_option_tuples`, the same for every valid line from 3.10 to 3.13), written without a parser object,
because building one from 500 flags costs more than reading a command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Action = Literal[
    "store",
    "store_true",
    "store_false",
    "boolean_optional",
    "append",
    "help",
    "version",
    "deprecated",
    "other",
]
Origin = Literal["installed", "cache", "bundled"]

# argparse's own pattern: `-1` and `-.5` are values, `-1e5` is taken for an option.
_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")

_JSON_DEFAULTS: Mapping[str, Any] = {"action": "store", "nargs": None, "type": None, "choices": None}


@dataclass(frozen=True, slots=True)
class Flag:
    """One option of SGLang's parser with all its spellings; the first is the canonical one."""

    names: tuple[str, ...]
    dest: str
    """The attribute of `ServerArgs` it sets; several flags may share one (deprecated spellings do)."""
    action: Action = "store"
    nargs: str | int | None = None
    """As argparse has it: None is exactly one value, 0 is none."""
    type: str | None = None
    """The name of the converter, for example `int` or `json_list_type`."""
    choices: tuple[str, ...] | None = None
    """A lower bound: plugins add to it.  None where any value goes or the list is built at run time."""
    source: str = ""
    """`srt/server_args.py:123` inside the package."""

    @property
    def takes_value(self) -> bool:
        """Whether at least one value may follow."""
        return self.nargs != 0

    def to_json(self) -> dict[str, Any]:
        """This flag as JSON-able values, without those that are the default."""
        row: dict[str, Any] = {"names": list(self.names), "dest": self.dest, "source": self.source}
        for key, default in _JSON_DEFAULTS.items():
            value = getattr(self, key)
            if value != default:
                row[key] = list(value) if isinstance(value, tuple) else value
        return row

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Flag:
        """The flag that `to_json` wrote; KeyError or TypeError when `row` is something else."""
        choices = row.get("choices")
        return cls(
            names=tuple(row["names"]),
            dest=row["dest"],
            action=row.get("action", "store"),
            nargs=row.get("nargs"),
            type=row.get("type"),
            choices=None if choices is None else tuple(choices),
            source=row["source"],
        )


@dataclass(frozen=True, slots=True)
class Match:
    """What a token that looks like an option stands for."""

    typed: str
    spellings: tuple[str, ...]
    """What it may mean: none is an unknown option, more than one is an ambiguous abbreviation."""
    flag: Flag | None
    """The flag, when there is exactly one spelling."""
    explicit: str | None = None
    """The value after `=`."""


@dataclass(frozen=True, slots=True)
class FlagCatalogue:
    """Every flag of one installed (or bundled) SGLang version."""

    version: str
    origin: Origin
    flags: tuple[Flag, ...]
    _by_name: dict[str, Flag] = field(init=False, repr=False, compare=False)
    _by_dest: dict[str, Flag] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_dest: dict[str, Flag] = {}
        for flag in self.flags:
            seen = by_dest.setdefault(flag.dest, flag)
            if seen.action == "deprecated" and flag.action != "deprecated":
                by_dest[flag.dest] = flag
        object.__setattr__(self, "_by_name", {name: flag for flag in self.flags for name in flag.names})
        object.__setattr__(self, "_by_dest", by_dest)

    def names(self) -> Iterator[str]:
        """Every spelling of every flag, in the order of the sources."""
        return iter(self._by_name)

    def flag(self, dest: str) -> Flag | None:
        """The flag that sets `dest`, a current one rather than a deprecated one."""
        return self._by_dest.get(dest)

    def resolve(self, name: str) -> Flag | None:
        """The flag `name` means: an exact spelling, else the only spelling that starts with it.

        Two spellings of the same flag are ambiguous, as they are for argparse.
        """
        match = self.match(name)
        return match.flag if match is not None else None

    def match(self, token: str) -> Match | None:
        """What `token` is for argparse; None when it is a value and no option.

        `--` is the caller's affair.
        """
        if not token.startswith("-") or len(token) == 1:
            return None
        if token in self._by_name:
            return Match(token, (token,), self._by_name[token])
        name, equals, value = token.partition("=")
        explicit = value if equals else None
        if equals and name in self._by_name:
            return Match(token, (name,), self._by_name[name], explicit)
        found = self._abbreviated(token, name, explicit)
        if found:
            spelling, rest = found[0]
            flag = self._by_name[spelling] if len(found) == 1 else None
            return Match(token, tuple(spelling for spelling, _ in found), flag, rest)
        if " " in token or _NEGATIVE_NUMBER.fullmatch(token):
            return None
        return Match(token, (), None, explicit)

    def _abbreviated(self, token: str, name: str, explicit: str | None) -> list[tuple[str, str | None]]:
        """Each spelling `token` may abbreviate, with the value glued to it."""
        if token.startswith("--"):
            return [(spelling, explicit) for spelling in self._by_name if spelling.startswith(name)]
        # One dash: `-hx` is `-h` with `x` glued on; a longer one-dash spelling may be abbreviated too.
        return [
            (spelling, token[2:] if spelling == token[:2] else None)
            for spelling in self._by_name
            if spelling == token[:2] or spelling.startswith(token)
        ]

    def to_json(self) -> dict[str, Any]:
        """The catalogue as JSON-able values; where it came from is not part of it."""
        return {"version": self.version, "flags": [flag.to_json() for flag in self.flags]}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], origin: Origin) -> FlagCatalogue:
        """The catalogue that `to_json` wrote; KeyError or TypeError when `value` is something else."""
        return cls(value["version"], origin, tuple(map(Flag.from_json, value["flags"])))
