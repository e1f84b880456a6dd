"""Times windows of a workload on one engine, by the wall.

A window is closed-loop: the slots are kept full from the first prompt to the last, inside the engine's
own process, so the control socket is not part of the time.  Every prompt is new, the prefix cache is
emptied before, and what it served all the same is counted and kept with the window.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autolaunch.race.batches import SPARE_TOKENS
from autolaunch.race.conversations import tokens_of
from autolaunch.race.engine import Engine
from autolaunch.race.outcomes import Window
from autolaunch.race.windows import load_of, window_of
from autolaunch.race.workload import Workload, random_prompts


def measure_window(engine: Engine, workload: Workload, seed: int, *, limit_s: float = 60.0) -> Window:
    """Time one window of fresh prompts drawn from `seed`, or of the workload's conversations, cache flushed.

    EngineFailed when it does not end within `limit_s`, or when answers are not as long as they had to be.
    """
    if workload.conversations:
        return measure_conversations(engine, workload, seed, limit_s=limit_s)
    load = load_of(engine, workload, seed)
    engine.ask("flush", limit_s)
    answer = engine.ask("load", limit_s, **load)
    return window_of(engine, answer, workload.concurrency, workload.prompts * workload.output_tokens, seed)


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
    window = window_of(engine, answer, workload.concurrency, wanted, seed)
    return replace(window, kind="conversations")


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
