"""Windows, trials and results with figures that are easy to check by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.race.outcomes import EngineReady, GateReport, GpuTimes, Window
from autolaunch.race.result import Ended, RaceResult, Trial
from autolaunch.race.workload import Workload


def wall(tok_per_s: float = 100.0, *, concurrency: int = 4, ttft_s: float | None = None) -> Window:
    """A window of one second: each prompt gets its tokens at an even pace after the first."""
    prompts = concurrency
    return Window(
        concurrency=concurrency,
        prompts=prompts,
        input_tokens=64 * prompts,
        output_tokens=24 * prompts,
        wall_s=24 * prompts / tok_per_s,
        latencies_s=(24 * prompts / tok_per_s,) * prompts,
        ttfts_s=() if ttft_s is None else (ttft_s,) * prompts,
    )


def traced(
    prefill_ms: float = 100.0,
    step_ms: float = 1.0,
    *,
    full: float | None = 9.0,
    concurrency: int = 32,
    output_tokens: int = 24,
    wanted: int | None = 256,
    accept: float | None = None,
    waited_ms: float = 40.0,
) -> Window:
    """A traced window of a slice of 4 of 36 layers; at full depth all takes `full` times as long."""
    gpu = GpuTimes(
        prefill_ms=prefill_ms,
        decode_step_ms=step_ms,
        decode_steps=output_tokens,
        busy_ms=prefill_ms + output_tokens * step_ms,
        layers=4,
        prefill_full_ms=None if full is None else prefill_ms * full,
        decode_step_full_ms=None if full is None else step_ms * full,
    )
    return Window(
        concurrency=concurrency,
        prompts=concurrency,
        input_tokens=1024 * concurrency,
        output_tokens=output_tokens * concurrency,
        wall_s=(gpu.busy_ms + waited_ms) / 1000,
        gpu=gpu,
        wanted_output_tokens=wanted,
        accept_length=accept,
    )


def noisy(window: Window, count: int, noise: float, seed: object) -> tuple[Window, ...]:
    """`count` windows like `window`, each with up to `noise` more or less of all times."""
    generator = random.Random(repr(seed))
    windows = []
    for _ in range(count):
        factor = 1 + generator.uniform(-noise, noise)
        gpu = window.gpu
        if gpu is not None:
            gpu = replace(
                gpu,
                prefill_ms=gpu.prefill_ms * factor,
                decode_step_ms=gpu.decode_step_ms * factor,
                busy_ms=gpu.busy_ms * factor,
                prefill_full_ms=None if gpu.prefill_full_ms is None else gpu.prefill_full_ms * factor,
                decode_step_full_ms=None
                if gpu.decode_step_full_ms is None
                else gpu.decode_step_full_ms * factor,
            )
        windows.append(replace(window, wall_s=window.wall_s * factor, gpu=gpu))
    return tuple(windows)


def trial(name: str, rounds: Sequence[Window] = (), flags: tuple[str, ...] = (), **fields: Any) -> Trial:
    """A healthy trial of candidate `name`."""
    flags = flags or (f"--flag-{name[1:]}", "x")
    candidate = ORIGINAL if name == "c0" else Candidate(name, flags, choice=fields.pop("choice", None))
    fields.setdefault("ready", EngineReady(20.0, {}))
    fields.setdefault("gate", GateReport(True, "agrees"))
    fields.setdefault("screen", rounds[0] if rounds else None)
    return Trial(candidate, rounds=tuple(rounds), **fields)


def result(
    *trials: Trial, ended: Ended = "done", workload: Workload | None = None, total_layers: int | None = 36
) -> RaceResult:
    """A race of `trials`."""
    return RaceResult(trials, (), ended, 60.0, workload, total_layers)
