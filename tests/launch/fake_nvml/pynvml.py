"""Stands in for nvidia-ml-py in processes of a test: replays the capture that `FAKE_NVML` names."""

import os
from typing import Any

from tests.detect.stand_in import Nvml, NVMLError, load

__all__ = ["NVMLError"]

_LIBRARY = Nvml(load(os.environ["FAKE_NVML"]))


def __getattr__(name: str) -> Any:
    return getattr(_LIBRARY, name)
