"""A profiler's trace file into the kernels of one rank, in the order in which the GPU ran them.

The file is a Chrome trace, `.json` or `.json.gz`, as `torch.profiler` writes it.  What ran on the GPU is a
complete event (`"ph": "X"`) of category `kernel`, `gpu_memcpy` or `gpu_memset`, with microseconds in `ts`
and `dur`.  All kernels of one CUDA-graph replay have one `correlation`, that of the call that launched
them; every other kernel has its own (H200, SGLang 0.5.17, torch 2.11).
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
FILE_LIMIT_BYTES = 64 << 20
"""One traced batch of 12 layers was 0.4 MB compressed and 10 MB as JSON."""
JSON_LIMIT_BYTES = 256 << 20


class TraceError(ValueError):
    """A trace that cannot be read, or does not show what it should."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, copy or fill on the GPU."""

    start_us: float
    duration_us: float
    name: str
    correlation: int | None
    form: str = ""
    """Threads of a block, registers and shared memory: tells apart kernels that a compiler made from one
    source, such as the tiles of one Triton kernel."""

    @property
    def end_us(self) -> float:
        """When it ended."""
        return self.start_us + self.duration_us


@dataclass(frozen=True, slots=True)
class Trace:
    """What the GPU of one rank ran."""

    path: str
    kernels: tuple[Kernel, ...]
    """In the order of their starts; at least one."""


def read_trace(path: Path) -> Trace:
    """The kernels of the trace at `path`; TraceError when it is broken, too large, or shows none."""
    try:
        events = json.loads(_read(path))["traceEvents"]
        kernels = [_kernel(event) for event in events if _is_on_gpu(event)]
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"the trace {path.name} cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{path.name} is no trace: {type(error).__name__}: {error}") from error
    if not kernels:
        raise TraceError(
            f"the trace {path.name} shows no kernel of a GPU: the engine ran on a CPU, or may not be profiled"
        )
    kernels.sort(key=lambda kernel: kernel.start_us)
    return Trace(str(path), tuple(kernels))


def busy_us(kernels: Iterable[Kernel]) -> float:
    """Time in which at least one of `kernels`, given in the order of their starts, ran."""
    total, end = 0.0, float("-inf")
    for kernel in kernels:
        if kernel.end_us > end:
            total += kernel.end_us - max(kernel.start_us, end)
            end = kernel.end_us
    return total


def _read(path: Path) -> bytes:
    if path.stat().st_size > FILE_LIMIT_BYTES:
        raise TraceError(f"the trace {path.name} is larger than {FILE_LIMIT_BYTES >> 20} MiB")
    if path.suffix != ".gz":
        return path.read_bytes()
    with gzip.open(path) as file:
        data = file.read(JSON_LIMIT_BYTES + 1)
    if len(data) > JSON_LIMIT_BYTES:
        raise TraceError(f"the trace {path.name} unpacks to more than {JSON_LIMIT_BYTES >> 20} MiB")
    return data


def _is_on_gpu(event: Any) -> bool:
    return isinstance(event, dict) and event.get("ph") == "X" and event.get("cat") in GPU_CATEGORIES


def _kernel(event: dict[str, Any]) -> Kernel:
    args = event.get("args") or {}
    correlation = args.get("correlation")
    form = [args.get(key) for key in ("block", "registers per thread", "shared memory")]
    return Kernel(
        start_us=float(event["ts"]),
        duration_us=float(event.get("dur", 0.0)),
        name=str(event["name"]),
        correlation=int(correlation) if correlation is not None else None,
        form=json.dumps(form) if form[0] is not None else "",
    )
