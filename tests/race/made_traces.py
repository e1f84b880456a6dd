"""Traces made up of named kernels, for what no real trace at hand shows."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from autolaunch.race.trace_file import Kernel, Trace

LAYER = ("norm", "qkv", "rope", "attention", "proj", "post_norm", "up", "act", "down")
FULL = ("norm", "qkv", "rope", "full_attention", "proj", "post_norm", "up", "act", "down")
MOE = ("norm", "qkv", "rope", "attention", "proj", "post_norm", "router", "topk", "align", "experts", "sum")


class Maker:
    """Lays kernels one after the other, `gap_us` apart."""

    def __init__(self, gap_us: float = 1.0) -> None:
        """Start at time 0."""
        self.kernels: list[Kernel] = []
        self.at = 0.0
        self.gap_us = gap_us
        self.correlation = 0

    def run(self, names: Iterable[str], us: float, *, graph: bool = False) -> None:
        """Kernels of `us` microseconds each, as one replay if `graph`."""
        self.correlation += 1
        for name in names:
            self.kernels.append(Kernel(self.at, us, name, self.correlation, f"[{name}]"))
            self.at += us + self.gap_us
            if not graph:
                self.correlation += 1

    def trace(self) -> Trace:
        """All of it."""
        return Trace("made.json", tuple(self.kernels))


def forward(layers: Sequence[Sequence[str]]) -> list[str]:
    """Names of the kernels of one pass."""
    return ["embed", *(name for layer in layers for name in layer), "final_norm", "head"]


def batch(
    layers: Sequence[Sequence[str]],
    *,
    steps: int,
    prefill_us: float = 50.0,
    decode_us: float = 2.0,
    prefill_graph: bool = False,
    passes: int = 1,
    graphs: bool = True,
    extra_step: bool = True,
) -> Maker:
    """A prefill in `passes`, and `steps` decode steps, plus the one that overlapped scheduling runs."""
    maker = Maker()
    maker.run(["copy"], 1.0)
    prefill = [name.replace("attention", "prefill_attention") for name in forward(layers)]
    for _ in range(passes):
        maker.run(prefill, prefill_us, graph=prefill_graph)
    maker.run(["sample"], 1.0)
    for _ in range(steps + extra_step):
        maker.run(["positions"], 1.0)
        maker.run(forward(layers), decode_us, graph=graphs)
        maker.run(["sample"], 1.0)
    return maker


def write(path: Path, kernels: Iterable[Kernel], category: str = "kernel") -> Path:
    """`kernels` as a profiler's file."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "args": {"name": "python"}}]
    for kernel in kernels:
        args = {"correlation": kernel.correlation, "block": [128, 1, 1]}
        events.append(
            {
                "ph": "X",
                "cat": category,
                "name": kernel.name,
                "ts": kernel.start_us,
                "dur": kernel.duration_us,
            }
            | {"args": args}
        )
    data = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
