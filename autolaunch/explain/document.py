"""An Assessment as the JSON object `autolaunch.explain/1`, which other tools read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from autolaunch.assessment import NOT_LOOKED_INTO, Assessment
from autolaunch.candidates.candidate import Candidate
from autolaunch.checkpoint.quantization import method_in
from autolaunch.command import Command
from autolaunch.detect.gpus import Gpu
from autolaunch.detect.software import Package
from autolaunch.explain.words import redacted_env
from autolaunch.redact import redact, redact_argv
from autolaunch.request.command_line import Notice

if TYPE_CHECKING:
    from autolaunch.choose.choose import Choice

SCHEMA: Final = "autolaunch.explain/1"


def document(assessment: Assessment) -> dict[str, Any]:
    """The whole object, in the order in which it is documented; secrets on the command line are hidden."""
    return {
        "schema": SCHEMA,
        "software": {
            "sglang": _package(assessment.software.sglang),
            "flashinfer": _package(assessment.software.flashinfer),
        },
        "machine": {
            "source": assessment.machine.source,
            "gpus": [_gpu(gpu) for gpu in assessment.machine.gpus],
        },
        "model": _model(assessment),
        "mtp": _mtp(assessment),
        "memory": assessment.memory.to_json(),
        "dimensions": [one.to_json() for one in assessment.evaluation.dimensions],
        "candidates": [_candidate(one) for one in assessment.field.candidates],
        "dropped": [one.to_json() for one in assessment.field.dropped],
        "warnings": [one.to_json() for one in assessment.warnings],
        "notices": [_notice(one) for one in assessment.notices],
        "command": list(redact_argv(assessment.command.argv)),
        "env": redacted_env({**assessment.pasted_env, **dict(assessment.command.env)}),
    }


def chosen_document(assessment: Assessment, choice: Choice, command: Command) -> dict[str, Any]:
    """The object that `serve --dry-run --format json` prints: with what was chosen and what would be exec'ed.

    A dimension of which choices were raced says so.
    """
    value = document(assessment)
    raced = {one.dimension for one in assessment.field.candidates if one.id in choice.gains}
    for dimension in value["dimensions"]:
        if dimension["flag"] in raced and dimension["decision"] == "kept":
            dimension["decision"] = "raced"
    candidate = choice.candidate
    value["chosen"] = {**_candidate(candidate), "env": dict(candidate.env), "reason": choice.reason}
    value["command"], value["env"] = list(command.argv), dict(command.env)
    return value


def document_text(value: Mapping[str, Any]) -> str:
    """The object as it is printed: a line for each of its parts, and for each item of a list of objects.

    ASCII, so that nothing in it can steer a terminal.
    """
    return "{\n" + ",\n".join(f"{json.dumps(key)}: {_part(part)}" for key, part in value.items()) + "\n}\n"


def _part(part: Any) -> str:
    """One value of the object; without indentation inside, which takes ten times as long."""
    if isinstance(part, list) and part and isinstance(part[0], dict):
        return "[\n" + ",\n".join(f" {json.dumps(item)}" for item in part) + "\n]"
    return json.dumps(part)


def _package(package: Package) -> dict[str, Any]:
    """One version and who spoke."""
    return {"version": package.version, "source": package.source}


def _gpu(gpu: Gpu) -> dict[str, Any]:
    """One GPU, with what decides about kernels."""
    return {
        "index": gpu.index,
        "name": gpu.name,
        "sm": gpu.sm,
        "sm_count": gpu.sm_count,
        "memory_bytes": gpu.memory_bytes,
    }


def _model(assessment: Assessment) -> dict[str, Any]:
    """What the checkpoint is; nulls where it was not looked into."""
    checkpoint = assessment.checkpoint
    if checkpoint is None:
        why = assessment.not_inspected
        return {
            "path": redact(assessment.request.model or ""),
            "architecture": None,
            "attention": None,
            "moe": None,
            "quantization": {"scheme": None, "method": None, "parts": {}},
            "weight_bytes": None,
            "not_inspected": why and {"kind": why.kind, "reason": why.reason},
        }
    stored, moe = checkpoint.quantization, checkpoint.moe
    names = (checkpoint.architecture,) if checkpoint.architecture else ()
    return {
        "path": redact(checkpoint.path),
        "architecture": checkpoint.architecture or None,
        "attention": checkpoint.attention.kind,
        "moe": moe and {"experts": moe.experts, "top_k": moe.top_k},
        "quantization": {
            "scheme": stored.scheme,
            "method": method_in(stored, assessment.software.sglang.version or "", names),
            "parts": dict(stored.parts),
        },
        "weight_bytes": checkpoint.weight_bytes,
        "source": checkpoint.source,
        "notes": list(checkpoint.notes),
    }


def _mtp(assessment: Assessment) -> dict[str, Any]:
    """What is known of heads that predict several tokens; `present` is null when no tensor list was read.

    `usable` heads are whole, and this SGLang drafts with such; `nextn` says whether that is suggested here.
    """
    checkpoint, nextn = assessment.checkpoint, assessment.nextn
    if checkpoint is None:
        return {
            "announced": None,
            "present": None,
            "tensors": None,
            "experts": None,
            "prefix": None,
            "usable": False,
            "reason": NOT_LOOKED_INTO,
            "nextn": nextn.to_json(),
        }
    mtp = checkpoint.mtp
    return {
        "announced": mtp.announced,
        "present": mtp.present,
        "tensors": mtp.tensors,
        "experts": mtp.experts,
        "prefix": mtp.prefix,
        "usable": mtp.usable and nextn.in_version is not False,
        "reason": nextn.reason if mtp.usable and nextn.in_version is False else mtp.reason,
        "family": mtp.family,
        "layers": mtp.layers,
        "dtype": mtp.dtype,
        "nextn": nextn.to_json(),
    }


def _candidate(one: Candidate) -> dict[str, Any]:
    """One full set of launch options."""
    found: dict[str, Any] = {"id": one.id, "flags": list(one.flags), "origin": one.origin}
    if one.env:
        found["env"] = dict(one.env)
    return found


def _notice(notice: Notice) -> Mapping[str, Any]:
    """Something to know of that is no property of what will run."""
    return {"id": notice.id, "text": notice.text, "because": list(notice.because), "hint": notice.hint}
