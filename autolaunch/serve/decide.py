"""What `serve` decides, in the child of the process that becomes the server: all stages, then one command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from autolaunch.candidates.candidate import ORIGINAL, ORIGINAL_ID
from autolaunch.invocation import Invocation
from autolaunch.launch import attempts
from autolaunch.launch.instructions import orders_for, port_of, value_of, watcher_argv
from autolaunch.launch.report import Decision, Reporter
from autolaunch.launch.watching.orders import DEFAULT_HOST
from autolaunch.race.progress import PREFIX, Progress
from autolaunch.serve import stages, unmeasured
from autolaunch.serve.asked import Asked, Start
from autolaunch.serve.settled import Settled

if TYPE_CHECKING:
    from autolaunch.assessment import Assessment
    from autolaunch.command import Command
    from autolaunch.serve.lookup import Found
    from autolaunch.tune.ground import Ground


def decide(invocation: Invocation, reporter: Reporter) -> Decision:
    """Run every stage and return the command to start."""
    progress = Progress()
    start = stages.begin(invocation, reporter, progress)
    found = None
    if start.may_reuse:
        from autolaunch.serve import by_profile

        found = by_profile.sought(start, progress, reporter)
        settled = by_profile.at_once(start, found, progress)
        if settled is not None:
            return launch(start, settled, reporter)
    asked = stages.ask(start, reporter)
    settled = settle(asked, found, progress, reporter)
    decision = launch(asked, settled, reporter)
    if asked.assessment is None or not invocation.options.wants_document:
        return decision
    return replace(decision, document=document_of(asked.assessment, settled, decision.command))


def document_of(assessment: Assessment, settled: Settled, command: Command) -> str:
    """What a dry run prints for a program."""
    from autolaunch.choose.choose import Choice
    from autolaunch.explain.document import chosen_document, document_text
    from autolaunch.tune.result import profile_json

    choice, kept = settled.choice, settled.kept
    value = chosen_document(assessment, choice or Choice(settled.candidate, settled.reason, {}), command)
    value["profile"] = None if kept is None else profile_json(kept, is_earlier=choice is None)
    return document_text(value)


def launch(start: Start, settled: Settled, reporter: Reporter) -> Decision:
    """The command of what was settled, with its record and its watcher."""
    reporter.stage("record", stages.QUICK_STAGE_LIMIT_S)
    watcher = watch(start, settled, reporter)
    command = start.invocation.original.with_candidate(settled.candidate)
    return Decision(command, settled.line, watch=watcher)


def settle(asked: Asked, found: Found | None, progress: Progress, reporter: Reporter) -> Settled:
    """Who is launched: by a profile, by a race, or without a measurement."""
    options = asked.invocation.options
    if found is not None and found.kept is not None:
        from autolaunch.serve import by_profile

        word, name = found.word(options.stale), found.kept.name
        if word == "take":
            settled = by_profile.reused(asked, found.kept, progress)
            if settled is not None:
                return settled
        if word == "fail":
            raise found.error
        if word == "table":
            return unraced(asked, f"the profile {name} is stale", progress)
    reporter.stage("slice", stages.CHECKPOINT_LIMIT_S)
    ground = stages.ground_of(asked)
    reporter.stage("hold", stages.QUICK_STAGE_LIMIT_S)
    reason = stages.reason_not_to_race(asked, ground)
    if reason is not None:
        return unraced(asked, reason, progress)
    return raced(asked, ground, found, progress, reporter)


def unraced(asked: Asked, reason: str, progress: Progress) -> Settled:
    """At once, with what the table repairs; nothing is measured, for `reason`."""
    assessment = asked.assessment
    if assessment is None or not asked.on_gpus:
        return Settled(ORIGINAL, reason, f"{PREFIX}launching the original command: {reason}")
    candidate, why_not = unmeasured.choose_unmeasured(assessment, asked.past)
    mode = "the original command" if candidate.id == ORIGINAL_ID else f"with {candidate.label}"
    progress.say(f"launching {mode} at once, nothing is measured: {reason}")
    unmeasured.say(progress, assessment, candidate)
    if why_not:
        progress.say(f"the table's repairs are left out: {why_not}")
    if assessment.machine.refusal is None:
        unmeasured.say_not_raced(progress, assessment.field.challengers)
    return Settled(candidate, why_not or reason)


def raced(
    asked: Asked, ground: Ground | None, found: Found | None, progress: Progress, reporter: Reporter
) -> Settled:
    """Who won; the table's word where no slice could be made."""
    from autolaunch.slice.problems import SliceError
    from autolaunch.tune import measuring

    if asked.assessment is not None:
        unmeasured.say(progress, asked.assessment, ORIGINAL)
    reporter.stage("record", stages.QUICK_STAGE_LIMIT_S)
    ticket = begin(asked, reporter)
    if ticket is not None:
        attempts.settle(ticket)
    tune = asked.invocation.options.tune
    why = "this configuration has not been measured here" if tune == "auto" else f"`--tune {tune}` says so"
    if tune == "auto" and found is not None and found.word(asked.invocation.options.stale) == "race":
        why = "`--stale retune` says so"
    progress.say(
        f"racing the original command and {len(asked.field.challengers)} others on {asked.machine.platform}, "
        f"as {why}; first Ctrl-C launches the best so far"
    )
    try:
        measured = measuring.measure(asked, ground, progress, reporter)
    except SliceError as error:
        return fallen_back(asked, "; ".join((error.what, *error.because)), progress, ticket)
    choice, kept = measured.choice, None
    if not measured.tells:
        return fallen_back(asked, choice.reason, progress, ticket)
    if not asked.invocation.options.dry_run:
        kept = measuring.keep(asked, measured, progress, "serve", None if found is None else found.now)
    line = f"{PREFIX}launching {choice.candidate.label}: {choice.reason}"
    return Settled(choice.candidate, choice.reason, line, choice, ticket, kept)


def fallen_back(asked: Asked, reason: str, progress: Progress, ticket: attempts.Ticket | None) -> Settled:
    """After a race that showed nothing: what is launched where none is run."""
    candidate, why_not = ORIGINAL, ""
    if asked.on_gpus and asked.assessment is not None:
        candidate, why_not = unmeasured.choose_unmeasured(asked.assessment, asked.past)
        unmeasured.say_repairs(progress, asked.assessment, candidate)
    if why_not:
        progress.say(f"the table's repairs are left out: {why_not}")
    line = f"{PREFIX}launching {candidate.label}, nothing could be measured: {reason}"
    return Settled(candidate, why_not or reason, line, ticket=ticket)


def watch(start: Start, settled: Settled, reporter: Reporter) -> tuple[str, ...] | None:
    """The argv of the watcher of this start, where its end tells something; else None.

    That is a start after a race, one by a profile, one with changed flags, and one after failed starts: once
    it is healthy, races go on.
    """
    ticket = settled.ticket
    tells = settled.candidate.id != ORIGINAL_ID or settled.kept is not None or start.past.no_race
    if ticket is None and tells:
        ticket = begin(start, reporter)
    return None if ticket is None else record(start, settled, ticket)


def begin(start: Start, reporter: Reporter) -> attempts.Ticket | None:
    """Open the record of this start; None where nobody could complete it.

    A dry run starts nothing, and a server on port 0 is healthy where no watcher finds it.
    """
    invocation, pins = start.invocation, start.understood.request.pins
    if invocation.options.dry_run or port_of(pins) == 0:
        return None
    return attempts.begin(
        invocation.folders.attempts,
        invocation.original,
        pid=reporter.top_pid,
        host=value_of(pins, "host") or DEFAULT_HOST,
        port=port_of(pins),
        verify=invocation.options.verify,
    )


def record(start: Start, settled: Settled, ticket: attempts.Ticket) -> tuple[str, ...]:
    """Stage `record`: write down what is launched, and return the argv of the watcher that completes it."""
    invocation, kept, candidate = start.invocation, settled.kept, settled.candidate
    name, setting = None, None
    store: tuple[Path, ...] = ()
    if kept is not None:
        from autolaunch.serve import by_profile, lookup

        store = lookup.store_of(start).folders
        name = by_profile.handle_of(kept, store)
        if not isinstance(start, Asked):  # the profile fits wholly, so what was true then is
            setting = by_profile.setting_before(start, kept, candidate)
    if isinstance(start, Asked):
        from autolaunch.tune.learning import launched

        setting = launched(start, candidate)
    attempts.record_choice(ticket, invocation.original, candidate, profile=name, setting=setting)
    understood = start.understood
    orders = orders_for(
        understood.request.pins,
        candidate,
        catalogue=understood.catalogue,
        verify=invocation.options.verify,
        store=store,
        profile=name,
    )
    return watcher_argv(ticket, orders)
