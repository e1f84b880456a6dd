"""The stages of a tuning, which run in the guarded child of `tune`: read, look up, race, keep, report."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.choose.choose import Choice
from autolaunch.errors import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_NO_CANDIDATE,
    AutolaunchError,
    render_message,
)
from autolaunch.explain.document import document_text
from autolaunch.explain.screen import Screen
from autolaunch.invocation import Invocation
from autolaunch.launch import attempts
from autolaunch.launch.report import Reporter
from autolaunch.options.options import ServeOptions
from autolaunch.profiles.kept import Kept
from autolaunch.profiles.parts import candidate_of
from autolaunch.race.progress import Progress
from autolaunch.race.result import RaceResult
from autolaunch.serve import launchable, lookup, stages, unmeasured
from autolaunch.serve.asked import Asked
from autolaunch.serve.lookup import Found
from autolaunch.tune import measuring
from autolaunch.tune.measuring import Measured
from autolaunch.tune.result import Tuned, document_of
from autolaunch.tune.text import lines_of

EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """What the user asked of `autolaunch tune`."""

    serve: ServeOptions
    """What it shares with `serve`; `--tune` there is how deep to race."""
    if_missing: bool = False
    format: str = "table"


@dataclass(frozen=True, slots=True)
class Report:
    """What the child hands to the command: the text for stdout, an error if there is one, the exit code."""

    text: str
    exit_code: int = EXIT_DONE
    error: str = ""

    def to_json(self) -> str:
        """As it travels through the report pipe."""
        return json.dumps({"text": self.text, "exit_code": self.exit_code, "error": self.error})

    @classmethod
    def from_json(cls, text: str) -> Report:
        """The report that `to_json` wrote."""
        row = json.loads(text)
        return cls(row["text"], row["exit_code"], row["error"])


def run(invocation: Invocation, options: TuneOptions, screen: Screen, reporter: Reporter) -> Report:
    """Every stage, and the report of what came of them."""
    progress = Progress()
    # What runs before every start must not let a choice fail at every second one.
    start = stages.begin(invocation, reporter, progress, ahead=True, anew=not options.if_missing)
    asked = stages.ask(start, reporter, ahead=True)
    tuned = untried(asked)
    hopeless = tuned.assessment.hopeless
    if hopeless is not None:
        text = render(replace(tuned, choice=Choice(ORIGINAL, hopeless.text, {})), options, screen)
        error = render_message("error", hopeless.text, hopeless.because, hint=hopeless.hint)
        return Report(text, EXIT_NO_CANDIDATE, error)
    now = None
    if options.if_missing:
        reporter.stage("profile", stages.QUICK_STAGE_LIMIT_S)
        found = lookup.look(asked, lookup.store_of(asked), progress, exact=True)
        now = found.now
        kept = already(asked, found, options, progress)
        if kept is not None:
            progress.say(f"nothing is measured: {lookup.words_of(kept)}: {kept.profile.reason}")
            choice = Choice(candidate_of(kept.profile.chosen), kept.profile.reason, {})
            there = replace(tuned, choice=choice, kept=kept, is_earlier=True)
            return Report(render(there, options, screen))
    if not asked.field.challengers:
        progress.say("nothing is measured: there is nothing to decide")
        return Report(render(tuned, options, screen))
    reporter.stage("slice", stages.CHECKPOINT_LIMIT_S)
    ground = stages.ground_of(asked)
    reporter.stage("hold", stages.QUICK_STAGE_LIMIT_S)
    reason = stages.reason_not_to_race(asked, ground)
    if reason is not None:
        raise AutolaunchError("nothing can be measured here", because=(reason,))
    unmeasured.say(progress, tuned.assessment, ORIGINAL)
    progress.say(
        f"racing the original command and {len(asked.field.challengers)} others on {asked.machine.platform}; "
        "first Ctrl-C reports the best so far"
    )
    measured = measuring.measure(asked, ground, progress, reporter)
    reporter.stage("report", stages.QUICK_STAGE_LIMIT_S)
    kept = measuring.keep(asked, measured, progress, "tune", now)
    if not options.if_missing:
        forgive(asked, measured.choice.candidate, progress)
    tuned = replace(tuned_of(asked, measured), kept=kept)
    return Report(render(tuned, options, screen), *ending(tuned))


def forgive(asked: Asked, choice: Candidate, progress: Progress) -> None:
    """Let `serve` launch `choice` again, whatever servers with it did: it was measured anew since."""
    invocation = asked.invocation
    try:
        attempts.forgive(invocation.folders.attempts, invocation.original, choice)
    except OSError as error:
        what = f"`{choice.label}` stays forbidden to `serve`, if a server with it ended too early"
        progress.block(render_message("warning", what, (error.strerror or str(error),)))


def already(asked: Asked, found: Found, options: TuneOptions, progress: Progress) -> Kept | None:
    """The profile that makes a race needless; AutolaunchError where it is stale and `--stale fail` was said.

    One that is quarantined or suspect does not, and with `--full` none that only a slice was measured for.
    """
    kept, stale = found.kept, options.serve.stale
    word = found.word(stale)
    if kept is None or word == "nothing":
        return None
    lookup.say_differences(found, "retune" if stale == "table" else stale, progress)
    if word == "fail":
        raise found.error
    if word != "take":
        return None
    why = lookup.status_words(kept.profile)
    if why is None and options.serve.tune == "full" and kept.profile.measured.depth != "whole":
        why = "only a slice was measured for it, and `--full` was asked for"
    picked = launchable.as_typed(asked, kept.profile.chosen)
    why = why or launchable.why_not(asked, picked) or launchable.excluded_now(asked, picked)
    if why is not None:
        progress.say(f"the profile {kept.name} does not do: {why}")
        return None
    return kept


def untried(asked: Asked) -> Tuned:
    """What was asked, with nothing tried."""
    result = RaceResult((), asked.field.dropped, "done", 0.0)
    choice = Choice(ORIGINAL, "there is nothing to decide", {})
    return Tuned(asked.table, result, choice, asked.workload, asked.objective)


def tuned_of(asked: Asked, measured: Measured) -> Tuned:
    """What was asked together with what came of it."""
    before = measured.on_slice
    return Tuned(
        assessment=asked.table,
        result=measured.result,
        choice=measured.choice,
        workload=measured.workload,
        objective=asked.objective,
        on_slice=None if before is None else tuned_of(asked, before),
    )


def ending(tuned: Tuned) -> tuple[int, str]:
    """The exit code of a race, and the error where it came to nothing."""
    if tuned.measured:
        return EXIT_DONE, ""
    if tuned.result.ended == "interrupted":
        return EXIT_INTERRUPTED, render_message("error", "interrupted before anything was measured")
    if tuned.result.ended == "budget" or not tuned.result.trials:
        hint = "give it more time with `--budget TIME`"
        return EXIT_FAILED, render_message(
            "error", "the budget ended before anything was measured", hint=hint
        )
    failed = len(tuned.result.trials)
    because = (tuned.choice.reason,)
    return EXIT_NO_CANDIDATE, render_message("error", f"all {failed} candidates failed", because)


def render(tuned: Tuned, options: TuneOptions, screen: Screen) -> str:
    """The report in the form that was asked for."""
    if options.format == "json":
        return document_text(document_of(tuned))
    return screen.render(lines_of(tuned))
