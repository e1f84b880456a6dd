"""What the engines of a race load, and how many of them at once: a slice of the model, or all of it.

Nothing is written here: a plan can be made to tell how long a race would take, and be dropped again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autolaunch.assessment import Assessment
from autolaunch.candidates.generate import Field
from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.checkpoint.problems import NotInspected
from autolaunch.checkpoint.source import read_checkpoint
from autolaunch.detect.machine import Machine
from autolaunch.detect.ranks import ranks, used_gpus
from autolaunch.race.company import ONE_BY_ONE, Company, plan_company
from autolaunch.race.workload import Workload
from autolaunch.request.command_line import Request
from autolaunch.slice.plan import SlicePlan, plan_slice

TRIAL_TOKENS = 16384
"""Key/value tokens of a trial engine at least: enough for the gate, little enough for several engines."""
SPARE_SHARE = 1.125
"""Tokens over those that the workload holds: pages are filled in part, and a step is allotted ahead."""
SPARE_TOKENS = 256
"""Tokens over the workload's in each slot: a traced batch answers with more than a short workload wants."""
SPARE_STATES = 2
"""States of linear layers for each slot of the workload; the prefix cache keeps some beside them."""
PLAIN_BYTES = 2
"""Of one parameter in bf16, in which the gate's reference computes."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What the engines of one race stand on."""

    company: Company = ONE_BY_ONE
    plan: SlicePlan | None = None
    """The slice they load; None: the whole model."""
    why_whole: str = ""
    """Why there is no slice."""
    tokens: int = TRIAL_TOKENS
    """Key/value tokens of one engine."""
    states: int | None = None
    """States of linear layers of one engine."""
    batch: int | None = None
    """The largest batch that decodes at once."""
    quantized: bool = False
    """Whether the slice's weights can be had in bf16 beside it, for the gate."""

    @property
    def tail_layers(self) -> int | None:
        """How many of the slice's last layers repeat a pattern; None where none does."""
        plan = self.plan
        if plan is None or plan.period < 1:
            return None
        kinds, period = plan.kinds, plan.period
        start = 0
        for layer in range(plan.layers - period):
            if kinds[layer] != kinds[layer + period]:
                start = layer + 1
        return plan.layers - start


def prepare(
    request: Request,
    assessment: Assessment,
    field: Field,
    workload: Workload,
    environ: Mapping[str, str],
    cwd: Path,
    sglang: str,
) -> Ground:
    """The ground of a race on the GPUs of `assessment`; CheckpointError for files that changed meanwhile."""
    plan, why = _slice(request, assessment, field, environ, cwd, sglang)
    return _ground(request, assessment, field, workload, plan, why)


def whole_ground(request: Request, assessment: Assessment, field: Field, workload: Workload) -> Ground:
    """The ground of a race that loads the whole model whether it can be cut or not."""
    return _ground(request, assessment, field, workload, None, "the whole model was asked for")


def _ground(
    request: Request,
    assessment: Assessment,
    field: Field,
    workload: Workload,
    plan: SlicePlan | None,
    why: str,
) -> Ground:
    """The ground of a race on the slice of `plan`, or on the whole model."""
    used, _ = used_gpus(request, assessment.machine)
    tokens = max(
        TRIAL_TOKENS, int(SPARE_SHARE * (workload.held_tokens + SPARE_TOKENS * workload.concurrency))
    )
    checkpoint = assessment.checkpoint
    quantized = plan is not None and checkpoint is not None and _is_packed(checkpoint)
    return Ground(
        company=_company(used, assessment, field, plan, tokens, ranks(request), quantized=quantized),
        plan=plan,
        why_whole=why,
        tokens=tokens,
        states=SPARE_STATES * workload.concurrency,
        batch=workload.concurrency,
        quantized=quantized,
    )


def _slice(
    request: Request,
    assessment: Assessment,
    field: Field,
    environ: Mapping[str, str],
    cwd: Path,
    sglang: str,
) -> tuple[SlicePlan | None, str]:
    """The slice that all candidates can load, or the reason why there is none."""
    if assessment.checkpoint is None or request.model is None:
        return None, "the checkpoint was not looked into"
    raw = read_checkpoint(request.model, cwd=cwd, environ=environ, revision=request.revision)
    if isinstance(raw, NotInspected):
        return None, raw.reason
    drafts = assessment.nextn.pinned or any(one.choice == "NEXTN" for one in field.candidates)
    found = plan_slice(raw, assessment.checkpoint, mtp=drafts, sglang=sglang)
    if not isinstance(found, SlicePlan):
        return None, "; ".join((found.reason, *found.because))
    if found.kind == "synthetic":
        return None, "the weights are not on this machine"
    if drafts and not found.mtp:
        return None, "the heads that draft cannot be cut with the first layers"
    return found, ""


def _company(
    used: Machine,
    assessment: Assessment,
    field: Field,
    plan: SlicePlan | None,
    tokens: int,
    tp: int,
    *,
    quantized: bool,
) -> Company:
    """How the engines load on the GPUs in use."""
    memory, checkpoint = assessment.memory, assessment.checkpoint
    free = [gpu.memory_free_bytes for gpu in used.gpus if gpu.memory_free_bytes is not None]
    if len(free) < len(used.gpus):
        return ONE_BY_ONE  # nobody says how much is free
    share = 1.0 if plan is None else plan.layers / plan.total_layers
    weights = plan.weight_bytes // tp if plan is not None else memory.weight_bytes_per_gpu or 0
    return plan_company(
        field.candidates,
        slice_bytes=weights,
        kv_bytes=int((memory.kv_bytes_per_token or 0) * share) * tokens,
        free_gpu_bytes=free,
        cores=used.cores,
        tp=tp,
        host_free_bytes=used.memory_available_bytes,
        truth_bytes=_plain_bytes(plan, checkpoint) // tp if quantized else 0,
        whole=plan is None,
    )


def _plain_bytes(plan: SlicePlan | None, checkpoint: Checkpoint | None) -> int:
    """Bytes of the slice's weights in bf16."""
    if plan is None or checkpoint is None or not checkpoint.weight_bytes or not checkpoint.parameters:
        return 0
    return int(plan.weight_bytes * PLAIN_BYTES * checkpoint.parameters / checkpoint.weight_bytes)


def _is_packed(checkpoint: Checkpoint) -> bool:
    """Whether its weights take less room than they would in bf16."""
    if not checkpoint.weight_bytes or not checkpoint.parameters:
        return False
    return checkpoint.weight_bytes < 0.9 * PLAIN_BYTES * checkpoint.parameters
