"""What `tune` does: the stages of `serve` up to the choice, in the foreground, and then a report.

The stages run in the same guarded child as under `serve`, so a fault, a hang or a crash in any of them ends
in an error and leaves no engine.  Exit codes: 0 when something was measured, or a matching result was there;
3 when every candidate failed, or none could work; 1 for anything else that went wrong.

The first Ctrl-C ends the race: what was measured is reported and nothing is kept (130 when nothing was); the
second ends everything at once, as SIGTERM does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from autolaunch.command import Command
from autolaunch.errors import EXIT_FAILED, AutolaunchError, render_message
from autolaunch.explain.screen import emit, screen_of
from autolaunch.folders import user_folders
from autolaunch.invocation import Invocation
from autolaunch.launch.child import Child, Ended
from autolaunch.launch.report import Decision, Fault, Reporter
from autolaunch.launch.signals import LauncherSignals, end_by
from autolaunch.race.progress import Progress
from autolaunch.request.command_line import original_argv, sglang_argv
from autolaunch.request.interpreter import find_interpreter
from autolaunch.serve.serve import working_folder
from autolaunch.tune.report import Report, TuneOptions, run


def tune(tokens: tuple[str, ...], options: TuneOptions) -> int:
    """Race for the start that `tokens` describe and print the report; returns the exit code."""
    cwd = working_folder()
    interpreter = find_interpreter(options.serve.python, os.environ, cwd)
    entry, argv = sglang_argv(tokens, "serve", environ=os.environ, cwd=cwd, package=interpreter.package)
    invocation = Invocation(
        command="serve",
        tokens=tokens,
        options=options.serve,
        interpreter=interpreter,
        original=Command(original_argv(interpreter, entry, argv)),
        environ=dict(os.environ),
        cwd=cwd,
        folders=user_folders(),
    )
    screen = screen_of(sys.stdout, os.environ)

    def decide(reporter: Reporter) -> Decision:
        report = run(invocation, options, screen, reporter)
        return Decision(invocation.original, document=report.to_json())

    outcome = guarded(decide)
    if isinstance(outcome, Fault):
        message = render_message("error", outcome.what, outcome.because, outcome.evidence, outcome.hint)
        Progress().block(message)
        return outcome.exit_code
    report = Report.from_json(outcome.document)
    written = emit(report.text, sys.stdout)
    if report.error:
        Progress().block(report.error)
    return report.exit_code if written else EXIT_FAILED


def guarded(decide: Callable[[Reporter], Decision]) -> Decision | Fault:
    """What `decide` comes to in a child of this process; no engine is left when this returns or ends."""
    signals = LauncherSignals()
    child = Child(signals)
    try:
        signals.hold()
        child.fork(decide, dry_run=True)
        outcome = child.settle(child.wait_for_outcome())
    except Ended as end:
        child.end()
        end_by(end.signal)
    except OSError as error:
        child.end()
        raise AutolaunchError("the race could not be started", because=(str(error),)) from error
    finally:
        signals.release()
    if child.engines_left:
        Progress().block(render_message("warning", "a trial engine has not ended; it may still hold memory"))
    return outcome
