"""What `explain` does: plan, render, exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from autolaunch.assessment import Assessment, Wishes
from autolaunch.detect.plan import Planned
from autolaunch.errors import EXIT_DONE, EXIT_FAILED, AutolaunchError, NoCandidateError
from autolaunch.explain.document import document, document_text
from autolaunch.explain.plan import Question, plan
from autolaunch.explain.screen import emit, screen_of
from autolaunch.explain.why import Why, answers, lines_of_why
from autolaunch.folders import user_folders
from autolaunch.options.options import ExplainOptions
from autolaunch.profiles.failures import recall
from autolaunch.profiles.store import Store


def explain(tokens: tuple[str, ...], options: ExplainOptions) -> int:
    """Print what is known of the start that `tokens` describe.

    AutolaunchError for what cannot be read; NoCandidateError, after everything was printed, when nothing is
    left that could work.
    """
    assessment = plan(question_of(tokens, options, os.environ))
    if assessment.machine.refusal is not None:
        refusal = assessment.machine.refusal
        raise AutolaunchError(refusal.text, because=refusal.because, hint=refusal.hint)
    found = answers(assessment, options.why)
    if not emit(_render(assessment, options.format, found), sys.stdout):
        return EXIT_FAILED
    hopeless = assessment.hopeless
    if hopeless is not None:
        raise NoCandidateError(hopeless.text, because=hopeless.because, hint=hopeless.hint)
    return EXIT_DONE


def question_of(tokens: tuple[str, ...], options: ExplainOptions, environ: Mapping[str, str]) -> Question:
    """What was asked, with everything around it."""
    folders = user_folders(environ)
    return Question(
        tokens=tokens,
        planned=Planned(
            gpu=options.for_gpu,
            sm=options.for_sm,
            gpus=options.for_gpus,
            machine=Path(options.for_machine) if options.for_machine is not None else None,
            sglang=options.for_sglang,
            flashinfer=options.for_flashinfer,
        ),
        wishes=Wishes(admit=options.admit, lossy=options.lossy, nextn=options.nextn),
        python=options.python,
        environ=dict(environ),
        cwd=Path.cwd(),
        cache=folders.cache,
        learned=recall(Store.of(options.profile_dirs, folders).folders),
    )


def _render(assessment: Assessment, form: str, found: tuple[Why, ...]) -> str:
    """The text on stdout; with `--why`, for a person, the answers alone."""
    if form == "json":
        value = document(assessment)
        if found:
            value["why"] = [why.to_json() for why in found]
        return document_text(value)
    if form == "markdown":
        from autolaunch.explain.markdown import markdown_of, markdown_of_lines

        return markdown_of_lines(lines_of_why(assessment, found)) if found else markdown_of(assessment)
    from autolaunch.explain.text import lines_of

    screen = screen_of(sys.stdout, os.environ)
    lines = lines_of_why(assessment, found) if found else lines_of(assessment, brief=screen.width is not None)
    return screen.render(lines)
