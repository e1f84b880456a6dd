"""Which platform SGLang will use, from device files alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autolaunch.detect.host import cores_available, cpu_name
from autolaunch.detect.machine import detect_machine, gpus_per_node, memory_available_bytes


@pytest.mark.parametrize(
    ("files", "device", "platform"),
    [
        ([], None, "cpu"),
        (["dev/nvidiactl"], None, "cuda"),
        (["dev/kfd"], None, "other"),
        (["dev/nvidiactl"], "cpu", "cpu"),
        ([], "cuda:1", "cuda"),
        ([], "npu", "other"),
    ],
)
def test_platform(files: list[str], device: str | None, platform: str, tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    machine = detect_machine(device, tmp_path)
    assert machine.platform == platform
    assert machine.source


def test_a_cgroup_limit_counts(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("1000000\n")
    (group / "memory.current").write_text("400000\n")
    assert memory_available_bytes(tmp_path) == 600000
    (group / "memory.max").write_text("max\n")
    assert memory_available_bytes(tmp_path) > 600000


def test_a_cgroup_quota_counts(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup"
    (group / "cpu").mkdir(parents=True)
    free = cores_available(tmp_path)
    assert free >= 1
    (group / "cpu/cpu.cfs_quota_us").write_text("50000\n")
    (group / "cpu/cpu.cfs_period_us").write_text("100000\n")
    assert cores_available(tmp_path) == 1
    for text, cores in (("max 100000", free), ("150000 100000", min(free, 2)), ("nonsense", free)):
        (group / "cpu.max").write_text(text)
        assert cores_available(tmp_path) == cores


@pytest.mark.parametrize(
    ("arguments", "gpus"),
    [
        ({}, 1),
        ({"tp": 8}, 8),
        ({"tp": 4, "pp": 2}, 8),
        ({"tp": 2, "dp": 4}, 8),
        ({"tp": 8, "dp": 8, "dp_attention": True}, 8),
        ({"tp": 16, "nodes": 2}, 8),
        ({"tp": 0, "nodes": 0}, 1),
    ],
)
def test_how_many_gpus_a_node_gives(arguments: dict[str, Any], gpus: int) -> None:
    assert gpus_per_node(**arguments) == gpus


def test_what_a_cpu_calls_itself(tmp_path: Path) -> None:
    assert cpu_name(tmp_path) is None
    (tmp_path / "proc").mkdir()
    info = tmp_path / "proc" / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+\nflags\t: amx_tile\n" * 9)
    assert cpu_name(tmp_path) == "Intel(R) Xeon(R) Platinum 8480+"
    info.write_bytes(b"processor\t: 0\nBogoMIPS\t: 50.00\nmodel name\t:\n\xff")
    assert cpu_name(tmp_path) is None
