"""`autolaunch profile …` as click has it; all work is done in `profiles.commands`."""

from __future__ import annotations

import click

from autolaunch.options.declarations import profile_dir_option

_FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    envvar="AUTOLAUNCH_FORMAT",
    help="`table` for a person, `json` for a program.",
)


@click.group("profile")
def profile_group() -> None:
    """List, show, carry and remove profiles.

    They are made here by races, or came with autolaunch.  Each is named as `list` names it, or by its file.
    """


@profile_group.command("list")
@profile_dir_option
@_FORMAT
@click.pass_context
def list_profiles(ctx: click.Context, profile_dirs: tuple[str, ...], form: str) -> None:
    """List every profile.

    The newest come first.  Whether one fits a start is told by that start.
    """
    from autolaunch.profiles import commands as run

    ctx.exit(run.list_profiles(run.store_of(profile_dirs), form))


@profile_group.command()
@click.argument("profile", metavar="NAME|FILE")
@profile_dir_option
@_FORMAT
@click.pass_context
def show(ctx: click.Context, profile: str, profile_dirs: tuple[str, ...], form: str) -> None:
    """Show a profile in full.

    The choice and why, who lost and why, and what it is valid for.
    """
    from autolaunch.profiles import commands as run

    ctx.exit(run.show(run.store_of(profile_dirs), profile, form))


@profile_group.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@profile_dir_option
@_FORMAT
@click.pass_context
def diff(ctx: click.Context, first: str, second: str, profile_dirs: tuple[str, ...], form: str) -> None:
    """Compare two profiles, field by field.

    Says what B has in another way than A, and what each difference means.
    """
    from autolaunch.profiles import commands as run

    ctx.exit(run.diff(run.store_of(profile_dirs), first, second, form))


@profile_group.command()
@click.argument("profile", metavar="NAME|FILE")
@click.option("-o", "--output", metavar="FILE", help="Write it there. [default: stdout]")
@profile_dir_option
@click.pass_context
def export(ctx: click.Context, profile: str, output: str | None, profile_dirs: tuple[str, ...]) -> None:
    """Write a profile as TOML."""
    from autolaunch.profiles import commands as run

    ctx.exit(run.export(run.store_of(profile_dirs), profile, output))


@profile_group.command("import")
@click.argument("file", metavar="FILE")
@profile_dir_option
@click.pass_context
def bring_in(ctx: click.Context, file: str, profile_dirs: tuple[str, ...]) -> None:
    """Keep the profile in FILE.

    It is checked first, and counts as not verified here.
    """
    from autolaunch.profiles import commands as run

    ctx.exit(run.bring_in(run.store_of(profile_dirs), file))


@profile_group.command()
@profile_dir_option
@click.pass_context
def path(ctx: click.Context, profile_dirs: tuple[str, ...]) -> None:
    """Print the folders of profiles.

    The first is written, the others are only read.
    """
    from autolaunch.profiles import commands as run

    ctx.exit(run.path(run.store_of(profile_dirs)))


@profile_group.command()
@click.argument("name")
@profile_dir_option
@click.pass_context
def remove(ctx: click.Context, name: str, profile_dirs: tuple[str, ...]) -> None:
    """Remove the profile NAME."""
    from autolaunch.profiles import commands as run

    ctx.exit(run.remove(run.store_of(profile_dirs), name))
