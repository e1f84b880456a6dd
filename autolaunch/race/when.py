"""Whether `serve` races by itself, and if not, why: rows of `data/race_holds.toml` and what was found.

A hard reason stands whatever the user says; a soft one is a caution that `--tune quick` or `full` overrides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from autolaunch.candidates.generate import Field
from autolaunch.detect.gpus import Gpu
from autolaunch.detect.machine import Machine
from autolaunch.request.command_line import Request
from autolaunch.request.flags import FlagCatalogue
from autolaunch.tables import load_rows
from autolaunch.units import format_bytes, format_duration

FREE_SHARE = 0.9
"""Of a GPU's memory that must be free: SGLang would size a trial's share by what is left."""
HOW_TO_TUNE = "`--tune quick` races all the same, `autolaunch tune` does so ahead of a start"
AHEAD = "`autolaunch tune` races ahead of a start"
_SHOWN_TENANTS = 3


@dataclass(frozen=True, slots=True)
class Hold:
    """A reason not to race; a hard one cannot be overridden."""

    id: str
    reason: str
    hard: bool
    hint: str = HOW_TO_TUNE


def why_not_race(
    request: Request,
    catalogue: FlagCatalogue,
    field: Field,
    tune: str,
    environ: Mapping[str, str],
    *,
    weights_are_local: bool,
    machine: Machine | None = None,
    deadline_s: float | None = None,
    expected_s: float | None = None,
    too_long: str | None = None,
) -> str | None:
    """The reason why nothing is raced, or None when the race is on.

    `machine` has the GPUs that the start uses.  `deadline_s` is the user's `--start-deadline`, and
    `expected_s` what the race would take at least (see `race.company`); `too_long` is why no request of the
    workload fits the model.
    """
    if tune == "off":
        return "`--tune off`"
    if request.entry != "launch_server":
        return "the model is served by another entry point of SGLang"
    if not field.challengers:
        return "there is nothing to decide"
    holds = [
        hold
        for row in load_rows("race_holds", "hold")
        if not (row.get("unless_deadline") and deadline_s is not None)
        and (hold := _hold(row, request, catalogue, environ))
    ]
    if not weights_are_local:
        holds.append(Hold("hold.weights", "the weights are not on this machine", hard=True))
    if too_long is not None:
        holds.append(Hold("hold.workload", too_long, hard=True))
    if deadline_s is not None and expected_s is not None and expected_s > deadline_s:
        holds.append(_too_late(deadline_s, expected_s))
    if machine is not None:
        holds += _occupied(machine)
    for hold in sorted(holds, key=lambda hold: not hold.hard):
        if hold.hard:
            return hold.reason
        if tune == "auto":
            return f"{hold.reason}; {hold.hint}"
    return None


def _too_late(deadline_s: float, expected_s: float) -> Hold:
    """A race that would not end in time is not begun, whoever asks for it: the deadline was asked for too."""
    reason = (
        f"a race takes about {format_duration(expected_s)}, and `--start-deadline` leaves "
        f"{format_duration(deadline_s)}; {AHEAD}"
    )
    return Hold("hold.deadline", reason, hard=True)


def _occupied(machine: Machine) -> Iterator[Hold]:
    """What else happens on the GPUs: it would be timed along, and may need its memory."""
    for gpu in machine.gpus:
        if gpu.is_busy:
            yield Hold("hold.busy", f"GPU {gpu.index} is in use ({_use_of(gpu)})", hard=False)
        elif (free := _free_share(gpu)) is not None and free < FREE_SHARE:
            reason = f"only {100 * free:.0f} % of the memory of GPU {gpu.index} is free"
            yield Hold("hold.memory", reason, hard=False)


def _use_of(gpu: Gpu) -> str:
    """Who is on the GPU, as far as the driver tells."""
    pids = [f"process {one.pid}" for one in gpu.tenants[:_SHOWN_TENANTS]]
    if len(gpu.tenants) > _SHOWN_TENANTS:
        pids.append(f"{len(gpu.tenants) - _SHOWN_TENANTS} more")
    if gpu.memory_used_bytes is not None:
        pids.append(f"{format_bytes(gpu.memory_used_bytes)} are taken")
    return ", ".join(pids) or "nobody says by whom"


def _free_share(gpu: Gpu) -> float | None:
    """The part of the memory that is free; None where it is not known, or is the host's."""
    if gpu.unified or not gpu.memory_bytes or gpu.memory_free_bytes is None:
        return None
    return gpu.memory_free_bytes / gpu.memory_bytes


def _hold(
    row: Mapping[str, Any], request: Request, catalogue: FlagCatalogue, environ: Mapping[str, str]
) -> Hold | None:
    """What `row` says of this request, if anything."""
    hold = Hold(id=row["id"], reason=row["reason"], hard=row["hard"])
    if "variable" in row:
        return hold if environ.get(row["variable"]) else None
    flag = catalogue.resolve(row["flag"])
    pin = request.pins.get(flag.dest) if flag else None
    if pin is None:
        return None
    value = pin.values[-1] if pin.values else ""
    if "values" in row:
        return hold if value in row["values"] else None
    if "more_than" in row:
        return hold if value.isdigit() and int(value) > row["more_than"] else None
    return hold
