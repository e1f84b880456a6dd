"""What `autolaunch doctor` looks for in the software: packages of kernels, and what compiles the rest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from autolaunch.detect.machine import Machine
from autolaunch.detect.software import Package, Software, pins
from autolaunch.doctor.checks import Check, numbers
from autolaunch.folders import is_there
from autolaunch.request.interpreter import Interpreter
from autolaunch.tables import load_rows


def software_checks(
    machine: Machine, software: Software, interpreter: Interpreter, environ: Mapping[str, str]
) -> Iterator[Check]:
    """The packages that hold kernels, and what compiles the rest."""
    if machine.platform != "cuda":
        return
    row = pins().get(software.sglang.version or "")
    pip = f"{interpreter.python} -m pip install"
    if row is None:
        yield Check(
            "pins",
            "unknown",
            f"which versions SGLang {software.sglang.version} pins is not known",
            "`data/sglang_pins.toml`",
        )
    kernel = "sgl-kernel" if row and row.kernel_package == "sgl-kernel" else "sglang-kernel"
    for name, field in (("torch", "torch"), ("flashinfer-python", "flashinfer"), (kernel, "sgl_kernel")):
        pinned = row.versions.get(field) if row else None
        yield _package(name, getattr(software, field), pinned, pip)
    if software.torch.source == "installed" and software.cuda.version is None:
        yield Check(
            "torch-cuda",
            "failed",
            f"PyTorch {software.torch.version} is built without CUDA",
            software.cuda.where or "its version",
            mend=f"{pip} --force-reinstall torch=={(row and row.versions['torch']) or ''}".rstrip("="),
        )
    yield from _companions(software, environ, pip)
    yield _toolchain(software)


def _package(name: str, found: Package, pinned: str | None, pip: str) -> Check:
    """One package against what this SGLang pins."""
    wanted = f"{name}=={pinned}" if pinned else name
    if found.source != "installed":
        because = (f"this SGLang pins {pinned}",) if pinned else ()
        return Check(name, "missing", f"{name} is not installed", "metadata", because, f"{pip} {wanted}")
    where = found.where or "metadata"
    if pinned and (found.version or "").partition("+")[0] != pinned:
        return Check(
            name,
            "warning",
            f"{name} {found.version}",
            where,
            (f"this SGLang pins {pinned}",),
            f"{pip} {wanted}",
        )
    return Check(name, "ok", f"{name} {found.version}", where)


def _companions(software: Software, environ: Mapping[str, str], pip: str) -> Iterator[Check]:
    """FlashInfer's packages of ready kernels: of its own version, by `data/companions.toml`, or absent."""
    flashinfer = software.flashinfer.version
    if software.flashinfer.source != "installed" or flashinfer is None:
        return
    cubin = software.others.get("flashinfer-cubin")
    if cubin is None or cubin.source != "installed":
        yield Check(
            "flashinfer-cubin",
            "warning",
            "FlashInfer's ready kernels are not installed",
            "metadata",
            ("those a backend needs are fetched over the network at its first use",),
            f"{pip} flashinfer-cubin=={flashinfer}",
        )
    seen = set()
    for row in load_rows("companions", "companion"):
        name = row["package"]
        found = software.others.get(name)
        if name in seen or found is None or found.source != "installed" or found.version is None:
            continue
        if "last" in row and numbers(flashinfer) > numbers(row["last"]):
            continue
        seen.add(name)
        where = found.where or "metadata"
        if found.version.partition("+")[0] == flashinfer or environ.get(row["variable"]):
            yield Check(name, "ok", f"{name} {found.version}", where)
            continue
        what = f"{name} {found.version} beside flashinfer-python {flashinfer}"
        yield Check(name, row["status"], what, where, (row["reason"],), f"{pip} {name}=={flashinfer}")


def _toolchain(software: Software) -> Check:
    """Whether kernels can be compiled at first use."""
    tools = software.toolchain
    home = tools.cuda_home
    because = [f"{name} was not found" for name in tools.missing]
    if home is not None and not is_there(home / "include" / "cuda_runtime.h"):
        because.append(f"{tools.cuda_home_source} leads to `{home}`, which has no CUDA headers")
    source = tools.cuda_home_source or "PATH, `CUDA_HOME`, `/usr/local/cuda`, the Python packages"
    if not because:
        version = f" {tools.nvcc_version}" if tools.nvcc_version else ""
        return Check("toolchain", "ok", f"nvcc{version} in `{home}`, ninja and a C++ compiler", source)
    mends = {
        "nvcc": "install the CUDA toolkit and set `CUDA_HOME`",
        "ninja": "pip install ninja",
        "a C++ compiler": "install g++",
    }
    mend = next((mends[name] for name in tools.missing), "set `CUDA_HOME` to the folder of the CUDA toolkit")
    what = "kernels that are compiled at their first use cannot be"
    return Check("toolchain", "warning", what, source, tuple(because), mend)
