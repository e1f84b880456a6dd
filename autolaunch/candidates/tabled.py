"""From the capability table to the field of a race: the original, the repairs, and one change on top of them.

Every choice that is not tried is returned beside them with its reason; nothing vanishes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from autolaunch.candidates.candidate import ORIGINAL, Candidate, Dropped
from autolaunch.candidates.dimensions import shown_as
from autolaunch.candidates.generate import (
    MAX_CANDIDATES,
    SUSPECT,
    Field,
    WhyNot,
    nothing_failed,
    parse_user_candidate,
)
from autolaunch.capability.contenders import Contender, Contenders
from autolaunch.capability.verdicts import Evaluation
from autolaunch.nextn.suggest import NextnPlan
from autolaunch.request.flags import FlagCatalogue


def repaired(evaluation: Evaluation, without: Sequence[str] = ()) -> tuple[tuple[str, ...], dict[str, str]]:
    """The flags and variables of all repairs, but for those of the dimensions `without`."""
    kept = [one for one in evaluation.repairs if one.dimension not in without]
    flags = tuple(token for one in kept for token in one.tokens)
    return flags, {name: value for one in kept for name, value in one.env}


def field_from_table(
    evaluation: Evaluation,
    contenders: Contenders,
    catalogue: FlagCatalogue,
    user_candidates: Iterable[str] = (),
    suspects: frozenset[tuple[str, ...]] = frozenset(),
    nextn: NextnPlan | None = None,
    failed: WhyNot = nothing_failed,
) -> Field:
    """The field of one race: `c0`, the user's own, the repairs, NEXTN, then one changed dimension each.

    `nextn` is the plan for the checkpoint's own MTP heads, where they are to be tried; `suspects` are flag
    tuples that a server was last started with and that never became healthy; `failed` tells what failed
    here before.
    """
    kept: list[Candidate] = [ORIGINAL]
    dropped = list(contenders.dropped)
    for text in user_candidates:
        own = parse_user_candidate(text, f"c{len(kept)}", catalogue)
        if own.flags in suspects:
            dropped.append(Dropped(label=own.label, stage="serve", reason=SUSPECT))
        else:
            kept.append(own)
    for one in _offered(evaluation, contenders, nextn):
        if any(one.flags == other.flags and one.env == other.env for other in kept):
            continue  # the user's own candidate, or the repairs, already say it
        before = failed(one)
        if before is not None:
            dropped.append(before)
            continue
        reason = SUSPECT if one.flags in suspects else None
        if reason is None and len(kept) == MAX_CANDIDATES:
            reason = f"a race has at most {MAX_CANDIDATES} engines"
        if reason is None:
            kept.append(_named(one, f"c{len(kept)}", catalogue))
        else:
            dropped.append(Dropped(label=one.label, stage="table", reason=reason))
    return Field(candidates=tuple(kept), dropped=tuple(dropped))


def unmeasured(evaluation: Evaluation, field: Field, nextn: NextnPlan | None = None) -> Candidate:
    """What is launched without a measurement: the repairs, and `nextn` where the user asks for it."""
    wanted = _with_nextn(evaluation, nextn) if nextn is not None else _repairs(evaluation)
    if not wanted.flags and not wanted.env:
        return ORIGINAL
    same = (one for one in field.candidates if one.flags == wanted.flags and one.env == wanted.env)
    return next(same, replace(wanted, id=f"c{len(field.candidates)}"))


def _repairs(evaluation: Evaluation) -> Candidate:
    """The repairs alone, as a candidate without an id."""
    flags, env = repaired(evaluation)
    single = evaluation.repairs[0] if len(evaluation.repairs) == 1 else None
    return Candidate(
        id="",
        flags=flags,
        env=tuple(sorted(env.items())),
        dimension=single.dimension if single else None,
        choice=single.value if single else None,
    )


def _with_nextn(evaluation: Evaluation, nextn: NextnPlan) -> Candidate:
    """The repairs with the checkpoint's own heads, as a candidate without an id."""
    flags, env = repaired(evaluation)
    return Candidate(
        id="",
        flags=(*flags, *nextn.flags),
        env=tuple(sorted({**env, **dict(nextn.env)}.items())),
        dimension="--speculative-algorithm",
        choice="NEXTN",
    )


def _offered(evaluation: Evaluation, contenders: Contenders, nextn: NextnPlan | None) -> Iterator[Candidate]:
    """The table's candidates in the order of trial, without their ids."""
    if evaluation.repairs:
        yield _repairs(evaluation)
    if nextn is not None:
        yield _with_nextn(evaluation, nextn)
    for one in _in_turns(evaluation, contenders.offered):
        flags, env = repaired(evaluation, without=(one.dimension,))
        yield Candidate(
            id="",
            flags=(*flags, *one.tokens),
            env=tuple(sorted({**env, **dict(one.env)}.items())),
            dimension=one.dimension,
            choice=one.choice,
        )


def _in_turns(evaluation: Evaluation, offered: Sequence[Contender]) -> Iterator[Contender]:
    """The contenders so that each dimension gets its turn before one gets a second.

    Dimensions that matter for this model come before those that may matter, and sure choices before others.
    """
    matters = {one.flag for one in evaluation.dimensions if one.relevant is True}

    def doubt(one: Contender) -> tuple[bool, bool]:
        return one.dimension not in matters, not (one.admitted or one.verdict.verdict == "eligible")

    for _, group in groupby(sorted(offered, key=doubt), key=doubt):
        queues: dict[str, list[Contender]] = {}
        for one in group:
            queues.setdefault(one.dimension, []).append(one)
        while queues:
            for name in list(queues):
                yield queues[name].pop(0)
                if not queues[name]:
                    del queues[name]


def _named(one: Candidate, id: str, catalogue: FlagCatalogue) -> Candidate:  # noqa: A002 - its name
    """The candidate with its id, and the field of SGLang's settings that shows what became of it."""
    return replace(one, id=id, resolved_as=shown_as(catalogue, one.dimension) if one.dimension else None)
