"""Takes GPU times of a workload on one engine, by batches under SGLang's profiler.

On a slice of a few layers wall time is the host's.  A window is one batch, which answers with as many tokens
as it takes to see a settled decode step, whatever the workload wants.  Where the workload's answers are so
long that most of them are written with far more in the cache, the step is taken from a second batch with
longer prompts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from autolaunch.race.batches import Batch, traced_batches
from autolaunch.race.engine import Engine
from autolaunch.race.outcomes import GpuTimes, Window
from autolaunch.race.trace import TraceError, gpu_times, read_trace
from autolaunch.race.windows import environment_failure, window_of
from autolaunch.race.workload import Workload, random_prompts


def measure_traced(
    engine: Engine,
    workload: Workload,
    seed: int,
    *,
    folder: Path,
    layers: int,
    total_layers: int,
    limit_s: float = 60.0,
    period: int = 1,
    tail_layers: int | None = None,
    tokens_per_step: float = 1.0,
) -> Window:
    """Take GPU times of the workload's shape, one batch of fresh prompts at its concurrency, cache flushed.

    The engine runs `layers` of `total_layers` layers; `period` and `tail_layers` say which of them repeat
    (`depth.layer_us`).  `tokens_per_step` is what drafts make of a step.  The traces go to `folder` and are
    removed when they have been read.  The window's `prompts`, tokens and wall time are those of the batch
    that was sent, `wanted_output_tokens` is what the workload wants.

    EngineFailed as for `measure_window`; of kind `environment` when a trace does not show what it has to,
    or when the prefix cache answered more than one prompt token in a hundred.
    """
    if engine.facts.get("device") == "cpu":
        raise environment_failure(engine, "the engine runs on a CPU, which has no GPU times")
    first, *others = traced_batches(engine.facts, workload, tokens_per_step)
    depth = _Depth(layers, total_layers, period, tail_layers)
    window, times = _traced(engine, first, seed, folder, depth, limit_s)
    for batch in others:
        _, deeper = _traced(engine, batch, seed, folder, depth, limit_s)
        times = _with_decode_of(times, deeper)
    return replace(window, kind="traced", seed=seed, wanted_output_tokens=workload.output_tokens, gpu=times)


@dataclass(frozen=True, slots=True)
class _Depth:
    layers: int
    total_layers: int
    period: int
    tail_layers: int | None


def _traced(
    engine: Engine, batch: Batch, seed: int, folder: Path, depth: _Depth, limit_s: float
) -> tuple[Window, GpuTimes]:
    """One batch under the profiler."""
    prompts = random_prompts(batch.concurrency, batch.input_tokens, engine.facts.get("vocab_size"), seed)
    engine.ask("flush", limit_s)
    answer = engine.ask(
        "profile",
        limit_s,
        input_ids=prompts,
        output_tokens=batch.output_tokens,
        concurrency=batch.concurrency,
        folder=str(folder),
    )
    window = window_of(engine, answer, batch.concurrency, batch.concurrency * batch.output_tokens, seed)
    if not window.clean:
        raise environment_failure(
            engine,
            f"the prefix cache held {window.cached_tokens} of {window.input_tokens} fresh prompt tokens",
        )
    paths = [folder / Path(name).name for name in answer["traces"]]
    try:
        times = gpu_times(
            [read_trace(path) for path in paths],
            layers=depth.layers,
            total_layers=depth.total_layers,
            output_tokens=batch.output_tokens,
            period=depth.period,
            tail_layers=depth.tail_layers,
        )
    except TraceError as error:
        raise environment_failure(engine, str(error)) from error
    for path in paths:
        path.unlink(missing_ok=True)
    return window, times


def _with_decode_of(prefill: GpuTimes, decode: GpuTimes) -> GpuTimes:
    """The prefill of one batch with the decode steps of another."""
    return replace(
        prefill,
        decode_step_ms=decode.decode_step_ms,
        decode_steps=decode.decode_steps,
        decode_step_full_ms=decode.decode_step_full_ms,
        decode_spread=decode.decode_spread,
        decode_step_waited_ms=decode.decode_step_waited_ms,
        decode_signature=decode.decode_signature,
        busy_ms=prefill.busy_ms + decode.busy_ms,
        kernels=(
            *(kernel for kernel in prefill.kernels if kernel.phase == "prefill"),
            *(kernel for kernel in decode.kernels if kernel.phase == "decode"),
        ),
    )
