"""The flags and variables every trial engine gets besides those of its candidate, from rows of facts.

A trial must measure what would be launched and disturb nothing outside: no port, no export, no file of
the user's.  The overlay is appended to the argv, where it wins, and recorded with the trial.  A token
`--no-NAME` for a NAME without such a twin means "as if `--NAME` had not been given"; argparse cannot unset
a flag, so the engine host does.  Some rows hold only where the model is a slice, or where engines share
the GPUs.
"""

from __future__ import annotations

import getpass
import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from autolaunch.capability.versions import parse_range, version_key
from autolaunch.race.guarded import temporary_folder
from autolaunch.request.command_line import Pin
from autolaunch.request.flags import FlagCatalogue
from autolaunch.tables import load_rows

INDUCTOR_CACHE = "TORCHINDUCTOR_CACHE_DIR"
When = Literal["always", "slice", "company"]


@dataclass(frozen=True, slots=True)
class OverlayRow:
    """One flag of the overlay and what is done with it; see `data/trial_overlay.toml`."""

    id: str
    flag: str
    action: Literal["set", "switch", "most", "off"]
    reason: str
    value: str = ""
    pinned: bool = False
    when: When = "always"
    evidence: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable of a trial: one that is `set`, a cache that is kept, or one `dropped`."""

    name: str
    action: Literal["drop", "set", "cache"]
    reason: str
    value: str = ""
    """What it is set to; of a cache, the folder that the program would take by itself."""
    when: When = "always"
    sglang: str = ""
    """Versions that the row is about; empty for all."""
    evidence: tuple[Mapping[str, str], ...] = ()


def trial_overlay(
    pins: Mapping[str, Pin],
    catalogue: FlagCatalogue,
    *,
    port: int,
    nccl_port: int | None = None,
    max_total_tokens: int,
    slice_folder: Path | None = None,
    company: bool = False,
    max_states: int | None = None,
    max_batch: int | None = None,
) -> tuple[str, ...]:
    """Tokens appended to a trial's argv, for the flags this version of SGLang has.

    The key/value cache gets `max_total_tokens` tokens, or the user's number if that is smaller; with
    `company` the states of linear layers are limited to `max_states`.  With `slice_folder` the slice is the
    model; the tokenizer is the slice's own unless the user named one.
    """
    values = {
        "port": port,
        "nccl_port": nccl_port,
        "max_total_tokens": max_total_tokens,
        "max_states": max_states,
        "max_batch": max_batch,
        "slice": slice_folder,
    }
    holds = {"always": True, "slice": slice_folder is not None, "company": company}
    tokens: list[str] = []
    for row in load_overlay()[0]:
        flag = catalogue.resolve(row.flag)
        if flag is None or row.flag not in flag.names or not holds[row.when]:
            continue
        tokens += _tokens(row, pins.get(flag.dest), values)
    return tuple(tokens)


def trial_environment(
    environ: Mapping[str, str], scratch: Path, *, company: bool = False, sglang: str | None = None
) -> dict[str, str]:
    """`environ` for a trial engine whose temporary files, sockets included, go to `scratch`.

    Compiled kernels do not: where a program keeps them in the temporary folder, it is told to keep them
    where the server of version `sglang` will look for them.
    """
    rows = load_overlay()[1]
    dropped = {row.name for row in rows if row.action == "drop"}
    kept = {name: value for name, value in environ.items() if name not in dropped}
    places = {"temporary": temporary_folder(environ), "user": _user(), "login": _login(environ)}
    for row in rows:
        if row.action == "cache" and _speaks_of(row, sglang):
            kept.setdefault(row.name, row.value.format_map(places))
        elif row.action == "set" and (row.when == "always" or company):
            kept[row.name] = row.value
    return kept | {"TMPDIR": str(scratch)}


@cache
def load_overlay() -> tuple[tuple[OverlayRow, ...], tuple[Variable, ...]]:
    """Rows of `data/trial_overlay.toml`: the flags and the variables."""
    return (
        tuple(OverlayRow(**_frozen(row)) for row in load_rows("trial_overlay", "flag")),
        tuple(Variable(**_frozen(row)) for row in load_rows("trial_overlay", "variable")),
    )


def _frozen(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}


def _tokens(row: OverlayRow, pin: Pin | None, values: Mapping[str, Any]) -> list[str]:
    if row.action == "off":
        return [f"--no-{row.flag.removeprefix('--')}"] if pin is not None else []
    if row.pinned and pin is None:
        return []
    if row.action == "switch":
        return [row.flag]
    value = row.value.format_map({name: "" if one is None else one for name, one in values.items()})
    if row.action == "most" and value and pin is not None and pin.values and pin.values[-1].isdecimal():
        value = str(min(int(value), int(pin.values[-1])))
    return [row.flag, value] if value else []


def _speaks_of(row: Variable, sglang: str | None) -> bool:
    """Whether the row is about this version; one that is not known counts as old, `0.0.0.dev` as new."""
    key = version_key(sglang) if sglang is not None else None
    if not row.sglang or key is None:
        return True
    if not any(key[0]):
        return False
    return bool(parse_range(row.sglang).holds(sglang or ""))


def _user() -> str:
    """The user's name as torch writes it into the name of its cache folder."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        return f"uid_{os.getuid()}"
    return re.sub(r'[\\/:*?"<>|]', "_", name)


def _login(environ: Mapping[str, str]) -> str:
    """The user's name as CuTe DSL looks for it."""
    named = environ.get("USER") or environ.get("USERNAME")
    if named:
        return named
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return _user()
