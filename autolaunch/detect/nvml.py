"""Reads NVML, the driver's own library, into plain values; never torch, never a CUDA context.

Each field is asked for by itself: one that the driver or the GPU does not answer is None, and `unread`
says why, because half of NVML is "Not Supported" on some GPU (no memory figures on GB10, no power limit
on Jetson).  NVML is shut down before this returns.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

# NOTE: plain numbers, as nvidia-ml-py defines NVML_P2P_CAPS_INDEX_READ as the tuple `(0,)`.
_P2P_READ, _P2P_NVLINK, _P2P_OK = 0, 2, 0
_CLOCK_SM = 1
_NAME_LIMIT = 120
_MOST_LINKED_GPUS = 16  # pairs grow with the square; the largest boards joined by NVLink hold 16


@dataclass(frozen=True, slots=True)
class Tenant:
    """A process that holds memory of a GPU; never one of ours, as nothing of ours runs yet."""

    pid: int
    memory_bytes: int | None
    """None when the driver does not tell, as in most containers."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as NVML tells of it, or a MIG slice of one."""

    index: int
    """NVML's, which follows the PCI bus; of a slice, its place within the GPU."""
    name: str | None = None
    uuid: str | None = None
    bus: str | None = None
    """`00000000:07:00.0`."""
    sm: int | None = None
    """Compute capability, 90 for 9.0."""
    cores: int | None = None
    sm_count: int | None = None
    """Only for slices: of a whole GPU, NVML tells cores."""
    clock_mhz: int | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_used_bytes: int | None = None
    """By processes, without what the driver reserves for itself where it tells them apart."""
    power_limit_w: float | None = None
    tenants: tuple[Tenant, ...] | None = None
    mig_enabled: bool = False
    slices: tuple[Device, ...] = ()
    instance: tuple[int, int] | None = None
    """Of a slice: its GPU instance and compute instance, as the older MIG names write them."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Field to what NVML answered instead."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why NVML did not answer at all."""

    error: str
    """`LibraryNotFound`, a row of `data/nvml_faults.toml`, or whatever else went wrong."""
    text: str


@dataclass(frozen=True, slots=True)
class Reading:
    """Everything NVML told."""

    devices: tuple[Device, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    """The newest CUDA the driver serves, `13.0`."""
    links: Mapping[tuple[int, int], tuple[bool | None, bool | None]] = field(default_factory=dict)
    """Pair of NVML indices, the smaller first, to (can read each other's memory, joined by NVLink)."""
    fault: Fault | None = None


def read_nvml(library: Any = None) -> Reading:
    """All GPUs of this machine; `library` stands in for the module `pynvml`.

    Never raises for what the driver answers: `fault` says why there is nothing, `unread` of a device
    why one of its fields is None.
    """
    if library is None:
        try:
            library = importlib.import_module("pynvml")
        except ImportError:
            return Reading(fault=Fault("NoPackage", "the Python package `nvidia-ml-py` is not installed"))
    errors = (library.NVMLError, AttributeError, OSError, TypeError, ValueError)
    try:
        library.nvmlInit()
    except errors as error:
        return Reading(fault=Fault(_error_name(error), str(error)))
    try:
        return _read(library, errors)
    finally:
        with contextlib.suppress(*errors):  # all is read, and there is nothing else to release
            library.nvmlShutdown()


def _read(library: Any, errors: tuple[type[BaseException], ...]) -> Reading:
    """What an initialised library tells."""
    ask = _Asker(library, errors)
    driver = ask("driver", "nvmlSystemGetDriverVersion", convert=_text)
    cuda = ask("cuda", "nvmlSystemGetCudaDriverVersion_v2", convert=_cuda)
    if cuda is None:
        cuda = ask("cuda", "nvmlSystemGetCudaDriverVersion", convert=_cuda)
    count = ask("count", "nvmlDeviceGetCount", convert=int)
    if count is None:
        return Reading(driver=driver, cuda=cuda, fault=Fault(ask.error, ask.unread["count"]))
    handles = [ask(f"GPU {index}", "nvmlDeviceGetHandleByIndex", index) for index in range(count)]
    devices = tuple(
        Device(index, unread={"handle": ask.unread[f"GPU {index}"]})
        if handle is None
        else _device(library, errors, index, handle)
        for index, handle in enumerate(handles)
    )
    return Reading(devices, driver, cuda, _links(ask, handles))


def _device(library: Any, errors: tuple[type[BaseException], ...], index: int, handle: Any) -> Device:
    """One GPU, field by field."""
    ask = _Asker(library, errors)
    total, free, used = _memory(ask, handle)
    mig = ask("mig", "nvmlDeviceGetMigMode", handle, convert=lambda modes: bool(modes[0]))
    return Device(
        index=index,
        name=ask("name", "nvmlDeviceGetName", handle, convert=_text),
        uuid=ask("uuid", "nvmlDeviceGetUUID", handle, convert=_text),
        bus=ask("bus", "nvmlDeviceGetPciInfo", handle, convert=lambda pci: _text(pci.busId)),
        sm=ask("sm", "nvmlDeviceGetCudaComputeCapability", handle, convert=_capability),
        cores=ask("cores", "nvmlDeviceGetNumGpuCores", handle, convert=_positive),
        clock_mhz=ask("clock", "nvmlDeviceGetMaxClockInfo", handle, _CLOCK_SM, convert=_positive),
        memory_bytes=total,
        memory_free_bytes=free,
        memory_used_bytes=used,
        power_limit_w=ask("power", "nvmlDeviceGetEnforcedPowerLimit", handle, convert=lambda mw: mw / 1000),
        tenants=_tenants(ask, handle),
        mig_enabled=bool(mig),
        slices=_slices(library, errors, handle) if mig else (),
        unread=MappingProxyType(ask.unread),
    )


def _slices(library: Any, errors: tuple[type[BaseException], ...], handle: Any) -> tuple[Device, ...]:
    """The MIG slices of a GPU, in NVML's order, which is also CUDA's."""
    ask = _Asker(library, errors)
    found = []
    for place in range(ask("slices", "nvmlDeviceGetMaxMigDeviceCount", handle, convert=int) or 0):
        one = ask("slice", "nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
        if one is None:
            continue  # the places are numbered whether they hold a slice or not
        each = _Asker(library, errors)
        total, free, used = _memory(each, one)
        numbers = [
            each(name, f"nvmlDeviceGet{name}", one, convert=int)
            for name in ("GpuInstanceId", "ComputeInstanceId")
        ]
        found.append(
            Device(
                index=place,
                name=each("name", "nvmlDeviceGetName", one, convert=_text),
                uuid=each("uuid", "nvmlDeviceGetUUID", one, convert=_text),
                sm_count=each(
                    "sm_count",
                    "nvmlDeviceGetAttributes",
                    one,
                    convert=lambda attributes: _positive(attributes.multiprocessorCount),
                ),
                memory_bytes=total,
                memory_free_bytes=free,
                memory_used_bytes=used,
                tenants=_tenants(each, one),
                instance=None if None in numbers else (numbers[0], numbers[1]),
                unread=MappingProxyType(each.unread),
            )
        )
    return tuple(found)


class _Asker:
    """Calls of NVML that answer None instead of raising, and keep what was answered instead."""

    def __init__(self, library: Any, errors: tuple[type[BaseException], ...]) -> None:
        self.library = library
        self.errors = errors
        self.unread: dict[str, str] = {}
        self.error = ""

    def __call__(
        self, what: str, function: str, *arguments: Any, convert: Callable[[Any], Any] | None = None
    ) -> Any:
        """What `function` answers, converted; a later answer for the same `what` wipes an earlier fault."""
        try:
            answer = getattr(self.library, function)(*arguments)
            answer = convert(answer) if convert else answer
        except self.errors as error:
            self.error = _error_name(error)
            self.unread[what] = f"{function}: {error}"
            return None
        self.unread.pop(what, None)
        return answer


def _memory(ask: _Asker, handle: Any) -> tuple[int | None, int | None, int | None]:
    """Total, free and used bytes; the newer call counts what the driver reserves apart from `used`."""

    def three(answer: Any) -> tuple[int, int, int]:
        return _positive(answer.total), int(answer.free), int(answer.used)

    version = getattr(ask.library, "nvmlMemory_v2", None)
    found = ask("memory", "nvmlDeviceGetMemoryInfo", handle, version, convert=three) if version else None
    found = found or ask("memory", "nvmlDeviceGetMemoryInfo", handle, convert=three)
    return found or (None, None, None)


def _tenants(ask: _Asker, handle: Any) -> tuple[Tenant, ...] | None:
    """The processes that compute on a GPU; None when NVML does not tell."""

    def tenants(answer: Any) -> tuple[Tenant, ...]:
        return tuple(
            Tenant(int(one.pid), None if one.usedGpuMemory is None else int(one.usedGpuMemory))
            for one in answer
        )

    found: tuple[Tenant, ...] | None = None
    for function in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2"):
        found = ask("tenants", function, handle, convert=tenants)
        if found is not None:
            break
    return found


def _links(ask: _Asker, handles: list[Any]) -> dict[tuple[int, int], tuple[bool | None, bool | None]]:
    """For every pair of GPUs, whether they reach each other's memory, and by NVLink."""
    links = {}
    for second, handle in enumerate(handles[:_MOST_LINKED_GPUS]):
        for first, other in enumerate(handles[:second]):
            if handle is None or other is None:
                continue
            read, nvlink = (
                ask(
                    "links", "nvmlDeviceGetP2PStatus", other, handle, kind, convert=lambda is_: is_ == _P2P_OK
                )
                for kind in (_P2P_READ, _P2P_NVLINK)
            )
            links[first, second] = (read, nvlink)
    return links


def _error_name(error: BaseException) -> str:
    """`LibraryNotFound` for NVMLError_LibraryNotFound."""
    return type(error).__name__.removeprefix("NVMLError_")


def _text(answer: Any) -> str:
    """A name without control characters; older versions of the module answer in bytes."""
    text = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else str(answer)
    return "".join(letter for letter in text if letter.isprintable())[:_NAME_LIMIT].strip()


def _cuda(answer: Any) -> str:
    """`13.0` for 13000."""
    return f"{int(answer) // 1000}.{int(answer) % 1000 // 10}"


def _capability(answer: Any) -> int:
    """90 for (9, 0)."""
    return int(answer[0]) * 10 + int(answer[1])


def _positive(answer: Any) -> int:
    """A number that says something; ValueError for 0, which some drivers answer instead of an error."""
    number = int(answer)
    if number <= 0:
        raise ValueError(f"it says {number}")
    return number
