"""Everything that can be known of one start before anything is started: request, machine, model and table.

`serve` acts on an assessment, `explain` shows it; so what is shown is what is done.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from pathlib import Path

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.candidates.dimensions import load_choices
from autolaunch.candidates.generate import Field, generate
from autolaunch.candidates.tabled import field_from_table, unmeasured
from autolaunch.capability.contenders import (
    Contenders,
    blaming_the_variable,
    candidates_from,
    parse_admit,
)
from autolaunch.capability.evaluate import evaluate
from autolaunch.capability.facts import facts_of
from autolaunch.capability.flashinfer import DeclaredSms, declared_sms, site_package
from autolaunch.capability.repair import HARMFUL
from autolaunch.capability.table import Table, bundled_table
from autolaunch.capability.verdicts import Evaluation, TableWarning
from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.checkpoint.problems import NotInspected
from autolaunch.command import Command
from autolaunch.detect.machine import Machine
from autolaunch.detect.ranks import used_gpus
from autolaunch.detect.software import Software
from autolaunch.memory.estimate import MemoryEstimate, estimate
from autolaunch.nextn.suggest import NextnMode, NextnPlan, suggest, with_room
from autolaunch.profiles.failed import Failed
from autolaunch.profiles.learned import NOTHING, learn
from autolaunch.profiles.setting import config_digest, setting_of
from autolaunch.request.command_line import Notice, Request, original_argv
from autolaunch.request.flags import FlagCatalogue

_TYPED = re.compile(r"`(-[^`]*)`")

NOT_LOOKED_INTO = "the checkpoint was not looked into"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user told autolaunch itself about the choices."""

    admit: tuple[str, ...] = ()
    """`--admit DIMENSION=CHOICE`: excluded choices that may run all the same."""
    lossy: bool = False
    """Whether choices that change the precision may run."""
    nextn: NextnMode = "auto"
    candidates: tuple[str, ...] = ()
    """`--candidate FLAGS`."""
    concurrency: int | None = None
    """Requests at once in the user's workload, where one was named."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """One start, understood."""

    request: Request
    catalogue: FlagCatalogue
    software: Software
    machine: Machine
    checkpoint: Checkpoint | None
    not_inspected: NotInspected | None
    """Why there is no checkpoint, where a model was named."""
    table: Table
    declared: DeclaredSms
    evaluation: Evaluation
    memory: MemoryEstimate
    nextn: NextnPlan
    contenders: Contenders
    field: Field
    choice: Candidate
    """What is launched without a measurement: the repairs, NEXTN where `--nextn on`, else the original."""
    warnings: tuple[TableWarning, ...]
    notices: tuple[Notice, ...]
    pasted_env: Mapping[str, str] = dataclass_field(default_factory=dict)
    """Variables of a pasted line, which the command needs in front of it."""
    planned: tuple[str, ...] = ()
    """The options of `explain` that say for which machine and versions, as words."""

    @property
    def hopeless(self) -> Notice | None:
        """Why nothing that could be launched would work; None while something might."""
        if self.memory.fits is False:
            return Notice(
                "memory.weights",
                f"no launch candidate for `{self.request.model}` fits",
                (self.memory.reason,),
                hint=self.memory.hint,
            )
        seen = {rule.id for rule in self.table.learned}  # which a race may find otherwise
        for dimension in self.evaluation.dimensions:
            auto = dimension.choice(dimension.auto) if dimension.auto is not None else None
            if dimension.decision != "kept" or dimension.relevant is not True:
                continue
            if auto is None or auto.failure not in HARMFUL:
                continue
            excluded = [one for one in dimension.choices if one.verdict == "excluded"]
            if len(excluded) == len(dimension.choices) and all(set(one.rules) - seen for one in excluded):
                return Notice(
                    auto.rules[0] if auto.rules else "candidates.none",
                    f"no choice of `{dimension.flag}` works for this model on this machine",
                    (auto.reason,),
                    hint=f"see `--why {dimension.flag.removeprefix('--')}`",
                )
        return None

    @property
    def original(self) -> Command:
        """What plain SGLang would be started with."""
        return Command(original_argv(self.request.interpreter, self.request.entry, self.request.argv))

    @property
    def command(self) -> Command:
        """The command of `choice`."""
        return self.original.with_candidate(self.choice)


def assess(
    request: Request,
    catalogue: FlagCatalogue,
    software: Software,
    machine: Machine,
    found: Checkpoint | NotInspected | None,
    wishes: Wishes,
    *,
    environ: Mapping[str, str] = os.environ,
    cache: Path | None = None,
    suspects: frozenset[tuple[str, ...]] = frozenset(),
    learned: Sequence[Failed] = (),
) -> Assessment:
    """Ask the table about one start; UsageError for an `--admit` that names nothing.

    `machine` is the whole machine, of which the request's ranks take a part; `cache` is the user's cache
    folder; `suspects` are the flags of earlier starts that never became healthy; `learned` is what failed
    here before, in whatever setting.
    """
    bare = bundled_table(cache)
    checkpoint = found if isinstance(found, Checkpoint) else None
    used, missing = used_gpus(request, machine)
    facts = facts_of(used, software, checkpoint, request, catalogue, bare.dimensions, environ)
    declared = _declared(software, cache)
    admit = tuple(map(parse_admit, wishes.admit))
    known = NOTHING
    if learned and checkpoint is not None:
        setting = setting_of(facts, bare.dimensions, config_digest(checkpoint.config), checkpoint=checkpoint)
        known = learn(learned, setting, facts, bare, admit=admit)
    table = bare.with_rules(known.rules)
    evaluation = evaluate(facts, table, catalogue, declared)
    with blaming_the_variable(wishes.admit, environ):
        contenders = candidates_from(
            evaluation, table, catalogue, admit=admit, lossy=wishes.lossy, declared=declared
        )
    memory, nextn = MemoryEstimate(None, NOT_LOOKED_INTO), NextnPlan(False, False, NOT_LOOKED_INTO)
    if checkpoint is not None:
        memory = estimate(checkpoint, used, evaluation.facts)
        nextn = suggest(checkpoint, evaluation, table, catalogue, declared=declared, mode=wishes.nextn)
        nextn = with_room(nextn, wishes.concurrency)
    if machine.platform == "cuda":
        tried = nextn if nextn.usable and not nextn.pinned and wishes.nextn != "off" else None
        field = field_from_table(
            evaluation, contenders, catalogue, wishes.candidates, suspects, tried, known.why_not
        )
        field = replace(field, dropped=(*field.dropped, *known.refused(nextn.conflict)))
        choice = unmeasured(evaluation, field, tried if wishes.nextn == "on" else None)
    else:
        choice = ORIGINAL
        field = generate(
            request, catalogue, machine, load_choices(), wishes.candidates, suspects, known.why_not
        )
    return Assessment(
        request=request,
        catalogue=catalogue,
        software=software,
        machine=used,
        checkpoint=checkpoint,
        not_inspected=found if isinstance(found, NotInspected) else None,
        table=table,
        declared=declared,
        evaluation=evaluation,
        memory=memory,
        nextn=nextn,
        contenders=contenders,
        field=field,
        choice=choice,
        warnings=tuple(
            sorted(
                (*refusals(request), *evaluation.warnings, *memory_warnings(memory)),
                key=lambda one: (one.failure not in HARMFUL, not one.pinned),
            )
        ),
        notices=(
            *machine.notes,
            *((used.refusal,) if used.refusal else ()),
            *missing,
            *evaluation.notices,
        ),
    )


def refusals(request: Request) -> Iterator[TableWarning]:
    """What of the command line SGLang will refuse: flags it does not have, values that are missing."""
    for notice in request.notices:
        if notice.id != "request.config-ignored":
            yield TableWarning(
                id=notice.id,
                text=notice.text,
                because=notice.because,
                evidence=(),
                failure="rejected",
                flags=tuple(_TYPED.findall(notice.text)),
                pinned=True,
                hint=notice.hint,
            )


def memory_warnings(memory: MemoryEstimate) -> Iterator[TableWarning]:
    """What the estimate says of a pinned memory fraction, and of a model that does not fit."""
    fits, most = memory.mem_fraction_fits, memory.mem_fraction_max
    if memory.mem_fraction_pinned and memory.fits is False and fits is not None:
        too_much = most is not None and (memory.mem_fraction or 0) > most
        typed = f"--mem-fraction-static {memory.mem_fraction:g}"
        leaves = "activations and CUDA graphs" if too_much else "a cache beside the weights"
        yield TableWarning(
            id="memory.fraction",
            text=f"`{typed}` leaves no room for {leaves}, and you pinned it",
            because=(memory.reason,),
            evidence=(),
            failure="oom",
            flags=(typed,),
            pinned=True,
            hint=f"`--mem-fraction-static {fits:g}` fits",
        )
        return
    if memory.fits is False:
        yield TableWarning(
            id="memory.weights",
            text="the model does not fit",
            because=(memory.reason,),
            evidence=(),
            failure="oom",
            flags=(),
            pinned=False,
            hint=memory.hint,
        )


def _declared(software: Software, cache: Path | None) -> DeclaredSms:
    """FlashInfer's own declarations, of the installed one where there is one."""
    package = site_package(software.site) if software.flashinfer.source == "installed" else None
    return declared_sms(software.flashinfer.version, package, cache)
