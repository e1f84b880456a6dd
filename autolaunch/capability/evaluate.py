"""The whole table for one start: each dimension resolved, judged, and repaired where SGLang errs.

First every dimension's automatic choice is filled in, in the order of `data/dimensions_gpu.toml`.  Then
those that cannot work are repaired, in the same order, and only then is every choice judged, with all
flags as they will run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from autolaunch.capability.autos import Auto, resolve_auto
from autolaunch.capability.cautions import cautions
from autolaunch.capability.dimensions import Dimension
from autolaunch.capability.fact_names import ENV, FLAG, UNKNOWN, UNSET, Fact, Facts
from autolaunch.capability.flag_facts import FactSheet, parsed
from autolaunch.capability.flashinfer import DeclaredSms, declared_sms
from autolaunch.capability.judge import Judge
from autolaunch.capability.kleene import Truth
from autolaunch.capability.known_versions import assume_known_versions
from autolaunch.capability.repair import HARMFUL, repair_for
from autolaunch.capability.table import Table
from autolaunch.capability.verdicts import ChoiceVerdict, Decision, DimensionVerdict, Evaluation, Repair
from autolaunch.request.flags import Flag, FlagCatalogue


@dataclass(slots=True)
class _Open:
    """A dimension that is being resolved."""

    dimension: Dimension
    flag: Flag
    spelling: str
    relevant: Truth
    typed: str | None
    """What the user pinned, as text."""
    auto: Auto
    repair: Repair | None = None
    brought: str | None = None
    """What the repair of another dimension brings along."""

    @property
    def leaves_it(self) -> bool:
        """Whether the choice is SGLang's: nothing is pinned, or a word such as `auto` is."""
        return self.typed is None or self.typed in self.dimension.auto_words

    @property
    def effective(self) -> str | None:
        """What will run; None where it is unknown."""
        if not self.leaves_it:
            return self.typed
        return self.decided or self.auto.value

    @property
    def decided(self) -> str | None:
        """The repair's value, its own or another's; None where SGLang's choice stands."""
        return self.repair.value if self.repair else self.brought


def evaluate(
    facts: Facts, table: Table, catalogue: FlagCatalogue, declared: DeclaredSms | None = None
) -> Evaluation:
    """The verdict on every choice that matters for `facts`, with repairs and warnings.

    `facts` hold `flag.<dest>` for what the user pinned only (`facts_of`).  `declared` are FlashInfer's own
    declarations, by default those of the known version in `facts`.
    """
    sheet = FactSheet(facts)
    given = FactSheet(facts)
    notices = assume_known_versions(sheet)
    if declared is None:
        version = sheet.get("flashinfer", UNKNOWN)
        declared = declared_sms(version if isinstance(version, str) else None)
    judge = Judge(sheet, table, catalogue, declared)
    pins = frozenset(sheet.pinned())
    opened = list(_resolve(judge))
    _repair(judge, opened, pins)
    found = [_judged(judge, one) for one in opened if _says_something(judge, one)]
    return Evaluation(
        dimensions=tuple(sorted(found, key=lambda one: one.order)),
        warnings=tuple(cautions(judge, found, pins)),
        repairs=tuple(one.repair for one in opened if one.repair is not None),
        notices=notices,
        facts=sheet,
        given=given,
    )


def judge_choice(
    evaluation: Evaluation,
    table: Table,
    catalogue: FlagCatalogue,
    flag: str,
    choice: str,
    declared: DeclaredSms | None = None,
) -> ChoiceVerdict | None:
    """The verdict on any choice of any dimension, also one that is not listed; None for no dimension."""
    dimension = table.dimension(flag)
    if dimension is None:
        return None
    sheet = FactSheet(evaluation.facts)
    if declared is None:
        version = sheet.get("flashinfer", UNKNOWN)
        declared = declared_sms(version if isinstance(version, str) else None)
    found = dimension.in_version(catalogue)
    return Judge(sheet, table, catalogue, declared).verdict(dimension, found, choice)


def _resolve(judge: Judge) -> Iterable[_Open]:
    """Every dimension that this version has, with SGLang's own choice filled into the facts."""
    for dimension in judge.table.dimensions:
        flag = dimension.in_version(judge.catalogue)
        if flag is None:
            continue
        fact = judge.facts.get(f"{FLAG}{dimension.dest}", UNSET)
        typed = None if fact == UNSET else _text(fact, flag)
        relevant = True if dimension.when is None else dimension.when.truth(judge.facts)
        if relevant is False and typed is None:
            continue
        auto = resolve_auto(judge.table.autos(dimension), judge.facts)
        spelling = next(name for name in (dimension.flag, *dimension.also) if name in flag.names)
        one = _Open(dimension, flag, spelling, relevant, typed, auto)
        if one.leaves_it:
            judge.settle(dimension.dest, _fact(judge, one))
        yield one


def _repair(judge: Judge, opened: list[_Open], pins: frozenset[str]) -> None:
    """Replaces each automatic choice that cannot work; later ones are resolved anew after that."""
    repaired = False
    for one in opened:
        if one.brought is not None:
            continue
        if repaired and one.leaves_it:
            one.auto = resolve_auto(judge.table.autos(one.dimension), judge.facts)
            judge.settle(one.dimension.dest, _fact(judge, one))
        if one.typed is not None or one.auto.value in (None, UNSET, "off") or one.auto.copies in pins:
            continue  # what repeats a pin is the user's too
        verdict = judge.verdict(one.dimension, one.flag, str(one.auto.value), automatic=True)
        if verdict.verdict != "excluded" or verdict.failure not in HARMFUL:
            continue
        one.repair = repair_for(judge, one.dimension, one.flag, one.spelling, verdict, pins)
        if one.repair is not None:
            repaired = True
            judge.settle(one.dimension.dest, parsed(one.repair.value))
            _settle_companions(judge, one.repair, opened)


def _settle_companions(judge: Judge, repair: Repair, opened: list[_Open]) -> None:
    """The flags and variables that a repair brings along, as facts and in their own dimensions."""
    for name, value in repair.env:
        judge.facts[f"{ENV}{name}"] = value
    for companion in repair.companions:
        value = companion.values[0] if companion.values else "on"
        dest = judge.dest_of(companion)
        judge.settle(dest, True if value == "on" else parsed(value))
        for one in opened:
            if one.dimension.dest == dest:
                one.brought = value


def _says_something(judge: Judge, one: _Open) -> bool:
    """Whether the table has anything on a dimension, so that it is worth a place."""
    if one.dimension.kernel or one.typed is not None:
        return True
    return bool(judge.table.rules_of(one.dimension) or judge.table.autos(one.dimension).autos)


def _judged(judge: Judge, one: _Open) -> DimensionVerdict:
    """Every choice of a resolved dimension."""
    offered = dict.fromkeys(one.dimension.choices(one.flag))
    for extra in (None if one.leaves_it else one.typed, one.brought, one.auto.value):
        if extra not in (None, UNSET, "off") and extra not in offered:
            offered[str(extra)] = None
    listed = one.flag.choices
    choices = [
        judge.verdict(
            one.dimension,
            one.flag,
            choice,
            automatic=choice == one.auto.value and listed is not None and choice not in listed,
        )
        for choice in offered
    ]
    if not one.leaves_it:
        choices = [_as_pinned(verdict) if verdict.choice == one.typed else verdict for verdict in choices]
    decision: Decision = "kept"
    if one.typed is not None:
        decision = "pinned"
    elif one.decided is not None:
        decision = "repaired"
    return DimensionVerdict(
        flag=one.spelling,
        name=one.dimension.flag,
        dest=one.dimension.dest,
        title=one.dimension.title,
        pinned=one.typed,
        auto=one.auto.value,
        auto_reason=one.auto.reason,
        auto_rule=one.auto.rule,
        auto_evidence=one.auto.evidence,
        decision=decision,
        value=one.typed if one.typed is not None else one.decided,
        choices=tuple(choices),
        raced=one.dimension.raced,
        is_switch=not one.flag.takes_value,
        relevant=one.relevant,
        order=one.dimension.order,
        repair=one.repair,
    )


def _as_pinned(verdict: ChoiceVerdict) -> ChoiceVerdict:
    """The verdict on what was pinned: it starts, where something else only stands in for it silently."""
    if verdict.verdict != "excluded" or {hit.failure for hit in verdict.hits} != {"silent_fallback"}:
        return verdict
    return replace(verdict, verdict="unknown", warnings=(*verdict.hits, *verdict.warnings))


def _fact(judge: Judge, one: _Open) -> Fact:
    """SGLang's own choice as the fact `flag.<dest>`."""
    switch = not one.flag.takes_value
    if one.auto.value is None:
        autos = judge.table.autos(one.dimension).autos
        if autos or (one.dimension.kernel and not switch):
            return UNKNOWN
        return False if switch else UNSET
    if switch:
        return one.auto.value == "on"
    return parsed(one.auto.value)


def _text(fact: Fact, flag: Flag) -> str:
    """A pinned flag as the text of a choice."""
    if isinstance(fact, bool):
        return "on" if fact else "off"
    return " ".join(fact) if isinstance(fact, tuple) else str(fact)
