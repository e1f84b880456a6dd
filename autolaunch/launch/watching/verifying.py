"""Asks a healthy server, and comes to a finding."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from autolaunch.launch.watching.asking import Asker, Heard, ServerEndedError, number
from autolaunch.launch.watching.client import Client
from autolaunch.launch.watching.judging import Fault, fault_of, silent_fallback, unanswered
from autolaunch.launch.watching.orders import Orders
from autolaunch.launch.watching.server import Server

HEALTH_LIMIT_S = 30.0
"""SGLang's `/health` generates a token, behind whatever else it is doing, and gives up after 20 s."""
_RESOLVED = re.compile(r"[a-z0-9_]{1,50}_backend|kv_cache_dtype|speculative_algorithm|quantization")
_RESOLVED_MOST = 40

Status = Literal["verified", "quarantined", "warned", "unasked"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is thought of a server."""

    status: Status
    """`warned` where what is wrong changes nothing; `unasked` where nothing can be said."""
    reason: str = ""
    """One sentence without a full stop."""
    kind: str = ""
    """A failure kind where something is wrong."""
    requests: int = 0
    seconds: float = 0.0
    acceptance_length: float | None = None
    resolved: Mapping[str, str] = field(default_factory=dict)
    """What SGLang says it uses."""


class Verifier:
    """One server, asked once."""

    def __init__(self, orders: Orders, server: Server, client: Client) -> None:
        self._orders = orders
        self._server = server
        self._client = client
        self._asker = Asker(
            client, server, request_limit_s=orders.request_limit_s, total_limit_s=orders.total_limit_s
        )
        self._info: dict[str, Any] = {}

    def find(self) -> Finding:
        """What becomes of asking; ServerEndedError where the server ends meanwhile, which says it all."""
        started = time.monotonic()
        found = self._find()
        return Finding(
            found.status,
            found.reason,
            found.kind,
            self._client.asked,
            time.monotonic() - started,
            found.acceptance_length,
            resolved_of(self._info),
        )

    def _find(self) -> Finding:
        unasked = self._orders.unasked or self._why_not_asked()
        if unasked:
            return Finding("unasked", unasked)
        heard = self._asker.hear(tokenizer=not self._info.get("skip_tokenizer_init"))
        replies = (*heard.alone, *heard.burst)
        if any(reply.problem == "timeout" for reply in replies):
            return self._of_silence()
        fault = fault_of(heard, weights_are_random=self._info.get("load_format") == "dummy")
        fault = fault or silent_fallback(dict(self._orders.expects), self._info)
        if fault is not None:
            return self._of_fault(fault)
        reason = unanswered(heard)
        if reason is not None:
            return Finding("unasked", reason)
        return Finding("verified", acceptance_length=self._acceptance_length(heard))

    def _why_not_asked(self) -> str:
        """Why there is nothing to ask, by what the server says of itself; empty where there is."""
        model = self._asker.info("/model_info")
        if not model.is_good:
            return f"`/model_info` was answered with {model.status or model.problem}"
        info = self._asker.info("/server_info")
        if info.is_good and isinstance(info.body, dict):
            self._info = info.body
        told = {**self._info, **(model.body if isinstance(model.body, dict) else {})}
        if told.get("is_generation") is False or self._info.get("is_embedding") is True:
            return "an embedding model generates no text"
        mode = told.get("disaggregation_mode")
        if mode in ("prefill", "decode"):
            return f"a {mode} server answers nothing alone"
        if self._info.get("encoder_only") is True:
            return "an encoder generates no text"
        if self._info.get("node_rank"):
            return "the server of the first node is the one that answers"
        return ""

    def _of_fault(self, fault: Fault) -> Finding:
        harmless = self._orders.is_original or self._orders.verify == "warn"
        return Finding("warned" if harmless else "quarantined", fault.reason, fault.kind)

    def _of_silence(self) -> Finding:
        """A hang, where the server is not healthy any more; else it has other things to do."""
        limit_s = self._orders.request_limit_s
        if self._client.is_healthy(min(HEALTH_LIMIT_S, limit_s)):
            return Finding(
                "unasked", f"it is healthy and gave no answer in {limit_s:.0f} s, as one that is busy"
            )
        if self._server.wait(0):
            raise ServerEndedError
        return self._of_fault(Fault("hang", f"a request got no answer in {limit_s:.0f} s, nor did `/health`"))

    def _acceptance_length(self, heard: Heard) -> float | None:
        """Tokens a decode step, as the server counts them; else as it says of the answers."""
        if not self._info.get("speculative_algorithm"):
            return None
        info = self._asker.info("/server_info") if self._client.may_ask else None
        states = info.body.get("internal_states") if info and isinstance(info.body, dict) else None
        states = [one for one in states if isinstance(one, dict)] if isinstance(states, list) else []
        lengths = [number(state.get("avg_spec_accept_length")) for state in states]
        numbers = [one for one in lengths if one]
        if not numbers:
            answers = [*heard.alone_answers, *(answer for _, answer in heard.burst_answers)]
            numbers = [one.acceptance_length for one in answers if one and one.acceptance_length]
        return round(sum(numbers) / len(numbers), 3) if numbers else None


def resolved_of(info: Mapping[str, Any]) -> dict[str, str]:
    """The backends that a server says it uses; nothing else of its info, in which there are keys."""
    named = {
        name: value[:80]
        for name, value in info.items()
        if isinstance(value, str) and value and value.isprintable() and _RESOLVED.fullmatch(name)
    }
    return dict(sorted(named.items())[:_RESOLVED_MOST])
