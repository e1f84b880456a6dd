"""Waiting for the memory of ended engines, by scripted NVML."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from autolaunch.detect.gpus import Gpu
from autolaunch.detect.nvml import Device, Fault, Reading, Tenant
from autolaunch.race.gpu_memory import SLACK_BYTES, WAIT_LIMIT_S, Footprint, GpuMemory, KvBudget

GIB = 1 << 30
GPU = Gpu(0, "H200", 90, uuid="GPU-a")
FREE = Device(3, uuid="GPU-a", memory_bytes=140 * GIB, memory_free_bytes=139 * GIB)


class Driver:
    """NVML whose answers change as time passes."""

    def __init__(self, *changes: tuple[float, Reading]) -> None:
        self.now = 0.0
        self.changes = changes
        self.asked = 0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def read(self) -> Reading:
        self.asked += 1
        return [reading for since, reading in self.changes if since <= self.now][-1]

    def memory(self, *gpus: Gpu) -> GpuMemory:
        return GpuMemory(gpus or (GPU,), read=self.read, clock=self.clock, sleep=self.sleep)


def reading(*devices: Device) -> Reading:
    """An answer of NVML."""
    return Reading(devices)


def taken(count: int, **fields: object) -> Device:
    """The GPU with `count` bytes less."""
    return replace(FREE, memory_free_bytes=139 * GIB - count, **fields)  # type: ignore[arg-type]


def test_what_is_free_is_not_waited_for() -> None:
    driver = Driver((0, reading(FREE)))
    memory = driver.memory()
    assert memory.free() == {"GPU 0": 139 * GIB}
    returned = memory.wait(memory.free())
    assert (returned.waited_s, returned.missing, returned.words) == (0, {}, None)


def test_memory_that_comes_back() -> None:
    driver = Driver(
        (0, reading(taken(8 * GIB))), (1.9, reading(taken(1 * GIB))), (3.1, reading(taken(SLACK_BYTES)))
    )
    returned = driver.memory().wait({"GPU 0": 139 * GIB})
    assert 3.1 <= returned.waited_s < 3.5
    assert returned.words is None


def test_memory_that_stays_away_is_named_with_its_holder() -> None:
    tenants = (Tenant(os.getpid(), 2 * GIB), Tenant(2**22 + 1, None))
    driver = Driver((0, reading(taken(2 * GIB, tenants=tenants))))
    returned = driver.memory().wait({"GPU 0": 139 * GIB})
    assert WAIT_LIMIT_S <= returned.waited_s < WAIT_LIMIT_S + 1
    assert returned.missing == {"GPU 0": 2 * GIB}
    assert returned.words is not None
    assert returned.words.startswith(
        "2.0 GiB of GPU 0 still taken 30 s after the last engine ended: process "
    )
    assert f"process {os.getpid()} (" in returned.words
    assert "holds 2.0 GiB on GPU 0" in returned.words
    assert "(not of this container) is on GPU 0" in returned.words


def test_a_driver_that_says_nothing_of_processes() -> None:
    returned = Driver((0, reading(taken(2 * GIB)))).memory().wait({"GPU 0": 139 * GIB}, limit_s=1)
    assert returned.words == (
        "2.0 GiB of GPU 0 still taken 1 s after the last engine ended: the driver does not say by whom"
    )


@pytest.mark.parametrize(
    "answer",
    [
        Reading(fault=Fault("LibraryNotFound", "no")),
        reading(),
        reading(replace(FREE, memory_free_bytes=None)),
    ],
)
def test_a_driver_that_does_not_answer_is_not_waited_for(answer: Reading) -> None:
    driver = Driver((0, answer))
    assert driver.memory().free() == {}
    driver = Driver((0, answer))
    returned = driver.memory().wait({"GPU 0": 139 * GIB})
    assert (returned.waited_s, returned.missing) == (0, {})


def test_nvml_that_goes_away_is_said() -> None:
    returned = Driver((0, Reading(fault=Fault("GpuIsLost", "lost")))).memory().wait({"GPU 0": 1})
    assert returned.looked is False


def test_only_gpus_in_use_are_looked_at_mig_and_unnamed_ones_too() -> None:
    part = Device(0, uuid="MIG-b", memory_free_bytes=10 * GIB, instance=(1, 0))
    other = Device(0, uuid="GPU-z", memory_free_bytes=1, mig_enabled=True, slices=(part,))
    driver = Driver((0, reading(other, FREE)))
    assert driver.memory(replace(GPU, index=5)).free() == {"GPU 5": 139 * GIB}
    assert driver.memory(Gpu(0, "slice", 90, uuid="MIG-b", mig=True)).free() == {"GPU 0": 10 * GIB}
    assert driver.memory(Gpu(3, "H200", 90)).free() == {"GPU 3": 139 * GIB}


def test_memory_shared_with_the_host_is_not_waited_for() -> None:
    driver = Driver((0, reading(FREE)))
    assert driver.memory(replace(GPU, unified=True)).free() == {}
    assert driver.asked == 0


def test_what_an_engine_holds_is_what_its_processes_hold() -> None:
    device = taken(
        9 * GIB, tenants=(Tenant(11, 2 * GIB), Tenant(12, GIB), Tenant(21, 5 * GIB), Tenant(31, None))
    )
    memory = Driver((0, reading(device))).memory()
    assert memory.held({"c0": (10, 11, 12), "c1": {21}, "c2": [31], "c3": [99]}) == {
        "c0": {"GPU 0": 3 * GIB},
        "c1": {"GPU 0": 5 * GIB},
        "c2": {},
        "c3": {},
    }


def test_a_driver_that_tells_of_no_processes() -> None:
    assert Driver((0, reading(FREE))).memory().held({"c0": (1,)}) == {"c0": {}}


BUDGET = KvBudget(tokens=400_000, token_bytes=100_000, trial_token_bytes=10_000)
ORIGINAL = Footprint({"GPU 0": 9 * GIB, "GPU 1": 9 * GIB}, pool_tokens=16384)


@pytest.mark.parametrize(
    ("footprint", "tokens"),
    [
        (ORIGINAL, 400_000),
        (Footprint({"GPU 0": 9 * GIB, "GPU 1": 9 * GIB + 10**9}, 16384), 390_000),
        (Footprint({"GPU 0": 8 * GIB, "GPU 1": 8 * GIB}, 16384), 400_000),
        (Footprint({"GPU 0": 9 * GIB + 10**8, "GPU 1": 9 * GIB}, 26384), 400_000),
        (Footprint({"GPU 0": 9 * GIB, "GPU 1": 9 * GIB}, 6384), 399_000),
        (Footprint({"GPU 0": 99 * GIB, "GPU 1": 9 * GIB}, 16384), 0),
        (Footprint({"GPU 0": 9 * GIB}, 16384), None),
        (Footprint({}, 16384), None),
        (Footprint(dict(ORIGINAL.held), None), None),
    ],
)
def test_what_a_candidate_takes_more_is_taken_from_its_cache(
    footprint: Footprint, tokens: int | None
) -> None:
    assert BUDGET.tokens_of(footprint, ORIGINAL) == tokens
