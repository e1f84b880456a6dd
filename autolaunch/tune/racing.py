"""The stage `race`: a field of candidates in real engines, with a journal beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autolaunch.assessment import Assessment
from autolaunch.candidates.generate import Field
from autolaunch.detect.ranks import used_gpus
from autolaunch.invocation import Invocation, Understood
from autolaunch.race.gate_reference import DEFAULT_TOKENS
from autolaunch.race.gpu_memory import GpuMemory, KvBudget
from autolaunch.race.journal import Journal, open_journal
from autolaunch.race.objective import Objective
from autolaunch.race.progress import Progress
from autolaunch.race.race import Race
from autolaunch.race.result import Acceptance, RaceResult
from autolaunch.race.setting import RaceSetting
from autolaunch.race.workload import Workload
from autolaunch.race.yardstick import TraceYardstick, WallYardstick
from autolaunch.slice.cut import Slice, cut
from autolaunch.slice.home import SliceHome
from autolaunch.tune.engines import Opener, truth_of
from autolaunch.tune.ground import Ground
from autolaunch.units import format_bytes

GPU_GATE_TOKENS = 6144
"""Tokens that the gate has read on a GPU: 0.1 to 0.4 s (H200, 2026-11-30)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a race is about, beside the command it starts from."""

    field: Field
    workload: Workload
    objective: Objective
    ground: Ground
    assessment: Assessment | None = None
    """On a machine with GPUs."""


def race(
    invocation: Invocation,
    understood: Understood,
    plan: Plan,
    progress: Progress,
    census_fd: int | None,
    interrupted: Callable[[], bool],
) -> RaceResult:
    """Stage `race`: the candidates in real engines; SliceError where their slice cannot be made."""
    with open_journal(invocation.folders.runs) as journal, contextlib.ExitStack() as rooms:
        progress.say(f"journal and logs of the engines: {journal.folder}")
        journal.write(
            "race",
            original=list(invocation.original.argv),
            sglang=invocation.interpreter.version,
            workload=plan.workload.to_json(),
            budget_s=invocation.options.budget_s,
            candidates=[one.label for one in plan.field.candidates],
        )
        for dropped in plan.field.dropped:
            journal.write("dropped", label=dropped.label, stage=dropped.stage, reason=dropped.reason)
        home, piece = rooms.enter_context(_slice(plan.ground, journal, progress))
        opener = Opener(invocation, understood, plan.ground, journal, census_fd, piece)
        result = Race(
            plan.field,
            opener.candidate,
            _setting(opener, understood, plan, piece, home),
            journal=journal,
            progress=progress,
            interrupted=interrupted,
        ).run()
        if journal.lost is not None:
            progress.say(journal.lost)
    return result


@contextlib.contextmanager
def _slice(
    ground: Ground, journal: Journal, progress: Progress
) -> Iterator[tuple[SliceHome | None, Slice | None]]:
    """The slice of a race in a folder that is gone afterwards; nothing where the model is whole."""
    if ground.plan is None:
        yield None, None
        return
    with SliceHome() as home:
        piece = cut(ground.plan, home.new("slice"))
        words = f"{ground.plan.reason} ({format_bytes(ground.plan.weight_bytes)})"
        progress.say(f"a {ground.plan.kind} slice: {words}")
        journal.write("slice", kind=ground.plan.kind, reason=words, folder=str(piece.folder))
        yield home, piece


def _setting(
    opener: Opener, understood: Understood, plan: Plan, piece: Slice | None, home: SliceHome | None
) -> RaceSetting:
    """What the race of `plan` is run with."""
    on_gpus = plan.assessment is not None
    return RaceSetting(
        workload=plan.workload,
        budget_s=opener.invocation.options.budget_s,
        objective=plan.objective,
        yardstick=_yardstick(plan, piece, home),
        company=plan.ground.company,
        open_truth=truth_of(opener, piece, home) if plan.ground.quantized else None,
        gate_tokens=GPU_GATE_TOKENS if on_gpus else DEFAULT_TOKENS,
        whole=piece is None,
        gpu_memory=_gpu_memory(understood, plan.assessment),
        kv=_kv_budget(plan),
        acceptances=_acceptances(plan),
    )


def _yardstick(plan: Plan, piece: Slice | None, home: SliceHome | None) -> TraceYardstick | WallYardstick:
    """GPU times of a slice, wall time of a whole model."""
    if piece is None or home is None:
        return WallYardstick(plan.workload)
    traces = home.new("traces")
    traces.mkdir(mode=0o700)
    return TraceYardstick(
        plan.workload,
        traces,
        layers=piece.plan.layers,
        total_layers=piece.plan.total_layers,
        period=piece.plan.period or 1,
        tail_layers=plan.ground.tail_layers,
    )


def _gpu_memory(understood: Understood, assessment: Assessment | None) -> GpuMemory | None:
    """What waits for the memory of the GPUs in use."""
    if assessment is None or assessment.machine.platform != "cuda":
        return None
    return GpuMemory(used_gpus(understood.request, assessment.machine)[0].gpus)


def _kv_budget(plan: Plan) -> KvBudget | None:
    """What the caches of the whole server would hold, where that is known."""
    if plan.assessment is None:
        return None
    memory, piece = plan.assessment.memory, plan.ground.plan
    if not memory.kv_tokens or not memory.kv_bytes_per_token:
        return None
    share = 1.0 if piece is None else piece.layers / piece.total_layers
    return KvBudget(memory.kv_tokens, memory.kv_bytes_per_token, int(memory.kv_bytes_per_token * share))


def _acceptances(plan: Plan) -> dict[str, Acceptance]:
    """What the drafts of a candidate are worth where a slice cannot tell: the least that was published."""
    if plan.assessment is None or plan.ground.plan is None:
        return {}
    nextn = plan.assessment.nextn
    if nextn.gain_range is None:
        worth = Acceptance("cost only", source="nobody published what these heads are worth")
    else:
        # A gain in tokens a second is what is left of the tokens a step after the cost of drafting.
        worth = Acceptance("published", nextn.gain_range[0], nextn.gain or "")
    return {one.id: worth for one in plan.field.candidates if one.choice == "NEXTN"}
