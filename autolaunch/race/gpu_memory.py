"""Waits until the memory of ended engines is free again, by NVML; says what holds it where it is not.

The driver gives memory back some time after a process is gone, and the server that comes next sizes its
cache by what is free when it starts.  Asking NVML makes no CUDA context.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autolaunch.detect.gpus import Gpu
from autolaunch.detect.nvml import Device, Reading, read_nvml
from autolaunch.race.engine import Engine
from autolaunch.race.journal import Journal
from autolaunch.race.progress import Progress
from autolaunch.units import format_bytes

WAIT_LIMIT_S = 30.0
BETWEEN_LIMIT_S = 10.0
"""Between waves less depends on it: an engine that finds too little memory is tried again."""
BACK_SHARE = 0.8
"""Of an even share, for engines are not all of one size."""
POLL_S = 0.25
SLACK_BYTES = 256 << 20
"""What may be missing all the same: the driver's own use moves by some ten MiB."""


@dataclass(frozen=True, slots=True)
class Returned:
    """What came of one wait."""

    waited_s: float
    missing: Mapping[str, int]
    """GPU to the bytes that are not free though they were before; empty where all is well."""
    holders: tuple[str, ...] = ()
    """`process 123 (python) holds 2.0 GiB of GPU 0`, as far as the driver tells."""
    looked: bool = True
    """False where NVML did not answer."""

    @property
    def words(self) -> str | None:
        """What a person should know; None where the memory is free."""
        if not self.missing:
            return None
        lost = ", ".join(f"{format_bytes(count)} of {gpu}" for gpu, count in self.missing.items())
        who = "; ".join(self.holders) or "the driver does not say by whom"
        return f"{lost} still taken {self.waited_s:.0f} s after the last engine ended: {who}"

    def to_json(self) -> dict[str, Any]:
        """What a journal keeps of it."""
        return {
            "waited_s": self.waited_s,
            "missing": dict(self.missing),
            "holders": list(self.holders),
            "looked": self.looked,
        }


@dataclass(frozen=True, slots=True)
class Footprint:
    """What one engine has taken of the GPUs, by the driver."""

    held: Mapping[str, int]
    """GPU to the bytes of all its processes there; without those that the driver does not tell."""
    pool_tokens: int | None
    """Tokens of its cache of keys and values."""


@dataclass(frozen=True, slots=True)
class KvBudget:
    """The caches of keys and values of the whole server as the original is typed."""

    tokens: int
    token_bytes: float
    """On one GPU, in all layers."""
    trial_token_bytes: float
    """On one GPU, in the layers that the engines of the race have."""

    def tokens_of(self, mine: Footprint, original: Footprint) -> int | None:
        """Tokens that are left to a candidate that takes more than the original beside its cache.

        None where the driver does not tell.  Taking less makes no more tokens.

        NOTE: what grows with the layers, such as weights laid out anew, grows on to the whole depth, and is
        counted as it is in the slice.
        """
        if mine.pool_tokens is None or original.pool_tokens is None or not mine.held:
            return None
        if set(mine.held) != set(original.held) or self.token_bytes <= 0:
            return None
        pool_bytes = (mine.pool_tokens - original.pool_tokens) * self.trial_token_bytes
        more_bytes = max(held - original.held[name] - pool_bytes for name, held in mine.held.items())
        return max(0, int(self.tokens - max(0.0, more_bytes) / self.token_bytes))


class GpuMemory:
    """The free memory of the GPUs in use."""

    def __init__(
        self,
        gpus: Sequence[Gpu],
        *,
        read: Callable[[], Reading] = read_nvml,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._gpus = tuple(gpu for gpu in gpus if not gpu.unified)
        self._read = read
        self._clock = clock
        self._sleep = sleep

    def free(self) -> dict[str, int]:
        """Free bytes of each GPU, by its name here (`GPU 0`); those that NVML does not tell are left out."""
        return {
            name: device.memory_free_bytes
            for name, device in self._devices()
            if device.memory_free_bytes is not None
        }

    def held(self, pids: Mapping[str, Collection[int]]) -> dict[str, dict[str, int]]:
        """Bytes that each group of processes holds, by GPU; without GPUs on which the driver tells of none.

        In a container the driver's process ids may be those of the machine, and none of ours is among them.
        """
        devices = dict(self._devices())
        found: dict[str, dict[str, int]] = {name: {} for name in pids}
        for gpu, device in devices.items():
            for name, group in pids.items():
                counts = [one.memory_bytes for one in device.tenants or () if one.pid in group]
                known = [count for count in counts if count is not None]
                if known and len(known) == len(counts):
                    found[name][gpu] = sum(known)
        return found

    def wait(self, before: Mapping[str, int], limit_s: float = WAIT_LIMIT_S) -> Returned:
        """Wait until as much is free as in `before`, at most `limit_s`."""
        started_s = self._clock()
        while True:
            devices = dict(self._devices())
            missing = {
                name: count - device.memory_free_bytes
                for name, count in before.items()
                if (device := devices.get(name)) is not None
                and device.memory_free_bytes is not None
                and count - device.memory_free_bytes > SLACK_BYTES
            }
            waited_s = self._clock() - started_s
            if not missing or waited_s >= limit_s:
                holders = tuple(self._holders(devices, missing))
                return Returned(waited_s, missing, holders, looked=bool(devices) or not before)
            self._sleep(POLL_S)

    def _devices(self) -> Iterator[tuple[str, Device]]:
        """The devices of these GPUs, slices of MIG included, by their names here."""
        if not self._gpus:
            return
        found = [one for device in self._read().devices for one in (device, *device.slices)]
        by_uuid = {device.uuid: device for device in found if device.uuid}
        for gpu in self._gpus:
            device = by_uuid.get(gpu.uuid) if gpu.uuid else _nth(found, gpu.index)
            if device is not None:
                yield f"GPU {gpu.index}", device

    @staticmethod
    def _holders(devices: Mapping[str, Device], missing: Mapping[str, int]) -> Iterator[str]:
        """Who holds memory of the GPUs that lack some."""
        for name in missing:
            for tenant in devices[name].tenants or ():
                held = f" holds {format_bytes(tenant.memory_bytes)}" if tenant.memory_bytes else " is"
                yield f"process {tenant.pid} ({_command(tenant.pid)}){held} on {name}"


class Ledger:
    """What a race takes of the GPUs and gets back, with an entry in the journal for each wait."""

    def __init__(self, memory: GpuMemory | None, journal: Journal, progress: Progress) -> None:
        """Without `memory`, as on a CPU, nothing is looked at and nothing waited for."""
        self._memory = memory
        self._journal = journal
        self._progress = progress
        self._before: dict[str, int] = {}
        self._loaded: dict[str, int] = {}
        self._up = 0

    def begin(self) -> None:
        """Nothing of the race is up yet."""
        self._before = self._memory.free() if self._memory is not None else {}

    def loaded(self, up: int) -> None:
        """A wave is there, and `up` engines are up."""
        if self._memory is None or not self._before:
            return
        self._loaded, self._up = self._memory.free(), up
        taken = {name: self._before[name] - free for name, free in self._loaded.items()}
        self._journal.write("gpu-use", engines=up, taken=taken)

    def footprints(self, engines: Mapping[str, Engine]) -> dict[str, Footprint]:
        """What each of `engines` has taken."""
        if self._memory is None or not engines:
            return {}
        held = self._memory.held({name: engine.pids for name, engine in engines.items()})
        found = {
            name: Footprint(held[name], engine.facts.get("kv_tokens")) for name, engine in engines.items()
        }
        self._journal.write("footprints", held=held)
        return found

    def between(self, up: int) -> None:
        """Some engines have ended since, and others are about to start: wait for most of what they had."""
        if self._memory is None or not self._loaded or up >= self._up:
            return
        share = BACK_SHARE * (self._up - up) / self._up
        expected = {
            name: free + int(share * max(0, self._before[name] - free)) for name, free in self._loaded.items()
        }
        self._journal.write(
            "gpu-memory", when="between", **self._memory.wait(expected, BETWEEN_LIMIT_S).to_json()
        )
        self._up = up

    def end(self) -> None:
        """All engines have ended: the server that comes next must find the memory that was free before."""
        if self._memory is None or not self._before:
            return
        returned = self._memory.wait(self._before)
        self._journal.write("gpu-memory", when="end", **returned.to_json())
        if returned.words is not None:
            self._progress.say(returned.words)


def _nth(devices: Sequence[Device], index: int) -> Device | None:
    """The GPU of NVML's number `index`, for drivers that tell no UUID."""
    return next((one for one in devices if one.index == index and one.instance is None), None)


def _command(pid: int) -> str:
    """The name of a process; that of another container is not known here."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "not of this container"
