"""From a request and a machine to the candidates of a race: `c0`, then one changed dimension at a time.

Every choice that is not tried is returned beside them with its reason; nothing vanishes.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from autolaunch.candidates.candidate import ORIGINAL, Candidate, Dropped
from autolaunch.candidates.dimensions import Choice, shown_as
from autolaunch.detect.machine import Machine
from autolaunch.errors import UsageError
from autolaunch.request.command_line import Request
from autolaunch.request.flags import FlagCatalogue

MAX_CANDIDATES = 12
WhyNot = Callable[[Candidate], Dropped | None]
"""Why a candidate is not tried again, if it failed here before."""
SUSPECT = "the last server started with it ended before it was healthy"


def nothing_failed(candidate: Candidate) -> Dropped | None:
    """Nothing failed here before."""
    return None


@dataclass(frozen=True, slots=True)
class Field:
    """Who runs: `candidates` in the order of trial, `c0` first, and the choices left out."""

    candidates: tuple[Candidate, ...]
    dropped: tuple[Dropped, ...]

    @property
    def challengers(self) -> tuple[Candidate, ...]:
        """All but the original command."""
        return self.candidates[1:]


def generate(
    request: Request,
    catalogue: FlagCatalogue,
    machine: Machine,
    choices: Sequence[Choice],
    user_candidates: Iterable[str] = (),
    suspects: frozenset[tuple[str, ...]] = frozenset(),
    failed: WhyNot = nothing_failed,
) -> Field:
    """The field of one race.

    `user_candidates` are flag strings of `--candidate` and run before the table's; `suspects` are flag
    tuples that a server was last started with and that never became healthy; `failed` tells what failed
    here before.
    """
    dropped: list[Dropped] = []
    kept: list[Candidate] = [ORIGINAL]
    for text in user_candidates:
        candidate = parse_user_candidate(text, f"c{len(kept)}", catalogue)
        if candidate.flags in suspects:
            dropped.append(Dropped(label=candidate.label, stage="serve", reason=SUSPECT))
        else:
            kept.append(candidate)
    for choice in choices:
        if choice.platform != machine.platform:
            continue
        reason = _why_not(choice, request, catalogue, suspects)
        label = " ".join(choice.tokens)
        if reason is None and any(one.flags == choice.tokens for one in kept):
            continue  # the user's own candidate already says it
        if reason is None and len(kept) == MAX_CANDIDATES:
            reason = f"a race has at most {MAX_CANDIDATES} engines"
        if reason is not None:
            dropped.append(Dropped(label=label, stage="table", reason=reason, rule=choice.id))
            continue
        candidate = Candidate(
            id=f"c{len(kept)}",
            flags=choice.tokens,
            env=choice.env,
            origin="table",
            dimension=choice.flag,
            choice=choice.value or "on",
            resolved_as=shown_as(catalogue, choice.flag),
        )
        before = failed(candidate)
        if before is None:
            kept.append(candidate)
        else:
            dropped.append(before)
    return Field(candidates=tuple(kept), dropped=tuple(dropped))


def _why_not(
    choice: Choice, request: Request, catalogue: FlagCatalogue, suspects: frozenset[tuple[str, ...]]
) -> str | None:
    """Why `choice` does not run, or None."""
    flag = catalogue.resolve(choice.flag)
    if flag is None:
        return f"SGLang {catalogue.version} has no `{choice.flag}`"
    pin = request.pins.get(flag.dest)
    if pin is not None:
        return f"you pinned `{' '.join([pin.typed, *pin.values])}` ({pin.source})"
    if choice.value is not None and flag.choices is not None and choice.value not in flag.choices:
        return f"`{choice.flag}` of SGLang {catalogue.version} does not offer `{choice.value}`"
    if choice.tokens in suspects:
        return SUSPECT
    return None


def parse_user_candidate(text: str, id: str, catalogue: FlagCatalogue) -> Candidate:  # noqa: A002 - its name
    """A candidate from what the user typed: NAME=VALUE words, then SGLang flags."""
    env, flags = split_user_candidate(text)
    names = [word.partition("=")[0] for word in flags if word.startswith("--")]
    single = names[0] if len(names) == 1 else None
    value = " ".join(flags[1:]) or flags[0].partition("=")[2]
    return Candidate(
        id=id,
        flags=flags,
        env=env,
        origin="user",
        dimension=single,
        choice=(value or "on") if single else None,
        resolved_as=shown_as(catalogue, single) if single else None,
    )


def split_user_candidate(text: str) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """The variables and the flags of `--candidate TEXT`; UsageError when it is not a candidate's."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"`--candidate {text}` cannot be split into words", because=(str(error),)) from error
    env: list[tuple[str, str]] = []
    while words and not words[0].startswith("-") and "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        if not name.isidentifier():
            raise UsageError(f"`--candidate {text}`: `{name}` is not a variable's name")
        env.append((name, value))
    if not words or not words[0].startswith("--") or "--" in words:
        raise UsageError(
            f"`--candidate {text}` holds no SGLang flag",
            hint="for example: --candidate '--attention-backend triton'",
        )
    return tuple(env), tuple(words)
