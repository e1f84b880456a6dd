"""Times windows of a workload on one engine.

A window is closed-loop: the slots are kept full from the first prompt to the last, inside the engine's
own process, so the control socket is not part of the time.  Every prompt is new, the prefix cache is
emptied before, and what it served all the same is counted and kept with the window.

On a GPU a window is one batch under SGLang's profiler, and its figures are GPU times: on a slice of a few
layers wall time is the host's.  The batch answers with as many tokens as it takes to see a settled decode
step, whatever the workload wants.  Where the workload's answers are so long that most of them are written
with far more in the cache, the step is taken from a second batch with longer prompts.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autolaunch.race.batches import FEWEST_TRACED_TOKENS, SPARE_TOKENS, Batch, traced_batches
from autolaunch.race.conversations import tokens_of
from autolaunch.race.engine import Engine
from autolaunch.race.outcomes import EngineFailed, Failure, GpuTimes, Window
from autolaunch.race.trace import TraceError, gpu_times, read_trace
from autolaunch.race.workload import Workload, random_prompts
from autolaunch.units import format_duration

WARM_UP_SEED = 1 << 40
"""Added to the seed of a warm-up, whose prompts must not come again in a timed window."""
LOOK_S = 0.02
"""Between two looks at a warm-up that is waited for."""


class WarmUp:
    """Windows that let an engine compile what a workload needs, while nobody waits for it."""

    def __init__(self, engine: Engine, shapes: Sequence[Workload], seed: int) -> None:
        """Begin the first of `shapes`; prompts are drawn from `seed` on."""
        self._engine = engine
        self._left = list(enumerate(shapes, seed))
        self._begin()

    def _begin(self) -> None:
        """Have the engine run the next shape."""
        (self._seed, self._shape), self._began_s = self._left.pop(0), time.monotonic()
        self._engine.begin("flush")
        self._number = self._engine.begin("load", **_load(self._engine, self._shape, self._seed))

    def poll(self, limit_s: float) -> Window | None:
        """The last window, once all have run; no measurement, but it shows what drafts were accepted.

        EngineFailed when one takes longer than `limit_s`, or when answers are not as long as they had to be.
        """
        while (answer := self._engine.poll(self._number)) is not None:
            shape = self._shape
            wanted_tokens = shape.prompts * shape.output_tokens
            window = _window(self._engine, answer, shape.concurrency, wanted_tokens, self._seed)
            if not self._left:
                return window
            self._begin()
        if time.monotonic() - self._began_s > limit_s:
            raise self._engine.hangs(f"did not finish `load` within {format_duration(limit_s)}")
        return None

    def finish(self, limit_s: float) -> Window:
        """Wait for the last window; `limit_s` and EngineFailed as for `poll`."""
        while (window := self.poll(limit_s)) is None:
            time.sleep(LOOK_S)
        return window


def warm_up(engine: Engine, workload: Workload, seed: int = 0) -> WarmUp:
    """Run the workload's shape once, alone and at once, so that what compiles or autotunes does so now.

    EngineFailed where the workload does not fit the model.
    """
    _must_fit(engine, workload)
    at_once = replace(workload, conversations=())
    alone = replace(at_once, concurrency=1, rounds=1)
    return WarmUp(engine, [alone, at_once], WARM_UP_SEED + 2 * seed)


def warm_up_traced(engine: Engine, workload: Workload, seed: int = 0) -> WarmUp:
    """Run every batch that `measure_traced` would, with short answers and no profiler, and one prompt alone.

    EngineFailed where the workload does not fit the model.
    """
    _must_fit(engine, workload)
    first, *others = traced_batches(engine.facts, workload, 1.0)
    alone = replace(first, concurrency=1, output_tokens=FEWEST_TRACED_TOKENS)
    batches = [alone, *(replace(batch, output_tokens=FEWEST_TRACED_TOKENS) for batch in others), first]
    return WarmUp(engine, [batch.workload for batch in batches], WARM_UP_SEED + 4 * seed)


def measure_window(engine: Engine, workload: Workload, seed: int, *, limit_s: float = 60.0) -> Window:
    """Time one window of fresh prompts drawn from `seed`, or of the workload's conversations, cache flushed.

    EngineFailed when it does not end within `limit_s`, or when answers are not as long as they had to be.
    """
    if workload.conversations:
        return measure_conversations(engine, workload, seed, limit_s=limit_s)
    load = _load(engine, workload, seed)
    engine.ask("flush", limit_s)
    answer = engine.ask("load", limit_s, **load)
    return _window(engine, answer, workload.concurrency, workload.prompts * workload.output_tokens, seed)


def measure_conversations(engine: Engine, workload: Workload, seed: int, *, limit_s: float = 120.0) -> Window:
    """Time the workload's conversations, every turn sent with what was said before it; cache flushed.

    A prompt of the window is a turn.  What its prefix cost is in `cached_tokens`: an engine that loses the
    prefixes reads every prompt anew.  EngineFailed as for `measure_window`.
    """
    conversations = _told_in_ids(engine, workload, seed, limit_s)
    engine.ask("flush", limit_s)
    answer = engine.ask(
        "conversations", limit_s, conversations=conversations, concurrency=workload.concurrency
    )
    wanted = sum(turn["output_tokens"] for turns in conversations for turn in turns)
    window = _window(engine, answer, workload.concurrency, wanted, seed)
    return replace(window, kind="conversations")


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
        raise _environment(engine, "the engine runs on a CPU, which has no GPU times")
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
    window = _window(engine, answer, batch.concurrency, batch.concurrency * batch.output_tokens, seed)
    if not window.clean:
        raise _environment(
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
        raise _environment(engine, str(error)) from error
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


def _load(engine: Engine, workload: Workload, seed: int) -> dict[str, Any]:
    """What an engine is asked for a window of `workload`, with prompts drawn from `seed`."""
    vocab_size = engine.facts.get("vocab_size")
    return {
        "input_ids": random_prompts(workload.prompts, workload.input_tokens, vocab_size, seed),
        "output_tokens": workload.output_tokens,
        "concurrency": workload.concurrency,
    }


def _window(
    engine: Engine, answer: dict[str, Any], concurrency: int, wanted_tokens: int, seed: int
) -> Window:
    """The window that a load's `answer` describes; EngineFailed when tokens are missing."""
    requests: list[dict[str, Any]] = answer["requests"]
    output_tokens = _total(requests, "completion_tokens")
    if output_tokens != wanted_tokens:
        reason = f"generated {output_tokens} tokens where {wanted_tokens} were asked for"
        raise EngineFailed(Failure("serve", "garbage", reason, log=str(engine.log)))
    verified = _total(requests, "spec_verify_ct")
    return Window(
        concurrency=concurrency,
        prompts=len(requests),
        input_tokens=_total(requests, "prompt_tokens"),
        output_tokens=output_tokens,
        wall_s=answer["wall_s"],
        cached_tokens=_total(requests, "cached_tokens"),
        latencies_s=tuple(request["latency_s"] for request in requests),
        ttfts_s=tuple(request["ttft_s"] for request in requests),
        seed=seed,
        started_s=answer["started_s"],
        # The first token of each comes from its prefill.
        accept_length=(output_tokens - len(requests)) / verified if verified else None,
    )


def _total(requests: Iterable[dict[str, Any]], name: str) -> int:
    return sum(request.get(name) or 0 for request in requests)


def _told_in_ids(engine: Engine, workload: Workload, seed: int, limit_s: float) -> list[list[dict[str, Any]]]:
    """As many of the conversations as a window has prompts, in token ids, none longer than the context."""
    every = workload.conversations
    first = seed * workload.prompts % len(every)
    chosen = [*every[first:], *every[:first]][: workload.prompts]
    texts = [turn.text for conversation in chosen for turn in conversation.turns]
    tokenized: list[list[int]] | None = engine.ask("tokenize", limit_s, texts=texts)
    if tokenized is None:
        vocab_size = engine.facts.get("vocab_size")
        tokenized = [
            random_prompts(1, max(1, tokens_of(text)), vocab_size, seed + number)[0]
            for number, text in enumerate(texts)
        ]
    room = (engine.facts.get("context_len") or 1 << 30) - SPARE_TOKENS
    ids = iter(tokenized)
    told = []
    for conversation in chosen:
        turns: list[dict[str, Any]] = []
        length = 0
        for turn, spoken in zip(conversation.turns, ids, strict=False):
            length += len(spoken) + turn.output_tokens
            if length <= room:
                turns.append({"input_ids": spoken or [0], "output_tokens": turn.output_tokens})
        if turns:
            told.append(turns)
    return told


def _must_fit(engine: Engine, workload: Workload) -> None:
    """Refuse a workload that is too long for the engine's context, whoever is raced."""
    reason = workload.beyond(engine.facts.get("context_len"))
    if reason is not None:
        raise _environment(engine, reason)


def _environment(engine: Engine, reason: str) -> EngineFailed:
    return EngineFailed(Failure("serve", "environment", reason, log=str(engine.log)))
