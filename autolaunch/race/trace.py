"""Traces of one batch into GPU times: prefill, a settled decode step, and what ran in them.

Every rank of a parallel group writes a trace; they wait for one another in every step, so the slowest
counts.  Collectives spin while they wait, so waiting is part of a rank's busy time.

The whole model's times are extrapolated from the slice's by the time of one layer, and are missing where
the layers cannot be told apart.  Kernels hidden under others cost nothing: all times are unions.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median, quantiles

from autolaunch.race.depth import layer_us
from autolaunch.race.kernels import classify, shorten
from autolaunch.race.outcomes import GpuTimes, KernelShare, Phase
from autolaunch.race.steps import Phases, split_phases
from autolaunch.race.trace_file import Kernel, Trace, TraceError, busy_us, read_trace

__all__ = ["LARGEST", "Trace", "TraceError", "gpu_times", "read_trace"]

LARGEST = 12
"""Kernels of each phase that are kept, by their share."""
LAYERED_STEPS = 8
"""Settled steps in which layers are looked for; they are all alike."""


def gpu_times(
    traces: Sequence[Trace],
    *,
    layers: int,
    total_layers: int,
    output_tokens: int,
    period: int = 1,
    tail_layers: int | None = None,
) -> GpuTimes:
    """GPU times of one batch whose prompts were each answered with `output_tokens`, one trace a rank.

    `period` and `tail_layers` are those of `depth.layer_us`.  TraceError when the decode steps of a trace
    cannot be told from the rest.
    """
    if not traces:
        raise TraceError("there is no trace")
    ranks = [
        _rank_times(trace.kernels, layers, total_layers, output_tokens, period, tail_layers)
        for trace in traces
    ]
    return max(ranks, key=lambda times: times.prefill_ms + times.decode_steps * times.decode_step_ms)


def _rank_times(
    kernels: Sequence[Kernel],
    layers: int,
    total_layers: int,
    output_tokens: int,
    period: int,
    tail_layers: int | None,
) -> GpuTimes:
    phases = split_phases(kernels, output_tokens)
    steps_us = [busy_us(phases.steps[at]) for at in phases.settled]
    step_us = median(steps_us)
    mixed_us = sum(max(0.0, busy_us(step) - step_us) for step in phases.mixed)
    prefill_us = busy_us(phases.prefill) + mixed_us
    typical = min(phases.settled, key=lambda at: abs(busy_us(phases.steps[at]) - step_us))
    deeper = total_layers - layers
    prefill_layer_us = decode_layer_us = 0.0 if deeper == 0 else None
    if deeper:
        prefill_layer_us = layer_us(
            (*phases.prefill, *phases.late_prefill),
            layers,
            period=period,
            tail_layers=tail_layers,
            draft_layers=int(phases.drafting),
        )
        decode_layer_us = _decode_layer_us(phases, layers, period, tail_layers)
    return GpuTimes(
        prefill_ms=prefill_us / 1e3,
        decode_step_ms=step_us / 1e3,
        decode_steps=phases.count,
        busy_ms=busy_us(kernels) / 1e3,
        layers=layers,
        prefill_full_ms=_deepened(prefill_us, deeper, prefill_layer_us),
        decode_step_full_ms=_deepened(step_us, deeper, decode_layer_us),
        kernels=(
            *_largest(phases.prefill, "prefill"),
            *_largest(phases.steps[typical], "decode"),
        ),
        decode_spread=_spread(steps_us),
        prefill_signature=_digest(set(_forms(phases.prefill))),
        decode_signature=_digest(Counter(_forms(phases.steps[typical])).items()),
        overlapping=bool(phases.mixed),
        prefill_waited_ms=_prefill_waited_us(phases) / 1e3,
        decode_step_waited_ms=_step_waited_us(phases) / 1e3,
    )


def _prefill_waited_us(phases: Phases) -> float:
    if not phases.prefill:
        return 0.0
    span_us = phases.decode_from_us - phases.prefill[0].start_us
    return max(0.0, span_us - busy_us(phases.prefill))


def _step_waited_us(phases: Phases) -> float:
    waited = [phases.periods_us[at] - busy_us(phases.steps[at]) for at in phases.settled]
    return max(0.0, median(waited))


def _decode_layer_us(phases: Phases, layers: int, period: int, tail_layers: int | None) -> float | None:
    found = [
        layer_us(phases.forward[at], layers, period=period, tail_layers=tail_layers)
        for at in phases.settled[-LAYERED_STEPS:]
    ]
    figures = [figure for figure in found if figure is not None]
    return median(figures) if 2 * len(figures) > len(found) else None


def _deepened(us: float, deeper: int, one_layer_us: float | None) -> float | None:
    """Milliseconds with `deeper` more layers."""
    return None if one_layer_us is None else (us + deeper * one_layer_us) / 1e3


def _largest(kernels: Sequence[Kernel], phase: Phase) -> list[KernelShare]:
    spent_us: dict[str, float] = defaultdict(float)
    count: Counter[str] = Counter()
    for kernel in kernels:
        spent_us[kernel.name] += kernel.duration_us
        count[kernel.name] += 1
    whole_us = sum(spent_us.values())
    shares = []
    for name, us in sorted(spent_us.items(), key=lambda item: -item[1])[:LARGEST]:
        shown = classify(name, phase)
        shares.append(
            KernelShare(
                name=shorten(name),
                phase=phase,
                backend=shown.backend if shown else None,
                dimension=shown.dimension if shown else None,
                share=us / whole_us if whole_us else 0.0,
                count=count[name],
            )
        )
    return shares


def _spread(values: Sequence[float]) -> float:
    """Half the distance between the quartiles, over the median."""
    if len(values) < 4:
        return 0.0
    low, middle, high = quantiles(values, n=4)
    return (high - low) / 2 / middle if middle else 0.0


def _forms(kernels: Iterable[Kernel]) -> Iterator[tuple[str, str]]:
    """Names and forms of what computes; copies and fills come and go with the scheduler."""
    for kernel in kernels:
        if kernel.form:
            yield kernel.name, kernel.form


def _digest(parts: Iterable[object]) -> str:
    return hashlib.sha256(json.dumps(sorted(map(repr, parts))).encode()).hexdigest()[:16]
