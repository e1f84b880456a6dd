"""`scripts/capture-machine` writes what the stand-in replays: recording a replayed machine gives it again."""

from __future__ import annotations

import importlib.util
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from autolaunch.detect.nvml import read_nvml
from tests.detect.stand_in import Nvml, load

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "capture-machine"


@pytest.fixture
def script() -> ModuleType:
    loader = SourceFileLoader("capture_machine", str(SCRIPT))
    spec = importlib.util.spec_from_loader("capture_machine", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "name", ["h200-x2.sm90.json", "gb10.sm121.json", "b200-x4-one-lost.sm100.json", "no-library.none.json"]
)
def test_what_is_recorded_reads_the_same(name: str, script: ModuleType) -> None:
    capture = load(name)
    recorder = script.Recorder(Nvml(capture))
    first = read_nvml(recorder)
    recorded = {
        **({"init": recorder.failed} if recorder.failed else {}),
        "system": recorder.system,
        "devices": recorder.devices,
        "links": recorder.links,
    }
    assert read_nvml(Nvml(recorded)) == first
