"""What the host gives whatever the GPUs are: platform, cores, memory, shared memory.

The platform is read from device files of the kernel drivers, so that a driver whose library is broken
still counts as there.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

Platform = Literal["cuda", "cpu", "other"]

_DRIVER_FILES: tuple[tuple[str, Platform], ...] = (
    ("/dev/nvidiactl", "cuda"),
    ("/dev/dxg", "cuda"),  # Windows' GPUs inside WSL; AMD's do not run SGLang there
    ("/dev/nvhost-gpu", "cuda"),  # Jetson before Thor
    ("/dev/kfd", "other"),
    ("/dev/dri/renderD128", "other"),
    ("/dev/davinci_manager", "other"),
)
_DEVICES: Mapping[str, Platform] = {"cuda": "cuda", "cpu": "cpu"}


def platform_of(device: str | None, root: Path = Path("/")) -> tuple[Platform, str]:
    """The platform SGLang will use, and which source spoke: the user's `--device`, else a driver's file."""
    if device is not None:
        return _DEVICES.get(device.partition(":")[0], "other"), f"`--device {device}`"
    for name, platform in _DRIVER_FILES:
        if os.path.exists(root / name.lstrip("/")):  # noqa: PTH110 - Path's raises where looking is forbidden
            return platform, f"`{name}` exists"
    return "cpu", "no driver of a GPU is loaded"


def cores_available(root: Path = Path("/")) -> int:
    """Cores this process may use: its affinity, or what the cgroup's quota comes to if less; at least 1."""
    cores = len(os.sched_getaffinity(0))
    quota = _cpu_quota(root)
    return cores if quota is None else max(1, min(cores, round(quota + 0.49)))


def cpu_name(root: Path = Path("/")) -> str | None:
    """What the first core calls itself; None where the kernel does not tell, as on most that are not x86."""
    try:
        with (root / "proc/cpuinfo").open("rb") as stream:
            text = stream.read(4096).decode(errors="replace")
    except OSError:
        return None
    lines = (line.partition(":") for line in text.splitlines())
    return next((name.strip() for key, _, name in lines if key.strip() == "model name"), None) or None


def _cpu_quota(root: Path) -> float | None:
    """The cgroup's quota in cores, of either cgroup version; None where there is none."""
    try:
        words = (root / "sys/fs/cgroup/cpu.max").read_text().split()
    except OSError:
        try:
            folder = root / "sys/fs/cgroup/cpu"
            words = [(folder / f"cpu.cfs_{name}_us").read_text().strip() for name in ("quota", "period")]
        except OSError:
            return None  # no cgroup limits this process
    if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
        return int(words[0]) / int(words[1])
    return None  # `max`, or -1: no limit


def memory_available_bytes(root: Path = Path("/")) -> int:
    """Bytes a new process may take: what the kernel calls available, or what the cgroup leaves if less."""
    available = _kernels_own(root)
    if available is None:
        import psutil  # here, because it takes a tenth of what a start by a profile may take

        available = int(psutil.virtual_memory().available)
    for limit_name, used_name in (
        ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            limit, used = (root / limit_name).read_text().strip(), (root / used_name).read_text().strip()
        except OSError:
            continue  # this machine has the other cgroup version, or none
        if limit.isdigit() and used.isdigit():
            available = min(available, max(0, int(limit) - int(used)))
    return available


def _kernels_own(root: Path) -> int | None:
    """What the kernel calls available; None from one that is too old to say so."""
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except (OSError, ValueError):
        return None
    found = next((line.split() for line in lines if line.startswith("MemAvailable:")), [])
    return int(found[1]) * 1024 if len(found) == 3 and found[1].isdigit() and found[2] == "kB" else None


def memory_total_bytes() -> int:
    """Bytes of the host's memory, which a GPU without memory of its own shares."""
    import psutil

    return int(psutil.virtual_memory().total)


def shared_memory_bytes(root: Path = Path("/")) -> int | None:
    """The size of `/dev/shm`, through which tensor-parallel ranks talk; None when it cannot be asked."""
    try:
        found = os.statvfs(root / "dev/shm")
    except OSError:
        return None
    return found.f_frsize * found.f_blocks
