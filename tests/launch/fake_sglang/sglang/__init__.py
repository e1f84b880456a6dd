"""Stands in for SGLang where a test is about the launcher: it is found, read and started like the real one."""

from typing import Any


def __getattr__(name: str) -> Any:
    """`Engine`, for a race: that of the tests of races, with kernels of the attention backend."""
    if name != "Engine":
        raise AttributeError(name)
    from tests.launch.fake_engine import Engine

    return Engine
