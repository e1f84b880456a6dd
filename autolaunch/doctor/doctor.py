"""`autolaunch doctor`: what was found, by which source, what is missing, and the command that mends it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autolaunch import __version__
from autolaunch.detect.machine import Machine, detect_machine
from autolaunch.detect.software import Software, detect_software
from autolaunch.doctor.checks import Check, host_checks, machine_checks
from autolaunch.doctor.software import software_checks
from autolaunch.errors import SglangNotFoundError
from autolaunch.request.interpreter import Interpreter, find_interpreter

SCHEMA = "autolaunch.doctor/1"

_COLOURS = {"ok": "32", "warning": "33", "unknown": "33", "missing": "31", "failed": "31"}
_SOURCES = {
    "platform": "platform",
    "gpus": "GPUs",
    "visible": "which are visible",
    "sm": "compute capability",
    "sm_count": "number of SMs",
    "memory": "memory",
    "driver": "driver",
    "cuda": "newest CUDA of the driver",
}


@dataclass(frozen=True, slots=True)
class Report:
    """Everything `doctor` found."""

    machine: Machine
    software: Software
    interpreter: Interpreter | None
    checks: tuple[Check, ...]

    @property
    def exit_code(self) -> int:
        """0, or 1 when something stands between SGLang and its start."""
        return int(any(check.status in ("missing", "failed") for check in self.checks))


def run(
    python: str | None = None,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
    *,
    device: str | None = None,
    root: Path = Path("/"),
    library: Any = None,
) -> Report:
    """Look at this machine; `python` and `device` are the user's `--python` and `--device`.

    `root` and `library` stand in for the file system and pynvml.  UsageError when `--python` is no
    interpreter; everything else that is wrong is a Check.
    """
    checks: list[Check] = []
    interpreter = None
    try:
        interpreter = find_interpreter(python, environ, cwd or Path.cwd())
    except SglangNotFoundError as error:
        checks.append(
            Check(
                "sglang",
                "missing",
                error.what,
                "every place it could be",
                error.because,
                "pip install sglang",
            )
        )
    else:
        checks.append(
            Check(
                "sglang",
                "ok",
                f"SGLang {interpreter.version}, run by `{interpreter.python}`",
                f"{interpreter.source}, `{interpreter.package}`",
            )
        )
    machine = detect_machine(device, root, environ=environ, library=library)
    software = detect_software(interpreter, environ)
    checks += machine_checks(machine, software, root)
    if interpreter is not None:
        checks += software_checks(machine, software, interpreter, environ)
    checks += host_checks(machine, environ, root)
    return Report(machine, software, interpreter, tuple(checks))


def render_table(report: Report, *, colour: bool = False) -> str:
    """`report` for a person: one line a check with its source, then what mends it, then who told what."""
    width = max(len(check.id) for check in report.checks)
    lines: list[str] = []
    for check in report.checks:
        status = f"{check.status:<7}"
        if colour:
            status = f"\x1b[{_COLOURS[check.status]}m{status}\x1b[0m"
        lines.append(f"{status}  {check.id:<{width}}  {_plain(check.what)}  ({_plain(check.source)})")
        indent = " " * (9 + width + 2)
        lines += [
            f"{indent}{'because' if n == 0 else 'and'} {_plain(fact)}" for n, fact in enumerate(check.because)
        ]
        if check.mend:
            lines.append(f"{indent}mend: {_plain(check.mend)}")
    told = [(label, report.machine.sources.get(key)) for key, label in _SOURCES.items()]
    wide = max(len(label) for label, _ in told)
    lines += ["", "who told:"]
    lines += [f"  {label:<{wide}}  {_plain(source)}" for label, source in told if source]
    bad = sum(check.status in ("missing", "failed") for check in report.checks)
    warned = sum(check.status in ("warning", "unknown") for check in report.checks)
    lines += ["", _verdict(bad, warned)]
    return "\n".join(lines)


def _verdict(bad: int, warned: int) -> str:
    """The last line, in which a person reads whether to go on."""
    if bad:
        return f"{bad} thing{'s' if bad > 1 else ''} to mend before SGLang can run here as it should"
    if warned:
        return f"SGLang can run here; {warned} thing{'s' if warned > 1 else ''} to know of"
    return "SGLang can run here"


def render_json(report: Report) -> str:
    """`report` for a program, and for `--for-machine`."""
    found = report.interpreter
    document = {
        "schema": SCHEMA,
        "autolaunch": __version__,
        "interpreter": found
        and {"python": found.python, "package": str(found.package), "source": found.source},
        "machine": report.machine.to_json(),
        "software": report.software.to_json(),
        "checks": [check.to_json() for check in report.checks],
    }
    return json.dumps(document, indent=2)


def _plain(text: str) -> str:
    """`text` without what a terminal would obey; names and variables come from outside."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)
