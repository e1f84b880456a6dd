"""What the user should know about a command line before SGLang says it, in SGLang's place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from autolaunch.request.flags import Flag, FlagCatalogue

_SHOWN = 8  # notices at most; a line with more faults than that is something else


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user should know, laid out by `errors.render_message`."""

    id: str
    text: str
    because: tuple[str, ...] = ()
    evidence: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """Something on the command line that SGLang will refuse or overlook."""

    kind: Literal["unknown", "ambiguous", "missing", "unexpected", "stray", "config"]
    typed: str
    flag: Flag | None = None
    spellings: tuple[str, ...] = ()


def notices_of(faults: Sequence[Fault], catalogue: FlagCatalogue) -> Iterator[Notice]:
    """One notice for each kind and token; the first few tell enough."""
    version = f"SGLang {catalogue.version}"
    for fault in list(dict.fromkeys(faults))[:_SHOWN]:
        typed = _shortened(fault.typed)
        if fault.kind == "unknown":
            yield Notice(
                "request.unknown-flag",
                f"{version} has no flag `{typed}`",
                because=("SGLang will refuse it, unless a plugin adds it",),
                hint=_suggestion(fault.typed, catalogue),
            )
        elif fault.kind == "ambiguous":
            shown = ", ".join(f"`{name}`" for name in fault.spellings[:6])
            more = len(fault.spellings) - 6
            yield Notice(
                "request.ambiguous-flag",
                f"`{typed}` is short for more than one flag, and SGLang will refuse it",
                because=(f"it may mean {shown}" + (f" and {more} more" if more > 0 else ""),),
                hint="write the flag in full",
            )
        elif fault.kind == "config":
            yield Notice(
                "request.config-ignored",
                f"SGLang ignores `{typed}`",
                because=("it reads a configuration file only after the separate word `--config`",),
                evidence=f"sglang {catalogue.version}, prepare_server_args, ConfigArgumentMerger",
                hint="write `--config FILE`",
            )
        elif fault.kind == "stray":
            yield Notice(
                "request.stray-word",
                f"`{typed}` belongs to no flag, and SGLang will refuse it",
                hint="the model goes first: `autolaunch serve MODEL ...`",
            )
        elif fault.flag is not None:
            wanted = "takes no value" if fault.kind == "unexpected" else "lacks its value"
            yield Notice(f"request.{fault.kind}-value", f"`{typed}` {wanted}, and SGLang will refuse it")


def _shortened(token: str) -> str:
    """`token`, with its value hidden after `=` and cut where it is longer than a flag can be."""
    name, equals, _ = token.partition("=")
    return (name if len(name) <= 80 else f"{name[:77]}...") + ("=…" if equals else "")


def _suggestion(typed: str, catalogue: FlagCatalogue) -> str | None:
    """A flag that is spelled much like `typed`."""
    import difflib  # here, because a right command line needs none

    name = typed.partition("=")[0][:80]
    close = difflib.get_close_matches(name, list(catalogue.names()), n=1, cutoff=0.75)
    return f"did you mean `{close[0]}`?" if close else None
