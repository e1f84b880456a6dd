"""What failed here before into rules of the table, and into candidates that are not tried again.

A failure speaks only of its own setting: the same model, GPU and flags, and the versions it was seen with.  A
version that is not known now leaves its rule in doubt, like any other rule.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from autolaunch.candidates.candidate import Candidate, Dropped, FailureKind
from autolaunch.capability.conditions import Condition, compile_condition
from autolaunch.capability.fact_names import FLAG, Facts
from autolaunch.capability.flag_facts import FactSheet, parsed
from autolaunch.capability.known_versions import assume_known_versions
from autolaunch.capability.rows import Evidence, Scope
from autolaunch.capability.rules import ANY_CHOICE, Rule
from autolaunch.capability.table import Table
from autolaunch.capability.verdicts import Hit
from autolaunch.profiles.failed import Failed, Key, Setting, Where, applies
from autolaunch.redact import redact_choice

_DRAFTING: Final = "--speculative-algorithm"
_CHOICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+:-]{0,80}", re.ASCII)
_NO_ID = re.compile(r"[^A-Za-z0-9_+-]+")
_BRACES = str.maketrans("{}", "()")
_ENDED: Final[Mapping[FailureKind, str]] = {
    "rejected": "SGLang refused it",
    "crash": "it crashed",
    "oom": "it ran out of memory",
    "hang": "it hung",
    "garbage": "its answers were wrong",
    "silent_fallback": "SGLang silently took something else",
}
_WHERE: Final[Mapping[Where, str]] = {
    "race": "in a race",
    "start": "when a server was started with it",
    "verify": "in the check of a server that had started with it",
}


@dataclass(frozen=True, slots=True)
class Learned:
    """What failures say of one start."""

    rules: tuple[Rule, ...] = ()
    dropped: Mapping[Key, Dropped] = field(default_factory=dict)
    """Candidates that are not tried again, by what is on their command line."""

    def why_not(self, candidate: Candidate) -> Dropped | None:
        """Why `candidate` is not tried again, if so; what the user asks for always is."""
        if not self.dropped or candidate.origin == "user":
            return None
        return self.dropped.get(redact_choice(candidate.flags, candidate.env))

    def refused(self, hit: Hit | None) -> tuple[Dropped, ...]:
        """What a plan to draft is refused for, where that is something that failed here."""
        if hit is None or not any(rule.id == hit.rule for rule in self.rules):
            return ()
        return tuple(one for one in self.dropped.values() if one.rule == hit.rule)


NOTHING: Final = Learned()


def learn(
    failures: Sequence[Failed],
    setting: Setting | None,
    facts: Facts,
    table: Table,
    *,
    admit: Collection[tuple[str, str]] = (),
) -> Learned:
    """What `failures` say of the start with `setting` and `facts`.

    `admit` holds (flag, choice) pairs that may be tried all the same.
    """
    if setting is None:
        return NOTHING
    admitted = {(_newest(table, flag), choice) for flag, choice in admit}
    sheet = FactSheet(facts)
    assume_known_versions(sheet)  # as the evaluator does
    rules: dict[tuple[str, bool], Rule] = {}
    dropped: dict[Key, Dropped] = {}
    for one in failures:
        if not one.tells or not applies(one, setting):
            continue
        spared = (_newest(table, one.dimension), one.choice) in admitted
        found = list(_rules(one, table, sheet, spared=spared))
        for rule in found:
            rules.setdefault((rule.id, bool(rule.dimensions)), rule)
        if not spared and is_certain(one, setting):
            dropped.setdefault(
                one.key,
                Dropped(
                    label=one.label,
                    stage=one.stage,
                    reason=sentence(one),
                    kind=one.kind,
                    rule=found[0].id if found else _id(one),
                    evidence=source(one),
                ),
            )
    return Learned(tuple(rules.values()), dropped)


def is_certain(one: Failed, setting: Setting) -> bool:
    """Whether everything that `one` is bound to is known now."""
    now = dict(setting.versions)
    if one.setting.sm is not None and setting.sm is None:
        return False
    return all(name in now for name, _ in one.setting.versions)


def sentence(one: Failed) -> str:
    """What happened, when, and what the log said."""
    of = f", with {one.depth}" if one.depth else ""
    times = f" for the {one.times}th time" if one.times > 3 else ""
    where = f"{_ENDED[one.kind]} here on {one.date[:10]}, {_WHERE[one.where]}{of}{times}"
    return f"{where}: {one.reason}".translate(_BRACES).strip().rstrip(".") if one.reason else where


def source(one: Failed) -> str:
    """What it was seen with."""
    versions = ", ".join(f"{name} {version}" for name, version in one.setting.versions)
    on = one.setting.gpu or one.setting.platform
    return f"{one.date[:10]}, on this store's record: `{one.label}` on {on}, {versions}"


# Into rules --------------------------------------------------------------------------------------


def _rules(one: Failed, table: Table, sheet: FactSheet, *, spared: bool) -> Iterator[Rule]:
    """`one` as rules: on the choice where it was alone, on the combination where others stood beside it."""
    changed = [*([(one.dimension, one.choice)] if one.dimension else []), *one.beside]
    rows = [(table.dimension(flag), choice) for flag, choice in changed]
    if not rows or any(row is None or not _CHOICE.fullmatch(choice) for row, choice in rows):
        return
    dimension = table.dimension(one.dimension)
    drafts = dimension is not None and dimension.flag == _DRAFTING
    if dimension is not None and not one.beside:
        yield _rule(one, sheet, {}, dimension=dimension.flag)
    if (len(rows) > 1 or drafts) and not spared:
        # What drafts is planned as a combination, which asks no verdict of its own.
        typed = {f"{FLAG}{row.dest}": _value(choice) for row, choice in rows if row is not None}
        if drafts and dimension is not None:
            typed[f"{FLAG}{dimension.dest}"] = _value(_typed(one))
        yield _rule(one, sheet, typed)


def _rule(one: Failed, sheet: FactSheet, typed: Mapping[str, Any], *, dimension: str = "") -> Rule:
    """One rule, bound to what is known of the setting."""
    when = _condition(one, sheet, typed)
    return Rule(
        id=_id(one),
        dimensions=(dimension,) if dimension else (),
        choices=(one.choice,) if dimension else (ANY_CHOICE,),
        effect="exclude",
        scope=Scope(when=when, unless=None, sglang=None, flashinfer=None),
        backend=None,
        failure=one.kind,
        stage=one.stage,
        numerics=None,
        require=(),
        reason=sentence(one),
        contradiction="",
        evidence=(Evidence("measured", source(one)),),
        names=when.names(),
        learned=True,
    )


def _condition(one: Failed, sheet: FactSheet, typed: Mapping[str, Any]) -> Condition:
    """The versions, the GPU and the ranks of `one`, and the flags `typed`.

    `applies` has compared them as texts.  A test that fails all the same is of a version that the table
    cannot order, and is left out.
    """
    then = one.setting
    tests: dict[str, Any] = {} if then.sm is None else {"sm": then.sm}
    tests |= dict(then.versions) | {"tp": then.tp}
    found: list[Condition] = []
    for name, wanted in tests.items():
        try:
            test = compile_condition({name: wanted})
        except ValueError:
            continue
        if test.truth(sheet) is not False:
            found.append(test)
    found += [compile_condition({name: wanted}) for name, wanted in typed.items()]
    return Condition(tuple(test for condition in found for test in condition.tests))


def _id(one: Failed) -> str:
    """`here.attention-backend.fa3`, with what stood beside it."""
    stem = _part(one.dimension.removeprefix("--")) or "candidate"
    parts = [one.choice, *(f"{flag.removeprefix('--')}-{choice}" for flag, choice in one.beside)]
    if not one.choice:
        parts = [hashlib.sha256(repr(one.key).encode()).hexdigest()[:8]]
    return ".".join(("here", stem, *(_part(part) or "on" for part in parts)))


def _part(text: str) -> str:
    """`text` as a part of an id."""
    return _NO_ID.sub("-", text)[:80].strip("-")


def _value(choice: str) -> Any:
    """A choice as a condition asks for it."""
    return True if choice == "on" else parsed(choice)


def _typed(one: Failed) -> str:
    """The value of the changed flag as it was typed, which an older version may spell otherwise."""
    words = [*one.flags, ""]
    return next((words[at + 1] for at, word in enumerate(words[:-1]) if word == one.dimension), one.choice)


def _newest(table: Table, flag: str) -> str:
    """The newest spelling of `flag`."""
    dimension = table.dimension(flag)
    return flag if dimension is None else dimension.flag
