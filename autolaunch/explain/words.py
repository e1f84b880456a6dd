"""The words in which an Assessment is told: short names for model, machine, software, choices and counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath

from autolaunch.assessment import Assessment
from autolaunch.candidates.candidate import FailureKind, Stage
from autolaunch.capability.fact_names import UNSET
from autolaunch.capability.rows import Evidence
from autolaunch.capability.verdicts import ChoiceVerdict, DimensionVerdict
from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.checkpoint.problems import shown
from autolaunch.detect.gpus import Machine
from autolaunch.detect.software import Package
from autolaunch.redact import redact, redact_value
from autolaunch.units import format_bytes

_NAME_LIMIT = 120
_FAILS: dict[FailureKind | None, str] = {
    "rejected": "SGLang refuses it",
    "crash": "it crashes",
    "oom": "it runs out of memory",
    "hang": "it hangs",
    "garbage": "its answers are wrong",
    "silent_fallback": "SGLang silently takes something else",
    "slow": "it is slow",
    "memory": "it leaves too little memory",
    "environment": "something it needs is not installed here",
}
_STAGES: dict[Stage | None, str] = {
    "table": "before anything is started",
    "start": "at the start",
    "load": "while the weights are loaded",
    "capture": "when CUDA graphs are captured or kernels compiled",
    "gate": "in the check of its answers",
    "serve": "while it serves",
}


def redacted_env(env: Mapping[str, str]) -> dict[str, str]:
    """`env` with the values of secrets hidden."""
    return {name: redact_value(name, value) for name, value in env.items()}


def fails(failure: FailureKind | None, stage: Stage | None) -> str:
    """What happens where an excluded choice is taken all the same."""
    what = _FAILS.get(failure, "it does not work")
    anywhere = failure in ("slow", "environment", "garbage", "silent_fallback", "memory")
    return what if anywhere or stage is None else f"{what} {_STAGES[stage]}"


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 repair`, `2 repairs`."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def thousands(count: int) -> str:
    """`371,111`."""
    return f"{count:,}"


def sm_name(sm: int | None) -> str:
    """`SM 12.0` for 120."""
    return "SM unknown" if sm is None else f"SM {sm // 10}.{sm % 10}"


def model_name(assessment: Assessment) -> str:
    """What a person calls the model: the last part of its path, a hub id whole."""
    model = redact(assessment.request.model or "no model")
    if "://" in model:
        return shown(model, _NAME_LIMIT)
    path = PurePath(model)
    if len(path.parts) > 2 or model.startswith(("/", ".", "~")):
        return shown(path.name or model, _NAME_LIMIT)
    return shown(model, _NAME_LIMIT)


def machine_name(machine: Machine) -> str:
    """`8 × NVIDIA H200 (SM 9.0, 140.4 GiB)`, or what is there instead of GPUs."""
    if not machine.gpus:
        return (
            "a machine without NVIDIA GPUs" if machine.platform != "cuda" else "GPUs that nobody could read"
        )
    kinds = [
        (len(list(group)), name, sm, memory)
        for (name, sm, memory), group in groupby(
            machine.gpus, key=lambda gpu: (gpu.name, gpu.sm, gpu.memory_bytes)
        )
    ]
    return ", ".join(
        f"{f'{count} × ' if count > 1 else ''}{shown(name, _NAME_LIMIT)} ({_details(name, sm, memory)})"
        for count, name, sm, memory in kinds
    )


def _details(name: str, sm: int | None, memory: int | None) -> str:
    """What decides about a GPU, without what its name already says."""
    said = [] if sm_name(sm) in name else [sm_name(sm)]
    said.append("memory unknown" if memory is None else format_bytes(memory))
    return ", ".join(said)


def software_name(assessment: Assessment) -> str:
    """The versions that decide, each with who spoke."""
    software = assessment.software
    return f"SGLang {_version(software.sglang)}, FlashInfer {_version(software.flashinfer)}"


def _version(package: Package) -> str:
    """`0.5.21 (installed)`."""
    source = {"pinned-by-sglang": "which it pins"}.get(package.source, package.source)
    return f"{shown(package.version or 'of unknown version', 40)} ({source})"


def checkpoint_name(checkpoint: Checkpoint) -> str:
    """What kind of model it is, on one line."""
    said = [shown(checkpoint.architecture, _NAME_LIMIT) or "an architecture without a name"]
    scheme = checkpoint.quantization.scheme
    parts = {
        part: name
        for part, name in checkpoint.quantization.parts.items()
        if name != scheme and part in ("experts", "dense", "attention", "linear_attention", "kv_cache")
    }
    also = ", ".join(f"{name} {part.replace('_', ' ')}" for part, name in parts.items())
    said.append(f"{scheme} ({also})" if also else scheme)
    said.append(f"{checkpoint.attention.kind} attention")
    if checkpoint.moe:
        top = f", {checkpoint.moe.top_k} a token" if checkpoint.moe.top_k else ""
        said.append(f"{checkpoint.moe.experts} experts{top}")
    if checkpoint.weight_bytes is not None:
        said.append(f"{format_bytes(checkpoint.weight_bytes)} of weights")
    return ", ".join(said)


def evidence_line(evidence: Sequence[Evidence], rules: Sequence[str], most: int = 2) -> str:
    """The first references, and the rules they belong to."""
    refs = "; ".join(one.ref for one in evidence[:most])
    more = f" and {len(evidence) - most} more" if len(evidence) > most else ""
    named = f"  [{', '.join(rules)}]" if rules else ""
    return f"{refs}{more}{named}"


def runs(dimension: DimensionVerdict) -> str:
    """What will run in a dimension, in words."""
    effective = dimension.effective
    if effective is None:
        return "off" if dimension.is_switch else "unknown"
    if effective == UNSET:
        return "off" if dimension.is_switch else "not set"
    return effective


def whose(dimension: DimensionVerdict) -> str:
    """Who decided that."""
    if dimension.decision == "pinned":
        return "pinned by you"
    if dimension.decision == "repaired":
        return f"repaired; SGLang would pick {dimension.auto}" if dimension.auto else "repaired"
    if dimension.effective is None and not dimension.is_switch:
        return "SGLang's own choice is not known"
    return "SGLang's own choice"


@dataclass(frozen=True, slots=True)
class Group:
    """Choices of one dimension with the same verdict for the same reason."""

    verdict: str
    choices: tuple[str, ...]
    reason: str
    rules: tuple[str, ...]


def groups(choices: Iterable[ChoiceVerdict]) -> Iterator[Group]:
    """`choices` gathered by verdict and reason: eligible ones, then unknown, then excluded ones."""
    found: dict[tuple[str, str, str | None], list[ChoiceVerdict]] = {}
    for one in choices:
        found.setdefault((one.verdict, one.reason, one.failure), []).append(one)
    for name in ("eligible", "unknown", "excluded"):
        for (verdict, reason, _), alike in found.items():
            if verdict == name:
                names = tuple(one.choice for one in alike)
                yield Group(verdict, names, reason, alike[0].rules[:1])
