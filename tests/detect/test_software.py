"""Versions from metadata, from pins, from options; and what compiles kernels."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from autolaunch.detect.site import Distribution, distributions, module_path, torch_cuda
from autolaunch.detect.software import Software, detect_software, pins
from autolaunch.detect.toolchain import find_toolchain
from autolaunch.errors import UsageError
from autolaunch.request.catalogue import bundled_versions
from autolaunch.request.interpreter import Interpreter

INSTALLED = {
    "sglang": "0.5.21",
    "flashinfer_python": "0.6.17",
    "flashinfer_cubin": "0.6.18",
    "torch": "2.13.0",
    "sglang_kernel": "0.4.7",
    "sgl_kernel": "0.3.21",
    "nvidia_cudnn_cu13": "9.20.0.48",
    "triton": "3.7.1",
    "sgl_deep_gemm": "0.2.0",
}


def install(site: Path, packages: dict[str, str], cuda: str | None = "'13.0'") -> Path:
    """Metadata folders as pip leaves them, with a `torch/version.py`."""
    for name, version in packages.items():
        folder = site / f"{name}-{version}.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n")
    (site / "sglang").mkdir(exist_ok=True)
    (site / "sglang/__init__.py").touch()
    if cuda is not None:
        (site / "torch").mkdir(exist_ok=True)
        (site / "torch/version.py").write_text(
            "from typing import Optional\n\n"
            "__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']\n"
            f"__version__ = '2.13.0+cu130'\ndebug = False\ncuda: Optional[str] = {cuda}\n"
        )
    return site


def interpreter_of(site: Path, version: str = "0.5.21", python: str = sys.executable) -> Interpreter:
    """An interpreter whose SGLang lies in `site`."""
    return Interpreter(python=python, package=site / "sglang", version=version, source="test")


def versions(software: Software) -> dict[str, tuple[str | None, str]]:
    """Field to version and source."""
    names = ("sglang", "flashinfer", "torch", "sgl_kernel", "cudnn", "triton", "cuda")
    return {name: (getattr(software, name).version, getattr(software, name).source) for name in names}


def test_installed_versions(tmp_path: Path) -> None:
    software = detect_software(interpreter_of(install(tmp_path, INSTALLED)))
    assert versions(software) == {
        "sglang": ("0.5.21", "installed"),
        "flashinfer": ("0.6.17", "installed"),
        "torch": ("2.13.0", "installed"),
        "sgl_kernel": ("0.4.7", "installed"),
        "cudnn": ("9.20.0.48", "installed"),
        "triton": ("3.7.1", "installed"),
        "cuda": ("13.0", "installed"),
    }
    assert software.others["flashinfer-cubin"].version == "0.6.18"
    assert software.others["sgl-deep-gemm"].source == "installed"
    assert "flashinfer_python-0.6.17" in (software.flashinfer.where or "")
    assert software.site[0] == str(tmp_path)
    # What is not installed is what this SGLang would have installed.
    assert software.others["tokenspeed-mla"].source == "pinned-by-sglang"


def test_another_sglang_brings_its_own_versions(tmp_path: Path) -> None:
    interpreter = interpreter_of(install(tmp_path, INSTALLED))
    software = detect_software(interpreter, for_sglang="0.5.9")
    assert versions(software) == {
        "sglang": ("0.5.9", "assumed"),
        "flashinfer": ("0.6.3", "pinned-by-sglang"),
        "torch": ("2.9.1", "pinned-by-sglang"),
        "sgl_kernel": ("0.3.21", "pinned-by-sglang"),
        "cudnn": ("9.10.2.21", "pinned-by-sglang"),
        "triton": ("3.5.1", "pinned-by-sglang"),
        "cuda": ("12.8", "pinned-by-sglang"),
    }
    assert detect_software(interpreter, for_sglang="v0.5.21").flashinfer.source == "installed"
    software = detect_software(interpreter, for_sglang="0.5.23", for_flashinfer="0.6.18")
    assert (software.flashinfer.version, software.flashinfer.source) == ("0.6.18", "assumed")
    assert software.others["sgl-flash-mla"].version == "1.0.0"
    same = detect_software(interpreter, for_flashinfer="0.6.17")
    assert same.flashinfer.source == "installed"


def test_a_version_nobody_knows_leaves_the_rest_open(tmp_path: Path) -> None:
    software = detect_software(None, {}, for_sglang="0.5.99")
    assert versions(software)["flashinfer"] == (None, "assumed")
    assert software.sglang.version == "0.5.99"


def test_nothing_installed_assumes_the_newest() -> None:
    software = detect_software(None, {})
    assert software.sglang.source == "assumed"
    assert software.sglang.version == next(reversed(pins()))
    assert software.site == ()


@pytest.mark.parametrize("text", ["", "x", "0.5.9; rm", "latest", "0.5." + "9" * 99, "1 2", "\x1b[1m"])
@pytest.mark.parametrize("option", ["for_sglang", "for_flashinfer"])
def test_what_is_no_version(text: str, option: str) -> None:
    with pytest.raises(UsageError, match="is no version") as caught:
        detect_software(None, {}, **{option: text})  # type: ignore[arg-type]
    assert ("0.7.2" if option == "for_flashinfer" else "0.5.23") in caught.value.because[0]
    assert ("0.5.23" in caught.value.because[0]) is (option == "for_sglang")


@pytest.mark.parametrize("text", ["0.5.10.post1", "0.0.0.dev1+g1234567", "0.6.0rc2", "1"])
def test_what_is_one(text: str) -> None:
    assert detect_software(None, {}, for_sglang=text).sglang.version == text


def test_a_pytorch_without_cuda_counts_only_here(tmp_path: Path) -> None:
    packages = INSTALLED | {"torch": "2.13.0+cpu"}
    interpreter = interpreter_of(install(tmp_path, packages, "None"))
    assert versions(detect_software(interpreter))["cuda"] == (None, "installed")
    software = detect_software(interpreter, for_cuda=True)
    assert versions(software)["cuda"] == ("13.0", "pinned-by-sglang")
    assert versions(software)["torch"] == ("2.13.0", "pinned-by-sglang")


@pytest.mark.parametrize(
    ("text", "version", "cuda"),
    [
        ("cuda: Optional[str] = '13.0'\n", "2.11.0", "13.0"),
        ("cuda = '12.8'\n", "2.9.1", "12.8"),
        ("cuda: Optional[str] = None\n", "2.13.0+cpu", None),
        ("hip = None\n", "2.11.0+cu130", "13.0"),
        (None, "2.11.0+cu129", "12.9"),
        (None, "2.11.0+cpu", None),
        (None, "2.11.0a0+nv25.12.cu131", "13.1"),
    ],
)
def test_the_cuda_of_pytorch(text: str | None, version: str, cuda: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch/version.py").write_text(text)
    found = Distribution("torch", version, str(tmp_path / f"torch-{version}.dist-info"))
    assert torch_cuda(found)[0] == cuda


def test_metadata_in_all_its_shapes(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for folder, name in (
        (first, "Flash_Attn.4-4.0.0b18.dist-info"),
        (first, "old_thing-1.0-py3.11.egg-info"),
        (first, "not a distribution.dist-info"),
        (first, "nothing.txt"),
        (second, "flash_attn_4-9.9.dist-info"),
        (second, "only_here-2.0.dist-info"),
    ):
        (folder / name).mkdir(parents=True)
    checkout = second / "sglang.egg-info"
    checkout.mkdir()
    (checkout / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.99\n")
    (second / "broken.egg-info").mkdir()
    found = distributions([str(first), str(second), str(tmp_path / "absent")])
    assert {name: one.version for name, one in found.items()} == {
        "flash-attn-4": "4.0.0b18",
        "old-thing": "1.0",
        "only-here": "2.0",
        "sglang": "0.5.99",
    }


def test_another_interpreter_is_asked_for_its_path(tmp_path: Path) -> None:
    site = install(tmp_path / "site", {"sglang": "0.5.21"})
    extra = install(tmp_path / "extra", {"flashinfer_python": "0.7.2"})
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    environ = {"PYTHONPATH": str(extra), "PATH": "/usr/bin"}
    path = module_path(interpreter_of(site, python=str(link)), environ)
    assert path[0] == str(site)
    assert str(extra) in path
    assert detect_software(interpreter_of(site, python=str(link)), environ).flashinfer.version == "0.7.2"


@pytest.mark.parametrize(
    "script", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\necho path nonsense\n", "not executable"]
)
def test_one_that_does_not_answer_leaves_its_sglang(script: str, tmp_path: Path) -> None:
    site = install(tmp_path / "site", {"sglang": "0.5.21"})
    python = tmp_path / "python"
    python.write_text(script)
    python.chmod(0o755 if script.startswith("#!") else 0o644)
    assert module_path(interpreter_of(site, python=str(python)), {"A": "b", "PYTHONPATH": "/x"}) == (
        str(site),
    )


def test_every_bundled_version_has_its_pins() -> None:
    assert set(bundled_versions()) <= set(pins())
    text = (Path(__file__).parent.parent.parent / "autolaunch/data/sglang_pins.toml").read_text()
    for row in tomllib.loads(text)["pins"]:
        assert row["id"] == f"pins.{row['sglang']}"
        assert row["reason"]
        assert all(one["ref"] and one["checked"] for one in row["evidence"])
        for field in ("flashinfer", "torch", "cuda", "cudnn", "kernel"):
            assert row[field][0].isdigit()


def executable(path: Path) -> Path:
    """A file that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    path.chmod(0o755)
    return path


def test_the_toolchain_as_kernel_packages_look_for_it(tmp_path: Path) -> None:
    root = tmp_path / "root"
    bin_ = tmp_path / "bin"
    nothing = find_toolchain({"PATH": str(bin_)}, None, (), root)
    assert (nothing.nvcc, nothing.cuda_home) == (None, None)
    assert nothing.missing == ("nvcc", "ninja", "a C++ compiler")

    packaged = executable(tmp_path / "site/nvidia/cu13/bin/nvcc")
    found = find_toolchain({"PATH": str(bin_)}, None, (str(tmp_path / "site"),), root)
    assert (found.nvcc, found.cuda_home_source) == (packaged, "the Python package of nvcc")

    default = executable(root / "usr/local/cuda/bin/nvcc")
    (root / "usr/local/cuda/version.json").write_text('{"cuda": {"version": "13.0.2"}}')
    found = find_toolchain({"PATH": str(bin_)}, None, (str(tmp_path / "site"),), root)
    assert (found.nvcc, found.nvcc_version) == (default, "13.0.2")

    on_path = executable(tmp_path / "toolkit/bin/nvcc")
    (tmp_path / "toolkit/version.txt").write_text("CUDA Version 11.8.89\n")
    environ = {"PATH": f"{bin_}:{on_path.parent}"}
    found = find_toolchain(environ, None, (), root)
    assert (found.nvcc, found.nvcc_version, found.cuda_home_source) == (on_path, "11.8.89", "`nvcc` on PATH")

    found = find_toolchain(environ | {"CUDA_HOME": str(tmp_path / "wrong")}, None, (), root)
    assert (found.cuda_home, found.cuda_home_source) == (tmp_path / "wrong", "`CUDA_HOME`")
    assert found.nvcc == on_path

    executable(bin_ / "g++")
    python = executable(tmp_path / "venv/bin/python")
    executable(tmp_path / "venv/bin/ninja")
    found = find_toolchain({"PATH": f"{bin_}:{on_path.parent}", "CXX": "absent-cxx"}, str(python), (), root)
    assert (found.ninja, found.compiler) == (tmp_path / "venv/bin/ninja", bin_ / "g++")
    assert found.missing == ()


@pytest.mark.parametrize(
    "text", ["", "[]", '{"cuda": 3}', '{"cuda_nvcc": {"version": "13.1.1"}}', "{" * 99999]
)
def test_a_strange_version_file(text: str, tmp_path: Path) -> None:
    executable(tmp_path / "bin/nvcc")
    (tmp_path / "version.json").write_text(text)
    found = find_toolchain({"CUDA_HOME": str(tmp_path), "PATH": ""}, None, (), tmp_path)
    assert found.nvcc_version == ("13.1.1" if "nvcc" in text else None)


def test_folders_on_path_that_nobody_may_see_are_passed_over(tmp_path: Path) -> None:
    """As the bin folder of somebody else may be; a name that is too long raises the same, for the superuser too."""
    compiler = tmp_path / "c++"
    compiler.write_text("")
    compiler.chmod(0o755)
    found = find_toolchain({"PATH": f"/{'x' * 300}:{tmp_path}"}, None, (f"/{'x' * 300}",), tmp_path)
    assert found.compiler == compiler
