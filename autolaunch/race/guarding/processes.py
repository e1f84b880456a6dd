"""The processes below one, as `/proc` shows them, and their end by SIGKILL."""

# ruff: noqa: PTH123, PTH208 - no pathlib, as in `race/guard.py`

from __future__ import annotations

import os
import signal


def descendants_of(root: int) -> list[int]:
    """Pids of all processes below `root`, zombies included (their threads may live), parents first."""
    children: dict[int, list[int]] = {}
    for pid in every_pid():
        # The name in parentheses may hold anything; what follows the last one does not.
        fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if len(fields) > 1:
            children.setdefault(int(fields[1]), []).append(pid)
    found: list[int] = []
    level = [root]
    while level:
        level = [child for parent in level for child in children.get(parent, ())]
        found += level
    return found


def groups_of(pids: list[int]) -> set[int]:
    """Process groups of `pids` that lie outside of this process's session, and so have no others in them."""
    groups = set()
    for pid in pids:
        fields = read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        if len(fields) > 3 and int(fields[3]) != os.getsid(0):
            groups.add(int(fields[2]))
    return groups - {0, 1}


def kill(pid: int) -> None:
    """SIGKILL a descendant of this process, or with `-pid` its group, unless it has ended."""
    # NOTE: the pid is not another process's by now: until it is reaped, by us or by a parent below us that
    # is killed in the same round, it cannot be given out again.
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def every_pid() -> list[int]:
    """Pids of all processes that this one can see."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read(path: str) -> bytes:
    """Content of a file of `/proc`; empty when its process has ended or is not ours."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
