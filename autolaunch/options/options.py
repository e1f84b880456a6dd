"""autolaunch's own options, split from SGLang's tokens by exact spelling.

An own option is never a SGLang flag nor an abbreviation of one, in any known version (a test compares
with every bundled snapshot), and never abbreviated itself: whatever is not spelled here in full is
SGLang's and stays where it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from autolaunch.race.slo import Slo
    from autolaunch.race.workload import Workload

NextnWord = Literal["auto", "on", "off"]
TuneWord = Literal["auto", "off", "quick", "full"]
ObjectiveWord = Literal["throughput", "latency"]
StaleWord = Literal["table", "use", "retune", "fail"]
VerifyWord = Literal["on", "warn", "off"]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What the user asked of autolaunch itself."""

    plain: bool = False
    dry_run: bool = False
    strict: bool = False
    python: str | None = None
    tune: TuneWord = "auto"
    budget_s: float = 180.0
    workload: Workload | None = None
    """None: the default of the platform."""
    objective: ObjectiveWord | None = None
    """None: nobody said; a race then goes for throughput."""
    slo: Slo | None = None
    profile: str | None = None
    """The name of a profile, or a file that holds one: no other is looked at."""
    profile_dirs: tuple[str, ...] = ()
    """Folders of profiles in place of the user's own: new ones go into the first."""
    stale: StaleWord = "table"
    verify: VerifyWord = "on"
    start_deadline_s: float | None = None
    """From now until the server must answer; None where nobody waits for it."""
    candidates: tuple[str, ...] = ()
    admit: tuple[str, ...] = ()
    lossy: bool = False
    nextn: NextnWord = "auto"
    format: str = "table"

    @property
    def wants_document(self) -> bool:
        """Whether stdout is to hold the JSON object of a dry run."""
        return self.dry_run and self.format == "json"


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    """What the user asked of `autolaunch explain`."""

    python: str | None = None
    for_gpu: str | None = None
    for_sm: str | None = None
    for_gpus: int | None = None
    for_machine: str | None = None
    for_sglang: str | None = None
    for_flashinfer: str | None = None
    profile_dirs: tuple[str, ...] = ()
    format: str = "table"
    why: tuple[str, ...] = ()
    admit: tuple[str, ...] = ()
    lossy: bool = False
    nextn: NextnWord = "auto"


def split_own(tokens: Sequence[str], parameters: Iterable[click.Parameter]) -> tuple[list[str], list[str]]:
    """Part `tokens` into those that spell one of `parameters`, with their values, and the rest in order.

    A bare `--` ends the search: what follows is SGLang's.
    """
    takes_value = {
        name: not (option.is_flag or option.count)
        for option in parameters
        if isinstance(option, click.Option)
        for name in [*option.opts, *option.secondary_opts]
    }
    own: list[str] = []
    rest: list[str] = []
    pending = iter(tokens)
    for token in pending:
        if token == "--":  # noqa: S105 - a word of a command line
            rest += [token, *pending]
            break
        name, equals, _ = token.partition("=")
        if name not in takes_value:
            rest.append(token)
            continue
        own.append(token)
        if takes_value[name] and not equals:
            own.extend(value for _, value in zip(range(1), pending, strict=False))
    return own, rest
