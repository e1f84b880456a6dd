"""What a race is run with: its workload and limits, and what there is to load, watch and measure with."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from autolaunch.detect.machine import memory_available_bytes
from autolaunch.race.company import ONE_BY_ONE, Company
from autolaunch.race.gate_reference import DEFAULT_TOKENS, Precision
from autolaunch.race.gpu_memory import GpuMemory, KvBudget
from autolaunch.race.objective import Objective
from autolaunch.race.result import Acceptance
from autolaunch.race.truth import OpenTruth
from autolaunch.race.workload import Workload
from autolaunch.race.yardstick import Yardstick


@dataclass(frozen=True, slots=True)
class RaceSetting:
    """What is left out is that of a CPU: the whole model on the wall, throughput, one after another."""

    workload: Workload
    budget_s: float
    objective: Objective = field(default_factory=Objective)
    yardstick: Yardstick | None = None
    """How windows are timed; None: on the wall."""
    company: Company = ONE_BY_ONE
    open_truth: OpenTruth | None = None
    """Makes the gate's reference engine."""
    truth_precision: Precision = "bf16"
    gate_tokens: int = DEFAULT_TOKENS
    """Tokens that the gate has read."""
    whole: bool = True
    """Whether the engines hold the whole model, not a slice."""
    gpu_memory: GpuMemory | None = None
    kv: KvBudget | None = None
    """With this and `gpu_memory`, trials get the tokens that the whole server's caches would hold."""
    acceptances: Mapping[str, Acceptance] = field(default_factory=dict)
    """What drafts are worth, by candidate id."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    memory_available: Callable[[], int] = memory_available_bytes
