"""What can go wrong, as exceptions that know their exit code and how to speak to a person.

    AutolaunchError                 exit 1
    ├── UsageError                  exit 2   the command line or a file it names is wrong
    ├── SglangNotFoundError         exit 1   no interpreter that holds SGLang
    ├── StageError                  exit 1   a stage of the launcher ended badly (see `--strict`)
    └── NoCandidateError            exit 3   nothing is left to launch

A message has four parts: what happened, `because` lines with facts and values, `evidence`, and one
`hint` with one action.  One sentence has no full stop.
"""

from __future__ import annotations

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NO_CANDIDATE = 3
LONGEST_PART = 2000
"""Characters of one part of a message; what people type can be a hundred times as long."""


class AutolaunchError(Exception):
    """A failure that is explained to the user in one message, without a traceback."""

    exit_code = EXIT_FAILED

    def __init__(
        self,
        what: str,
        *,
        because: tuple[str, ...] = (),
        evidence: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.because = because
        self.evidence = evidence
        self.hint = hint

    def __str__(self) -> str:
        return render_message("error", self.what, self.because, self.evidence, self.hint)


class UsageError(AutolaunchError):
    """The command line, a variable or a file named there cannot be understood."""

    exit_code = EXIT_USAGE


class SglangNotFoundError(AutolaunchError):
    """No interpreter was found that holds an SGLang package."""


class StageError(AutolaunchError):
    """A stage of the launcher failed and `--strict` forbids starting the original command instead."""


class NoCandidateError(AutolaunchError):
    """Every candidate was dropped, each with a stage and a reason."""

    exit_code = EXIT_NO_CANDIDATE


def render_message(
    level: str,
    what: str,
    because: tuple[str, ...] = (),
    evidence: str | None = None,
    hint: str | None = None,
) -> str:
    """Lay out one message of `level` (`error`, `warning`, `note`) as every part of autolaunch prints it."""
    what, because = visible(what), tuple(map(visible, because))
    lines = [f"{level}: {what}"]
    lines += [f"  because {fact}" if n == 0 else f"  and {fact}" for n, fact in enumerate(because)]
    if evidence:
        lines.append(f"  evidence: {visible(evidence)}")
    if hint:
        lines += ["", f"hint: {visible(hint)}"]
    return "\n".join(lines)


def visible(text: str) -> str:
    """`text` as one line of bounded length that a terminal only shows: control characters spelled out.

    What is quoted in a message came from a command line, a file or another program, and may hold anything.
    """
    if len(text) > LONGEST_PART:
        text = text[: LONGEST_PART - 1] + "…"
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)
