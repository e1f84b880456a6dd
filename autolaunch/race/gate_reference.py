"""What the gate compares with: candidate 0's answers, and the *truth* where there is one.

The ladder, from the top:

1. `gated`: an independent engine computed the same weights in a more exact arithmetic, bf16 for quantized
   weights or fp32 for bf16 ones.  Others may be hardly further from it than candidate 0 is, and candidate 0
   is judged by it too.
2. `agreement`: candidate 0 alone, and whoever agrees with it.
3. `ungated`: nothing; answers are only looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from autolaunch.race import gate_answers
from autolaunch.race.engine import Engine
from autolaunch.race.gate_answers import Answer
from autolaunch.race.gate_prompts import PASSAGES, PROMPTS, make_prompts, make_sequences
from autolaunch.race.gate_statistics import (
    Logprobs,
    are_finite,
    difference,
    distances,
    load_limit,
    unrelatedness,
)
from autolaunch.race.outcomes import EngineFailed, Failure

ALONE = 8
"""Sequences that are also read one at a time."""
DEFAULT_TOKENS = 512
"""Tokens in all sequences, for a CPU; a GPU reads 6144 in 0.1 to 0.4 s (H200, 2026-11-30)."""
NOT_FINITE = "log-probabilities are not finite"
SHALLOW = "a slice cannot show what overflows only in later layers"

Precision = Literal["bf16", "fp32"]
"""Arithmetic of a truth."""


@dataclass(frozen=True, slots=True)
class Reference:
    """Candidate 0's answers, and how probable each given token is to it."""

    prompts: tuple[tuple[int, ...], ...]
    """Token ids of the prompts that are continued, all at once."""
    sequences: tuple[tuple[int, ...], ...]
    """Text and random tokens in turns; every token but the first of each is compared."""
    logprobs: tuple[tuple[float, ...], ...]
    """Of each sequence, as many at once as the timed windows have."""
    alone: tuple[tuple[float, ...], ...]
    """Of the first few sequences, one at a time."""
    texts: tuple[str, ...]
    looping: tuple[bool, ...]
    """Which of its own continuations are degenerate; those say nothing about others."""
    at_once: float
    """What batching does to candidate 0 itself."""
    decode: float
    """What decoding does."""

    @property
    def limit(self) -> float:
        """Mean |Δ log-probability| that a challenger may differ by, where there is no truth."""
        return max(load_limit("agreement"), load_limit("spread") * max(self.at_once, self.decode))

    @property
    def doubt(self) -> str | None:
        """What makes candidate 0 itself look wrong; no failure, since weak models repeat themselves too.

        Wrong kernels agree with themselves: interpreted Triton in bf16, 5.4 away from every other backend,
        decoded what its own prefill says to the last bit (sglang 0.5.21 on a CPU, 2026-11-30).
        """
        looping = sum(self.looping)
        if 2 * looping <= len(self.looping):
            return None
        return f"{looping} of {len(self.looping)} continuations of candidate 0 repeat themselves"

    def to_json(self) -> dict[str, Any]:
        """What a journal keeps of it."""
        return {
            "sequences": len(self.sequences),
            "tokens": sum(map(len, self.logprobs)),
            "at_once": self.at_once,
            "decode": self.decode,
            "limit": self.limit,
            "doubt": self.doubt,
            "texts": list(self.texts[: len(PROMPTS)]),
        }


@dataclass(frozen=True, slots=True)
class Truth:
    """How probable the reference's tokens are to an independent engine of the same weights."""

    sequences: tuple[tuple[int, ...], ...]
    logprobs: tuple[tuple[float, ...], ...]
    precision: Precision = "bf16"

    @property
    def limit(self) -> float:
        """Times candidate 0's distance that a challenger may be away."""
        return load_limit(f"ratio.{self.precision}")

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"the same weights in {self.precision}"

    def distances(self, found: Logprobs) -> tuple[float, ...]:
        """Distance of each of the first sequences, as many as `found` has; NaN where it is not finite."""
        return distances(found, self.logprobs[: len(found)])

    def to_json(self) -> dict[str, Any]:
        """What a journal keeps of it."""
        return {
            "precision": self.precision,
            "sequences": len(self.sequences),
            "tokens": sum(map(len, self.logprobs)),
            "limit": self.limit,
        }


def take_reference(
    engine: Engine, *, concurrency: int = 4, limit_s: float = 120.0, tokens: int = DEFAULT_TOKENS
) -> Reference:
    """Let candidate 0 answer the gate's prompts and read about `tokens` given tokens.

    EngineFailed, of kind `garbage`, when its log-probabilities are not finite or do not agree with
    themselves: then there is nothing to compare with.
    """
    vocab_size = engine.facts.get("vocab_size")
    count = gate_answers.at_once(concurrency)
    ids = gate_answers.tokenize(engine, [*PROMPTS, *PASSAGES], limit_s)
    prompts = make_prompts(ids and ids[: len(PROMPTS)], min(count, gate_answers.MOST_AT_ONCE), vocab_size)
    sequences = make_sequences(ids and ids[len(PROMPTS) :], tokens, vocab_size)
    starts = [1] * len(sequences)
    alone = gate_answers.score(engine, sequences[:ALONE], starts[:ALONE], 1, limit_s)
    logprobs = gate_answers.score(engine, sequences, starts, count, limit_s)
    answers = gate_answers.generate(engine, prompts, count, limit_s)
    at_once = difference(alone, logprobs[: len(alone)])
    decode = decoding(engine, prompts, answers, limit_s)
    reason = None if are_finite(logprobs) else NOT_FINITE
    reason = (
        reason
        or gate_answers.why_not_finite(engine, answers, count)
        or _disbelief({"in a batch": at_once, "while decoding": decode})
    )
    if reason is not None:
        raise EngineFailed(Failure("gate", "garbage", reason, log=str(engine.log)))
    return Reference(
        prompts=tuple(map(tuple, prompts)),
        sequences=tuple(map(tuple, sequences)),
        logprobs=tuple(map(tuple, logprobs)),
        alone=tuple(map(tuple, alone)),
        texts=tuple(answer["text"] or "" for answer in answers),
        looping=tuple(gate_answers.is_degenerate(answer["output_ids"]) for answer in answers[: len(PROMPTS)]),
        at_once=at_once,
        decode=decode,
    )


def take_truth(
    engine: Engine,
    reference: Reference,
    *,
    concurrency: int = 4,
    limit_s: float = 120.0,
    precision: Precision = "bf16",
) -> Truth:
    """Have an independent engine of the same weights, computed in `precision`, read what candidate 0 read.

    EngineFailed, of kind `garbage`, when it cannot be anybody's truth: values that are not finite, or the
    same for every token.
    """
    starts = [1] * len(reference.sequences)
    count = gate_answers.at_once(concurrency)
    found = gate_answers.score(engine, reference.sequences, starts, count, limit_s)
    reason = None
    if not are_finite(found):
        reason = NOT_FINITE
    elif math.isnan(unrelatedness(found, found)):
        reason = "every token is equally probable"
    if reason is not None:
        raise EngineFailed(Failure("gate", "garbage", reason, log=str(engine.log)))
    return Truth(reference.sequences, tuple(map(tuple, found)), precision)


def decoding(
    engine: Engine, prompts: Sequence[Sequence[int]], answers: Sequence[Answer], limit_s: float
) -> float:
    """Mean |Δ| between what an engine decoded and its own prefill of the same, over the first few answers."""
    few = [gate_answers.written(prompts, answers)[at] for at in range(len(PROMPTS))]
    own = gate_answers.score(engine, few, [len(prompt) for prompt in prompts[: len(few)]], 1, limit_s)
    return difference(own, [answer["logprobs"] for answer in answers[: len(few)]])


def _disbelief(figures: dict[str, float]) -> str | None:
    """Why candidate 0 cannot be believed: it does not agree with itself."""
    limit = load_limit("itself")
    for how, figure in figures.items():
        if math.isnan(figure):
            return NOT_FINITE
        if figure > limit:
            return (
                f"log-probabilities {how} are {figure:.2f} away from its own on average (limit {limit:.2f})"
            )
    return None
