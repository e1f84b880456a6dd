"""Stands in for the launcher in the middle of a race: engines of the fake SGLang that load together.

python race_parent.py '{"folder": "...", "engines": 4, "behave": {"c1": "load-hang"}}'

The first SIGINT ends the race with the best so far, as in the launcher; SIGTERM and SIGKILL end the process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.candidates.generate import Field
from autolaunch.command import Command
from autolaunch.race.company import Company
from autolaunch.race.engine import Engine
from autolaunch.race.journal import Journal
from autolaunch.race.progress import Progress
from autolaunch.race.race import Race
from autolaunch.race.setting import RaceSetting
from autolaunch.race.workload import Workload

FAKE = Path(__file__).with_name("fake_sglang")


def main(job: dict[str, object]) -> None:
    """Race as `job` says, and print the result's end."""
    folder, behave = Path(str(job["folder"])), dict(job.get("behave") or {})  # type: ignore[call-overload]
    interrupted: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: interrupted.append(number))
    others = (
        Candidate(f"c{n}", ("--served-model-name", f"m{n}")) for n in range(1, int(str(job["engines"])))
    )
    with Journal(folder) as journal:

        def open_engine(candidate: Candidate, on_tick: Callable[[], None], *, held: bool = False) -> Engine:
            flags = ("--behave", str(behave.get(candidate.id, "well")))
            return Engine(
                Command((sys.executable, "-m", "sglang.launch_server", "--model-path", "m", *flags)),
                (),
                log=journal.log(candidate.id),
                environ=os.environ,
                cwd=FAKE,
                on_tick=on_tick,
                held=held,
            )

        def open_truth(on_tick: Callable[[], None]) -> tuple[Engine, Callable[[], None]]:
            return open_engine(Candidate("truth"), on_tick, held=True), lambda: None

        os.write(1, b"starting\n")
        result = Race(
            Field((ORIGINAL, *others), ()),
            open_engine,
            RaceSetting(
                Workload(8, 4, 2, 1), 60.0, company=Company(at_once=8, together=8), open_truth=open_truth
            ),
            journal=journal,
            progress=Progress(),
            interrupted=lambda: bool(interrupted),
        ).run()
    os.write(1, f"ended {result.ended}\n".encode())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
