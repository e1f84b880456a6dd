"""Answers into what is wrong with them, or nothing.  What is lenient here was strict in the race's gate.

Nothing is known of the model but what it said just now, so only what no sound server does counts: errors of
its own, log-probabilities that are no numbers, most answers one loop, scores of its own tokens that depend on
whether it generates or reads them, and other answers to many at once than to each alone.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from autolaunch.launch.watching.asking import Answer, Heard, Scored

LONGEST_LOOP = 4
"""Tokens in the longest repetition that counts as degenerate, as in the gate."""
LEAST_TELLING = 8
"""Tokens from which on an answer can be a loop."""
ITSELF = 2.0
"""Nats that generating may be away from reading the same tokens: the gate's `itself` (data/gate.toml)."""
SHIFT = 0.5
"""Probability that moved to other tokens, at one place, in an answer that is unlike the one given alone."""
FLAT, FLAT_BELOW = 1e-4, -3.0
"""Nats that all tokens' log-probabilities are within, and below, where all tokens are as likely as any."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong."""

    kind: str
    """A failure kind: `crash`, `hang`, `garbage`, `silent_fallback`."""
    reason: str
    """One sentence without a full stop."""


def fault_of(heard: Heard, *, weights_are_random: bool = False) -> Fault | None:
    """What is wrong with what was `heard`; None for nothing that could be seen.

    Of random weights (`--load-format dummy`) every text is as good as any, and every token as likely.
    """
    replies = (*heard.alone, *heard.burst)
    failed = [reply for reply in replies if reply.is_fault]
    if len(failed) > 1:
        words = f"{len(failed)} of {len(replies)} requests failed with status {failed[0].status}"
        return Fault("crash", words)
    alone = [answer for answer in heard.alone_answers if answer is not None]
    burst = [answer for _, answer in heard.burst_answers if answer is not None]
    aborted = sum(answer.aborted for answer in (*alone, *burst))
    if 2 * aborted > len(alone) + len(burst):
        return Fault("crash", f"{aborted} of {len(alone) + len(burst)} answers were given up")
    reason = why_not_finite([*alone, *burst], heard.scored)
    if reason is None and not weights_are_random:
        reason = why_flat([*alone, *burst]) or why_degenerate(alone, burst)
    if reason is None:
        reason = why_not_itself(heard.scored) or why_unlike(heard)
    return None if reason is None else Fault("garbage", reason)


def why_not_finite(answers: Sequence[Answer], scored: Sequence[Scored]) -> str | None:
    """A reason where log-probabilities are no numbers."""
    bad = sum(not all(map(is_finite, answer.logprobs)) for answer in answers)
    if bad:
        return f"log-probabilities are not finite in {bad} of {len(answers)} answers"
    bad = sum(not all(map(is_finite, one.as_prompt)) for one in scored)
    if bad:
        return f"log-probabilities of a prompt's tokens are not finite in {bad} of {len(scored)} prompts"
    return None


def why_flat(answers: Sequence[Answer]) -> str | None:
    """A reason where all tokens are alike: logits that are no numbers, sanitized before a token is drawn."""
    flat = sum(is_flat(answer.logprobs) for answer in answers)
    if 2 * flat <= len(answers):
        return None
    return f"all tokens were equally probable in {flat} of {len(answers)} answers"


def why_degenerate(alone: Sequence[Answer], burst: Sequence[Answer]) -> str | None:
    """A reason where the answers are empty, one token over and over, or loops, most of them.

    A burst's answers that loop as the same prompt's did alone tell nothing new, but then most loop alone too.
    """
    for answers, where in ((alone, "one at a time"), (burst, f"{len(burst)} at once")):
        if not answers:
            continue
        if all(answer.is_empty for answer in answers):
            return f"all {len(answers)} answers are empty, {where}"
        same = [answer for answer in answers if is_one_token(answer)]
        if len(same) >= 2 and 2 * len(same) > len(answers):
            return (
                f"{len(same)} of {len(answers)} answers are one token over and over{like(same[0])}, {where}"
            )
        telling = [answer for answer in answers if len(answer.ids) >= 2 * LEAST_TELLING]
        loops = [answer for answer in telling if is_loop(answer.ids) or is_stuck(answer.ids)]
        if len(loops) >= 3 and len(loops) == len(telling) and 2 * len(loops) > len(answers):
            return f"{len(loops)} of {len(answers)} answers repeat themselves{like(loops[0])}, {where}"
    return None


def why_not_itself(scored: Sequence[Scored]) -> str | None:
    """A reason where most answers' tokens get other scores when they are read than when they were made."""
    distances = [distance for one in scored if (distance := distance_of(one)) is not None]
    if len(distances) < 2 or (middle := statistics.median(distances)) <= ITSELF:
        return None
    return (
        f"generating and reading the same tokens are {middle:.1f} nats apart; sound servers {ITSELF} at most"
    )


def distance_of(scored: Scored) -> float | None:
    """Mean difference in nats; the first token comes from reading the prompt either way."""
    pairs = [
        abs(made - read)
        for made, read in zip(scored.generated[1:], scored.as_prompt[1:], strict=False)
        if made is not None and read is not None
    ]
    return statistics.fmean(pairs) if pairs else None


def why_unlike(heard: Heard) -> str | None:
    """A reason where most answers of the burst have nothing to do with those to the same prompts alone."""
    pairs = [
        (before, after)
        for number, after in heard.burst_answers
        if after is not None
        and number < len(heard.alone_answers)
        and (before := heard.alone_answers[number]) is not None
    ]
    unlike = sum(shift_of(before, after) > SHIFT for before, after in pairs)
    if unlike < 2 or 2 * unlike <= len(pairs):
        return None
    return f"{unlike} of {len(pairs)} answers at once have nothing to do with those one at a time"


def shift_of(before: Answer, after: Answer) -> float:
    """The probability that must have moved between tokens, where it moved most, up to where two answers part.

    Where they part, each took another token: what both were sure of in excess of 1 has moved.  Of those who
    were in doubt there, either was right.
    """
    if not before.logprobs or not after.logprobs:
        return 0.0
    most = 0.0
    for one, other, p, q in zip(before.ids, after.ids, before.logprobs, after.logprobs, strict=False):
        if p is None or q is None:
            return most
        first, second = math.exp(min(p, 0.0)), math.exp(min(q, 0.0))
        if one != other:
            return max(most, first + second - 1.0)
        most = max(most, abs(first - second))
    return most


def is_finite(value: float | None) -> bool:
    """Whether it is a number; JSON has none for NaN and the infinities."""
    return value is not None and math.isfinite(value)


def is_flat(logprobs: Sequence[float | None]) -> bool:
    """Whether every token was as likely as one drawn from the whole vocabulary, as after sanitized logits."""
    values = [value for value in logprobs if value is not None]
    return len(values) >= LEAST_TELLING and max(values) < FLAT_BELOW and max(values) - min(values) < FLAT


def is_one_token(answer: Answer) -> bool:
    """Whether a whole answer is one token, as in `!!!!!!!!`."""
    return len(answer.ids) >= LEAST_TELLING and len(set(answer.ids)) == 1


def is_loop(ids: Sequence[int]) -> bool:
    """Whether the second half of an answer is one loop of at most four tokens."""
    tail = ids[len(ids) // 2 :]
    return any(
        all(tail[at] == tail[at + period] for at in range(len(tail) - period))
        for period in range(1, LONGEST_LOOP + 1)
    )


def is_stuck(ids: Sequence[int]) -> bool:
    """Whether two of three tokens are the same one, as in a loop that stumbles now and then."""
    return max(Counter(ids).values()) * 3 >= 2 * len(ids)


def like(answer: Answer) -> str:
    """` (“!!!!”)`, the beginning of a text on one line; empty where there is none."""
    text = "".join(letter for letter in " ".join((answer.text or "").split()) if letter.isprintable())
    return f" (`{text[:24]}`)" if text else ""


def silent_fallback(expects: dict[str, str], info: dict[str, object]) -> Fault | None:
    """What SGLang took in the place of a choice without saying so; a field it does not show tells nothing."""
    for name, chosen in expects.items():
        resolved = info.get(name)
        if resolved is not None and chosen not in ("on", "auto") and str(resolved) != chosen:
            took = "".join(letter for letter in str(resolved)[:60] if letter.isprintable())
            reason = f"SGLang took `{took}` instead of `{chosen}` without saying so"
            return Fault("silent_fallback", reason)
    return None


def unanswered(heard: Heard) -> str | None:
    """Why nothing can be said of a server that did not answer, in words; None where it did."""
    for reply in (*heard.alone, *heard.burst):
        if reply.is_busy:
            return f"it was busy (status {reply.status})"
        if not reply.is_good:
            what = f"status {reply.status}" if reply.status else reply.problem
            return f"{what}: {reply.detail}" if reply.detail else what
    if any(answer is None for answer in (*heard.alone_answers, *(one for _, one in heard.burst_answers))):
        return "its answers could not be understood"
    return None
