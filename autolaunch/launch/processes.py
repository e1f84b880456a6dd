"""Tells one process from another by what the kernel says: identity, life, end, children.

A PID alone names nobody: it is used again.  The start time in ticks since boot, with the boot and the PID
namespace, does; no clock that people set takes part.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

_PROC = Path("/proc")


def stat_of(pid: int) -> tuple[str, int, int] | None:
    """State letter, parent and start time in ticks of process `pid`; None when there is none to be seen."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()  # the name before it may hold spaces and brackets
    return fields[0], int(fields[1]), int(fields[19])


def start_ticks_of(pid: int) -> int | None:
    """When process `pid` started, in clock ticks since boot; None for one that is gone or only a zombie."""
    stat = stat_of(pid)
    return None if stat is None or stat[0] in "ZX" else stat[2]


def command_line_of(pid: int) -> bytes:
    """The argv of process `pid`, each word with a NUL behind it; empty for one that is ending or gone."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes()
    except OSError:
        return b""


def boot_id() -> str:
    """The name of this boot of the kernel; empty where it is hidden."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_namespace() -> str:
    """The name of the PID namespace that this process's PIDs belong to; empty where it is hidden."""
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return ""


def children_of(pid: int) -> dict[int, str]:
    """The children of process `pid`, dead ones not yet waited for included, each with its state letter."""
    return {child: stat[0] for child in _child_pids(pid) if (stat := stat_of(child)) and stat[1] == pid}


def has_ended(child: int) -> bool:
    """Whether a child of this process is over; it stays a zombie, so that its PID stays its own."""
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def how_it_ended(child: int) -> str:
    """`ended with exit status 3` or `was ended by SIGSEGV`, of a child that is a zombie now."""
    info = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if info is None or info.si_code == os.CLD_EXITED:
        return f"ended with exit status {info and info.si_status}"
    return f"was ended by {signal.Signals(info.si_status).name}"


def reap_orphans(others: Collection[int], limit_s: float) -> None:
    """Wait for children that fell to this process as PID 1 or subreaper; `others` are none of those.

    After `limit_s` the rest is left alone: what lives longer was meant to.
    """
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        orphans = [pid for pid in children_of(os.getpid()) if pid not in others]
        for pid in orphans:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if not orphans:
            return
        time.sleep(0.01)


def _child_pids(pid: int) -> list[int]:
    """PIDs that may be children of `pid`: the kernel's list, or everybody where it is not compiled in."""
    try:
        threads = (_PROC / str(pid) / "task").iterdir()
        lists = [(thread / "children").read_text() for thread in threads]
        return [int(word) for line in lists for word in line.split()]
    except OSError:
        return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
