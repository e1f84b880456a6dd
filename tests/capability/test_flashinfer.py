"""FlashInfer's declarations: read from sources without importing them, from snapshots, and from the cache."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from autolaunch.capability import flashinfer
from autolaunch.capability.flashinfer import (
    SNAPSHOTS,
    bundled_declarations,
    bundled_flashinfer_versions,
    declared_sms,
    site_package,
)
from autolaunch.capability.flashinfer_source import read_declarations

SOURCE = """
import torch
from .utils import backend_requirement, supported_compute_capability
raise SystemExit("nobody may import this")
_BLACKWELL = [100, 103]
_COMPUTED = list(range(5))

@supported_compute_capability(_BLACKWELL)
def _trtllm(a, b): ...

@utils.supported_compute_capability([120, 121, 100])
def _cutlass(a, b): ...

@supported_compute_capability(_COMPUTED)
def _computed(a, b): ...

@flashinfer_api
@backend_requirement({"trtllm": _trtllm, "cutlass": _cutlass, "odd": _computed, "far": elsewhere, "none": _none},
                     common_check=_common)
def mm_fp4(a, b, backend="auto"): ...

@supported_compute_capability([90])
def _only(a): ...

@backend_requirement(backend_checks={}, common_check=_only)
def one_way(a): ...

@supported_compute_capability([80])
def public(a): ...

class Wrapper:
    @backend_requirement({"x": _only})
    def run(self): ...
"""
ELSEWHERE = """
@supported_compute_capability((110,))
def elsewhere(a): ...
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An installed FlashInfer with one broken module and one that is no text."""
    folder = tmp_path / "site" / "flashinfer"
    (folder / "gemm").mkdir(parents=True)
    (folder / "__init__.py").write_text("raise SystemExit('imported')")
    (folder / "gemm" / "gemm_base.py").write_text(SOURCE)
    (folder / "checks.py").write_text(ELSEWHERE)
    (folder / "broken.py").write_text("@supported_compute_capability([90]\ndef f(:")
    (folder / "binary.py").write_bytes(b"supported_compute_capability\x00\xff")
    (folder / "data").mkdir()
    (folder / "data" / "generated.py").write_text(ELSEWHERE.replace("110", "75"))
    return folder


def test_both_decorators_are_read(package: Path) -> None:
    functions, digests = read_declarations(package)
    assert functions["mm_fp4"] == {
        "trtllm": (100, 103),
        "cutlass": (100, 120, 121),
        "odd": None,
        "far": (110,),
        "none": None,
    }
    assert functions["one_way"] == {"": (90,)}
    assert functions["public"] == {"": (80,)}
    assert functions["run"] == {"x": (90,)}
    assert sorted(digests) == ["checks.py", "gemm/gemm_base.py"]


def test_what_they_say(package: Path) -> None:
    declared = declared_sms("9.9.9", package)
    assert declared.supports("mm_fp4", "trtllm", 100) is True
    assert declared.supports("mm_fp4", "trtllm", 120) is False
    assert declared.supports("mm_fp4", "b12x", 120) is False  # this version has no such backend
    assert declared.supports("mm_fp4", "odd", 120) is None
    assert declared.supports("mm_fp8", "trtllm", 120) is None


def test_the_cache_is_used_and_never_trusted_blindly(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    first = declared_sms("9.9.9", package, cache)
    (file,) = (cache / "flashinfer").iterdir()
    monkeypatch.setattr(flashinfer, "read_declarations", lambda package: pytest.fail("read again"))
    assert declared_sms("9.9.9", package, cache).versions[0].functions == first.versions[0].functions
    monkeypatch.undo()
    for junk in (
        "",
        "[]",
        "{}",
        json.dumps({"schema": flashinfer.SCHEMA}),
        json.dumps({"schema": flashinfer.SCHEMA, "version": "1", "functions": {"f": 5}}),
    ):
        file.write_text(junk)
        assert declared_sms("9.9.9", package, cache).versions[0].functions == first.versions[0].functions
    file.unlink()
    file.mkdir()
    assert declared_sms("9.9.9", package, cache).supports("mm_fp4", "trtllm", 100) is True
    unwritable = tmp_path / "file"
    unwritable.write_text("")
    assert declared_sms("9.9.9", package, unwritable).supports("mm_fp4", "trtllm", 100) is True


def test_an_installed_version_that_was_patched_is_read_and_not_assumed(package: Path) -> None:
    """Its version has a snapshot, but its files are others."""
    found = declared_sms("0.7.2", package).versions[0]
    assert found.origin == "installed"
    assert found.functions["mm_fp4"]["trtllm"] == (100, 103)


@pytest.mark.parametrize("version", bundled_flashinfer_versions())
def test_every_snapshot_says_what_is_known_of_the_dense_fp4_kernels(version: str) -> None:
    found = bundled_declarations(version)
    assert found is not None
    kernels = found.functions["mm_fp4"]
    assert {100, 103} <= set(kernels["trtllm"] or ()) <= {100, 103, 107}
    for backend in ("cutlass", "cudnn"):
        assert {100, 103, 110, 120, 121} <= set(kernels[backend] or ())


def test_the_snapshots_are_those_of_the_known_sglang_versions() -> None:
    assert bundled_flashinfer_versions() == ("0.6.3", "0.6.7.post3", "0.6.8.post1", "0.6.12", "0.6.15.post1", "0.6.18", "0.7.2")  # fmt: skip


@pytest.mark.parametrize("version", [None, "", "none", "0.6.1", "../../etc/passwd", "main"])
def test_of_a_version_that_nobody_knows_nothing_is_said(version: str | None) -> None:
    assert declared_sms(version).supports("mm_fp4", "trtllm", 120) is None


def test_the_local_part_of_a_version_does_not_count() -> None:
    assert declared_sms("0.7.2+cu130").supports("mm_fp4", "trtllm", 120) is False


def test_a_package_is_found_without_importing_it(package: Path, tmp_path: Path) -> None:
    assert site_package((str(tmp_path / "nothing"), str(tmp_path / "site"))) == package
    assert site_package(()) is None
    shutil.rmtree(package)
    assert declared_sms("0.7.2", package).versions[0].origin == "bundled"


def test_the_snapshots_lie_where_they_are_looked_for() -> None:
    assert all(path.stat().st_size < 64 << 10 for path in SNAPSHOTS.glob("*.json"))
