"""The commands: what is typed, what is run, which exit code; all work is done elsewhere."""

from __future__ import annotations

import os
import sys
from copy import copy
from typing import Any

import click

from autolaunch import __version__
from autolaunch.errors import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, AutolaunchError, render_message, visible
from autolaunch.explain.screen import emit, wants_colour
from autolaunch.launch.execute import silence
from autolaunch.options.declarations import doctor_options, explain_options, serve_options
from autolaunch.options.options import ExplainOptions, ServeOptions, split_own
from autolaunch.profiles.cli import profile_group
from autolaunch.redact import redact

SGLANG_TOKENS = "autolaunch.sglang_tokens"


class PassThroughCommand(click.Command):
    """A command that keeps the options it declares and leaves every other token, in order, to SGLang."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split `args` before click sees them; SGLang's go to `ctx.meta`."""
        own, ctx.meta[SGLANG_TOKENS] = split_own(args, self.get_params(ctx))
        return super().parse_args(ctx, own)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage line names SGLang's part too."""
        return ["MODEL", "[SGLANG FLAGS]", "[OPTIONS]"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="autolaunch", message="%(prog)s %(version)s")
def autolaunch() -> None:
    """Launch SGLang with the backends that work, and win, on the GPUs at hand."""


@autolaunch.command(cls=PassThroughCommand)
@serve_options
@click.pass_context
def serve(ctx: click.Context, /, **options: Any) -> None:
    """Start an SGLang server with the fastest correct flags.

    Replaces `python -m sglang.launch_server --model-path MODEL` and `sglang serve MODEL`: every flag of
    SGLang's passes through unchanged, and one that you set is never changed.  The process becomes the
    server.
    """
    from autolaunch.serve.serve import serve as run

    ctx.exit(run("serve", tuple(ctx.meta[SGLANG_TOKENS]), ServeOptions(**options)))


@autolaunch.command(cls=PassThroughCommand)
@explain_options
@click.pass_context
def explain(ctx: click.Context, /, **options: Any) -> None:
    """Say which choices work for a model on a machine, and why.

    Takes what `serve` takes, or behind `--` a whole pasted line such as `python -m sglang.launch_server …`
    or `sglang serve …`.  Neither SGLang nor a GPU need be here.
    """
    from autolaunch.explain.explain import explain as run

    ctx.exit(run(tuple(ctx.meta[SGLANG_TOKENS]), ExplainOptions(**options)))


_SHARED_WITH_TUNE = frozenset(
    {
        *("python", "budget_s", "candidates", "admit", "lossy", "nextn", "workload", "objective", "slo"),
        *("profile_dirs", "stale"),
    }
)
_TUNE_OPTIONS = (
    click.Option(
        ["--if-missing"],
        is_flag=True,
        envvar="AUTOLAUNCH_IF_MISSING",
        help="Do nothing where a profile of the same flags, model, GPUs and versions is kept already.",
    ),
    click.Option(
        ["--full"],
        is_flag=True,
        envvar="AUTOLAUNCH_FULL",
        help="Repeat the final on the whole model.",
    ),
    click.Option(
        ["--format"],
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        envvar="AUTOLAUNCH_FORMAT",
        help="`table` for a person, `json` for a program.",
    ),
)


def _for_tune(option: click.Parameter) -> click.Parameter:
    """An option of `serve` as `tune` has it: nobody waits for a server, so the race may take longer."""
    if option.name == "budget_s":
        option = copy(option)
        option.default = "10m"
    elif option.name == "stale" and isinstance(option, click.Option):
        option = copy(option)
        option.help = (
            "With `--if-missing`, where a profile was made with other versions, flags or weights: `table` "
            "and `retune` race, `use` does nothing, `fail` is an error."
        )
    return option


@autolaunch.command(
    cls=PassThroughCommand,
    params=[*_TUNE_OPTIONS, *(_for_tune(one) for one in serve.params if one.name in _SHARED_WITH_TUNE)],
)
@click.pass_context
def tune(ctx: click.Context, /, if_missing: bool, full: bool, format: str, **shared: Any) -> None:  # noqa: A002
    """Race as `serve` would, print who won and why, start no server, and keep the result for `serve`.

    Takes what `serve` takes.  For a job or an init step: `tune --if-missing` does nothing the second time.
    """
    from autolaunch.tune.report import TuneOptions
    from autolaunch.tune.tune import tune as run

    options = ServeOptions(**shared, tune="full" if full else "quick")
    ctx.exit(run(tuple(ctx.meta[SGLANG_TOKENS]), TuneOptions(options, if_missing, format)))


@autolaunch.command()
@doctor_options
@click.pass_context
def doctor(ctx: click.Context, /, python: str | None, format: str) -> None:  # noqa: A002 - the option's name
    """Say what was found on this machine, by which source, what is missing, and what mends it."""
    from autolaunch.doctor import doctor as look

    report = look.run(python)
    if format == "json":
        text = look.render_json(report)
    else:
        text = look.render_table(report, colour=wants_colour(sys.stdout, os.environ))
    ctx.exit(report.exit_code if emit(f"{text}\n", sys.stdout) else EXIT_FAILED)


@autolaunch.command()
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="The server's port; otherwise that of the server that was started last.",
)
@click.option("--host", help="Where a server is asked of which nothing is recorded.  [default: 127.0.0.1]")
@click.option(
    "--format",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    envvar="AUTOLAUNCH_FORMAT",
    help="`table` for a person, `json` for a program.",
)
@click.pass_context
def ready(ctx: click.Context, /, port: int | None, host: str | None, format: str) -> None:  # noqa: A002
    """Say whether a server may get traffic: exit code 0 if so, 1 if not yet or never.

    For a readiness probe.  The answer comes from what `serve` wrote down; a server of which nothing is
    written down is asked for its `/health`.
    """
    from autolaunch.folders import user_folders
    from autolaunch.ready import look

    found = look(user_folders().attempts, host, port)
    text = found.to_json() if format == "json" else found.to_text()
    done = emit(f"{visible(text)}\n", sys.stdout)
    ctx.exit(EXIT_DONE if found.is_ready and done else EXIT_FAILED)


autolaunch.add_command(profile_group)


@click.command(cls=PassThroughCommand, add_help_option=False)
@serve_options
@click.pass_context
def launch_server(ctx: click.Context, /, **options: Any) -> None:
    """Stand in for `python -m sglang.launch_server`, flag by flag."""
    from autolaunch.serve.serve import serve as run

    ctx.exit(run("launch_server", tuple(ctx.meta[SGLANG_TOKENS]), ServeOptions(**options)))


def run_command(command: click.Command, args: list[str], prog_name: str) -> int:
    """Run `command` and turn every ending into an exit code; errors are printed once, to stderr."""
    try:
        code = command.main(args=args, prog_name=prog_name, standalone_mode=False)
        if sys.stdout is not None:
            sys.stdout.flush()
    except AutolaunchError as error:
        return _fail(str(error), error.exit_code)
    except click.ClickException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help; click 8.1 has none such
            return _fail(error.format_message(), EXIT_USAGE)
        hint = None
        if isinstance(error, click.UsageError) and error.ctx is not None:
            hint = f"see `{error.ctx.command_path} --help`"
        because = _variable_of(error)
        return _fail(render_message("error", error.format_message(), because, hint=hint), EXIT_USAGE)
    except click.exceptions.Abort:
        return 130
    except Exception as error:  # noqa: BLE001  # one clear error, also for what nobody thought of
        return _fail(_unexpected(error), EXIT_FAILED)
    return code if isinstance(code, int) else 0


def _unexpected(error: Exception) -> str:
    """The message about a fault of autolaunch's own, with the place where it happened."""
    import traceback  # here, because it takes a while and is hardly ever needed

    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(redact(str(error)).split())[:300]
    return render_message(
        "error",
        f"autolaunch failed with `{type(error).__name__}`" + (f": {text}" if text else ""),
        evidence=f"{place.filename}:{place.lineno} in {place.name}",
        hint="this is a fault of autolaunch; please report it with the command that you typed",
    )


def _fail(message: str, code: int) -> int:
    """Say `message`, secrets hidden, where anybody can hear it; return `code` all the same."""
    try:
        click.echo(redact(message), err=True)
    except (OSError, ValueError):
        silence(sys.stderr)
    if sys.stdout is not None:
        try:
            sys.stdout.flush()
        except (OSError, ValueError):
            silence(sys.stdout)
    return code


def _variable_of(error: click.ClickException) -> tuple[str, ...]:
    """Where a wrong value came from, if that is a variable of the environment."""
    if not isinstance(error, click.BadParameter) or error.param is None or error.ctx is None:
        return ()
    source = error.ctx.get_parameter_source(error.param.name or "")
    if source is not click.core.ParameterSource.ENVIRONMENT:
        return ()
    return (f"the variable {error.param.envvar} says so",)


def own_option_names() -> tuple[str, ...]:
    """Every spelling that autolaunch keeps to itself, over all commands that take SGLang's flags too."""
    names = {
        name
        for command in autolaunch.commands.values()
        if isinstance(command, PassThroughCommand)
        for option in command.params
        if isinstance(option, click.Option)
        for name in [*option.opts, *option.secondary_opts]
        if name.startswith("--")
    }
    return tuple(sorted(names - {"--help"}))
