"""What an engine is asked for a window of a workload, and its answer as a `Window`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autolaunch.race.engine import Engine
from autolaunch.race.outcomes import EngineFailed, Failure, Window
from autolaunch.race.workload import Workload, random_prompts


def load_of(engine: Engine, workload: Workload, seed: int) -> dict[str, Any]:
    """What an engine is asked for a window of `workload`, with prompts drawn from `seed`."""
    vocab_size = engine.facts.get("vocab_size")
    return {
        "input_ids": random_prompts(workload.prompts, workload.input_tokens, vocab_size, seed),
        "output_tokens": workload.output_tokens,
        "concurrency": workload.concurrency,
    }


def window_of(
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


def must_fit(engine: Engine, workload: Workload) -> None:
    """Refuse a workload that is too long for the engine's context, whoever is raced."""
    reason = workload.beyond(engine.facts.get("context_len"))
    if reason is not None:
        raise environment_failure(engine, reason)


def environment_failure(engine: Engine, reason: str) -> EngineFailed:
    """A failure that is no fault of the engine's."""
    return EngineFailed(Failure("serve", "environment", reason, log=str(engine.log)))
