"""autolaunch's own options, declared once for click, in the order in which the help shows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from autolaunch.options import checks
from autolaunch.options.checks import Lines

F = TypeVar("F", bound=Callable[..., Any])


def _format(text: str, *forms: str) -> Callable[[F], F]:
    """`--format` with the choices `forms`, of which `table` is the default."""
    return click.option(
        "--format",
        type=click.Choice(forms),
        default="table",
        show_default=True,
        envvar="AUTOLAUNCH_FORMAT",
        help=text,
    )


def _for(name: str, metavar: str, text: str, type: type[int] | None = None) -> Callable[[F], F]:  # noqa: A002
    """`--for-NAME`, one of the options that say what to plan for."""
    return click.option(
        f"--for-{name}", type=type, metavar=metavar, envvar=f"AUTOLAUNCH_FOR_{name.upper()}", help=text
    )


_PYTHON = click.option(
    "--python",
    metavar="PATH",
    envvar="AUTOLAUNCH_PYTHON",
    help="The Python, or the environment's folder, that holds SGLang. [default: found]",
)

_WISHES = (
    click.option(
        "--admit",
        type=Lines(),
        callback=checks.admit,
        multiple=True,
        metavar="DIM=CHOICE",
        envvar="AUTOLAUNCH_ADMIT",
        help="Let a choice race that the table excludes, such as `attention-backend=fa3`. Repeatable.",
    ),
    click.option(
        "--lossy",
        is_flag=True,
        envvar="AUTOLAUNCH_LOSSY",
        help="Let choices race that change the precision of the arithmetic.",
    ),
    click.option(
        "--nextn",
        type=click.Choice(["auto", "on", "off"]),
        default="auto",
        show_default=True,
        envvar="AUTOLAUNCH_NEXTN",
        help="The checkpoint's own MTP heads: `auto` suggests or races them, `on` uses them, `off` never.",
    ),
)

_MEASURING = (
    click.option(
        "--budget",
        "budget_s",
        callback=checks.seconds,
        default="3m",
        show_default=True,
        metavar="TIME",
        envvar="AUTOLAUNCH_BUDGET",
        help="Time for the race; an engine that would not be ready in time is not started.",
    ),
    click.option(
        "--workload",
        callback=checks.workload,
        metavar="SHAPE|FILE",
        envvar="AUTOLAUNCH_WORKLOAD",
        help="What to be fast at: `in=1024,out=256,concurrency=32`, or a JSONL file of your prompts, "
        "`concurrency=16,@FILE`.",
    ),
    click.option(
        "--objective",
        type=click.Choice(["throughput", "latency"]),
        envvar="AUTOLAUNCH_OBJECTIVE",
        help="What is better: more output tokens a second, or less time to a whole answer. "
        "[default: throughput]",
    ),
    click.option(
        "--slo",
        callback=checks.slo,
        metavar="CEILINGS",
        envvar="AUTOLAUNCH_SLO",
        help="What 95 in 100 requests must keep, such as `ttft=200ms,tpot=25ms`.",
    ),
    click.option(
        "--candidate",
        "candidates",
        type=Lines(),
        callback=checks.candidates,
        multiple=True,
        metavar="FLAGS",
        envvar="AUTOLAUNCH_CANDIDATE",
        help="Race these SGLang flags too, NAME=VALUE words first where needed. Repeatable.",
    ),
)

_PROFILE_DIR = click.option(
    "--profile-dir",
    "profile_dirs",
    type=checks.Folders(),
    callback=checks.folders,
    multiple=True,
    metavar="DIR",
    envvar="AUTOLAUNCH_PROFILE_DIR",
    help="Keep profiles in DIR. Repeatable: the first that can be written is, the others are only read. "
    "[default: the user's own]",
)

_PROFILES = (
    click.option(
        "--profile",
        metavar="FILE|NAME",
        envvar="AUTOLAUNCH_PROFILE",
        help="Take this profile and no other; `autolaunch profile list` has the names.",
    ),
    _PROFILE_DIR,
    click.option(
        "--stale",
        type=click.Choice(["table", "use", "retune", "fail"]),
        default="table",
        show_default=True,
        envvar="AUTOLAUNCH_STALE",
        help="Where a profile was made with other versions, flags or weights: `table` launches at once with "
        "the table's repairs, `use` takes it, `retune` races, `fail` is an error.",
    ),
    click.option(
        "--verify",
        type=click.Choice(["on", "warn", "off"]),
        default="on",
        show_default=True,
        envvar="AUTOLAUNCH_VERIFY",
        help="Ask the new server a few questions: `on` never chooses one again that answers garbage, "
        "`warn` only says so, `off` asks nothing.",
    ),
)

_SERVE_OPTIONS = (
    click.option(
        "--plain",
        is_flag=True,
        envvar="AUTOLAUNCH_PLAIN",
        help="Start the original command at once; decide nothing.",
    ),
    click.option(
        "--dry-run",
        is_flag=True,
        envvar="AUTOLAUNCH_DRY_RUN",
        help="Print the command instead of starting the server, as the last line of stdout; "
        "`--tune quick` or `full` races first.",
    ),
    click.option(
        "--strict",
        is_flag=True,
        envvar="AUTOLAUNCH_STRICT",
        help="Exit with an error where the original command would be started after a fault in autolaunch.",
    ),
    _PYTHON,
    click.option(
        "--tune",
        type=click.Choice(["auto", "off", "quick", "full"]),
        default="auto",
        show_default=True,
        envvar="AUTOLAUNCH_TUNE",
        help="`auto` races where that is safe, `off` never, `quick` also where `auto` would not, "
        "`full` repeats the final on the whole model.",
    ),
    click.option(
        "--start-deadline",
        "start_deadline_s",
        callback=checks.seconds_or_none,
        metavar="TIME",
        envvar="AUTOLAUNCH_START_DEADLINE",
        help="Time in which the server must answer; `auto` does not race where that would miss it.",
    ),
    *_MEASURING,
    *_PROFILES,
    *_WISHES,
    _format("`json`: what a dry run prints in place of the command, for a program.", "table", "json"),
)

_PLAN_OPTIONS = (
    _for("gpu", "NAME", "Plan for this GPU, such as `H200` or `RTX PRO 6000`, in place of those here."),
    _for("sm", "N", "Plan for a GPU of this compute capability, such as `90` or `12.0`."),
    _for("gpus", "K", "Plan for this many GPUs. [default: as many as the flags ask for]", type=int),
    _for(
        "machine",
        "FILE",
        "Plan for the machine in FILE, which `autolaunch doctor --format json` wrote there.",
    ),
    _for("sglang", "V", "Plan for this version of SGLang, installed or not."),
    _for("flashinfer", "V", "Plan for this version of FlashInfer. [default: the one that SGLang pins]"),
)

_EXPLAIN_OPTIONS = (
    *_PLAN_OPTIONS,
    click.option(
        "--why",
        type=Lines(),
        multiple=True,
        metavar="DIM=CHOICE",
        envvar="AUTOLAUNCH_WHY",
        help="Say why one choice is in or out, such as `fp4-gemm-backend=flashinfer_trtllm`. Repeatable.",
    ),
    *_WISHES,
    _PROFILE_DIR,
    _format(
        "`table` for a person, `json` for a program, `markdown` for an issue or a page.",
        "table",
        "json",
        "markdown",
    ),
    _PYTHON,
)

_DOCTOR_OPTIONS = (
    _PYTHON,
    _format("`table` for a person, `json` for a program and for `--for-machine`.", "table", "json"),
)


def serve_options(function: F) -> F:
    """Declare every option of `autolaunch serve` on a click command."""
    return _declared(_SERVE_OPTIONS, function)


def measuring_options(function: F) -> F:
    """Declare what a race measures and for how long, for every command that races."""
    return _declared(_MEASURING, function)


def profile_dir_option(function: F) -> F:
    """Declare where profiles are kept, for every command that reads or writes some."""
    return _PROFILE_DIR(function)


def explain_options(function: F) -> F:
    """Declare every option of `autolaunch explain` on a click command."""
    return _declared(_EXPLAIN_OPTIONS, function)


def doctor_options(function: F) -> F:
    """Declare every option of `autolaunch doctor` on a click command."""
    return _declared(_DOCTOR_OPTIONS, function)


def _declared(options: Sequence[Callable[[F], F]], function: F) -> F:
    """`function` with `options`, in the order in which the help shows them."""
    for option in reversed(options):
        function = option(function)
    return function
