"""What autolaunch plans for, as values: GPUs with what decides about kernels on them, driver, links, host.

`detect.machine` reads the one at hand, `detect.plan` makes one that is not here.  "Could not look" is not
"not there": a field that could not be read is None, and `notes` and `sources` say who was asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from autolaunch.detect.host import Platform
from autolaunch.detect.nvml import Tenant
from autolaunch.request.command_line import Notice

SCHEMA = "autolaunch.machine/1"

Source = Literal["nvml", "named", "file", "none"]
"""Who described the GPUs: NVML, the product table, a file, nobody."""

_USED_BYTES = 1 << 30
_USED_SHARE = 0.05
_MIXED = "SGLang chooses kernels for one compute capability, that of the GPU each rank runs on"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device as CUDA would enumerate it: a GPU, or a MIG slice of one."""

    index: int
    """Its CUDA ordinal."""
    name: str
    """As NVML names it, without control characters."""
    sm: int | None
    """Compute capability, 120 for 12.0; None when neither NVML nor the product table knows it."""
    sm_count: int | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_used_bytes: int | None = None
    """By processes, without what the driver keeps for itself."""
    uuid: str | None = None
    mig: bool = False
    power_limit_w: float | None = None
    tenants: tuple[Tenant, ...] = ()
    """Processes that compute on it; a container often sees none of its neighbours."""
    unified: bool = False
    """Whether it has no memory of its own and shares the host's."""
    product: str | None = None
    """The id of its row in `data/products.toml`, when it is a known one."""

    @property
    def is_busy(self) -> bool:
        """Whether somebody else computes here, by name or by memory that is taken."""
        used = self.memory_used_bytes
        if self.tenants:
            return True
        if used is None or self.unified:
            return False
        return used > max(_USED_BYTES, _USED_SHARE * (self.memory_bytes or 0))


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine at hand, or the one that is planned for."""

    platform: Platform
    source: Source
    cores: int
    memory_available_bytes: int
    gpus: tuple[Gpu, ...] = ()
    """Those visible to CUDA, in its order."""
    driver: str | None = None
    cuda: str | None = None
    """The newest CUDA the driver serves, `13.0`; what PyTorch was built with is in Software."""
    nvlink: bool | None = None
    """Whether every pair of `gpus` is joined by NVLink; None for one GPU, or when it could not be read."""
    p2p: bool | None = None
    """Whether every pair can read each other's memory directly."""
    shared_memory_bytes: int | None = None
    refusal: Notice | None = None
    """Why these GPUs cannot be planned for together; the stage decides what to do about it."""
    notes: tuple[Notice, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    """Fact (`platform`, `gpus`, `sm`, `sm_count`, `memory`, `driver`, …) to who spoke."""

    @property
    def sm(self) -> int | None:
        """The one compute capability of all GPUs; None when there is none, several, or it is not known."""
        found = {gpu.sm for gpu in self.gpus}
        return found.pop() if len(found) == 1 else None

    @property
    def busy(self) -> tuple[Gpu, ...]:
        """The GPUs on which somebody else computes."""
        return tuple(gpu for gpu in self.gpus if gpu.is_busy)

    def used(self, ranks: int, base: int = 0, step: int = 1) -> Machine:
        """This machine with only the GPUs that `ranks` processes take, by `--base-gpu-id` and its step.

        `refusal` is about those alone; links that are missing somewhere may not be missing among them.
        """
        chosen = self.gpus[max(0, base) :: max(1, step)][: max(0, ranks)]
        if chosen == self.gpus:
            return self
        lone = len(chosen) < 2
        return replace(
            self,
            gpus=chosen,
            nvlink=True if self.nvlink and not lone else None,
            p2p=True if self.p2p and not lone else None,
            refusal=refusal_of(chosen),
        )

    def to_json(self) -> dict[str, Any]:
        """What `--for-machine FILE` reads."""
        return {
            "schema": SCHEMA,
            "source": self.source,
            "platform": self.platform,
            "driver": self.driver,
            "cuda": self.cuda,
            "nvlink": self.nvlink,
            "p2p": self.p2p,
            "cores": self.cores,
            "memory_available_bytes": self.memory_available_bytes,
            "shared_memory_bytes": self.shared_memory_bytes,
            "gpus": [_gpu_json(gpu) for gpu in self.gpus],
            "sources": dict(self.sources),
        }


def _gpu_json(gpu: Gpu) -> dict[str, Any]:
    """One GPU, with who computes on it at the moment."""
    return {
        "index": gpu.index,
        "name": gpu.name,
        "sm": gpu.sm,
        "sm_count": gpu.sm_count,
        "memory_bytes": gpu.memory_bytes,
        "memory_free_bytes": gpu.memory_free_bytes,
        "memory_used_bytes": gpu.memory_used_bytes,
        "uuid": gpu.uuid,
        "mig": gpu.mig,
        "power_limit_w": gpu.power_limit_w,
        "unified": gpu.unified,
        "product": gpu.product,
        "tenants": [{"pid": one.pid, "memory_bytes": one.memory_bytes} for one in gpu.tenants],
    }


def refusal_of(gpus: Sequence[Gpu]) -> Notice | None:
    """Why `gpus` cannot be planned for together: they are of several compute capabilities."""
    by_sm: dict[int, list[Gpu]] = {}
    for gpu in gpus:
        if gpu.sm is not None:
            by_sm.setdefault(gpu.sm, []).append(gpu)
    if len(by_sm) < 2:
        return None
    kinds = [
        f"GPU {', '.join(str(one.index) for one in some)} ({some[0].name}) is SM {sm // 10}.{sm % 10}"
        for sm, some in by_sm.items()
    ]
    most = max(by_sm.values(), key=len)
    return Notice(
        "machine.mixed",
        "the GPUs are of several compute capabilities, so no choice of kernels is right for all",
        (*kinds, _MIXED),
        hint=f"use one kind: `CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={_visible(most)}`",
    )


def _visible(gpus: Sequence[Gpu]) -> str:
    """A value of CUDA_VISIBLE_DEVICES that shows exactly `gpus`, by UUID so that no order matters."""
    return ",".join(gpu.uuid if gpu.uuid else str(gpu.index) for gpu in gpus)


def gpus_per_node(tp: int = 1, pp: int = 1, dp: int = 1, nodes: int = 1, dp_attention: bool = False) -> int:
    """How many GPUs SGLang takes on each node; data-parallel attention shares those of tensor parallelism."""
    ranks = max(1, tp) * max(1, pp) * (1 if dp_attention else max(1, dp))
    return -(-ranks // max(1, nodes))
