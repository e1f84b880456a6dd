"""What `serve` does on a machine with GPUs before anything is measured: asks the table, and tells it.

Modules are imported where they are used, because a machine without GPUs needs none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.detect.machine import Machine
from autolaunch.errors import render_message
from autolaunch.explain.screen import plain
from autolaunch.launch.attempts import Fallback
from autolaunch.options.options import ServeOptions
from autolaunch.race.progress import Progress
from autolaunch.request.command_line import Notice, Request
from autolaunch.request.flags import FlagCatalogue

if TYPE_CHECKING:
    from autolaunch.assessment import Assessment
    from autolaunch.checkpoint.checkpoint import Checkpoint
    from autolaunch.checkpoint.problems import NotInspected
    from autolaunch.profiles.failed import Failed


def needs_a_slice(why: str) -> str:
    """Why `--tune auto` races nothing where the model cannot be cut."""
    return (
        f"a race would load the whole model once a candidate, as {why}; `--tune quick` does so all the same"
    )


def inspect_model(
    request: Request, environ: Mapping[str, str], cwd: Path
) -> Checkpoint | NotInspected | None:
    """What lies behind the model; CheckpointError for files that are broken."""
    from autolaunch.explain.plan import read_model

    return read_model(request, cwd, environ)


def survey(
    request: Request,
    catalogue: FlagCatalogue,
    machine: Machine,
    found: Checkpoint | NotInspected | None,
    options: ServeOptions,
    past: Fallback,
    *,
    environ: Mapping[str, str],
    cache: Path,
    learned: tuple[Failed, ...] = (),
) -> Assessment:
    """What the table says of this start, and what failed here before."""
    from autolaunch.assessment import Wishes, assess
    from autolaunch.detect.software import detect_software

    concurrency = options.workload.concurrency if options.workload is not None else None
    wishes = Wishes(options.admit, options.lossy, options.nextn, options.candidates, concurrency)
    software = detect_software(request.interpreter, environ, for_cuda=machine.platform == "cuda")
    return assess(
        request,
        catalogue,
        software,
        machine,
        found,
        wishes,
        environ=environ,
        cache=cache,
        suspects=past.suspects,
        learned=learned,
    )


def choose_unmeasured(assessment: Assessment, past: Fallback) -> tuple[Candidate, str]:
    """The candidate to launch where nothing is measured, and why not the table's; empty where it is."""
    from autolaunch.launch.breaker import fall_back

    return fall_back(past, [assessment.choice])


def say(progress: Progress, assessment: Assessment, choice: Candidate) -> None:
    """What a person should know before the server starts: repairs, warnings, notes."""
    say_repairs(progress, assessment, choice)
    for warning in assessment.warnings:
        if warning.id.startswith("request."):
            continue  # said already, when the command line was read
        _notice(progress, "warning", warning.notice())
    if assessment.not_inspected is not None:
        why = assessment.not_inspected
        _block(
            progress, "note", f"`{why.model}` is not looked into: {why.reason}", why.because, None, why.hint
        )
    for notice in assessment.notices:
        _notice(progress, "warning" if notice.id.startswith("machine.") else "note", notice)
    nextn = assessment.nextn
    if nextn.suggested and choice.choice != "NEXTN":
        gain = (nextn.gain,) if nextn.gain else ()
        flags = " ".join(nextn.flags)
        _block(progress, "note", f"the checkpoint's own MTP heads are not used: {nextn.reason}", gain, None,
               f"`--nextn on` adds `{flags}`")  # fmt: skip


def say_repairs(progress: Progress, assessment: Assessment, choice: Candidate) -> None:
    """What the table changes, where that is launched."""
    if choice.id == ORIGINAL.id:
        return
    for repair in assessment.evaluation.repairs:
        words = " ".join([*(f"{name}={value}" for name, value in repair.env), *repair.tokens])
        refs = "; ".join(one.ref for one in repair.evidence[:2])
        what = f"`{words}` in place of SGLang's own `{repair.replaces}`"
        _block(progress, "repair", what, repair.because, f"{refs}  [{', '.join(repair.rules)}]")


def say_not_raced(progress: Progress, field: tuple[Candidate, ...]) -> None:
    """The candidates that a race would try."""
    if field:
        progress.block(
            "\n".join(
                [
                    "not raced; `--tune quick` would try:",
                    *(f"  {one.id:<3} {plain(one.label)}" for one in field),
                ]
            )
        )


def _notice(progress: Progress, level: str, notice: Notice) -> None:
    """One notice in four parts."""
    _block(progress, level, notice.text, notice.because, notice.evidence, notice.hint)


def _block(
    progress: Progress,
    level: str,
    what: str,
    because: tuple[str, ...] = (),
    evidence: str | None = None,
    hint: str | None = None,
) -> None:
    """A message whose parts may come from a checkpoint, without what a terminal would obey."""
    progress.block(
        render_message(
            level,
            plain(what),
            tuple(map(plain, because)),
            None if evidence is None else plain(evidence),
            None if hint is None else plain(hint),
        )
    )
