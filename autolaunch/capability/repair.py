"""What to put in place of an automatic choice that cannot work: the first preferred one that is eligible."""

from __future__ import annotations

from typing import Final

from autolaunch.candidates.candidate import FailureKind
from autolaunch.capability.dimensions import Dimension
from autolaunch.capability.flag_facts import flag_value
from autolaunch.capability.judge import Judge
from autolaunch.capability.rules import Companion, scope_truth
from autolaunch.capability.verdicts import ChoiceVerdict, Repair, Requirement
from autolaunch.request.flags import Flag

HARMFUL: Final[frozenset[FailureKind | None]] = frozenset({"rejected", "crash", "oom", "hang", "garbage"})
"""Failures for which SGLang's own choice is replaced without a measurement."""


def repair_for(
    judge: Judge,
    dimension: Dimension,
    flag: Flag,
    spelling: str,
    auto: ChoiceVerdict,
    pins: frozenset[str],
) -> Repair | None:
    """The repair of an excluded automatic choice; None when nothing preferred is eligible.

    `pins` are the attributes the user set: a choice whose companions would change one is passed over.
    """
    for choice in _preferred(judge, dimension):
        if choice == auto.choice:
            continue
        verdict = judge.verdict(dimension, flag, choice)
        if verdict.verdict != "eligible" or verdict.numerics == "lossy":
            continue
        companions = companions_of(judge, verdict.requires, pins)
        if companions is None or _conflicts(judge, dimension, flag, choice):
            continue
        return Repair(
            dimension=spelling,
            value=choice,
            tokens=(*choice_tokens(flag, spelling, choice), *tokens_of(companions)),
            env=env_of(companions),
            companions=tuple(one for one in companions if not one.is_variable),
            replaces=auto.choice,
            because=tuple(hit.sentence for hit in auto.hits),
            rules=auto.rules,
            evidence=auto.evidence,
        )
    return None


def choice_tokens(flag: Flag, spelling: str, choice: str) -> tuple[str, ...]:
    """`choice` as SGLang reads it."""
    if flag.takes_value:
        return spelling, choice
    return (f"--no-{spelling.removeprefix('--')}" if choice == "off" else spelling,)


def companions_of(
    judge: Judge, requires: tuple[Requirement, ...], pins: frozenset[str]
) -> tuple[Companion, ...] | None:
    """The companions a choice needs added; None when the user set something else for one of them."""
    found: dict[Companion, None] = {}
    for requirement in requires:
        companion = requirement.companion
        if not judge.lacks(companion):
            continue
        if judge.is_set(companion) if companion.is_variable else judge.dest_of(companion) in pins:
            return None
        found[companion] = None
    return tuple(found)


def tokens_of(companions: tuple[Companion, ...]) -> tuple[str, ...]:
    """The flags among `companions`, as SGLang reads them."""
    return tuple(token for one in companions for token in one.tokens)


def env_of(companions: tuple[Companion, ...]) -> tuple[tuple[str, str], ...]:
    """The variables among `companions`."""
    return tuple((one.name, one.values[0]) for one in companions if one.is_variable)


def _preferred(judge: Judge, dimension: Dimension) -> tuple[str, ...]:
    """The order of trial of the first `[[prefer]]` row that applies."""
    for row in judge.table.autos(dimension).prefers:
        if scope_truth(row.scope, judge.facts) is True:
            return row.order
    return ()


def _conflicts(judge: Judge, dimension: Dimension, flag: Flag, choice: str) -> bool:
    """Whether a combination of flags excludes `choice` that does not exclude what is there now."""
    names = judge.names_for(dimension.dest)
    before = {hit.rule for hit in judge.combinations(names) if hit.effect == "exclude"}
    value = flag_value(flag, () if choice == "on" else (choice,))
    with judge.assuming(dimension.dest, value):
        after = {hit.rule for hit in judge.combinations(names) if hit.effect == "exclude"}
    return bool(after - before)
