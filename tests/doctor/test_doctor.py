"""`autolaunch doctor`: what it finds, what it says of it, what mends it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from autolaunch.detect.machine_file import read_machine_file
from autolaunch.doctor import doctor
from tests.detect.stand_in import Nvml, load
from tests.detect.test_software import install

HEALTHY = {
    "sglang": "0.5.23",
    "flashinfer_python": "0.7.2",
    "flashinfer_cubin": "0.7.2",
    "torch": "2.14.1",
    "sglang_kernel": "0.4.10",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A root with a driver's file, a toolkit, and an environment whose Python finds SGLang in `site`."""
    for name in ("root/dev/nvidiactl", "root/usr/local/cuda/include/cuda_runtime.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for name in ("root/usr/local/cuda/bin/nvcc", "bin/ninja", "bin/c++"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch(mode=0o755)
    return tmp_path


def examine(place: Path, packages: dict[str, str], capture: str, **environ: str) -> doctor.Report:
    """The report on a captured machine with these packages."""
    site = install(place / "site", packages)
    (site / "sglang/launch_server.py").touch()
    (site / "sglang/version.py").write_text(f'__version__ = "{packages["sglang"]}"\n')
    python = place / "bin/python3"
    # No site packages of ours, and only `site` on its path.
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{site}" exec "{_base_python()}" -S "$@"\n')
    python.chmod(0o755)
    told = load(capture)
    variables = {"PATH": str(place / "bin"), "HOME": str(place), **told["environ"], **environ}
    return doctor.run(str(python), variables, place, root=place / "root", library=Nvml(told))


def _base_python() -> str:
    """The interpreter below any virtual environment."""
    return str(Path(sys.executable).resolve())


def statuses(report: doctor.Report) -> dict[str, str]:
    """Check to status, without those that are well."""
    return {check.id: check.status for check in report.checks if check.status != "ok"}


def check(report: doctor.Report, name: str) -> Any:
    """One check."""
    return next(one for one in report.checks if one.id == name)


def test_all_is_well(place: Path) -> None:
    report = examine(place, HEALTHY, "h200-x2.sm90.json")
    assert statuses(report) == {}
    assert report.exit_code == 0
    text = doctor.render_table(report)
    assert "2 × NVIDIA H200, SM 9.0, 132 SMs, 140.4 GiB; all pairs by NVLink  (NVML)" in text
    assert "compute capability         NVML" in text
    assert text.endswith("SGLang can run here")
    assert "\x1b" not in text
    assert "\x1b[32mok" in doctor.render_table(report, colour=True)


def test_what_is_written_can_be_planned_for(place: Path) -> None:
    report = examine(place, HEALTHY, "h200-x2.sm90.json")
    file = place / "machine.json"
    file.write_text(doctor.render_json(report))
    document = json.loads(file.read_text())
    assert document["schema"] == "autolaunch.doctor/1"
    assert document["machine"]["gpus"][0]["sm"] == 90
    machine, software = read_machine_file(file)
    assert machine.sm == 90
    assert software is not None
    assert software.sglang.version == "0.5.23"
    assert software.flashinfer.version == "0.7.2"
    assert software.cuda.version == "13.0"
    assert software.others["flashinfer-cubin"].version == "0.7.2"


def test_packages_that_do_not_fit(place: Path) -> None:
    packages = {
        "sglang": "0.5.23",
        "flashinfer_python": "0.6.18",
        "flashinfer_cubin": "0.7.2",
        "torch": "2.14.1",
    }
    report = examine(place, packages, "h200-x2.sm90.json")
    assert statuses(report) == {
        "flashinfer-python": "warning",
        "flashinfer-cubin": "failed",
        "sglang-kernel": "missing",
    }
    assert report.exit_code == 1
    mend = check(report, "sglang-kernel").mend
    assert mend == f"{place}/bin/python3 -m pip install sglang-kernel==0.4.10"
    assert "flashinfer-cubin==0.6.18" in check(report, "flashinfer-cubin").mend
    assert "mend: " in doctor.render_table(report)


@pytest.mark.parametrize(
    ("flashinfer", "ready", "variable", "status"),
    [
        ("0.6.18", "0.6.17", "", "failed"),
        ("0.6.18", "0.6.17", "1", None),
        ("0.7.2", "0.6.18", "", "warning"),
        ("0.7.2", "0.7.2", "", None),
    ],
)
def test_ready_kernels_of_another_version(
    flashinfer: str, ready: str, variable: str, status: str | None, place: Path
) -> None:
    packages = HEALTHY | {
        "sglang": "0.5.23" if flashinfer == "0.7.2" else "0.5.21",
        "torch": "2.14.1" if flashinfer == "0.7.2" else "2.13.0",
        "sglang_kernel": "0.4.10" if flashinfer == "0.7.2" else "0.4.7",
        "flashinfer_python": flashinfer,
        "flashinfer_cubin": ready,
        "flashinfer_jit_cache": f"{ready}+cu130",
    }
    variables = {"FLASHINFER_DISABLE_VERSION_CHECK": variable} if variable else {}
    report = examine(place, packages, "h200-x2.sm90.json", **variables)
    expected = {} if status is None else {"flashinfer-cubin": status, "flashinfer-jit-cache": status}
    assert statuses(report) == expected


def test_an_old_sglang_wants_the_old_name(place: Path) -> None:
    report = examine(place, {"sglang": "0.5.9", "torch": "2.9.1"}, "h200-x2.sm90.json")
    assert check(report, "sgl-kernel").mend.endswith("sgl-kernel==0.3.21")


def test_an_unknown_sglang_has_no_known_pins(place: Path) -> None:
    report = examine(place, {**HEALTHY, "sglang": "0.9.9"}, "h200-x2.sm90.json")
    assert statuses(report) == {"pins": "unknown"}
    assert report.exit_code == 0


def test_a_driver_that_is_too_old(place: Path) -> None:
    report = examine(place, HEALTHY, "v100-x4-old-driver.sm70.json")
    assert statuses(report) == {"driver": "failed"}
    assert "580.65.06" in check(report, "driver").mend


def test_neighbours(place: Path) -> None:
    report = examine(place, HEALTHY, "a100-x2-neighbour.sm80.json")
    busy = {name: status for name, status in statuses(report).items() if name.startswith("gpu-")}
    assert busy == {"gpu-0-busy": "warning", "gpu-1-busy": "warning"}
    assert "process 4242 with 59.5 GiB" in check(report, "gpu-0-busy").because[0]
    assert "cannot be seen" in check(report, "gpu-1-busy").because[0]


@pytest.mark.parametrize(
    ("capture", "failed"),
    [
        ("mixed-a100-rtx4090.refused.json", "mixed"),
        ("driver-mismatch.none.json", "nvml"),
        ("container-given-nothing.none.json", "container"),
        ("no-library.none.json", "nvml"),
    ],
)
def test_what_stands_in_the_way(capture: str, failed: str, place: Path) -> None:
    report = examine(place, HEALTHY, capture)
    assert statuses(report)[failed] == "failed"
    assert report.exit_code == 1
    assert check(report, failed).mend


def test_variables_that_hide_gpus(place: Path) -> None:
    report = examine(place, HEALTHY, "h200-x2.sm90.json", CUDA_VISIBLE_DEVICES="0,\x1b[31m")
    assert statuses(report) == {"visible-ends": "warning"}
    assert "\x1b" not in doctor.render_table(report)
    assert report.exit_code == 0


def test_a_variable_that_leaves_no_gpu(place: Path) -> None:
    report = examine(place, HEALTHY, "h200-x2.sm90.json", CUDA_VISIBLE_DEVICES="0,0")
    assert statuses(report) == {"gpus": "missing", "visible-none": "failed"}
    assert "names one GPU twice" in check(report, "visible-none").because[0]


def test_a_small_shared_memory(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autolaunch.detect.host.shared_memory_bytes", lambda root: 64 << 20)
    (place / "root/.dockerenv").touch()
    report = examine(place, HEALTHY, "h200-x2.sm90.json")
    assert statuses(report) == {"shared-memory": "warning"}
    assert "--ipc=host" in check(report, "shared-memory").mend


def test_no_sglang_anywhere(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autolaunch.request.interpreter.sys.executable", None)
    library = Nvml(load("h200-x2.sm90.json"))
    report = doctor.run(None, {"PATH": "/nowhere"}, place, root=place / "root", library=library)
    assert statuses(report)["sglang"] == "missing"
    assert report.software.sglang.source == "assumed"
    assert len(report.machine.gpus) == 2
    document = json.loads(doctor.render_json(report))
    assert document["interpreter"] is None


def test_a_missing_compiler(place: Path) -> None:
    (place / "bin/c++").unlink()
    report = examine(place, HEALTHY, "h200-x2.sm90.json")
    assert statuses(report) == {"toolchain": "warning"}
    assert check(report, "toolchain").because == ("a C++ compiler was not found",)


def test_a_cuda_home_without_a_toolkit(place: Path) -> None:
    report = examine(place, HEALTHY, "h200-x2.sm90.json", CUDA_HOME=str(place / "empty"))
    assert statuses(report) == {"toolchain": "warning"}
    assert "CUDA_HOME" in check(report, "toolchain").because[-1]


def test_a_machine_without_gpus_is_no_fault(place: Path) -> None:
    (place / "root/dev/nvidiactl").unlink()
    report = examine(place, {"sglang": "0.5.21"}, "no-library.none.json")
    assert statuses(report) == {}
    assert "no NVIDIA GPU" in check(report, "gpus").what
