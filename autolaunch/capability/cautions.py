"""The warnings: harmful pins, harmful combinations, missing companions, and risks of what will run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from autolaunch.candidates.candidate import FailureKind
from autolaunch.capability.fact_names import FLAG
from autolaunch.capability.judge import Judge
from autolaunch.capability.rules import Rule
from autolaunch.capability.verdicts import ChoiceVerdict, DimensionVerdict, Hit, TableWarning

_SAYS: Final[dict[FailureKind | None, str]] = {
    "rejected": "is refused by SGLang here",
    "crash": "cannot run here",
    "oom": "runs out of memory here",
    "hang": "hangs here",
    "garbage": "answers wrongly here",
    "silent_fallback": "is silently replaced here",
    "slow": "is slow here",
    "memory": "leaves too little memory here",
    "environment": "depends on what is installed here",
}
_MAY: Final[dict[FailureKind | None, str]] = {
    "rejected": "may be refused by SGLang here",
    "crash": "may crash here",
    "oom": "may run out of memory here",
    "hang": "may hang here",
    "garbage": "may answer wrongly here",
    "silent_fallback": "may be silently replaced here",
    "slow": "may be slow here",
    "memory": "may leave too little memory here",
    "environment": "depends on what is installed here",
}


def cautions(
    judge: Judge, dimensions: Sequence[DimensionVerdict], pins: frozenset[str]
) -> Iterator[TableWarning]:
    """Every warning, each rule once; what the user pinned comes first."""
    found = [*_of_choices(judge, dimensions), *_of_combinations(judge, pins)]
    seen: set[str] = set()
    for one in sorted(found, key=lambda warning: not warning.pinned):
        if one.id not in seen:
            seen.add(one.id)
            yield one


def _of_choices(judge: Judge, dimensions: Sequence[DimensionVerdict]) -> Iterator[TableWarning]:
    """The warnings about the value of each dimension that will run."""
    for dimension in dimensions:
        effective = dimension.effective
        if dimension.decision == "pinned" and _leaves_it(judge, dimension):
            effective = dimension.auto
        verdict = dimension.choice(effective) if effective is not None else None
        if verdict is None:
            continue
        pinned = dimension.decision == "pinned"
        label = _label(dimension, verdict.choice)
        replaced = any(hit.effect == "exclude" for hit in verdict.warnings)
        if verdict.verdict == "excluded" or replaced:
            yield _excluded(dimension, verdict, label, pinned)
        for hit in verdict.warnings:
            if hit.effect == "exclude":
                continue  # said above, as what it is for everybody else
            yield _warning(hit, f"{label} {_MAY[hit.failure]}", (label.strip("`"),), pinned)
        if pinned:
            yield from _companions(judge, dimension, verdict, label)


def _leaves_it(judge: Judge, dimension: DimensionVerdict) -> bool:
    """Whether the user pinned a word that leaves the choice to SGLang."""
    row = judge.table.dimension(dimension.name)
    return row is not None and dimension.pinned in row.auto_words


def _label(dimension: DimensionVerdict, choice: str) -> str:
    """The choice as it is typed."""
    return f"`{dimension.flag}`" if dimension.is_switch else f"`{dimension.flag} {choice}`"


def _excluded(dimension: DimensionVerdict, verdict: ChoiceVerdict, label: str, pinned: bool) -> TableWarning:
    """A value that will run and cannot work."""
    says = _SAYS[verdict.failure]
    whose = "and you pinned it" if pinned else "and SGLang picks it by itself"
    eligible = [one.choice for one in dimension.choices if one.verdict == "eligible"]
    hint = f"eligible here: {', '.join(eligible)}" if eligible and not dimension.is_switch else None
    return TableWarning(
        id=verdict.rules[0],
        text=f"{label} {says}, {whose}",
        because=tuple(hit.sentence for hit in verdict.hits) or (verdict.reason,),
        evidence=verdict.evidence,
        failure=verdict.failure,
        flags=(label.strip("`"),),
        pinned=pinned,
        hint=hint,
    )


def _companions(
    judge: Judge, dimension: DimensionVerdict, verdict: ChoiceVerdict, label: str
) -> Iterator[TableWarning]:
    """The companions that a pinned choice lacks."""
    for requirement in verdict.requires:
        companion, hit = requirement.companion, requirement.hit
        if judge.lacks(companion):
            yield _warning(
                hit,
                f"{label} needs `{companion}` beside it",
                (label.strip("`"),),
                pinned=True,
                hint=f"add `{companion}`",
            )


def _of_combinations(judge: Judge, pins: frozenset[str]) -> Iterator[TableWarning]:
    """The harmful combinations in what will run."""
    rules = {rule.id: rule for rule in judge.table.combinations()}
    for hit in judge.combinations():
        rule = rules[hit.rule]
        flags = tuple(_flags(judge, rule))
        shown = " with ".join(f"`{one}`" for one in flags) or "this combination"
        pinned = any(name.removeprefix(FLAG) in pins for name in rule.names if name.startswith(FLAG))
        if hit.effect == "require":
            needed = ", ".join(f"`{one}`" for one in rule.require if judge.lacks(one))
            yield _warning(hit, f"{shown} needs {needed} beside it", flags, pinned, f"add {needed}")
        else:
            says = _SAYS if hit.effect == "exclude" else _MAY
            yield _warning(hit, f"{shown} {says[hit.failure]}", flags, pinned)


def _flags(judge: Judge, rule: Rule) -> Iterator[str]:
    """The flags a combination is about, as they are set."""
    for name in rule.names:
        value = judge.facts.get(name, None)
        if not name.startswith(FLAG) or value in (None, "unset", False):
            continue
        dest = name.removeprefix(FLAG)
        flag = judge.catalogue.flag(dest)
        spelled = flag.names[0] if flag else f"--{dest.replace('_', '-')}"
        yield spelled if value is True else f"{spelled} {value}"


def _warning(
    hit: Hit, text: str, flags: tuple[str, ...], pinned: bool, hint: str | None = None
) -> TableWarning:
    """A warning that rests on one rule."""
    return TableWarning(hit.rule, text, (hit.sentence,), hit.evidence, hit.failure, flags, pinned, hint)
