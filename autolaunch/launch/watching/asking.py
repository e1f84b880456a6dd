"""What is asked of a healthy server: a few prompts alone, then all at once, and scores of its answers.

Read for SGLang 0.5.9 to 0.5.23, where `/generate`, `/server_info` and `/model_info` are alike.  Every request
has an id that begins `autolaunch-verify-`, which `--log-requests` shows, and `log_metrics` off, like SGLang's
own health checks: it is in no latency, no count and no dump of the server's.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autolaunch.launch.watching.client import Client, Reply
from autolaunch.launch.watching.server import Server

PROMPTS = (
    "The capital of France is",
    "Question: Which number is larger, 9.9 or 9.11?\nAnswer:",
    "def add(a, b):\n    return",
    "Once upon a time, in a small village by the sea,",
)
"""None of them asks for a repetition."""
BARE_IDS = (
    (101, 57, 203, 11, 160),
    (12, 240, 33, 78, 199, 5),
    (250, 31, 90, 144, 17),
    (66, 181, 9, 222, 120, 43, 7),
)
"""For a server without a tokenizer; every vocabulary has them."""
TOKENS = 24
MOST_IDS = 256
"""Of any list that are looked at; many more than were asked for come from no SGLang."""
COPIES = 2
"""Of each prompt in the burst, besides one that scores its answer: twelve at once."""
LEAST_SCORED = 4
"""Tokens of an answer whose scores are compared."""
PREFIX = "autolaunch-verify-"
_PLAIN = {
    "temperature": 0.0,
    "top_p": 1.0,
    "repetition_penalty": 1.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
}
"""Greedy, whatever `--preferred-sampling-params` says."""


class ServerEndedError(Exception):
    """The server ended while it was asked."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One continuation."""

    prompt_ids: tuple[int, ...]
    """Empty where the server did not tell."""
    ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    """None where the server gave no number; all of it empty where none were asked for."""
    text: str | None
    """None from a server without a tokenizer."""
    aborted: bool = False
    """Whether the server gave up; its words for why are its log's."""
    acceptance_length: float | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it."""
        return not self.ids and not (self.text or "").strip()


@dataclass(frozen=True, slots=True)
class Scored:
    """Log-probabilities of an answer's tokens, once as they were generated and once as a prompt."""

    generated: tuple[float | None, ...]
    as_prompt: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """All that was answered."""

    alone: tuple[Reply, ...]
    alone_answers: tuple[Answer | None, ...]
    """Of each prompt; None where there was no answer."""
    burst: tuple[Reply, ...] = ()
    burst_answers: tuple[tuple[int, Answer | None], ...] = ()
    """Each with the number of its prompt."""
    scored: tuple[Scored, ...] = ()


class Asker:
    """Sends requests within limits, and stops when the server ends."""

    def __init__(
        self, client: Client, server: Server, *, request_limit_s: float, total_limit_s: float
    ) -> None:
        self._client = client
        self._server = server
        self._request_limit_s = request_limit_s
        self._deadline = time.monotonic() + total_limit_s
        self._logprobs = True
        self._mark = os.urandom(6).hex()

    def info(self, path: str, limit_s: float = 60.0) -> Reply:
        """The answer to a GET of `path`."""
        return self._all_at_once([(path, None)], limit_s)[0]

    def hear(self, *, tokenizer: bool) -> Heard:
        """Everything; ServerEndedError where the server does not live to the end of it."""
        prompts: list[dict[str, Any]] = (
            [{"text": text} for text in PROMPTS] if tokenizer else [{"input_ids": ids} for ids in BARE_IDS]
        )
        alone: list[Reply] = []
        for number, prompt in enumerate(prompts):
            reply = self._generate([(f"{number}", prompt)])[0]
            if reply.status == 400 and self._logprobs and not alone:
                self._logprobs = False  # some ways of drafting cannot
                reply = self._generate([(f"{number}-bare", prompt)])[0]
            alone.append(reply)
            if not (reply.is_good or reply.is_fault):
                break
        answers = [answer_of(reply) for reply in alone]
        if not all(reply.is_good for reply in alone):
            return Heard(tuple(alone), tuple(answers))
        return self._burst(prompts, alone, answers)

    def _burst(
        self, prompts: Sequence[dict[str, Any]], alone: Sequence[Reply], answers: Sequence[Answer | None]
    ) -> Heard:
        requests = [(number, prompt) for _ in range(COPIES) for number, prompt in enumerate(prompts)]
        named = [(f"burst-{at}", prompt) for at, (_, prompt) in enumerate(requests)]
        scorable = [
            answer for answer in answers if answer and answer.prompt_ids and len(answer.ids) >= LEAST_SCORED
        ]
        scores = [(f"score-{at}", _score_of(answer)) for at, answer in enumerate(scorable)]
        replies = self._generate([*named, *scores])
        burst, scoring = replies[: len(named)], replies[len(named) :]
        scored = [
            Scored(answer.logprobs, found)
            for answer, reply in zip(scorable, scoring, strict=True)
            if (found := scores_of(reply, answer)) is not None
        ]
        return Heard(
            tuple(alone),
            tuple(answers),
            tuple(replies),
            tuple((number, answer_of(reply)) for (number, _), reply in zip(requests, burst, strict=True)),
            tuple(scored),
        )

    def _generate(self, requests: Sequence[tuple[str, dict[str, Any]]]) -> list[Reply]:
        bodies: list[tuple[str, object | None]] = []
        for name, prompt in requests:
            body: dict[str, Any] = {
                "rid": f"{PREFIX}{self._mark}-{name}",
                "sampling_params": {**_PLAIN, "max_new_tokens": TOKENS},
                "log_metrics": False,
                "stream": False,
            }
            if self._logprobs:
                body |= {"return_logprob": True, "logprob_start_len": 0}
            body |= prompt
            bodies.append(("/generate", body))
        return self._all_at_once(bodies, self._request_limit_s)

    def _all_at_once(self, requests: Sequence[tuple[str, object | None]], limit_s: float) -> list[Reply]:
        """The answers to `requests`, asked in threads, so that the server's end is seen meanwhile."""
        limit_s = max(0.1, min(limit_s, self._deadline - time.monotonic()))
        replies = [Reply(0, None, "timeout", f"no answer in {limit_s:.0f} s")] * len(requests)

        def ask(number: int) -> None:
            path, body = requests[number]
            replies[number] = self._client.ask(path, body, limit_s)

        threads = [threading.Thread(target=ask, args=(at,), daemon=True) for at in range(len(requests))]
        for thread in threads:
            thread.start()
        until = time.monotonic() + limit_s + 1.0
        for thread in threads:
            while thread.is_alive() and time.monotonic() < until:
                thread.join(0.02)
                if self._server.wait(0):
                    raise ServerEndedError
        if any(reply.problem == "broken" for reply in replies) and self._server.wait(1.0):
            raise ServerEndedError  # what it answered last, it answered while it ended
        return list(replies)


def _score_of(answer: Answer) -> dict[str, Any]:
    """A request that reads `answer` as a prompt; SGLang computes anew what it scores, cached or not."""
    return {
        "input_ids": [*answer.prompt_ids, *answer.ids],
        "logprob_start_len": max(0, len(answer.prompt_ids) - 1),
        "sampling_params": {**_PLAIN, "max_new_tokens": 1},
    }


def answer_of(reply: Reply) -> Answer | None:
    """The continuation in `reply`; None where it holds none."""
    body = reply.body
    if not reply.is_good or not isinstance(body, dict):
        return None
    meta = body.get("meta_info")
    meta = meta if isinstance(meta, dict) else {}
    pairs = _pairs(meta.get("output_token_logprobs"))
    given = body.get("output_ids")
    ids = [one for one in given[:MOST_IDS] if isinstance(one, int)] if isinstance(given, list) else []
    finish = meta.get("finish_reason")
    length = meta.get("spec_accept_length")
    text = body.get("text")
    prompt = meta.get("input_token_logprobs")
    whole = isinstance(prompt, list) and len(prompt) <= MOST_IDS  # the beginning alone is another prompt
    return Answer(
        prompt_ids=tuple(token for _, token in _pairs(prompt)) if whole else (),
        ids=tuple(token for _, token in pairs) or tuple(ids),
        logprobs=tuple(value for value, _ in pairs),
        text=text if isinstance(text, str) else None,
        aborted=isinstance(finish, dict) and finish.get("type") == "abort",
        acceptance_length=number(length),
    )


def scores_of(reply: Reply, answer: Answer) -> tuple[float | None, ...] | None:
    """The log-probabilities that `reply` gives the tokens of `answer`; None where it gives none."""
    body = reply.body
    if not reply.is_good or not isinstance(body, dict) or not isinstance(body.get("meta_info"), dict):
        return None
    pairs = _pairs(body["meta_info"].get("input_token_logprobs"))[-len(answer.ids) :]
    if tuple(token for _, token in pairs) != answer.ids:
        return None
    return tuple(value for value, _ in pairs)


def _pairs(items: Any) -> list[tuple[float | None, int]]:
    """Log-probability and token of each of SGLang's `[logprob, token, text]`."""
    found: list[tuple[float | None, int]] = []
    for item in items[:MOST_IDS] if isinstance(items, list) else ():
        if isinstance(item, list) and len(item) >= 2 and isinstance(item[1], int):
            found.append((number(item[0]), item[1]))
    return found


def number(value: Any) -> float | None:
    """`value` as a float; None where it is no number, or one that no float can be."""
    try:
        return float(value) if isinstance(value, (int, float)) else None
    except OverflowError:
        return None
