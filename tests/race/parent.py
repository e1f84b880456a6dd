"""Stands in for the launcher: starts the fake tree under a guard, says so on stdout, and waits to be killed.

python parent.py SCRATCH LOG CENSUS_FD [TREE OPTIONS]
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from autolaunch.race.guarded import Guarded

if __name__ == "__main__":
    scratch, log, census, *options = sys.argv[1:]
    os.write(1, b"starting\n")
    guarded = Guarded(
        [sys.executable, "-S", str(Path(__file__).with_name("tree.py")), *options],
        log=Path(log),
        environ={**os.environ, "TMPDIR": scratch},
        cwd=Path(scratch).parent,
        scratch=Path(scratch),
        census_fd=int(census) if int(census) >= 0 else None,
    )
    os.write(1, f"started {guarded.guard_pid}\n".encode())
    time.sleep(60)
