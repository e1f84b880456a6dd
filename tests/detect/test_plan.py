"""Planning for a machine that is not here: by name, by compute capability, by number, by file."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from autolaunch.detect.machine import Gpu, Machine
from autolaunch.detect.plan import Planned, machine_for, sm_for, software_in
from autolaunch.errors import UsageError

HERE = Machine(
    platform="cuda",
    source="nvml",
    cores=8,
    memory_available_bytes=1 << 36,
    gpus=(Gpu(0, "NVIDIA H200", 90, 132, 143771 << 20, uuid="GPU-a"),),
    driver="580.159.04",
)


def here() -> Machine:
    """The machine at hand."""
    return HERE


def nobody() -> Machine:
    """Must not be looked at."""
    raise AssertionError("this machine was looked at")


def test_nothing_planned_is_this_machine() -> None:
    assert machine_for(Planned(), here) is HERE
    assert machine_for(Planned(sglang="0.5.9", flashinfer="0.6.3"), here, ranks=8) is HERE
    assert software_in(Planned()) is None


def test_by_name() -> None:
    machine = machine_for(Planned(gpu="rtx pro 6000"), nobody, ranks=8)
    assert (machine.source, machine.platform, machine.sm, len(machine.gpus)) == ("named", "cuda", 120, 8)
    assert [gpu.index for gpu in machine.gpus] == list(range(8))
    assert machine.gpus[0].sm_count == 188
    assert machine.gpus[0].memory_bytes == 97887 << 20
    assert machine.busy == ()
    assert machine.driver is None
    assert len(machine_for(Planned(gpu="H200", gpus=2), nobody, ranks=8).gpus) == 2


@pytest.mark.parametrize(
    ("text", "sm"),
    [
        ("120", 120),
        ("12.0", 120),
        ("sm_120", 120),
        ("SM120a", 120),
        ("sm_90a", 90),
        ("9.0", 90),
        ("10.3", 103),
        ("compute_89", 89),
        (" 70 ", 70),
        ("sm 121", 121),
    ],
)
def test_by_compute_capability(text: str, sm: int) -> None:
    machine = machine_for(Planned(sm=text), nobody)
    assert (machine.sm, len(machine.gpus)) == (sm, 1)
    assert (machine.gpus[0].memory_bytes, machine.gpus[0].sm_count) == (None, None)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("12", "--for-sm 120"),
        ("95", "--for-sm 90"),
        ("sm", "such as 90"),
        ("", "such as 90"),
        ("-1", "such as 90"),
        ("9" * 99999, "such as 90"),
        ("12.0.0", "such as 90"),
        ("\x1b[1m", "such as 90"),
    ],
)
def test_no_compute_capability(text: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        sm_for(text)
    assert hint in (caught.value.hint or "")
    assert "\x1b" not in str(caught.value)


def test_contradictions() -> None:
    assert machine_for(Planned(gpu="H200", sm="90"), nobody).sm == 90
    with pytest.raises(UsageError, match="contradict"):
        machine_for(Planned(gpu="H200", sm="120"), nobody)
    for other in ({"gpu": "H200"}, {"sm": "90"}):
        with pytest.raises(UsageError, match="both say"):
            machine_for(Planned(machine=Path("x"), **other), nobody)  # type: ignore[arg-type]
    for number in (0, -1, 100_000):
        with pytest.raises(UsageError, match="no number of GPUs"):
            machine_for(Planned(gpu="H200", gpus=number), nobody)


def test_more_of_what_is_here() -> None:
    machine = machine_for(Planned(gpus=4), here)
    assert (len(machine.gpus), machine.source, machine.driver) == (4, "nvml", "580.159.04")
    assert [gpu.uuid for gpu in machine.gpus] == [None] * 4
    assert machine_for(Planned(gpus=1), here) is HERE
    empty = Machine(platform="cpu", source="none", cores=1, memory_available_bytes=1)
    with pytest.raises(UsageError, match="does not say which GPUs"):
        machine_for(Planned(gpus=2), lambda: empty)


def write(path: Path, document: Any) -> Path:
    """A machine file."""
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def test_by_file(tmp_path: Path) -> None:
    file = write(tmp_path / "m.json", HERE.to_json())
    machine = machine_for(Planned(machine=file), nobody)
    assert (machine.source, machine.sm, machine.driver) == ("file", 90, "580.159.04")
    assert len(machine_for(Planned(machine=file, gpus=8), nobody).gpus) == 8
    assert software_in(Planned(machine=file)) is None


def test_a_file_by_hand_needs_little(tmp_path: Path) -> None:
    document = {
        "machine": {"gpus": [{"name": "RTX 5090"}, {"sm": 89}]},
        "software": {
            "sglang": "0.5.17",
            "flashinfer": {"version": "0.6.15.post1"},
            "others": {"tilelang": "0.1"},
            "modules": {"hpc": True, "quack": None, "unheard.of": True},
        },
    }
    file = write(tmp_path / "m.json", document)
    machine = machine_for(Planned(machine=file), nobody)
    assert [gpu.sm for gpu in machine.gpus] == [120, 89]
    assert machine.gpus[0].sm_count == 170
    assert machine.refusal is not None
    software = software_in(Planned(machine=file))
    assert software is not None
    assert (software.sglang.version, software.sglang.source) == ("0.5.17", "assumed")
    assert software.flashinfer.version == "0.6.15.post1"
    assert software.others["tilelang"].version == "0.1"
    assert software.modules == {"hpc": True, "quack": None}
    assert software.torch.version is None


GPU = {"sm": 90}
WRONG: list[Any] = [
    "",
    "[",
    "null",
    "[]",
    "3",
    '"text"',
    "{}",
    "NaN",
    '{"gpus": [{"sm": Infinity}]}',
    '{"gpus": ' + "[" * 100_000,
    "1" * 1_000_000,
    '{"gpus": [{"sm": ' + "9" * 100_000 + "}]}",
    {"gpus": None},
    {"gpus": {}},
    {"gpus": "x"},
    {"gpus": [1]},
    {"gpus": [None]},
    {"gpus": [{}]},
    {"gpus": [{"sm": "90"}]},
    {"gpus": [{"sm": True}]},
    {"gpus": [{"sm": 9.0}]},
    {"gpus": [{"sm": -1}]},
    {"gpus": [{"sm": 5}]},
    {"gpus": [{"name": "no such GPU"}]},
    {"gpus": [{"name": ["H200"]}]},
    {"gpus": [{"sm": 90, "name": "\x1b[31mH200"}]},
    {"gpus": [{"sm": 90, "name": "x" * 1000}]},
    {"gpus": [{"sm": 90, "memory_bytes": -1}]},
    {"gpus": [{"sm": 90, "memory_bytes": 1 << 70}]},
    {"gpus": [{"sm": 90, "memory_bytes": "80 GB"}]},
    {"gpus": [{"sm": 90, "mig": 1}]},
    {"gpus": [{"sm": 90, "power_limit_w": "much"}]},
    {"gpus": [GPU] * 5000},
    {"gpus": [GPU], "platform": "tpu"},
    {"gpus": [GPU], "nvlink": "yes"},
    {"gpus": [GPU], "driver": 580},
    {"gpus": [GPU], "cores": -4},
    {"machine": []},
    {"machine": {"gpus": [GPU]}, "software": []},
    {"machine": {"gpus": [GPU]}, "software": {"sglang": "0.5.23", "flashinfer": "../../x"}},
    {"machine": {"gpus": [GPU]}, "software": {"sglang": "0.5.23", "others": 3}},
    {"machine": {"gpus": [GPU]}, "software": {"sglang": "0.5.23", "modules": {"hpc": "yes"}}},
    {"machine": {"gpus": [GPU]}, "software": {"sglang": 5}},
]


@pytest.mark.parametrize(
    "document", WRONG, ids=lambda one: (one if isinstance(one, str) else json.dumps(one))[:50]
)
def test_a_file_that_describes_no_machine(document: Any, tmp_path: Path) -> None:
    started = time.process_time()
    with pytest.raises(UsageError) as caught:
        machine_for(Planned(machine=write(tmp_path / "m.json", document)), nobody)
    assert time.process_time() - started < 2
    assert "--for-machine" in str(caught.value)
    assert "doctor --format json" in (caught.value.hint or "")
    assert "\x1b" not in str(caught.value)


def test_what_is_no_file(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(200 << 20)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\x80\xff\x00")
    odd = (Path("/dev/zero"), Path("a\0b"), Path("x" * 5000), Path("\x1b[31m"))
    for path in (tmp_path / "absent", tmp_path, fifo, loop, large, binary, *odd):
        started = time.process_time()
        with pytest.raises(UsageError, match="--for-machine") as caught:
            machine_for(Planned(machine=path), nobody)
        assert time.process_time() - started < 2
        assert len(str(caught.value)) < 600
        assert "\x1b" not in str(caught.value)
