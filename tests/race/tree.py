"""A process tree that does what engines do to get away: forks, double forks, new sessions, deaf ears.

    python tree.py [--exit N] [--kill-group] [--storm] [--map FILE] [--stay S]

Every process inherits the environment, by which the tests find survivors.
"""

from __future__ import annotations

import argparse
import mmap
import os
import signal
import time
from pathlib import Path


def leaf(seconds: float) -> None:
    """Sleep, deaf to polite signals, then end."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(seconds)
    os._exit(0)


def fork(action: object = None) -> int:
    """Fork; the child does `action`, if there is one, and ends."""
    pid = os.fork()
    if pid == 0 and callable(action):
        action()
        os._exit(0)
    return pid


def daemon(seconds: float) -> None:
    """The textbook daemon: fork, setsid, fork, with the middle one gone."""
    os.setsid()
    fork(lambda: leaf(seconds))


def worker(seconds: float) -> None:
    """A session leader with a child of its own that outlives it."""
    os.setsid()
    fork(lambda: leaf(seconds))
    leaf(seconds)


def storm(seconds: float) -> None:
    """A process that forks itself away over and over, so that no pid is alive for long."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if os.fork():
            os._exit(0)
        time.sleep(0.001)


def main() -> int:
    """Build the tree a bit at a time, then do what was asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--exit", type=int)
    parser.add_argument("--kill-group", action="store_true")
    parser.add_argument("--storm", action="store_true")
    parser.add_argument("--map", type=Path)
    parser.add_argument("--stay", type=float, default=60.0)
    args = parser.parse_args()
    if "TMPDIR" in os.environ:
        Path(os.environ["TMPDIR"], "socket").touch()
    for step in (daemon, worker, leaf, daemon):
        fork(lambda step=step: step(args.stay))
        time.sleep(0.01)
    if args.storm:
        fork(lambda: storm(args.stay))
    if args.map is not None:
        fd = os.open(args.map, os.O_CREAT | os.O_RDWR)
        os.ftruncate(fd, 4096)
        args.mapped = mmap.mmap(fd, 4096)
    if args.kill_group:
        os.killpg(os.getpgrp(), signal.SIGKILL)
    if args.exit is not None:
        return args.exit
    time.sleep(args.stay)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
