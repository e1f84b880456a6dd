"""The engine of the launcher's fake SGLang: that of the tests of races, on which `triton` is twice as fast."""

from __future__ import annotations

import gzip
import json
from typing import Any

from tests.race.fake_sglang.sglang import Engine as RaceEngine
from tests.race.fake_sglang.sglang import made_trace

FAST = "triton"


class Engine(RaceEngine):
    """Its kernels are named after the attention backend."""

    def stop_profile(self) -> None:
        """Write a trace of each rank."""
        if self.behave != "well":
            super().stop_profile()
            return
        backend = self.server_args.attention_backend or "auto"
        for rank in range(self.server_args.tp_size):
            step_us = 500.0 if backend == FAST else 1000.0
            events: list[dict[str, Any]] = made_trace(self.steps, layers=4, step_us=step_us)
            for event in events:
                if event["name"] == "attention":
                    event["name"] = f"attention_{backend}"
            data = gzip.compress(json.dumps({"traceEvents": events}).encode())
            (self.profiling / f"{self.steps}-TP-{rank}.trace.json.gz").write_bytes(data)
