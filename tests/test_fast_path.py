"""What a start by a profile imports, in the launcher, its deciding child and the watcher: nothing it can do without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SLOW = {
    *("argparse", "asyncio", "concurrent.futures", "email", "http.client", "importlib.metadata", "logging"),
    *("random", "shutil", "ssl", "statistics", "subprocess", "tempfile", "urllib.request"),
}
"""Modules of the standard library that take milliseconds each."""
ABSENT = {
    *("huggingface_hub", "platformdirs", "psutil", "requests", "tomli_w", "yaml"),
    *(
        "autolaunch.assessment",
        "autolaunch.candidates.generate",
        "autolaunch.capability",
        "autolaunch.explain.text",
    ),
    *("autolaunch.memory", "autolaunch.nextn", "autolaunch.race.when", "autolaunch.race.workload"),
    *("autolaunch.slice", "autolaunch.tune"),
}
"""What only starts need that no profile decides."""
PATH = ", ".join(
    f"autolaunch.{name}"
    for name in ("cli", "serve.serve", "launch.supervise", "serve.decide", "serve.by_profile")
)
WATCHER = "autolaunch.launch.watch"
GUARD = "autolaunch.race.guard"
DELAYS_ENGINES = {"dataclasses", "json", "pathlib", "re", "typing"}
"""Each takes as long as all that a guard needs."""
UNTIL_HEALTHY = {"autolaunch.launch.watching.asking", "autolaunch.launch.watching.verifying"}


def printed(code: str, *options: str) -> list[str]:
    """The words that `code` prints in a Python of its own."""
    code = f"import sys; sys.path.append({str(ROOT)!r}); {code}"
    done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_start_by_a_profile_imports_nothing_slow() -> None:
    found = printed(f"before = set(sys.modules); import {PATH}; print(*(set(sys.modules) - before))")
    assert not (SLOW | ABSENT).intersection(found)


def test_a_watcher_imports_what_it_asks_with_once_there_is_somebody_to_ask() -> None:
    found = printed(f"import {WATCHER}; print(*sys.modules)", "-I", "-S")
    assert not (SLOW | UNTIL_HEALTHY).intersection(found)


def test_a_guard_imports_nothing_that_its_engine_would_wait_for() -> None:
    found = printed(f"import {GUARD}; print(*sys.modules)", "-I", "-S")
    assert not (SLOW | DELAYS_ENGINES).intersection(found)


def test_the_collector_of_garbage_stays_out_of_the_way() -> None:
    code = "from autolaunch.launch_server import collect_rarely; collect_rarely(); import gc; print(*gc.get_threshold())"
    assert int(printed(code)[0]) >= 100_000
