"""Whether a choice that was kept may be launched: it sets tuned flags alone, by data/tuned_flags.toml.

A profile is data, not authority.  Whoever wrote it, nothing of it reaches a command line that a race or the
table of this autolaunch could not have put there, but for what the user types at this very start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

from autolaunch.profiles.profile import Chosen
from autolaunch.request.flags import Flag, FlagCatalogue
from autolaunch.tables import load_rows, load_table

Kind = Literal["choice", "words", "number", "switch", "model"]
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
_MOST_TOKENS = 64
_LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class TunedFlag:
    """One flag that a tuned choice may set."""

    names: tuple[str, ...]
    """As the newest SGLang spells it, then older spellings."""
    kind: Kind
    words: tuple[str, ...] = ()
    least: int = 0
    most: int = 0

    @property
    def field(self) -> str:
        """The field of a fingerprint that says whether the user set it."""
        return f"pin.{self.names[0].removeprefix('--').replace('-', '_')}"


@dataclass(frozen=True, slots=True)
class TunedVariable:
    """One variable that a tuned choice may set."""

    name: str
    words: tuple[str, ...]

    @property
    def field(self) -> str:
        """The field of a fingerprint that says whether the user set it."""
        return f"pin.{self.name}"


@cache
def tuned_flags() -> tuple[TunedFlag, ...]:
    """The rows `[[flag]]`."""
    return tuple(
        TunedFlag(
            (row["flag"], *row.get("also", ())),
            row["value"],
            tuple(row.get("words", ())),
            row.get("least", 0),
            row.get("most", 0),
        )
        for row in _tables()[0]
    )


@cache
def tuned_variables() -> tuple[TunedVariable, ...]:
    """The rows `[[variable]]`."""
    return tuple(TunedVariable(row["name"], tuple(row["words"])) for row in _tables()[1])


def check(
    chosen: Chosen,
    catalogue: FlagCatalogue | None,
    *,
    model: str | None,
    wished: Sequence[str] = (),
    admitted: Sequence[str] = (),
) -> str | None:
    """Why `chosen` may not be launched, in words; None where it may.

    `catalogue` holds the flags of the installed SGLang, where they are known.  `wished` are the `--candidate`
    texts and `admitted` the `--admit` texts of this start: what the user types is the user's own.
    """
    if chosen.is_original or is_wished(chosen, wished):
        return None
    if len(chosen.flags) > _MOST_TOKENS or len(chosen.env) > _MOST_TOKENS:
        return "it sets more than any choice does"
    for name, value in chosen.env:
        variable = next((one for one in tuned_variables() if one.name == name), None)
        if variable is None:
            return f"`{_shown(name)}` is no variable that a tuned choice sets"
        if value not in variable.words:
            return f"`{name}` may not be `{_shown(value)}`"
    for name, values in flags_and_values(chosen.flags):
        reason = _refused(name, values, catalogue, model)
        if reason is not None and not _is_admitted(name, values, admitted):
            return reason
    return None


def is_wished(chosen: Chosen, wished: Sequence[str]) -> bool:
    """Whether the user asks for exactly this at this start.

    What a profile says of its origin is no proof of that.
    """
    if not wished:
        return False
    from autolaunch.candidates.generate import split_user_candidate  # here, because most starts wish nothing

    typed = ((sorted(env), flags) for env, flags in map(split_user_candidate, wished))
    return (sorted(chosen.env), chosen.flags) in typed


def exact_flag(catalogue: FlagCatalogue, name: str) -> Flag | None:
    """The flag that is spelled exactly `name`, never one that it abbreviates."""
    match = catalogue.match(name)
    return match.flag if match is not None and match.spellings == (name,) and match.explicit is None else None


def _refused(
    name: str, values: tuple[str, ...], catalogue: FlagCatalogue | None, model: str | None
) -> str | None:
    """Why this flag may not have these values."""
    positive = f"--{name.removeprefix('--no-')}" if name.startswith("--no-") else name
    row = next((one for one in tuned_flags() if name in one.names or positive in one.names), None)
    if row is None or (name not in row.names and row.kind != "switch"):
        return f"`{_shown(name)}` is no flag that a tuned choice sets"
    flag = exact_flag(catalogue, name) if catalogue is not None else None
    if catalogue is not None and flag is None:
        return f"SGLang {catalogue.version} has no `{name}`"
    typed = " ".join((name, *map(_shown, values)))
    if row.kind == "switch":
        return f"`{name}` takes no value, and `{typed}` has one" if values else None
    if len(values) != 1:
        return f"`{name}` takes one value, and `{typed}` has {len(values)}"
    return None if _is_allowed(row, values[0], flag, model) else f"`{typed}` is no choice that is tuned"


def _is_allowed(row: TunedFlag, value: str, flag: Flag | None, model: str | None) -> bool:
    """Whether `row` lets its flag have `value`."""
    if row.kind == "model":
        return model is not None and value == model
    if row.kind == "words":
        return value in row.words
    if row.kind == "number":
        return _NUMBER.fullmatch(value) is not None and row.least <= int(value) <= row.most
    if _WORD.fullmatch(value) is None:
        return False
    return flag is None or flag.choices is None or value in flag.choices


def flags_and_values(tokens: Sequence[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each flag with its values; a value in front of all flags is a flag without a name."""
    name: str | None = None
    values: list[str] = []
    for token in tokens:
        if token.startswith("-") or name is None:
            if name is not None:
                yield name, tuple(values)
            name, equals, value = token.partition("=")
            values = [value] if equals else []
        else:
            values.append(token)
    if name is not None:
        yield name, tuple(values)


def _is_admitted(name: str, values: tuple[str, ...], admitted: Sequence[str]) -> bool:
    """Whether the user lets exactly this choice of a dimension in, at this start."""
    if not admitted:
        return False
    known = {
        spelling: row["flag"]
        for row in load_rows("dimensions_gpu", "dimension")
        for spelling in (row["flag"], *row.get("also", ()))
    }
    positive = f"--{name.removeprefix('--no-')}" if name.startswith("--no-") else name
    dimension = known.get(name) or known.get(positive)
    if dimension is None or len(values) > 1:
        return False
    choice = values[0] if values else ("off" if name not in known else "on")
    for text in admitted:
        typed, _, wanted = text.partition("=")
        spelled = f"--{typed.strip().removeprefix('--')}"
        if known.get(spelled) == dimension and wanted.strip() == choice:
            return True
    return False


def _shown(text: str) -> str:
    """`text` as a sentence can quote it."""
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


@cache
def _tables() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The file, read once."""
    table = load_table("tuned_flags")
    return table["flag"], table["variable"]
