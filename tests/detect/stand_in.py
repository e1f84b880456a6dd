"""A stand-in for the module `pynvml` that replays what a machine answered.

A capture is JSON: `system` and each of `devices` map functions of NVML to answers; `{"raises": "NotSupported"}`
is an error, and a function that is missing is one the library does not have.  `slices` of a device are its MIG
devices; `links` gives answers of nvmlDeviceGetP2PStatus by `first,second,kind`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MACHINES = Path(__file__).parent / "machines"


class NVMLError(Exception):
    """The base of NVML's errors."""


def error(name: str) -> NVMLError:
    """`NVMLError_NotSupported` for `NotSupported`, as nvidia-ml-py makes them."""
    return type(f"NVMLError_{name}", (NVMLError,), {})(name)


def load(name: str) -> dict[str, Any]:
    """The capture called `name`."""
    capture: dict[str, Any] = json.loads((MACHINES / name).read_text())
    return capture


class Nvml:
    """The library of one machine."""

    NVMLError = NVMLError

    def __init__(self, capture: dict[str, Any]) -> None:
        self.capture = capture
        self.calls: list[str] = []
        self.open = 0
        if capture.get("knows_memory_v2", True):
            self.nvmlMemory_v2 = 0x02000028

    def nvmlInit(self) -> None:  # noqa: N802
        """Fails where the machine's library does."""
        self.calls.append("nvmlInit")
        if "init" in self.capture:
            raise error(self.capture["init"]["raises"])
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Counts, so that a test sees a library left open."""
        self.calls.append("nvmlShutdown")
        self.open -= 1

    def nvmlDeviceGetCount(self) -> Any:  # noqa: N802
        """As many as there are, unless the capture says otherwise."""
        return answer(self.capture["system"].get("nvmlDeviceGetCount", len(self.capture["devices"])))

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802
        """The device itself is its handle."""
        device = self.capture["devices"][index]
        return answer(device) if "raises" in device else device

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Any) -> int:  # noqa: N802
        """Seven places, as on a real GPU, whether they hold a slice or not."""
        return 7 if "slices" in handle else 0

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, index: int) -> Any:  # noqa: N802
        """One slice, or NotFound."""
        if index >= len(handle["slices"]):
            raise error("NotFound")
        return handle["slices"][index]

    def nvmlDeviceGetP2PStatus(self, first: Any, second: Any, kind: int) -> Any:  # noqa: N802
        """By number of the devices; a capture without links has a GPU that does not tell."""
        assert isinstance(kind, int), "a tuple, as NVML_P2P_CAPS_INDEX_READ wrongly is, fails in the library"
        devices = self.capture["devices"]
        places = [next(n for n, one in enumerate(devices) if one is each) for each in (first, second)]
        links = self.capture.get("links")
        if links is None:
            raise error("NotSupported")
        return answer(links.get(f"{places[0]},{places[1]},{kind}", links.get(f"all,{kind}")))

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:  # noqa: N802
        """The newer call where a version is given."""
        assert self.open
        name = "nvmlDeviceGetMemoryInfo_v2" if version else "nvmlDeviceGetMemoryInfo"
        return answer(handle.get(name, {"raises": "NotSupported"}))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Any other function: of the system without arguments, else of the device given first."""
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(handle: Any = None, *_: Any) -> Any:
            assert self.open, f"{name} after nvmlShutdown"
            self.calls.append(name)
            table = self.capture["system"] if handle is None else handle
            if name not in table:
                raise error("FunctionNotFound")
            return answer(table[name])

        return call


def answer(told: Any) -> Any:
    """An answer as pynvml gives it: objects have attributes, `{"bytes": …}` is a name of an old version."""
    if isinstance(told, list):
        return [answer(one) for one in told]
    if not isinstance(told, dict):
        return told
    if "raises" in told:
        raise error(told["raises"])
    if "bytes" in told:
        return str(told["bytes"]).encode()
    return SimpleNamespace(**told)
