"""Finds and waits for processes by a mark in their environment, which every descendant inherits."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

VARIABLE = "AUTOLAUNCH_TEST_TREE"


@dataclass(frozen=True)
class Mark:
    """A mark that one tree of processes carries."""

    value: str = field(default_factory=lambda: uuid.uuid4().hex)

    def environ(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """`base` with the mark."""
        return {**base, VARIABLE: self.value}

    def pids(self) -> dict[int, str]:
        """Living processes with the mark, zombies left out: pid and command line."""
        needle = f"{VARIABLE}={self.value}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if needle in (entry / "environ").read_bytes().split(b"\0"):
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if command:
                        found[int(entry.name)] = command
            except OSError:
                continue
        return found

    def wait_gone(self, limit_s: float = 30.0) -> dict[int, str]:
        """What is still alive after `limit_s` at most; empty is what a test wants."""
        deadline = time.monotonic() + limit_s
        while self.pids() and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.pids()

    def wait_count(self, count: int, limit_s: float = 10.0) -> dict[int, str]:
        """Processes with the mark once there are at least `count` of them."""
        deadline = time.monotonic() + limit_s
        while len(self.pids()) < count and time.monotonic() < deadline:
            time.sleep(0.02)
        return self.pids()
