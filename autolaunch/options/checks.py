"""The checks of values of autolaunch's own options, each made before anything starts.

What a check needs is imported in it, because few lines hold the option and the light path must stay so.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from autolaunch.errors import UsageError
from autolaunch.units import parse_duration

if TYPE_CHECKING:
    from autolaunch.race.slo import Slo
    from autolaunch.race.workload import Workload


class Lines(click.types.StringParamType):
    """Text that may be given several times; in a variable, one a line."""

    name = "flags"
    envvar_list_splitter = "\n"


class Folders(click.types.StringParamType):
    """A folder that may be given several times; in a variable, parted as in `PATH`."""

    name = "folder"
    envvar_list_splitter = os.pathsep


@contextlib.contextmanager
def _told(ctx: click.Context, param: click.Parameter) -> Iterator[None]:
    """Add to a UsageError that a variable holds the value, where one does."""
    try:
        yield
    except UsageError as error:
        if ctx.get_parameter_source(param.name or "") is click.core.ParameterSource.ENVIRONMENT:
            error.because = (*error.because, f"the variable {param.envvar} says so")
        raise


def seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    """Seconds of a duration such as `90s` or `3m`, or a usage error that names the option."""
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error


def seconds_or_none(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Seconds of a duration where one is given."""
    return None if value is None else seconds(ctx, param, value)


def candidates(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """The candidates as typed, or a UsageError: a typing error is told before anything starts."""
    if value:
        from autolaunch.candidates.generate import split_user_candidate

        with _told(ctx, param):
            for text in value:
                split_user_candidate(text)
    return value


def folders(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """The folders that are named; what stands between two colons names none."""
    return tuple(one for one in value if one)


def admit(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """The admitted choices as typed, or a UsageError; whether there are such is the table's to say."""
    if value:
        from autolaunch.capability.contenders import parse_admit

        with _told(ctx, param):
            for text in value:
                parse_admit(text)
    return value


def workload(ctx: click.Context, param: click.Parameter, value: str | None) -> Workload | None:
    """The workload, its file read, or a UsageError that says which line of it is wrong."""
    if value is None:
        return None
    from autolaunch.race.workload import parse_workload

    with _told(ctx, param):
        return parse_workload(value)


def slo(ctx: click.Context, param: click.Parameter, value: str | None) -> Slo | None:
    """The ceilings, or a usage error that names the option."""
    if value is None:
        return None
    from autolaunch.race.slo import parse_slo

    try:
        return parse_slo(value)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from error
