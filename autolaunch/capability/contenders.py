"""From an evaluation to what a race may try: eligible choices first, unknown ones after them.

Everything that is left out is returned beside them with its reason; nothing vanishes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from autolaunch.candidates.candidate import Dropped
from autolaunch.capability.conflicts import new_conflict
from autolaunch.capability.flag_facts import FactSheet
from autolaunch.capability.flashinfer import DeclaredSms
from autolaunch.capability.judge import Judge
from autolaunch.capability.repair import choice_tokens, companions_of, env_of, tokens_of
from autolaunch.capability.table import Table
from autolaunch.capability.verdicts import ChoiceVerdict, DimensionVerdict, Evaluation
from autolaunch.errors import UsageError
from autolaunch.request.flags import FlagCatalogue

ADMIT_VARIABLE = "AUTOLAUNCH_ADMIT"
"""Holds what `--admit` would, one choice a line; the command line wins."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One changed dimension, with everything it needs beside it."""

    dimension: str
    """The flag, as this version spells it."""
    dest: str
    choice: str
    tokens: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    verdict: ChoiceVerdict
    admitted: bool = False
    """Whether `--admit` let it in against the table."""


@dataclass(frozen=True, slots=True)
class Contenders:
    """What may be tried, in that order, and what may not."""

    offered: tuple[Contender, ...]
    dropped: tuple[Dropped, ...]


def parse_admit(text: str) -> tuple[str, str]:
    """`--admit DIMENSION=CHOICE` as flag and choice; UsageError for anything else."""
    name, equals, choice = text.partition("=")
    name = name.strip()
    if not equals or not name or not choice.strip():
        raise UsageError(
            f"`--admit {text}` is not DIMENSION=CHOICE",
            hint="for example: --admit attention-backend=fa3",
        )
    return name if name.startswith("--") else f"--{name}", choice.strip()


@contextmanager
def blaming_the_variable(admit: Collection[str], environ: Mapping[str, str]) -> Iterator[None]:
    """Add to a UsageError about `admit` that a variable says so, where it does."""
    try:
        yield
    except UsageError as error:
        if admit and set(admit) <= set(environ.get(ADMIT_VARIABLE, "").split("\n")):
            error.because = (*error.because, f"the variable {ADMIT_VARIABLE} says so")
        raise


def candidates_from(
    evaluation: Evaluation,
    table: Table,
    catalogue: FlagCatalogue,
    *,
    admit: Collection[tuple[str, str]] = (),
    lossy: bool = False,
    declared: DeclaredSms | None = None,
) -> Contenders:
    """The choices of every raced dimension other than what will run anyway.

    `admit` holds (flag, choice) pairs that may run although the table excludes them; `lossy` lets choices in
    that change the precision.  UsageError for an admitted flag that is no dimension, or is pinned.
    """
    judge = Judge(FactSheet(evaluation.facts), table, catalogue, declared or DeclaredSms(()))
    wanted = _admitted(evaluation, table, admit)
    pins = frozenset(one.dest for one in evaluation.dimensions if one.pinned is not None)
    sure: list[Contender] = []
    unsure: list[Contender] = []
    dropped: list[Dropped] = []
    for dimension in evaluation.dimensions:
        named = {choice for name, choice in wanted if name == dimension.name}
        if not dimension.raced and not named:
            continue
        for verdict in dimension.choices:
            if verdict.choice == dimension.effective or (not dimension.raced and verdict.choice not in named):
                continue
            admitted = verdict.choice in named
            slow = None if admitted else _too_slow(table, dimension, verdict)
            one = slow or _offer(judge, evaluation, dimension, verdict, pins, admitted, lossy)
            if isinstance(one, Dropped):
                dropped.append(one)
            else:
                (sure if verdict.verdict == "eligible" or one.admitted else unsure).append(one)
    return Contenders((*sure, *unsure), tuple(dropped))


def _admitted(
    evaluation: Evaluation, table: Table, admit: Collection[tuple[str, str]]
) -> frozenset[tuple[str, str]]:
    """The admitted choices by the table's own spelling of their flags."""
    found = set()
    for name, choice in admit:
        dimension = table.dimension(name)
        verdict = evaluation.dimension(dimension.flag) if dimension else None
        if dimension is None or verdict is None:
            raise UsageError(
                f"`--admit {name.removeprefix('--')}={choice}` names no dimension of this model",
                hint=f"known here: {', '.join(one.flag.removeprefix('--') for one in evaluation.dimensions)}",
            )
        if verdict.pinned is not None:
            raise UsageError(
                f"`--admit {name.removeprefix('--')}={choice}` contradicts `{verdict.flag} {verdict.pinned}`",
                because=("a flag that you set is never changed",),
            )
        if verdict.choice(choice) is None:
            raise UsageError(
                f"`{verdict.flag}` has no choice `{choice}`",
                hint=f"it has: {', '.join(one.choice for one in verdict.choices)}",
            )
        found.add((dimension.flag, choice))
    return frozenset(found)


def _too_slow(table: Table, dimension: DimensionVerdict, verdict: ChoiceVerdict) -> Dropped | None:
    """Why a choice that works is not worth an engine of a race, if so."""
    row = table.dimension(dimension.name)
    if row is None or verdict.choice not in row.unraced:
        return None
    if dimension.pinned is not None or verdict.verdict == "excluded":
        return None
    rule = next(one for one in table.rules_of(row) if one.warns_slow(verdict.choice))
    return Dropped(f"{dimension.flag} {verdict.choice}", "table", rule.reason, kind="slow", rule=rule.id)


def _offer(
    judge: Judge,
    evaluation: Evaluation,
    dimension: DimensionVerdict,
    verdict: ChoiceVerdict,
    pins: frozenset[str],
    admitted: bool,
    lossy: bool,
) -> Contender | Dropped:
    """A choice as a contender, or why it is none."""
    label = dimension.flag if dimension.is_switch else f"{dimension.flag} {verdict.choice}"
    rule = verdict.rules[0] if verdict.rules else None

    def drop(reason: str, rule: str | None = rule) -> Dropped:
        return Dropped(label=label, stage="table", reason=reason, kind=verdict.failure, rule=rule)

    if dimension.pinned is not None:
        return drop(f"you pinned `{dimension.flag} {dimension.pinned}`", None)
    if verdict.verdict == "excluded" and (not admitted or rule == f"choices.{dimension.dest}"):
        return drop(verdict.reason)
    if verdict.numerics == "lossy" and not (lossy or admitted):
        return drop("it changes the precision of the arithmetic; `--lossy` lets it in")
    companions = companions_of(judge, verdict.requires, pins)
    if companions is None:
        needed = ", ".join(f"`{one.companion}`" for one in verdict.requires)
        return drop(f"it needs {needed}, and you pinned something else", verdict.requires[0].hit.rule)
    if not admitted:
        hit = new_conflict(judge, evaluation, {dimension.dest: verdict.choice})
        if hit is not None:
            return drop(hit.sentence, hit.rule)
    flag = judge.catalogue.resolve(dimension.flag)
    if flag is None:
        return drop(f"SGLang {judge.catalogue.version} has no `{dimension.flag}`")
    return Contender(
        dimension=dimension.flag,
        dest=dimension.dest,
        choice=verdict.choice,
        tokens=(*choice_tokens(flag, dimension.flag, verdict.choice), *tokens_of(companions)),
        env=env_of(companions),
        verdict=verdict,
        admitted=admitted and verdict.verdict == "excluded",
    )
