"""What `autolaunch doctor` looks for in the machine, each thing with its verdict and what mends it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from autolaunch.detect.machine import Gpu, Machine, in_container
from autolaunch.detect.software import Package, Software
from autolaunch.folders import is_there, user_folders
from autolaunch.request.command_line import Notice
from autolaunch.tables import load_rows
from autolaunch.units import format_bytes

Status = Literal["ok", "missing", "failed", "warning", "unknown"]

_SHARED_MEMORY_BYTES = 1 << 30
"""Below this, ranks on several GPUs run out; a container gets 64 MiB by default."""
_FAILING = {"machine.nvml", "machine.container", "machine.mixed", "visible.none"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked for."""

    id: str
    status: Status
    what: str
    """What was found, in words."""
    source: str
    """Who spoke."""
    because: tuple[str, ...] = ()
    mend: str | None = None
    """One command, or one action, that mends it."""

    def to_json(self) -> dict[str, Any]:
        """As `doctor --format json` writes it."""
        return {
            "id": self.id,
            "status": self.status,
            "what": self.what,
            "source": self.source,
            "because": list(self.because),
            "mend": self.mend,
        }


def machine_checks(machine: Machine, software: Software, root: Path) -> Iterator[Check]:
    """GPUs, driver, visibility, neighbours."""
    source = machine.sources.get("gpus", machine.sources["platform"])
    if machine.gpus:
        yield Check("gpus", "ok", _gpus(machine), source)
    elif machine.platform == "cuda":
        yield Check("gpus", "missing", "CUDA would find no GPU", source, mend=_first_mend(machine, root))
    else:
        status: Status = "ok" if machine.platform == "cpu" else "unknown"
        yield Check("gpus", status, "no NVIDIA GPU: SGLang would run elsewhere", machine.sources["platform"])
    for notice in (*machine.notes, *((machine.refusal,) if machine.refusal else ())):
        yield _of_notice(notice)
    if machine.platform == "cuda":
        yield _driver(machine, software.cuda)
    for gpu in machine.busy:
        yield _tenants(gpu)


def _gpus(machine: Machine) -> str:
    """`8 × NVIDIA H200, SM 9.0, 132 SMs, 140.4 GiB`, one part a kind."""
    kinds: dict[tuple[Any, ...], int] = {}
    for gpu in machine.gpus:
        key = (gpu.name, gpu.sm, gpu.sm_count, gpu.memory_bytes, gpu.unified)
        kinds[key] = kinds.get(key, 0) + 1
    parts = []
    for (name, sm, count, memory, unified), number in kinds.items():
        told = [f"{number} × {name}", f"SM {sm // 10}.{sm % 10}" if sm else "SM not known"]
        told += [f"{count} SMs"] if count else []
        told += [format_bytes(memory) + (" shared with the host" if unified else "")] if memory else []
        parts.append(", ".join(told))
    links = {True: "; all pairs by NVLink", False: "; not all pairs by NVLink", None: ""}[machine.nvlink]
    return "; ".join(parts) + links


def _first_mend(machine: Machine, root: Path) -> str:
    """What the first note says, else what is usually the matter."""
    for notice in machine.notes:
        if notice.hint:
            return notice.hint
    return "start the container with `--gpus all`" if in_container(root) else "run `nvidia-smi`"


def _of_notice(notice: Notice) -> Check:
    """A note of the detection as a check."""
    status: Status = "failed" if notice.id in _FAILING else "warning"
    name = notice.id.removeprefix("machine.").replace("visible.", "visible-")
    return Check(name, status, notice.text, "detection", notice.because, notice.hint)


def _driver(machine: Machine, cuda: Package) -> Check:
    """Whether the driver is new enough for the CUDA of the PyTorch that is installed."""
    if machine.driver is None:
        return Check("driver", "unknown", "the driver's version could not be read", "NVML, `/proc`")
    what = f"driver {machine.driver}" + (f", CUDA up to {machine.cuda}" if machine.cuda else "")
    source = machine.sources.get("driver", "`/proc/driver/nvidia/version`")
    if cuda.source == "installed" and cuda.version:
        row = _driver_for(int(cuda.version.split(".")[0]))
        if row and numbers(machine.driver) < numbers(row["driver"]):
            return Check(
                "driver",
                "failed",
                f"{what}; PyTorch here is built for CUDA {cuda.version}",
                source,
                (row["reason"],),
                f"install driver {row['driver']} or newer, or a PyTorch built for an older CUDA",
            )
    return Check("driver", "ok", what, source)


def _driver_for(major: int) -> Mapping[str, Any] | None:
    """The row of `data/cuda_drivers.toml` for a major version of CUDA."""
    return next((row for row in load_rows("cuda_drivers", "driver") if row["cuda"] == major), None)


def numbers(version: str) -> tuple[int, ...]:
    """The numbers a driver's version starts with."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def _tenants(gpu: Gpu) -> Check:
    """Who else is on a GPU."""
    used = "" if gpu.memory_used_bytes is None else f", {format_bytes(gpu.memory_used_bytes)} in use"
    who = ", ".join(
        f"process {one.pid}" + (f" with {format_bytes(one.memory_bytes)}" if one.memory_bytes else "")
        for one in gpu.tenants
    )
    return Check(
        f"gpu-{gpu.index}-busy",
        "warning",
        f"somebody else computes on GPU {gpu.index}{used}",
        "NVML",
        (who or "the processes cannot be seen from here, as from inside a container",),
        "wait for it, or show other GPUs with `CUDA_VISIBLE_DEVICES`",
    )


def host_checks(machine: Machine, environ: Mapping[str, str], root: Path) -> Iterator[Check]:
    """Memory, `/dev/shm`, and the folders that must be writable."""
    yield Check(
        "host",
        "ok",
        f"{machine.cores} cores, {format_bytes(machine.memory_available_bytes)} of memory available",
        "the kernel and this process's cgroup",
    )
    shared = machine.shared_memory_bytes
    if shared is not None and shared < _SHARED_MEMORY_BYTES and len(machine.gpus) > 1:
        mend = "start the container with `--ipc=host`" if in_container(root) else "enlarge `/dev/shm`"
        what = f"`/dev/shm` holds {format_bytes(shared)}"
        yield Check(
            "shared-memory", "warning", what, "statvfs", ("ranks on several GPUs talk through it",), mend
        )
    for name, folder in _folders(environ):
        there = _nearest(folder)
        if not os.access(there, os.W_OK):
            yield Check(
                f"{name}-cache",
                "warning",
                f"`{folder}` cannot be written",
                "access(2)",
                ("what is made there is made again at every start",),
                f"make `{there}` writable, or set the variable that names another folder",
            )


def _folders(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Folders in which something is kept between starts: ours, FlashInfer's, Triton's."""
    home = Path(environ.get("HOME") or "/")
    own = user_folders(environ)
    yield "autolaunch", own.cache
    yield "record", own.state
    yield "flashinfer", Path(environ.get("FLASHINFER_WORKSPACE_BASE") or home) / ".cache" / "flashinfer"
    yield "triton", Path(environ.get("TRITON_CACHE_DIR") or home / ".triton" / "cache")


def _nearest(folder: Path) -> Path:
    """`folder`, or the nearest folder above it that is there."""
    return next(one for one in (folder, *folder.absolute().parents) if is_there(one))
