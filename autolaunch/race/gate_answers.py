"""What the gate asks of an engine, and what can be told from the answers alone."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from autolaunch.race.engine import Engine
from autolaunch.race.gate_statistics import are_finite

CONTINUATION_TOKENS = 24
LONGEST_LOOP = 4
"""Tokens in the longest repetition that counts as degenerate."""
MOST_AT_ONCE = 64
"""Prompts continued at once, at most: more take time and show nothing new."""
LEAST_AT_ONCE = 8
"""Prompts continued at once, at least: some kernels are chosen, and some fail, from eight on."""
FLAT = 1e-4
"""Nats from 1 / vocabulary within which the likeliest token is as likely as any."""

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green", "blue"]}, "even": {"type": "boolean"}},
    "required": ["colour", "even"],
    "additionalProperties": False,
}
"""Every answer that keeps to it is short, but for white space, which a weak model may go on with."""
NO_GRAMMAR = "--grammar-backend none"
"""In SGLang's refusal of a schema where the user wanted no grammars."""

Answer = dict[str, Any]


def at_once(concurrency: int) -> int:
    """How many requests the gate has in flight where the timed windows have `concurrency`."""
    return max(LEAST_AT_ONCE, concurrency)


def tokenize(engine: Engine, texts: Sequence[str], limit_s: float) -> list[list[int]] | None:
    """Token ids of each text; None where the engine runs without a tokenizer."""
    ids: list[list[int]] | None = engine.ask("tokenize", limit_s, at="gate", texts=list(texts))
    return ids


def generate(
    engine: Engine,
    prompts: Sequence[Sequence[int]],
    concurrency: int,
    limit_s: float,
    tokens: int = CONTINUATION_TOKENS,
) -> list[Answer]:
    """Greedy continuations of exactly `tokens` tokens, with the log-probability of each."""
    answers: list[Answer] = engine.ask(
        "generate",
        limit_s,
        at="gate",
        input_ids=[list(prompt) for prompt in prompts],
        sampling={"temperature": 0.0, "max_new_tokens": tokens, "ignore_eos": True},
        logprobs=True,
        concurrency=concurrency,
    )
    return answers


def score(
    engine: Engine,
    sequences: Sequence[Sequence[int]],
    starts: Sequence[int],
    concurrency: int,
    limit_s: float,
) -> list[list[float]]:
    """Log-probabilities by prefill alone: the cache is emptied, so no sequence leans on another."""
    engine.ask("flush", limit_s, at="gate")
    scores: list[list[float]] = engine.ask(
        "score",
        limit_s,
        at="gate",
        input_ids=[list(ids) for ids in sequences],
        starts=list(starts),
        concurrency=concurrency,
    )
    return scores


def written(prompts: Sequence[Sequence[int]], answers: Sequence[Answer]) -> list[list[int]]:
    """Prompts with their continuations."""
    return [[*prompt, *answer["output_ids"]] for prompt, answer in zip(prompts, answers, strict=True)]


def why_not_finite(engine: Engine, answers: Sequence[Answer], concurrency: int) -> str | None:
    """A reason when logits behind any generated token were no numbers.

    What becomes of those: a log-probability that is not finite, or, where SGLang sanitizes logits before it
    samples (`SGLANG_SANITIZE_NAN_LOGITS`, off unless set), the same small one for every token.
    """
    vocab_size = engine.facts.get("vocab_size")
    where = f"{len(answers)} continuations, {min(concurrency, len(answers))} at once"
    bad = sum(not are_finite([answer["logprobs"]]) for answer in answers)
    if bad:
        return f"log-probabilities are not finite in {bad} of {where}"
    flat = sum(_is_flat(answer["logprobs"], vocab_size) for answer in answers)
    if flat:
        return f"all tokens were equally probable, as after logits that are no numbers, in {flat} of {where}"
    return None


def check_window(
    engine: Engine, prompts: Sequence[Sequence[int]], output_tokens: int, concurrency: int, limit_s: float
) -> str | None:
    """Send what a timed window sends once more, with log-probabilities; a reason when one is no number.

    Timed requests ask for none, since that costs time.
    """
    answers = generate(engine, prompts, concurrency, limit_s, output_tokens)
    return why_not_finite(engine, answers, concurrency)


def is_degenerate(ids: Sequence[int]) -> bool:
    """Whether the second half of a continuation is one loop of at most four tokens, as in `!!!!!!!!`."""
    tail = ids[len(ids) // 2 :]
    if len(tail) < 2 * LONGEST_LOOP:
        return False
    return any(
        all(tail[at] == tail[at + period] for at in range(len(tail) - period))
        for period in range(1, LONGEST_LOOP + 1)
    )


def why_degenerate(answers: Sequence[Answer], reference: Sequence[bool] | None) -> str | None:
    """Why the texts cannot be believed: most of them loop where the reference's do not.

    `reference` says which of candidate 0's own loop; those tell nothing of others.
    """
    loops = reference if reference is not None else [False] * len(answers)
    telling = [answer for answer, known in zip(answers, loops, strict=True) if not known]
    looping = [answer for answer in telling if is_degenerate(answer["output_ids"])]
    if len(telling) < 2 or 2 * len(looping) <= len(telling):
        return None
    against = "" if reference is None else " where candidate 0 does not"
    return f"{len(looping)} of {len(telling)} continuations repeat themselves{against}"


def why_unstructured(engine: Engine, prompt: Sequence[int], limit_s: float) -> str | None:
    """A reason when an answer that must keep to a JSON schema does not; None also where nobody can be asked.

    An engine that reports an error is not asked again, so only hosts with the operation `attempt`, which
    answers with the error instead, are asked.
    """
    if "attempt" not in engine.facts.get("operations", ()):
        return None
    answer: Answer = engine.ask(
        "attempt",
        limit_s,
        at="gate",
        input_ids=list(prompt),
        sampling={"temperature": 0.0, "max_new_tokens": 64, "json_schema": json.dumps(SCHEMA)},
    )
    error, text = answer.get("error") or "", (answer.get("text") or "").strip()
    if error:
        return None if NO_GRAMMAR in error else f"a request with a JSON schema failed: {error}"
    if text == "{" and (answer.get("finish_reason") or {}).get("type") == "length":
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return f"the answer to a JSON schema is no JSON: `{text[:60]}`"
    if isinstance(value, dict) and set(value) == {"colour", "even"}:
        return None
    return f"the answer does not keep to its JSON schema: `{text[:60]}`"


def _is_flat(logprobs: Sequence[float], vocab_size: int | None) -> bool:
    """Whether any greedy token was as probable as one drawn from the whole vocabulary."""
    if not vocab_size:
        return False
    return any(abs(value + math.log(vocab_size)) < FLAT for value in logprobs)
