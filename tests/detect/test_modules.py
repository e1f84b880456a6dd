"""Which modules an interpreter could import, told by its folders."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autolaunch.capability.fact_names import FACT_NAMES, MODULE
from autolaunch.capability.versions import parse_range
from autolaunch.detect.modules import asked_for, modules_in
from autolaunch.detect.software import detect_software
from autolaunch.request.interpreter import Interpreter
from tests.detect.test_software import INSTALLED, install


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder for packages, beside a standard library."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/contextlib.py").touch()
    (tmp_path / "site").mkdir()
    return tmp_path / "site"


def found(site: Path, *installed: str) -> dict[str, bool | None]:
    """The modules of a path that has a standard library."""
    return modules_in((str(site), str(site.parent / "lib"), "/nowhere"), installed)


def test_every_module_is_a_fact_and_its_versions_are_some() -> None:
    assert {f"{MODULE}{one.name}" for one in asked_for()} == {
        name for name in FACT_NAMES if name.startswith(MODULE)
    }
    assert all(one.sglang is None or parse_range(one.sglang).holds("0.5.23") for one in asked_for())


def test_nothing_is_there(site: Path) -> None:
    assert set(found(site).values()) == {False}


@pytest.mark.parametrize(
    ("place", "module"),
    [
        ("quack/__init__.py", "quack"),
        ("hpc.py", "hpc"),
        ("hpc.cpython-312-x86_64-linux-gnu.so", "hpc"),
        ("flash_attn/cute/interface.py", "flash_attn.cute"),
    ],
)
def test_packages_files_and_extensions_are_found(site: Path, place: str, module: str) -> None:
    (site / place).parent.mkdir(parents=True, exist_ok=True)
    (site / place).touch()
    assert [name for name, there in found(site).items() if there] == [module]


def test_another_flash_attn_is_not_its_version_4(site: Path) -> None:
    (site / "flash_attn").mkdir()
    (site / "flash_attn/flash_attn_interface.py").touch()
    assert found(site)["flash_attn.cute"] is False


def test_what_reaches_its_modules_in_its_own_way_is_there(site: Path) -> None:
    """CuTe DSL adds a folder to the path by a `.pth` file, and an editable installation brings a finder."""
    assert found(site, "nvidia-cutlass-dsl")["cutlass"] is True
    (site / "__editable___hpc_ops_0_1_finder.py").write_text("MAPPING = {'hpc': '/src/hpc-ops/hpc'}\n")
    assert found(site)["hpc"] is True


def test_folders_that_are_not_all_known_tell_of_no_absence(site: Path) -> None:
    """An interpreter that cannot be asked: only SGLang's own folder is sure."""
    assert set(modules_in((str(site),), ()).values()) == {None}
    assert set(modules_in((), ()).values()) == {None}


def test_the_modules_of_the_installed_sglang_and_of_no_other(site: Path) -> None:
    install(site, INSTALLED)
    (site / "quack").mkdir()
    here = Interpreter(sys.executable, site / "sglang", "0.5.21", "test")
    software = detect_software(here)
    assert software.modules["quack"] is True
    assert software.to_json()["modules"]["hpc"] in (False, None)
    assert detect_software(here, for_sglang="0.5.14").modules == {}
    assert detect_software(None).modules == {}


def test_what_is_planned_for_another_machine_has_other_modules(tmp_path: Path) -> None:
    """A laptop's PyTorch without CUDA tells nothing of the packages beside one with it."""
    install(tmp_path, INSTALLED, cuda="None")
    here = Interpreter(sys.executable, tmp_path / "sglang", "0.5.21", "test")
    assert detect_software(here, for_cuda=True).modules == {}
    assert detect_software(here).modules != {}
