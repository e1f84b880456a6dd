"""Which versions SGLang would run with: read from installed metadata, else what that SGLang version pins.

Sources of a version, in order: `--for-sglang` and `--for-flashinfer`; the installed metadata of the
interpreter that holds SGLang; the versions SGLang pins (`data/sglang_pins.toml`).  Nothing is imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal

from autolaunch.detect.modules import modules_in
from autolaunch.detect.site import Distribution, distributions, module_path, torch_cuda
from autolaunch.detect.toolchain import Toolchain, find_toolchain
from autolaunch.errors import UsageError
from autolaunch.request.interpreter import Interpreter
from autolaunch.request.probe import UNKNOWN_VERSION
from autolaunch.tables import load_rows

VersionSource = Literal["installed", "assumed", "pinned-by-sglang"]

_VERSION = re.compile(r"v?(\d+(?:\.\d+)*(?:(?:a|b|rc|\.?post|\.?dev)\d*)*(?:\+[a-z0-9.]+)?)", re.IGNORECASE)
FIELDS = ("sglang", "flashinfer", "torch", "sgl_kernel", "cudnn", "triton", "cuda")
"""The named fields of Software, in the order in which they are shown."""
_KERNELS = ("sglang-kernel", "sgl-kernel")
OTHERS = (
    "flashinfer-cubin",
    "flashinfer-jit-cache",
    "sgl-deep-gemm",
    "sgl-flash-mla",
    "sgl-deep-ep",
    "flash-attn-4",
    "nvidia-cutlass-dsl",
    "tokenspeed-mla",
    "tilelang",
    "quack-kernels",
    "nvidia-nccl-cu13",
    "nvidia-nccl-cu12",
    "transformers",
    "xgrammar",
)
"""Distributions beside the named fields that rules or `doctor` may ask for."""


@dataclass(frozen=True, slots=True)
class Package:
    """One version and who spoke; only `installed` means that it is there."""

    version: str | None
    """As its metadata writes it (`2.11.0+cu130`); None when nobody could say."""
    source: VersionSource
    where: str | None = None
    """The metadata's folder, or the pin's evidence."""

    def to_json(self) -> dict[str, Any]:
        """As `explain` and `doctor` write it."""
        return {"version": self.version, "source": self.source, "where": self.where}


@dataclass(frozen=True, slots=True)
class Software:
    """The versions that decide about kernels."""

    sglang: Package
    flashinfer: Package
    torch: Package
    sgl_kernel: Package
    """`sglang-kernel`, called `sgl-kernel` before SGLang 0.5.10."""
    cudnn: Package
    triton: Package
    cuda: Package
    """The CUDA that PyTorch was built for, `13.0`."""
    others: Mapping[str, Package] = field(default_factory=dict)
    """By distribution name: flashinfer-cubin, flashinfer-jit-cache, sgl-deep-gemm, sgl-flash-mla, …"""
    toolchain: Toolchain = field(default_factory=Toolchain)
    site: tuple[str, ...] = ()
    """The folders whose metadata was read; () when there is no interpreter to ask."""
    modules: Mapping[str, bool | None] = field(default_factory=dict)
    """Whether a module of data/modules.toml can be imported, None where that cannot be told; {} when nobody
    looked, as for another SGLang than the installed one."""

    def to_json(self) -> dict[str, Any]:
        """What `doctor` writes and `--for-machine FILE` reads."""
        named = {name: getattr(self, name).to_json() for name in FIELDS}
        others = {name: one.to_json() for name, one in self.others.items()}
        return {**named, "others": others, "modules": dict(self.modules)}


@dataclass(frozen=True, slots=True)
class Pins:
    """What one SGLang release installs."""

    sglang: str
    versions: Mapping[str, str]
    """By field of Software, and by distribution name for the others."""
    kernel_package: str
    evidence: str


@cache
def pins() -> dict[str, Pins]:
    """The bundled table, by version of SGLang, oldest first."""
    return {row["sglang"]: _pins(row) for row in load_rows("sglang_pins", "pins")}


def _pins(row: Mapping[str, Any]) -> Pins:
    """One row as a value."""
    names = ("flashinfer", "torch", "cuda", "cudnn", "triton")
    versions = {name: row[name] for name in names if name in row}
    versions |= {"sgl_kernel": row["kernel"], **row["others"]}
    return Pins(row["sglang"], versions, row["kernel_package"], row["evidence"][0]["ref"])


def detect_software(
    interpreter: Interpreter | None,
    environ: Mapping[str, str] = os.environ,
    *,
    for_sglang: str | None = None,
    for_flashinfer: str | None = None,
    for_cuda: bool = False,
) -> Software:
    """The versions `interpreter` holds, or those of `for_sglang`; UsageError for a version that is none.

    Another SGLang than the installed one brings its own versions of everything.  Without either, the newest
    known SGLang is assumed.  `for_cuda`: an installed PyTorch without CUDA counts as none, because what is
    planned for is a machine with GPUs.
    """
    wanted = _version("--for-sglang", for_sglang)
    site = module_path(interpreter, environ) if interpreter else ()
    installed = distributions(site)
    here = _installed_sglang(interpreter, installed)
    modules = modules_in(site, installed)
    if here is None or wanted not in (None, here.version):
        assumed = wanted or next(reversed(pins()))
        found, sglang, modules = dict[str, Package](), Package(assumed, "assumed"), {}
    else:
        found, sglang = _installed(installed), here
        if for_cuda and "cuda" in found and found["cuda"].version is None:
            found = {name: one for name, one in found.items() if name not in ("torch", "cuda", "triton")}
            modules = {}
    software = replace(
        _with_pins(sglang, found),
        toolchain=find_toolchain(environ, interpreter.python if interpreter else None, site),
        site=site,
        modules=modules,
    )
    flashinfer = _version("--for-flashinfer", for_flashinfer)
    if flashinfer not in (None, software.flashinfer.version):
        software = replace(software, flashinfer=Package(flashinfer, "assumed", "`--for-flashinfer`"))
    return software


def _version(option: str, text: str | None) -> str | None:
    """A version the user typed, without a leading `v`."""
    if text is None:
        return None
    read = _VERSION.fullmatch(text.strip())
    if read is None or len(text) > 60:
        rows = pins()
        of_flashinfer = dict.fromkeys(row.versions["flashinfer"] for row in rows.values())
        known = list(of_flashinfer if option == "--for-flashinfer" else rows)
        raise UsageError(
            f"`{option} {text[:60]}` is no version",
            because=(f"versions that are known are {', '.join(known)}",),
            hint=f"give one such as `{option} {known[-1]}`",
        )
    return read[1].lower()


def _installed_sglang(
    interpreter: Interpreter | None, installed: Mapping[str, Distribution]
) -> Package | None:
    """What the interpreter would import, which a checkout in the working folder may make another one."""
    if interpreter is None:
        return None
    version = interpreter.version
    if version == UNKNOWN_VERSION and "sglang" in installed:
        version = installed["sglang"].version
    return Package(version, "installed", str(interpreter.package))


def _installed(installed: Mapping[str, Distribution]) -> dict[str, Package]:
    """The fields of Software that are installed, and the others by distribution name."""
    fields = {"flashinfer-python": "flashinfer", "torch": "torch", "triton": "triton"}
    # The later name wins where both are left over from an upgrade.
    fields |= dict.fromkeys(reversed(_KERNELS), "sgl_kernel")
    fields |= {f"nvidia-cudnn-cu{major}": "cudnn" for major in (12, 13, 14)}
    fields |= {name: name for name in OTHERS}
    found = {
        fields[name]: Package(installed[name].version, "installed", installed[name].where)
        for name in fields
        if name in installed
    }
    if "torch" in found:
        cuda, where = torch_cuda(installed["torch"])
        found["cuda"] = Package(cuda, "installed", where)
    return found


def _with_pins(sglang: Package, found: Mapping[str, Package]) -> Software:
    """What is installed, filled up with what this SGLang pins."""
    row = pins().get(sglang.version or "")

    def one(name: str) -> Package:
        if name in found:
            return found[name]
        if row is None or name not in row.versions:
            return Package(None, "assumed", None if row else "versions that this SGLang pins are not known")
        return Package(row.versions[name], "pinned-by-sglang", row.evidence)

    # A CPU build of PyTorch stays what it is: its CUDA is none, and no pin says otherwise.
    others = {name: one(name) for name in OTHERS if name in found or (row and name in row.versions)}
    return Software(
        sglang=sglang,
        flashinfer=one("flashinfer"),
        torch=one("torch"),
        sgl_kernel=one("sgl_kernel"),
        cudnn=one("cudnn"),
        triton=one("triton"),
        cuda=one("cuda"),
        others=others,
    )
