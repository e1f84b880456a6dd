"""Turns the tokens meant for SGLang into a request: which flags the user pinned, and for which model.

The tokens are read as argparse reads them, but nothing is refused: SGLang has the last word on its own
command line, and what it will say is foretold by a Notice.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autolaunch.request.config_file import CONFIG, ConfigFile, read_config_file
from autolaunch.request.entry import CommandName, Entry, as_flags, original_argv, sglang_argv
from autolaunch.request.flags import FlagCatalogue, Match
from autolaunch.request.interpreter import Interpreter
from autolaunch.request.notices import Fault, Notice, notices_of

__all__ = ["CommandName", "Entry", "Notice", "Pin", "Request", "original_argv", "read_request", "sglang_argv"]

ON_COMMAND_LINE = "command line"
SWITCHED_OFF = ("false",)
"""The values of a Pin that turns a switch off: `--no-x`, or `x: false` in a configuration file."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A flag the user set; it is never changed."""

    flag: str
    """The canonical name of the flag that was typed."""
    dest: str
    typed: str
    """The token as typed, `--tp=2` or an abbreviation; from a configuration file, the token it became."""
    values: tuple[str, ...]
    """The values of the last occurrence; () for a switch, `SWITCHED_OFF` for one that is turned off."""
    source: str
    """`command line`, or `--config FILE`."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked SGLang for."""

    entry: Entry
    argv: tuple[str, ...]
    """Exactly the tokens for SGLang's entry point, in order."""
    model: str | None
    pins: Mapping[str, Pin]
    """By `dest`."""
    notices: tuple[Notice, ...]
    interpreter: Interpreter

    @property
    def revision(self) -> str | None:
        """Which state of the model was asked for: a branch, a tag or a commit."""
        pin = self.pins.get("revision")
        return pin.values[-1] if pin is not None and pin.values else None


def read_request(
    tokens: Sequence[str],
    command: CommandName,
    interpreter: Interpreter,
    catalogue: FlagCatalogue,
    cwd: Path,
    environ: Mapping[str, str] = os.environ,
) -> Request:
    """The request behind `tokens`; UsageError when a configuration file cannot be read."""
    entry, argv = sglang_argv(tokens, command, environ=environ, cwd=cwd, package=interpreter.package)
    config = None
    parsed = argv
    if entry == "sglang_serve":
        parsed = as_flags(argv)  # its `--config` is another one, with other rules
    else:
        config = read_config_file(argv, catalogue, interpreter.package, cwd)
    pins, faults = _read_pins(parsed, config, catalogue)
    model = pins.get("model_path")
    return Request(
        entry=entry,
        argv=argv,
        model=model.values[0] if model and model.values else None,
        pins=pins,
        notices=tuple(notices_of(faults, catalogue)) if entry == "launch_server" else (),
        interpreter=interpreter,
    )


def _read_pins(
    argv: tuple[str, ...], config: ConfigFile | None, catalogue: FlagCatalogue
) -> tuple[dict[str, Pin], list[Fault]]:
    """The pins of `argv` by `dest`, those of `config` before them, and what is wrong with the line."""
    pins: dict[str, Pin] = {}
    from_file = 0
    source = ON_COMMAND_LINE
    if config is not None:
        source = f"{CONFIG} {config.path}"
        for dest, key in config.declined.items():
            flag = catalogue.flag(dest)
            pins[dest] = Pin(flag.names[0] if flag else f"--{key}", dest, f"--{key}", SWITCHED_OFF, source)
        from_file = len(config.tokens)
        argv = (*config.tokens, *config.rest)
    faults: list[Fault] = []
    for at, found, values in _occurrences(argv, catalogue, faults):
        flag = found.flag
        if flag is None or flag.action in ("help", "version"):
            continue
        if flag.names[0] == CONFIG:  # the exact token is gone by now; this one SGLang overlooks
            faults.append(Fault("config", found.typed))
            continue
        off = flag.action == "boolean_optional" and found.spellings[0].startswith("--no-")
        pins[flag.dest] = Pin(
            flag=flag.names[0],
            dest=flag.dest,
            typed=found.typed,
            values=SWITCHED_OFF if off else values,
            source=source if at < from_file else ON_COMMAND_LINE,
        )
    return pins, faults


def _occurrences(
    argv: Sequence[str], catalogue: FlagCatalogue, faults: list[Fault]
) -> Iterator[tuple[int, Match, tuple[str, ...]]]:
    """Each option with its position and values, as argparse takes them; what it would refuse is a fault."""
    end = argv.index("--") if "--" in argv else len(argv)  # nothing after it is an option, nor a value of one
    matches = [catalogue.match(token) for token in argv[:end]]
    at = 0
    while at < end:
        found, start = matches[at], at
        at += 1
        if found is None:
            faults.append(Fault("stray", argv[start]))
            continue
        flag = found.flag
        if flag is None:
            faults.append(
                Fault("ambiguous" if found.spellings else "unknown", found.typed, None, found.spellings)
            )
            while at < end and matches[at] is None:  # its values, whatever it is
                at += 1
            continue
        least, most = _value_counts(flag.nargs)
        if found.explicit is not None:
            values: tuple[str, ...] = (found.explicit,)
            if most == 0 or least > 1:
                faults.append(Fault("unexpected" if most == 0 else "missing", found.typed, flag))
                continue
        else:
            while at < end and matches[at] is None and at - start - 1 < most:
                at += 1
            values = tuple(argv[start + 1 : at])
            if len(values) < least:
                faults.append(Fault("missing", found.typed, flag))
                continue
        yield start, found, values
    faults += [Fault("stray", token) for token in argv[end:]]


def _value_counts(nargs: str | int | None) -> tuple[int, int]:
    """The smallest and the largest number of values that `nargs` allows."""
    if nargs is None:
        return 1, 1
    if isinstance(nargs, int):
        return nargs, nargs
    return (1 if nargs == "+" else 0), (1 if nargs == "?" else sys.maxsize)
