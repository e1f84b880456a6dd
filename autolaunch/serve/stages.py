"""The stages before a race, one function each, in the order of the flow; `serve` and `tune` both run them.

They run in a child of the process that was started (see `launch.supervise`), so whatever happens in a stage,
the original command can still be started.  Each stage has a time limit of its own.  What only some starts
need is imported where it is needed: a start that decides nothing must not wait for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from autolaunch.detect.machine import Machine, detect_machine
from autolaunch.errors import UsageError, render_message
from autolaunch.folders import FAILURES, is_there, typed_path
from autolaunch.invocation import Invocation, Understood
from autolaunch.launch import attempts
from autolaunch.launch.report import Reporter
from autolaunch.race.progress import Progress
from autolaunch.request.catalogue import load_catalogue
from autolaunch.request.command_line import read_request
from autolaunch.request.weights import weights_are_local
from autolaunch.serve import unmeasured
from autolaunch.serve.asked import Asked, Start

if TYPE_CHECKING:
    from autolaunch.assessment import Assessment
    from autolaunch.candidates.generate import Field
    from autolaunch.checkpoint.checkpoint import Checkpoint
    from autolaunch.checkpoint.problems import NotInspected
    from autolaunch.profiles.failed import Failed
    from autolaunch.tune.ground import Ground

QUICK_STAGE_LIMIT_S = 20.0
"""For a stage that reads files; a folder on a network that hangs must not keep the server from starting."""
CHECKPOINT_LIMIT_S = 40.0
"""For the checkpoint's JSON and headers; the hub alone may take half of it."""


def begin(
    invocation: Invocation,
    reporter: Reporter,
    progress: Progress,
    *,
    ahead: bool = False,
    anew: bool = False,
) -> Start:
    """The stages before anything is looked up, each within its time.

    `ahead` is for a tuning ahead of any start, `anew` for one that measures also what failed at a start.
    """
    reporter.stage("request", QUICK_STAGE_LIMIT_S)
    understood = read(invocation)
    if ahead and understood.request.model is None:
        raise UsageError("no model was named", hint="for example: `autolaunch tune MODEL --tp 8`")
    for notice in understood.request.notices:
        progress.block(render_message("warning", notice.text, notice.because, notice.evidence, notice.hint))
    reporter.stage("detect", QUICK_STAGE_LIMIT_S)
    past = failed_starts(invocation, ahead=ahead, anew=anew)
    learned = failures_here(invocation, past, progress)
    return Start(invocation, understood, detect(understood), past, learned=learned)


def ask(start: Start, reporter: Reporter, *, ahead: bool = False) -> Asked:
    """The stages up to the field of a race; `ahead` of a start, the table is asked on every machine."""
    invocation, understood = start.invocation, start.understood
    machine, past, learned = start.machine, start.past, start.learned
    assessment = None
    if start.on_gpus or ahead or invocation.options.wants_document:
        reporter.stage("checkpoint", CHECKPOINT_LIMIT_S)
        found = inspect(invocation, understood)
        reporter.stage("table", QUICK_STAGE_LIMIT_S)
        assessment = survey(invocation, understood, machine, found, past, learned)
    reporter.stage("candidates", QUICK_STAGE_LIMIT_S)
    field = field_of(invocation, understood, machine, past, assessment, learned)
    return Asked(invocation, understood, machine, past, field, assessment, learned=learned)


def read(invocation: Invocation) -> Understood:
    """Stage `request`: the user's pins, by the flags of the installed SGLang."""
    catalogue = load_catalogue(invocation.interpreter, invocation.folders.cache)
    request = read_request(
        invocation.tokens,
        invocation.command,
        invocation.interpreter,
        catalogue,
        invocation.cwd,
        invocation.environ,
    )
    return Understood(request, catalogue)


def detect(understood: Understood) -> Machine:
    """Stage `detect`: what this runs on."""
    device = understood.request.pins.get("device")
    return detect_machine(device.values[-1] if device and device.values else None)


def failed_starts(invocation: Invocation, *, ahead: bool = False, anew: bool = False) -> attempts.Fallback:
    """What earlier starts of this command forbid; OSError where their record cannot be read.

    No start that failed keeps a tuning `ahead` from measuring the others, and a record that cannot be read
    says nothing to it; `anew`, it measures all of them once more: a person asks for it.
    """
    if anew:
        return attempts.verdict(())
    try:
        found = attempts.verdict(attempts.history(invocation.folders.attempts, invocation.original))
    except OSError:
        if not ahead:
            raise
        found = attempts.verdict(())
    return replace(found, no_race=False, only_original=False) if ahead else found


def failures_here(invocation: Invocation, past: attempts.Fallback, progress: Progress) -> tuple[Failed, ...]:
    """What failed before with this store, in whatever setting; as good as free where nothing ever did."""
    stores = (invocation.folders.profiles, *map(typed_path, invocation.options.profile_dirs))
    if not past.mistrusted and not any(is_there(store / FAILURES) for store in stores):
        return ()
    from autolaunch.tune.learning import recalled

    return recalled(invocation, past, progress)


def inspect(invocation: Invocation, understood: Understood) -> Checkpoint | NotInspected | None:
    """Stage `checkpoint`: what the model is, from its JSON files and headers."""
    return unmeasured.inspect_model(understood.request, invocation.environ, invocation.cwd)


def survey(
    invocation: Invocation,
    understood: Understood,
    machine: Machine,
    found: Checkpoint | NotInspected | None,
    past: attempts.Fallback,
    learned: tuple[Failed, ...] = (),
) -> Assessment:
    """Stage `table`: what works, what is repaired, what may race."""
    return unmeasured.survey(
        understood.request,
        understood.catalogue,
        machine,
        found,
        invocation.options,
        past,
        environ=invocation.environ,
        cache=invocation.folders.cache,
        learned=learned,
    )


def field_of(
    invocation: Invocation,
    understood: Understood,
    machine: Machine,
    past: attempts.Fallback,
    assessment: Assessment | None = None,
    learned: tuple[Failed, ...] = (),
) -> Field:
    """Stage `candidates`: who may race."""
    if assessment is not None:
        return assessment.field
    from autolaunch.candidates.dimensions import load_choices
    from autolaunch.candidates.generate import generate
    from autolaunch.tune.learning import why_not

    return generate(
        understood.request,
        understood.catalogue,
        machine,
        load_choices(),
        invocation.options.candidates,
        suspects=past.suspects,
        failed=why_not(learned, invocation, understood, machine),
    )


def ground_of(asked: Asked) -> Ground | None:
    """Stage `slice`: what engines on GPUs would load, and how many at once; nothing is written."""
    if asked.assessment is None or not asked.on_gpus or not asked.may_race:
        return None
    from autolaunch.tune.ground import prepare

    invocation = asked.invocation
    return prepare(
        asked.understood.request,
        asked.assessment,
        asked.field,
        asked.workload,
        invocation.environ,
        invocation.cwd,
        invocation.interpreter.version,
    )


def reason_not_to_race(asked: Asked, ground: Ground | None = None) -> str | None:
    """Why this start measures nothing, or None."""
    invocation, request, options = asked.invocation, asked.understood.request, asked.invocation.options
    if asked.past.no_race:
        return asked.past.reason
    if options.budget_s <= 0:
        return "`--budget 0` leaves no time for a race"
    if options.dry_run and options.tune == "auto":
        return "`--dry-run` starts nothing; `--tune quick` races first"
    from autolaunch.race.when import why_not_race

    expected_s = options.budget_s
    if ground is not None:
        company = ground.company
        expected_s = min(expected_s, company.expected_s(len(asked.field.candidates), asked.machine.cores))
    reason = why_not_race(
        request,
        asked.understood.catalogue,
        asked.field,
        options.tune,
        invocation.environ,
        weights_are_local=weights_are_local(request.model, cwd=invocation.cwd, environ=invocation.environ),
        machine=_used(asked) if asked.on_gpus else None,
        deadline_s=options.start_deadline_s,
        expected_s=expected_s,
        too_long=asked.workload.beyond(asked.context_tokens),
    )
    if reason is not None or not asked.on_gpus:
        return reason
    if asked.machine.refusal is not None:
        return asked.machine.refusal.text
    if options.tune == "auto" and ground is not None and ground.plan is None:
        return unmeasured.needs_a_slice(ground.why_whole)
    return None


def _used(asked: Asked) -> Machine:
    """What the start takes of the machine."""
    from autolaunch.detect.ranks import used_gpus

    return used_gpus(asked.understood.request, asked.machine)[0]
