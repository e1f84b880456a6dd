"""Announces a platform to SGLang on which a CPU and PyTorch are all there is.

SGLang has a CPU engine of its own, but that one needs a build of its kernel package which is not
published as a wheel.  A platform from outside is asked for other things: every operator runs its plain
PyTorch form, slow and correct, which is what tests and a demonstration on a laptop want.

SGLang calls `activate` in each of its processes.  With a GPU at hand the answer is no, so installing this
next to a working SGLang changes nothing; `SGLANG_PLATFORM=torch_cpu` asks for it all the same.
"""

from __future__ import annotations

import os

NAME = "torch_cpu"
"""The name of the entry point, which `SGLANG_PLATFORM` may hold."""


def activate() -> str | None:
    """Where SGLang finds the platform class, or None when another platform should serve this machine."""
    if os.environ.get("SGLANG_PLATFORM") == NAME or not (has_accelerator() or in_tree_engine_is_wanted()):
        return "sglang_cpu_platform.platform:TorchCpuPlatform"
    return None


def in_tree_engine_is_wanted() -> bool:
    """Whether the user chose SGLang's own CPU engine; the value is compared as SGLang compares it."""
    return os.environ.get("SGLANG_USE_CPU_ENGINE", "0") == "1"


def has_accelerator() -> bool:
    """Whether PyTorch sees a CUDA, ROCm or XPU device; none of the questions makes a context."""
    import torch

    return torch.cuda.is_available() or torch.xpu.is_available()
