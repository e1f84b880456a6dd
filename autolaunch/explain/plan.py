"""What was typed after `explain` into an Assessment: which SGLang, which machine, which model.

SGLang need not be installed, nor the machine be here: `--for-…` says what to plan for, and without any the
newest known SGLang is assumed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from autolaunch.assessment import Assessment, Wishes, assess
from autolaunch.checkpoint.checkpoint import Checkpoint, inspect
from autolaunch.checkpoint.problems import NotInspected
from autolaunch.checkpoint.source import read_checkpoint
from autolaunch.detect.machine import Machine, detect_machine
from autolaunch.detect.plan import Planned, machine_for, software_in
from autolaunch.detect.ranks import ranks
from autolaunch.detect.software import Package, Software, detect_software
from autolaunch.errors import SglangNotFoundError, UsageError
from autolaunch.explain.recipe import read_recipe
from autolaunch.profiles.failed import Recalled
from autolaunch.request.catalogue import bundled_catalogue, bundled_versions, load_catalogue
from autolaunch.request.command_line import Notice, Request, read_request
from autolaunch.request.flags import FlagCatalogue
from autolaunch.request.interpreter import Interpreter, find_interpreter

_NO_GPU = Notice(
    "machine.none",
    "no NVIDIA GPU was found, so what depends on the GPU is unknown",
    hint="plan for one that is not here: `--for-gpu NAME` or `--for-sm N`, with `--for-gpus K`",
)
_NOWHERE = Path("/nonexistent/sglang")


@dataclass(frozen=True, slots=True)
class Question:
    """Everything `explain` was asked."""

    tokens: tuple[str, ...]
    """MODEL and SGLang's flags, and behind `--` a pasted command line."""
    planned: Planned
    wishes: Wishes
    python: str | None
    environ: Mapping[str, str]
    cwd: Path
    cache: Path
    learned: Recalled = field(default_factory=Recalled)
    """What failed here before, in whatever setting."""


def plan(question: Question) -> Assessment:
    """The assessment of the start that was asked about; AutolaunchError for what cannot be read."""
    recipe = read_recipe(question.tokens)
    environ = {**question.environ, **recipe.env}
    interpreter, found = _interpreter(question)
    software, notices = _software(question.planned, interpreter)
    catalogue, assumed = _catalogue(software, interpreter, question.cache)
    request = read_request(
        recipe.tokens,
        "serve",
        interpreter or Interpreter("python", _NOWHERE, software.sglang.version or "", "assumed"),
        catalogue,
        question.cwd,
        environ,
    )
    if request.model is None:
        raise UsageError(
            "no model was named",
            hint="for example: `autolaunch explain MODEL --tp 8`, or a pasted line after `--`",
        )
    machine = machine_for(question.planned, lambda: _here(request), ranks=ranks(request))
    if machine.platform == "cuda" and software.sglang.source == "installed":
        software = detect_software(
            interpreter, environ, for_flashinfer=question.planned.flashinfer, for_cuda=True
        )
    assessment = assess(
        request,
        catalogue,
        software,
        machine,
        read_model(request, question.cwd, environ),
        question.wishes,
        environ=environ,
        cache=question.cache,
        learned=question.learned.failures,
    )
    return replace(
        assessment,
        pasted_env=recipe.env,
        planned=question.planned.words,
        notices=(
            *(one for one in request.notices if one.id == "request.config-ignored"),
            *found,
            *notices,
            *assumed,
            *(Notice("failures.unreadable", doubt) for doubt in question.learned.doubts),
            *((_NO_GPU,) if machine.platform != "cuda" and not machine.notes else ()),
            *assessment.notices,
        ),
    )


def read_model(request: Request, cwd: Path, environ: Mapping[str, str]) -> Checkpoint | NotInspected | None:
    """What lies behind the model of `request`; CheckpointError for files that are broken."""
    if request.model is None:
        return None
    raw = read_checkpoint(request.model, cwd=cwd, environ=environ, revision=request.revision)
    return raw if isinstance(raw, NotInspected) else inspect(raw)


def _here(request: Request) -> Machine:
    """The machine at hand, or the kind of it that `--device` names."""
    device = request.pins.get("device")
    return detect_machine(device.values[-1] if device and device.values else None)


def _interpreter(question: Question) -> tuple[Interpreter | None, tuple[Notice, ...]]:
    """The Python that holds SGLang, unless a known version is to be assumed anyway."""
    wanted = question.planned.sglang
    if question.python is None and wanted is not None and wanted.strip().lower() in bundled_versions():
        return None, ()
    try:
        return find_interpreter(question.python, question.environ, question.cwd), ()
    except SglangNotFoundError as error:
        if question.python is not None:
            raise
        if wanted is not None:
            return None, ()
        newest = bundled_versions()[-1]
        return None, (
            Notice(
                "software.sglang-assumed",
                f"SGLang {newest} is assumed, the newest known, because none is installed here",
                error.because[:2],
                hint="name the one that is meant with `--for-sglang V`, or where it is with `--python PATH`",
            ),
        )


def _software(planned: Planned, interpreter: Interpreter | None) -> tuple[Software, tuple[Notice, ...]]:
    """The versions to go by: of `--for-machine FILE` where it has some, else what is here or assumed."""
    from_file = software_in(planned) if planned.sglang is None else None
    if from_file is None:
        return detect_software(
            interpreter,
            for_sglang=planned.sglang,
            for_flashinfer=planned.flashinfer,
            for_cuda=planned.is_elsewhere,
        ), ()
    if planned.flashinfer is not None:
        flashinfer = Package(planned.flashinfer, "assumed", "`--for-flashinfer`")
        from_file = replace(from_file, flashinfer=flashinfer)
    return from_file, ()


def _catalogue(
    software: Software, interpreter: Interpreter | None, cache: Path
) -> tuple[FlagCatalogue, tuple[Notice, ...]]:
    """The flags of the SGLang to go by: read where it is installed, else bundled, else of a near version."""
    wanted = software.sglang.version or ""
    if interpreter is not None and interpreter.version == wanted:
        return load_catalogue(interpreter, cache), ()
    known = bundled_versions()
    if wanted in known:
        return bundled_catalogue(wanted), ()
    older = [one for one in known if _order(one) <= _order(wanted)]
    is_development = not any(_order(wanted))
    near = known[-1] if is_development else older[-1] if older else known[0]
    return bundled_catalogue(near), (
        Notice(
            "request.flags-assumed",
            f"the flags of SGLang {wanted or 'of an unknown version'} are taken to be those of {near}",
            (f"flags are known of {', '.join(known)}",),
        ),
    )


def _order(version: str) -> list[int]:
    """The numbers of a version's release."""
    return [int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3]]
