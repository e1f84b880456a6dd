"""Captured machines, one file each in `machines/`; the file's name states the answer, `expected` all of it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import psutil
import pytest

from autolaunch.detect.machine import Machine, detect_machine
from autolaunch.detect.machine_file import read_machine_file
from tests.detect.stand_in import MACHINES, Nvml, load

DATA = Path(__file__).parent.parent.parent / "autolaunch" / "data"
CAPTURES = sorted(path.name for path in MACHINES.glob("*.json"))


def detect(capture: dict[str, Any], root: Path) -> tuple[Machine, Nvml]:
    """The machine of a capture, with its files under `root`."""
    for name, text in {"dev/nvidiactl": "", **capture.get("files", {})}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    library = Nvml(capture)
    return detect_machine(None, root, environ=capture["environ"], library=library), library


def answer_in(name: str) -> str:
    """`sm90`, `none` or `refused`, from the file's name."""
    return name.removesuffix(".json").rpartition(".")[2]


def test_there_are_enough() -> None:
    assert len(CAPTURES) >= 8
    assert {"sm70", "sm75", "sm80", "sm89", "sm90", "sm100", "sm103", "sm110", "sm120", "sm121"} <= set(
        map(answer_in, CAPTURES)
    )


@pytest.mark.parametrize("name", CAPTURES)
def test_the_name_states_the_answer(name: str, tmp_path: Path) -> None:
    machine, _ = detect(load(name), tmp_path)
    answer = answer_in(name)
    assert (machine.refusal is not None) == (answer == "refused")
    assert machine.sm == (int(answer[2:]) if answer.startswith("sm") else None)


@pytest.mark.parametrize("name", CAPTURES)
def test_the_whole_answer(name: str, tmp_path: Path) -> None:
    capture = load(name)
    expected = capture["expected"]
    machine, library = detect(capture, tmp_path)
    assert machine.platform == "cuda"
    assert len(machine.gpus) == expected["gpus"]
    assert [gpu.index for gpu in machine.gpus] == list(range(expected["gpus"]))
    assert machine.source == expected.get("source", "nvml" if capture["devices"] else "none")
    assert [notice.id for notice in machine.notes] == expected["notes"]
    assert (machine.nvlink, machine.p2p) == (expected["nvlink"], expected["p2p"])
    for field in ("driver", "cuda"):
        assert getattr(machine, field) == expected.get(field, getattr(machine, field))
    memory = expected.get("memory_bytes")
    memory = psutil.virtual_memory().total if memory == "host" else memory
    for gpu in machine.gpus if machine.sm or answer_in(name) == "none" else ():
        assert (gpu.sm_count, gpu.memory_bytes) == (expected["sm_count"], memory)
        assert gpu.unified is expected.get("unified", False)
        assert gpu.mig is expected.get("mig", False)
        assert gpu.product == expected["products"][0]
        assert gpu.name.isprintable()
        assert gpu.power_limit_w == expected.get("power_limit_w", gpu.power_limit_w)
    if "order" in expected:
        uuids = [one["nvmlDeviceGetUUID"] for one in capture["devices"]]
        assert [gpu.uuid for gpu in machine.gpus] == [uuids[place] for place in expected["order"]]
    if "uuids" in expected:
        assert [gpu.uuid for gpu in machine.gpus] == expected["uuids"]
    assert [gpu.index for gpu in machine.busy] == expected.get("busy", [])
    if "tenants" in expected:
        told = [[[one.pid, one.memory_bytes] for one in gpu.tenants] for gpu in machine.gpus]
        assert told == expected["tenants"]
    assert library.open == 0, "NVML is shut down"
    assert machine.sources["platform"]
    assert all(machine.sources.values())


@pytest.mark.parametrize("name", [name for name in CAPTURES if not name.startswith("unknown")])
def test_what_doctor_writes_can_be_planned_for(name: str, tmp_path: Path) -> None:
    machine, _ = detect(load(name), tmp_path / "root")
    file = tmp_path / "machine.json"
    file.write_text(json.dumps(machine.to_json()))
    read, software = read_machine_file(file)
    assert software is None
    assert (read.source, read.sm, read.driver, read.cuda) == (
        "file",
        machine.sm,
        machine.driver,
        machine.cuda,
    )
    assert (read.nvlink, read.p2p, read.cores) == (machine.nvlink, machine.p2p, machine.cores)
    assert (read.refusal is None) == (machine.refusal is None)
    for one, other in zip(read.gpus, machine.gpus, strict=True):
        assert (one.name, one.sm, one.sm_count, one.memory_bytes) == (
            other.name,
            other.sm,
            other.sm_count,
            other.memory_bytes,
        )
        assert (one.mig, one.unified, one.uuid, one.product) == (
            other.mig,
            other.unified,
            other.uuid,
            other.product,
        )


def test_the_ways_nvml_fails_say_what_was_tried_and_what_mends_it(tmp_path: Path) -> None:
    machine, _ = detect(load("driver-mismatch.none.json"), tmp_path)
    notice = machine.notes[0]
    assert notice.text == "could not read any GPU"
    assert "LibRmVersionMismatch" in notice.because[0]
    assert "of different versions" in notice.because[0]
    assert "/proc/driver/nvidia/gpus" in notice.because[1]
    assert notice.hint == "reboot, or reload the kernel module"


def test_without_the_package_the_machine_is_still_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    machine = detect_machine(None, tmp_path, environ={})
    assert (machine.platform, machine.gpus, machine.source) == ("cuda", (), "none")
    assert "nvidia-ml-py" in machine.notes[0].because[0]
    assert machine.notes[0].hint == "run `pip install nvidia-ml-py`"


def test_the_real_module_fits_the_stand_in() -> None:
    """Every function and number that is used exists in nvidia-ml-py under that name."""
    pynvml = pytest.importorskip("pynvml")
    capture = load("mig-h100-two-slices.sm90.json")
    capture["environ"] = {}
    library = Nvml(capture)
    detect_machine("cuda", Path("/"), environ={}, library=library)
    for name in {*library.calls, "nvmlDeviceGetP2PStatus", "nvmlDeviceGetMigDeviceHandleByIndex"}:
        assert callable(getattr(pynvml, name)), name
    assert pynvml.nvmlMemory_v2 == library.nvmlMemory_v2
    assert pynvml.NVML_P2P_CAPS_INDEX_NVLINK == 2
    assert pynvml.NVML_CLOCK_SM == 1
    for error in ("LibraryNotFound", "DriverNotLoaded", "LibRmVersionMismatch", "GpuIsLost", "NoPermission"):
        assert issubclass(getattr(pynvml, f"NVMLError_{error}"), pynvml.NVMLError)


@pytest.mark.parametrize("name", ["nvml_faults", "cuda_drivers", "companions"])
def test_every_row_says_where_it_is_from(name: str) -> None:
    table = tomllib.loads((DATA / f"{name}.toml").read_text())
    (rows,) = table.values()
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        assert row["reason"]
        assert not row["reason"].endswith(".")
        assert all(one["ref"] and one["checked"] for one in row["evidence"])


def test_a_machine_without_nvidia_is_not_asked(tmp_path: Path) -> None:
    library = Nvml(load("h200-x2.sm90.json"))
    for device in (None, "cpu", "npu"):
        machine = detect_machine(device, tmp_path, environ={}, library=library)
        assert (machine.gpus, machine.source, machine.notes) == ((), "none", ())
    assert library.calls == []


def test_narrowing_decides_again(tmp_path: Path) -> None:
    machine, _ = detect(load("mixed-a100-rtx4090.refused.json"), tmp_path)
    assert machine.refusal is not None
    assert "SM 8.9" in " ".join(machine.refusal.because)
    assert "SM 8.0" in " ".join(machine.refusal.because)
    uuids = ",".join(gpu.uuid or "" for gpu in machine.gpus[1:])
    assert f"CUDA_VISIBLE_DEVICES={uuids}" in (machine.refusal.hint or "")
    two = machine.used(2, base=1)
    assert (two.sm, two.refusal, len(two.gpus)) == (80, None, 2)
    assert machine.used(1).sm == 89
    assert machine.used(1).nvlink is None
    assert machine.used(2, base=0, step=2).refusal is not None
    assert machine.used(9) is machine
    assert machine.used(0).gpus == ()


def test_links_that_all_have_some_have_too(tmp_path: Path) -> None:
    machine, _ = detect(load("h200-x2.sm90.json"), tmp_path)
    assert machine.used(2).nvlink is True
    assert machine.used(1).nvlink is None
