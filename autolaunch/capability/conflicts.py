"""What else would break if some flags were changed: combinations, and choices of other dimensions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

from autolaunch.capability.autos import resolve_auto
from autolaunch.capability.fact_names import UNSET
from autolaunch.capability.flag_facts import FactSheet, flag_value
from autolaunch.capability.flashinfer import DeclaredSms
from autolaunch.capability.judge import Judge
from autolaunch.capability.table import Table
from autolaunch.capability.verdicts import DimensionVerdict, Evaluation, Hit
from autolaunch.request.flags import FlagCatalogue


def conflict(
    evaluation: Evaluation,
    table: Table,
    catalogue: FlagCatalogue,
    changes: Mapping[str, str],
    declared: DeclaredSms | None = None,
) -> Hit | None:
    """The rule that forbids `changes` (attribute to choice, `on` for a switch), if there is one.

    Asked are the rules on combinations, and those that exclude what would run in other dimensions.  What
    applies without the changes is not held against them; whether a change itself is eligible is its
    verdict's affair.
    """
    judge = Judge(FactSheet(evaluation.facts), table, catalogue, declared or DeclaredSms(()))
    return new_conflict(judge, evaluation, changes)


def new_conflict(judge: Judge, evaluation: Evaluation, changes: Mapping[str, str]) -> Hit | None:
    """`conflict` for a judge that is at hand."""
    dests = frozenset(changes)
    names = frozenset().union(*(judge.names_for(dest) for dest in dests))
    before = {hit.rule for hit in _exclusions(judge, names)}
    with ExitStack() as assumed:
        for dest, choice in changes.items():
            values = () if choice == "on" else (choice,)
            assumed.enter_context(judge.assuming(dest, flag_value(judge.flag_of(dest), values)))
        for hit in _exclusions(judge, names):
            if hit.rule not in before:
                return hit
        for dimension in evaluation.dimensions:
            if dimension.dest not in dests and dimension.relevant is not False:
                broken = _breaks(judge, dimension, names)
                if broken is not None:
                    return broken
    return None


def _exclusions(judge: Judge, names: frozenset[str]) -> Iterator[Hit]:
    """The exclusions of combinations that apply and ask for one of the facts `names`."""
    return (hit for hit in judge.combinations(names) if hit.effect == "exclude")


def _breaks(judge: Judge, dimension: DimensionVerdict, names: frozenset[str]) -> Hit | None:
    """The rule that excludes what would run in `dimension`, where it did not without the changes."""
    row = judge.table.dimension(dimension.name)
    if row is None or not judge.asks_for(row, names):
        return None
    value = dimension.value
    if value is None or value in row.auto_words:
        value = resolve_auto(judge.table.autos(row), judge.facts).value
    if value in (None, UNSET, "off"):
        return None
    known = dimension.choice(str(value))
    verdict = judge.verdict(row, row.in_version(judge.catalogue), str(value), automatic=True)
    if verdict.verdict != "excluded" or (known is not None and known.verdict == "excluded"):
        return None
    return verdict.hits[0]
