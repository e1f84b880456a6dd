"""Stands in for the launcher with a real engine: starts it, says `ready`, and measures until it is killed.

python engine_parent.py '{"argv": [...], "overlay": [...], "log": "...", "cwd": "..."}'
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path

from autolaunch.command import Command
from autolaunch.race.engine import Engine
from autolaunch.race.measure import measure_window
from autolaunch.race.workload import Workload

if __name__ == "__main__":
    job = json.loads(sys.argv[1])
    with Engine(
        Command(tuple(job["argv"])),
        tuple(job["overlay"]),
        log=Path(job["log"]),
        environ=os.environ,
        cwd=Path(job["cwd"]),
    ) as engine:
        engine.wait_ready(120)
        os.write(1, b"ready\n")
        for seed in itertools.count():
            measure_window(engine, Workload(), seed)
