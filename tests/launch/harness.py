"""Starts the scripted launcher of `driver.py`, and reads what the probe saw."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.real_server import ROOT, become_subreaper

HERE = Path(__file__).parent
DRIVER = HERE / "driver.py"
PROBE = HERE / "probe.py"


def environment(**extra: str) -> dict[str, str]:
    """An environment in which the driver finds the package."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **extra}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a launch ended."""

    code: int
    stdout: str
    stderr: str
    probe: dict[str, Any] | None
    """What the server process saw of itself; None if there was none."""
    pid: int

    @property
    def server(self) -> str | None:
        """`original` or `choice`."""
        return self.probe["words"][0] if self.probe else None


class Launch:
    """One started driver; all of its descendants are known, orphans too."""

    def __init__(self, decision: str, target: Path, *words: str, **options: Any) -> None:
        become_subreaper()
        self.target = target
        self.older = {process.pid for process in psutil.Process().children(recursive=True)}
        env = options.pop("env", environment())
        prefix = options.pop("prefix", [])
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(DRIVER), decision, str(target), *words],
            env=env,
            stdin=options.pop("stdin", subprocess.DEVNULL),
            stdout=options.pop("stdout", subprocess.PIPE),
            stderr=options.pop("stderr", subprocess.PIPE),
            text=True,
            **options,
        )

    def wait_for(self, what: str, limit_s: float = 20) -> Path:
        """The path of the file that the decision writes as `what`, once it is there."""
        path = Path(f"{self.target}.{what}") if what else self.target
        wait_until(path.exists, limit_s, f"{path} is there")
        return path

    def wait(self, limit_s: float = 60) -> Outcome:
        """The outcome; kills everything if it takes longer than `limit_s`."""
        try:
            stdout, stderr = self.process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        probe = json.loads(self.target.read_text()) if self.target.exists() else None
        return Outcome(self.process.returncode, stdout or "", stderr or "", probe, self.process.pid)

    def leftovers(self, patience_s: float = 3) -> list[str]:
        """Command lines of descendants that are still alive after `patience_s`."""
        deadline = time.monotonic() + patience_s
        while (left := self._living()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left

    def _living(self) -> list[str]:
        lines = []
        for process in psutil.Process().children(recursive=True):
            try:
                if process.pid in self.older or process.pid == self.process.pid:
                    continue
                if process.status() == psutil.STATUS_ZOMBIE:
                    if process.ppid() == os.getpid():
                        os.waitpid(process.pid, os.WNOHANG)
                    continue
                lines.append(f"{process.pid}: {' '.join(process.cmdline())}")
            except (psutil.NoSuchProcess, ChildProcessError):
                continue
        return lines


def launch(decision: str, target: Path, *words: str, **options: Any) -> Outcome:
    """Run the driver to its end; fails if anything outlives it."""
    started = Launch(decision, target, *words, **options)
    outcome = started.wait()
    assert started.leftovers() == []
    return outcome


def wait_until(condition: Callable[[], object], limit_s: float, what: str) -> None:
    """Wait until `condition`; fails after `limit_s`, saying `what` did not come true."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        time.sleep(0.01)
