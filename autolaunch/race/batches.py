"""A workload into the batches that are traced for it, each with one prompt a slot.

A traced answer is as long as it takes to see a settled step, whatever the workload wants.  Its steps have
the prompt and a few tokens more in the cache.  Where the workload's own answers are so long that a step
in their middle has far more there, the step is taken from a second batch with longer prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autolaunch.race.workload import Workload

TRACED_TOKENS = 80
"""Tokens of a traced answer: the last third of its steps is 26.  At 25 ms a step that is 2 s."""
FEWEST_TRACED_TOKENS = 8
"""Of a batch that is about its prefill, or where the cache holds no more."""
LONGER_CONTEXT = 1.25
"""How much more a step in the middle of an answer must have in the cache to be worth a second batch."""
SPARE_TOKENS = 16
"""Of each prompt's share of the cache and of the context, left free: pages, and drafts ahead."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One prompt a slot."""

    input_tokens: int
    output_tokens: int
    concurrency: int

    @property
    def workload(self) -> Workload:
        """This batch as a workload."""
        return Workload(self.input_tokens, self.output_tokens, self.concurrency, rounds=1)


def traced_batches(
    facts: Mapping[str, Any], workload: Workload, tokens_per_step: float = 1.0
) -> tuple[Batch, ...]:
    """The batch that shows the prefill, and where it does not show the typical step, one for that.

    `facts` are those of the engine, `kv_tokens` and `context_len` among them; `tokens_per_step` is what
    drafts make of a step, so that there are as many steps with them as without.
    """
    limits = [facts["context_len"]] if facts.get("context_len") else []
    if facts.get("kv_tokens"):
        limits.append(facts["kv_tokens"] // workload.concurrency)
    room = min(limits) - SPARE_TOKENS if limits else None
    traced = max(TRACED_TOKENS, round(TRACED_TOKENS * tokens_per_step))
    middle = workload.input_tokens + workload.output_tokens // 2
    longer = middle - traced
    if middle < LONGER_CONTEXT * (workload.input_tokens + traced) or _fit(traced, longer, room) < traced:
        return (
            Batch(workload.input_tokens, _fit(traced, workload.input_tokens, room), workload.concurrency),
        )
    return (
        Batch(workload.input_tokens, FEWEST_TRACED_TOKENS, workload.concurrency),
        Batch(longer, traced, workload.concurrency),
    )


def _fit(output_tokens: int, input_tokens: int, room: int | None) -> int:
    """`output_tokens`, or the fewer that a slot has room for."""
    if room is None:
        return output_tokens
    return max(FEWEST_TRACED_TOKENS, min(output_tokens, room - input_tokens))
