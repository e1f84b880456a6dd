"""One of the programs in `slice/child` into what it made: run in SGLang's interpreter, under its guard.

Its output goes to the log; it is given a job as a JSON file and leaves its result beside it.  Nothing of it
is left when the launcher goes, in whatever way.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autolaunch.race.guarded import Guarded, name_scratch
from autolaunch.slice.problems import SliceError
from autolaunch.units import format_duration

CHILD = Path(__file__).with_name("child")
TICK_S = 0.2
TAIL_BYTES = 4096
LINES_SHOWN = 3


class WeightsError(SliceError):
    """Weights could not be made; what there is of them is of no use."""


@dataclass(frozen=True, slots=True)
class Made:
    """What a child wrote."""

    tensors: int
    bytes: int
    seconds: float
    """Without the time to import torch."""
    device: str
    formats: tuple[str, ...] = ()
    """What was dequantized from, `plain` among them."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how a child runs."""

    python: str
    """The interpreter that holds SGLang."""
    environ: Mapping[str, str]
    log: Path
    """Its output is appended here."""
    device: str = "auto"
    """`auto` takes a GPU where torch can use one."""
    limit_s: float = 600.0
    census_fd: int | None = None
    """Held by the guard alone; see `race/guarded.py`."""
    on_tick: Callable[[], None] = lambda: None
    """Called about five times a second; may raise to leave."""


def run_child(script: str, job: Mapping[str, Any], setting: Setting, *, what: str) -> Made:
    """Have `script` do `job`, which names its `folder`, and return what it made.

    WeightsError says why it could not `what`.
    """
    written = setting.log.stat().st_size if setting.log.exists() else 0
    try:
        result = _result(script, job, setting, what)
    except OSError as error:
        raise WeightsError(f"could not {what}", because=(f"the system says: {error.strerror}",)) from error
    if "error" in result:
        because = (result["error"],) if result["error"] else ()
        tail = _tail(setting.log, written)
        raise WeightsError(
            f"could not {what}",
            because=(*because, *(line for line in tail if line not in because))[: LINES_SHOWN + 1],
            evidence=f"log: {setting.log}",
        )
    return Made(
        tensors=result["tensors"],
        bytes=result["bytes"],
        seconds=result["seconds"],
        device=result["device"],
        formats=tuple(result.get("formats", ())),
    )


def _result(script: str, job: Mapping[str, Any], setting: Setting, what: str) -> Mapping[str, Any]:
    """What `script` left as its result, or `{"error": …}` where it left none."""
    setting.log.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(job["folder"])
    # Beside the folder, so that whoever sweeps up after a killed launcher finds them there.
    job_file, result_file = (folder.with_name(f"{folder.name}.{one}.json") for one in ("job", "result"))
    with contextlib.ExitStack() as undo:
        for file in (job_file, result_file):
            undo.callback(file.unlink, missing_ok=True)
        task = {**job, "device": setting.device, "result": str(result_file)}
        job_file.write_text(json.dumps(task))
        scratch = name_scratch(setting.environ)
        guarded = Guarded(
            [setting.python, str(CHILD / script), str(job_file)],
            log=setting.log,
            environ={**setting.environ, "TMPDIR": str(scratch)},
            cwd=folder.parent,
            scratch=scratch,
            census_fd=setting.census_fd,
        )
        undo.callback(guarded.end)
        deadline = time.monotonic() + setting.limit_s
        while (ending := guarded.exited(TICK_S)) is None:
            setting.on_tick()
            if time.monotonic() >= deadline:
                raise WeightsError(
                    f"could not {what} within {format_duration(setting.limit_s)}",
                    evidence=f"log: {setting.log}",
                )
        try:
            result: Mapping[str, Any] = json.loads(result_file.read_text())
        except (OSError, ValueError):
            return {"error": _ended(ending.exit)}
        return result if ending.exit == 0 or "error" in result else {"error": _ended(ending.exit)}


def _ended(status: int | None) -> str:
    """How a child ended that said nothing of it."""
    if status is None:
        return "it ended, and nobody knows how"
    return f"it was ended by signal {-status}" if status < 0 else f"it ended with exit status {status}"


def _tail(log: Path, start: int) -> tuple[str, ...]:
    """The last lines that were appended to `log` after `start` bytes."""
    try:
        with log.open("rb") as stream:
            end = stream.seek(0, 2)
            stream.seek(max(start, end - TAIL_BYTES))
            lines = stream.read().decode(errors="replace").splitlines()
    except OSError:
        return ()
    return tuple(line.strip() for line in lines if line.strip())[-LINES_SHOWN:]
