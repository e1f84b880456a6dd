"""The server's processes as the kernel shows them: who lives, who descends from whom, who listens.

NOTE: `launch/processes.py` tells others the same; this is for a process that has the standard library only.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

_PROC = Path("/proc")


def stat_of(pid: int) -> tuple[str, int, int] | None:
    """State letter, start time in ticks and session of process `pid`."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[19]), int(fields[3])


def is_alive(pid: int, ticks: int) -> bool:
    """Whether `pid` is still the process that started at `ticks`, and no zombie."""
    stat = stat_of(pid)
    return stat is not None and stat[0] not in "ZX" and stat[1] == ticks


def command_line_of(pid: int) -> bytes:
    """The argv of process `pid`, each word with a NUL behind it; empty when it is gone."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def children_of(pid: int) -> list[int]:
    """The PIDs of the children of process `pid`; empty when it is gone."""
    try:
        lists = [(thread / "children").read_text() for thread in (_PROC / str(pid) / "task").iterdir()]
    except OSError:
        return []
    return [int(word) for line in lists for word in line.split()]


def listens(tree: list[int], port: int) -> bool:
    """Whether a process of `tree` has a socket that listens on TCP `port`."""
    wanted = {f"socket:[{inode}]" for inode in listening_inodes(port)}
    if not wanted:
        return False
    for pid in tree:
        try:
            for entry in (_PROC / str(pid) / "fd").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    if str(entry.readlink()) in wanted:
                        return True
        except PermissionError:
            return True  # could not look is not "not there"
        except OSError:
            continue
    return False


def listening_inodes(port: int) -> set[str]:
    """The inodes of the sockets of this network namespace that listen on TCP `port`."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "self/net" / name).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes
