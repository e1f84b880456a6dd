"""Detects the machine at hand: NVML's reading, CUDA's view of it, the host, into one Machine.

Where NVML does not answer, the driver's own files under `/proc/driver/nvidia` still name the GPUs, as in
containers that were started without NVML; the product table then tells what those names mean.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from autolaunch.detect import host
from autolaunch.detect.gpus import Gpu, Machine, Source, gpus_per_node, refusal_of
from autolaunch.detect.host import Platform, memory_available_bytes
from autolaunch.detect.nvml import Device, Fault, Reading, Tenant, read_nvml
from autolaunch.detect.proc import devices_in_proc, driver_in_proc
from autolaunch.detect.products import products
from autolaunch.detect.visible import Visible, visible_devices
from autolaunch.request.command_line import Notice
from autolaunch.tables import load_rows

__all__ = [
    "Gpu",
    "Machine",
    "Platform",
    "Tenant",
    "detect_machine",
    "gpus_per_node",
    "in_container",
    "memory_available_bytes",
    "refusal_of",
]

GIVEN = "NVIDIA_VISIBLE_DEVICES"

_NOTHING_GIVEN = ("void", "none", "")
_CONTAINER_MARKS = (".dockerenv", "run/.containerenv", "var/run/secrets/kubernetes.io")


def detect_machine(
    device: str | None,
    root: Path = Path("/"),
    *,
    environ: Mapping[str, str] = os.environ,
    library: Any = None,
) -> Machine:
    """The machine at hand.

    `device` is the user's `--device`; `root` is where device files are looked for; `library` stands in
    for the module `pynvml`.  Never raises for what a machine can be like.
    """
    platform, spoke = host.platform_of(device, root)
    sources = {"platform": spoke}
    notes: list[Notice] = []
    reading = read_nvml(library) if platform == "cuda" else Reading()
    visible, source = _visible(reading, environ, root, notes)
    gpus = tuple(_gpu(index, one, sources) for index, one in enumerate(visible.devices))
    if platform == "cuda":
        sources |= {"gpus": "NVML" if source == "nvml" else visible.source, "visible": visible.source}
        if reading.driver:
            sources |= {"driver": "NVML", "cuda": "NVML"}
        notes += [*visible.notices, *_unreadable(reading, visible)]
    if not gpus and platform != "other" and device is None:
        notes += _no_gpu(environ)
    nvlink, p2p = _links(reading, visible.devices)
    return Machine(
        platform=platform,
        source=source,
        cores=host.cores_available(root),
        memory_available_bytes=host.memory_available_bytes(root),
        gpus=gpus,
        driver=reading.driver or driver_in_proc(root) if platform == "cuda" else None,
        cuda=reading.cuda,
        nvlink=nvlink,
        p2p=p2p,
        shared_memory_bytes=host.shared_memory_bytes(root),
        refusal=refusal_of(gpus),
        notes=tuple(notes),
        sources=sources,
    )


def _visible(
    reading: Reading, environ: Mapping[str, str], root: Path, notes: list[Notice]
) -> tuple[Visible, Source]:
    """The devices CUDA would show, from NVML or else from the driver's files."""
    if reading.fault is None:
        found = visible_devices(reading.devices, environ)
        return found, "nvml" if reading.devices else "none"
    named, tried = devices_in_proc(root)
    notes.append(_fault_notice(reading.fault, tried, named, root))
    if not named:
        return Visible((), "nobody: NVML and the driver's files were asked"), "none"
    found = visible_devices(named, environ)
    return (
        Visible(found.devices, "`/proc/driver/nvidia/gpus`, and the product table", found.notices),
        "named",
    )


def _gpu(index: int, device: Device, sources: dict[str, str]) -> Gpu:
    """One device with what the product table adds; `sources` learns who told what."""
    name = device.name or "NVIDIA GPU of unknown name"
    table = products()
    product = table.named(name)
    is_slice = device.instance is not None or (device.uuid or "").startswith("MIG-")
    sm = device.sm if device.sm is not None else product.sm if product else None
    sources.setdefault("sm", "NVML" if device.sm is not None else "the product table")
    sm_count = device.sm_count
    per_sm = table.cores_per_sm.get(sm or 0)
    if sm_count is None and not is_slice:
        if device.cores and per_sm:
            sm_count = device.cores // per_sm
            sources.setdefault("sm_count", f"NVML's cores, {per_sm} an SM")
        elif product:
            sm_count = product.sm_count
            sources.setdefault("sm_count", "the product table")
    memory, unified = device.memory_bytes, False
    if memory is None and product and not is_slice:
        unified = product.unified
        memory = host.memory_total_bytes() if unified else product.memory_bytes
        sources.setdefault("memory", "the host's memory, which it shares" if unified else "the product table")
    sources.setdefault("memory", "NVML")
    sources.setdefault("sm_count", "NVML")
    return Gpu(
        index=index,
        name=name,
        sm=sm,
        sm_count=sm_count,
        memory_bytes=memory,
        memory_free_bytes=device.memory_free_bytes,
        memory_used_bytes=device.memory_used_bytes,
        uuid=device.uuid,
        mig=is_slice,
        power_limit_w=device.power_limit_w,
        tenants=device.tenants or (),
        unified=unified,
        product=product.id if product else None,
    )


def _links(reading: Reading, devices: Sequence[Device]) -> tuple[bool | None, bool | None]:
    """Whether all pairs of `devices` are joined by NVLink, and can read each other's memory."""
    numbers = sorted(one.index for one in devices if one.instance is None)
    pairs = [reading.links.get((a, b)) for a in numbers for b in numbers if a < b]
    if not pairs or len(numbers) != len(devices) or None in pairs:
        return None, None
    told = [pair for pair in pairs if pair is not None]
    return _all(pair[1] for pair in told), _all(pair[0] for pair in told)


def _all(told: Any) -> bool | None:
    """Three-valued: False when one is False, None when one is not known, else True."""
    values = set(told)
    return False if False in values else None if None in values else True


def _unreadable(reading: Reading, visible: Visible) -> list[Notice]:
    """A note for each GPU that NVML could not open, and for a compute capability nobody knows."""
    notes = [
        Notice(
            "machine.gpu-unreadable",
            f"GPU {one.index} could not be opened, and CUDA may not start with it",
            (one.unread["handle"],),
            hint=_mend(one.unread["handle"], in_container=False),
        )
        for one in reading.devices
        if "handle" in one.unread
    ]
    for one in visible.devices:
        if one.sm is None and products().named(one.name) is None:
            reason = one.unread.get("sm", "nothing was said")
            notes.append(
                Notice(
                    "machine.sm-unknown",
                    f"the compute capability of GPU {one.index} (`{one.name}`) is not known",
                    (f"tried NVML ({reason}) and the product table (no such name)",),
                    hint="give it: `--for-sm N`",
                )
            )
    return notes


def in_container(root: Path = Path("/")) -> bool:
    """Whether this looks like the inside of a container."""
    return any((root / mark).exists() for mark in _CONTAINER_MARKS)


def _fault_notice(fault: Fault, tried: str, named: Sequence[Device], root: Path) -> Notice:
    """Why NVML did not answer, what else was asked, and what mends it."""
    row = faults().get(fault.error)
    means = row["reason"] if row else fault.text
    return Notice(
        "machine.nvml",
        "NVML did not answer, so the GPUs are known by name alone" if named else "could not read any GPU",
        (f"tried NVML ({fault.error}: {means})", tried),
        hint=_mend(fault.error, in_container=in_container(root)),
    )


def _mend(error: str, *, in_container: bool) -> str:
    """The one action for an error of NVML."""
    if error == "NoPackage":
        return "run `pip install nvidia-ml-py`"
    row = faults().get(error)
    if row is None:
        return "run `nvidia-smi`"
    return str(row["in_container"] if in_container else row["mend"])


@cache
def faults() -> Mapping[str, Mapping[str, Any]]:
    """`data/nvml_faults.toml` by error."""
    return {row["error"]: row for row in load_rows("nvml_faults", "fault")}


def _no_gpu(environ: Mapping[str, str]) -> list[Notice]:
    """Why a container has none, when its variable says so."""
    given = environ.get(GIVEN)
    if given is None or given.strip() not in _NOTHING_GIVEN:
        return []
    return [
        Notice(
            "machine.container",
            "this container was given no GPU",
            (f"`{GIVEN}={given}`",),
            hint="start the container with `--gpus all`",
        )
    ]
