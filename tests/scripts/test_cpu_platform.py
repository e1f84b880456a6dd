"""The platform plugin stands aside where another platform should serve, and gives SGLang what it asks for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.real_server import ROOT

PROJECT = ROOT / "scripts" / "cpu-platform"
PLATFORM = "sglang_cpu_platform.platform:TorchCpuPlatform"

ASK_PLATFORM = """
import json, torch
import sglang.srt.utils  # first: it looks for the platform, whose module must not be half imported then
from sglang_cpu_platform.platform import TorchCpuPlatform
platform = TorchCpuPlatform()
allocator = platform.get_paged_allocator_cls()
pages = dict(dtype=torch.float32, device="cpu", kvcache=None, need_sort=False)
try:
    allocator(64, page_size=16, **pages)
    refused = ""
except ValueError as error:
    refused = str(error)
print(json.dumps({
    "out_of_tree": platform.is_out_of_tree(),
    "devices": [str(platform.get_device(None)), str(platform.get_device(0)), type(platform.get_device(None)).__name__],
    "key": platform.get_dispatch_key_name(),
    "attention": platform.get_default_attention_backend(),
    "pool": platform.get_mha_kv_pool_cls().__name__,
    "free": allocator(64, page_size=1, **pages).available_size(),
    "refused": refused,
    "pinned": platform.is_pin_memory_available(),
    "distributed": platform.get_torch_distributed_backend_str(),
    "profiler": platform.get_torch_profiler_activity_str(),
    "memory": platform.get_device_total_memory() > 2**28,
}))
"""


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The plugin on a machine whose accelerators the test decides: none, unless it says otherwise."""
    monkeypatch.syspath_prepend(str(PROJECT))
    for name in ("SGLANG_PLATFORM", "SGLANG_USE_CPU_ENGINE"):
        monkeypatch.delenv(name, raising=False)
    import sglang_cpu_platform

    none = SimpleNamespace(is_available=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=none, xpu=none))
    return sglang_cpu_platform


def test_the_entry_point_names_the_function(plugin: ModuleType) -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "sglang-cpu-platform"
    assert project["entry-points"] == {"sglang.srt.platforms": {plugin.NAME: "sglang_cpu_platform:activate"}}


def test_it_serves_where_there_is_only_a_cpu(plugin: ModuleType) -> None:
    assert plugin.activate() == PLATFORM


def test_it_leaves_a_gpu_to_its_own_platform(plugin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["torch"], "cuda", SimpleNamespace(is_available=lambda: True))
    assert plugin.activate() is None
    monkeypatch.setenv("SGLANG_PLATFORM", plugin.NAME)
    assert plugin.activate() == PLATFORM


@pytest.mark.parametrize(("value", "served"), [("1", False), ("0", True), ("", True)])
def test_it_leaves_the_cpu_engine_to_who_asked_for_it(
    plugin: ModuleType, monkeypatch: pytest.MonkeyPatch, value: str, served: bool
) -> None:
    monkeypatch.setenv("SGLANG_USE_CPU_ENGINE", value)
    assert (plugin.activate() is not None) == served


def ask_platform(python: str, sglang: Path | None) -> dict[str, object]:
    """What the platform answers inside the SGLang of `python`, or in the one of the folder `sglang`."""
    paths = [str(PROJECT), *([str(sglang)] if sglang else [])]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SGLANG_PLATFORM": ""}
    environ.pop("SGLANG_USE_CPU_ENGINE", None)
    asked = subprocess.run(
        [python, "-W", "ignore", "-c", ASK_PLATFORM], env=environ, capture_output=True, text=True
    )
    assert asked.returncode == 0, asked.stderr
    return json.loads(asked.stdout.splitlines()[-1])


def other_versions() -> list[Path | None]:
    """The SGLang of the environment (None), and the folders of other versions."""
    folder = os.environ.get("AUTOLAUNCH_TEST_SGLANG_DIR")
    return [None, *(sorted(Path(folder).glob("sglang-*")) if folder else [])]


@pytest.mark.sglang
@pytest.mark.parametrize("version", other_versions(), ids=lambda path: path.name if path else "installed")
def test_sglang_gets_what_it_asks_for(sglang_python: str, version: Path | None) -> None:
    assert ask_platform(sglang_python, version) == {
        "out_of_tree": True,
        "devices": ["cpu", "cpu", "str"],
        "key": "native",
        "attention": "torch_native",
        "pool": "MHATokenToKVPool",
        "free": 64,
        "refused": "page_size 16 is not supported on the torch_cpu platform, only 1 is",
        "pinned": False,
        "distributed": "gloo",
        "profiler": "CPU",
        "memory": True,
    }
