"""Stands in for the server: writes down what kind of process it is, then lives or ends as told.

    python probe.py FILE [--exit N] [--sleep S] [WORDS...]

Run directly it is what a plain exec gives; run through the launcher it must be the same.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

PR_GET_PDEATHSIG, PR_GET_CHILD_SUBREAPER, PR_GET_NO_NEW_PRIVS, PR_GET_DUMPABLE = 2, 37, 39, 3
STATUS = (
    "SigBlk",
    "ShdPnd",
    "SigPnd",
    "SigIgn",
    "SigCgt",
    "NoNewPrivs",
    "Seccomp",
    "Threads",
    "Umask",
    "Groups",
)


def flag_through_pointer(option: int) -> int:
    value = ctypes.c_int(-1)
    ctypes.CDLL(None).prctl(option, ctypes.byref(value), 0, 0, 0)
    return value.value


def descriptors() -> dict[str, str]:
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            target = str(Path(f"/proc/self/fd/{name}").readlink())
        except FileNotFoundError:
            continue  # the one that lists them
        flags = Path(f"/proc/self/fdinfo/{name}").read_text().splitlines()[1]
        found[name] = f"{target} {flags}"
    return found


def record(target: str, words: list[str]) -> None:
    """Write what kind of process this is to the file `target`."""
    fds = descriptors()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    state = {
        "words": words,
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "pgid": os.getpgrp(),
        "sid": os.getsid(0),
        "tty": stat[4],
        "tpgid": stat[5],
        "status": {name: status[name].strip() for name in STATUS},
        "comm": status["Name"].strip(),
        "fds": fds,
        "environ": Path("/proc/self/environ").read_bytes().decode("latin-1").split("\0"),
        "python_environ": dict(os.environ),
        "cwd": str(Path("/proc/self/cwd").readlink()),
        "limits": Path("/proc/self/limits").read_text(),
        "nice": os.nice(0),
        "affinity": sorted(os.sched_getaffinity(0)),
        "oom": Path("/proc/self/oom_score_adj").read_text().strip(),
        "timers": [
            signal.getitimer(n) for n in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
        ],
        "pdeathsig": flag_through_pointer(PR_GET_PDEATHSIG),
        "subreaper": flag_through_pointer(PR_GET_CHILD_SUBREAPER),
        "no_new_privs": ctypes.CDLL(None).prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0),
        "dumpable": ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0),
        "python_handlers": {int(n): str(signal.getsignal(n)) for n in (1, 2, 3, 13, 15, 17)},
        "children": {
            child: Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            for child in children
        },
        "stack": resource.getrlimit(resource.RLIMIT_STACK),
    }
    Path(f"{target}.new").write_text(json.dumps(state))
    Path(f"{target}.new").replace(target)


def main() -> int:
    """Record, then do as told."""
    target, words = sys.argv[1], sys.argv[2:]
    record(target, words)
    if "--stdin" in words:
        Path(f"{target}.stdin").write_bytes(sys.stdin.buffer.read())
    if "--sleep" in words:
        time.sleep(float(words[words.index("--sleep") + 1]))
    return int(words[words.index("--exit") + 1]) if "--exit" in words else 0


if __name__ == "__main__":
    sys.exit(main())
