"""What a race leaves behind: who was tried and what it showed, who was not and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from autolaunch.candidates.candidate import Candidate, Dropped
from autolaunch.race.outcomes import EngineReady, Failure, GateReport, Window
from autolaunch.race.workload import Workload

Ended = Literal["done", "budget", "interrupted"]
AcceptanceLabel = Literal["measured", "published", "cost only"]
"""Where an acceptance comes from; with `cost only`, made-up weights drafted, and there is none."""

MIN_ROUNDS = 4
"""Rounds of the final that two candidates must both have taken part in; fewer decide nothing."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What the drafts of a candidate are worth."""

    label: AcceptanceLabel
    tokens_per_step: float | None = None
    """Tokens that a request gets in one step of drafting and verifying, at least 1; None with `cost only`."""
    source: str = ""
    """Where the figure was published or measured, in words."""

    def to_json(self) -> dict[str, Any]:
        """This acceptance as plain JSON values."""
        return {"label": self.label, "tokens_per_step": self.tokens_per_step, "source": self.source}


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of one candidate that was tried."""

    candidate: Candidate
    ready: EngineReady | None = None
    gate: GateReport | None = None
    screen: Window | None = None
    """The first timed window; decides who enters the final, not who wins."""
    rounds: tuple[Window, ...] = ()
    """Windows of the final, the n-th taken in the same round as every other finalist's n-th.

    Where the workload has several concurrencies, a round is one window of each, in the same order."""
    failure: Failure | None = None
    merged_into: str | None = None
    """Id of an earlier candidate that ran the same kernels; such a trial is shown and never chosen."""
    acceptance: Acceptance | None = None
    """For a candidate that drafts."""
    boot_of_round: tuple[int, ...] = ()
    """Which start of the engine each of `rounds` was taken on, from 0; empty: all on the first."""
    boots_wanted: int = 1
    """Starts over which a gain must hold: two, where the tactics of kernels are drawn at start."""
    kv_tokens: int | None = None
    """Tokens that the caches of keys and values of the whole server are predicted to hold at full depth."""
    overlay: tuple[str, ...] = ()
    """The tokens every trial of the race gets besides those of its candidate."""
    reuse: Window | None = None
    """A window of the user's conversations: what it took from the prefix cache shortens a traced prefill."""

    @property
    def windows(self) -> tuple[Window, ...]:
        """What was timed: the rounds of the final, without one the screen."""
        return self.rounds or ((self.screen,) if self.screen is not None else ())

    @property
    def boots(self) -> int:
        """Starts of the engine that rounds were taken on."""
        return len(set(self.boot_of_round)) or 1

    @property
    def cached_share(self) -> float:
        """Part of the prompt tokens that the prefix cache served in `reuse`, 0 to 1."""
        if self.reuse is None or self.reuse.input_tokens < 1:
            return 0.0
        return min(1.0, max(0.0, self.reuse.cached_tokens / self.reuse.input_tokens))

    @property
    def drafts(self) -> bool:
        """Whether it is a candidate of drafting with the checkpoint's own heads."""
        return self.acceptance is not None or self.candidate.choice == "NEXTN"


@dataclass(frozen=True, slots=True)
class RaceResult:
    """All of a race: who was tried, who was not and why, and how it ended."""

    trials: tuple[Trial, ...]
    dropped: tuple[Dropped, ...]
    ended: Ended
    race_s: float
    workload: Workload | None = None
    """What the windows sent, as it is wanted of the server; None in a race of the default."""
    total_layers: int | None = None
    """Layers of the whole model, where a slice of it was raced."""


def decodes_in_graphs(ready: EngineReady | None) -> bool | None:
    """Whether an engine captured CUDA graphs for decoding; None where it does not say."""
    if ready is None:
        return None
    config = ready.resolved.get("cuda_graph_config")
    decode = config.get("decode") if isinstance(config, Mapping) else None
    if isinstance(decode, Mapping) and decode.get("backend") is not None:
        return bool(decode["backend"] != "disabled")
    disabled = ready.resolved.get("disable_cuda_graph")
    return None if disabled is None else not disabled


def silent_fallback(candidate: Candidate, ready: EngineReady | None) -> Failure | None:
    """A failure when SGLang replaced the candidate's choice without a word."""
    if candidate.resolved_as is None or candidate.choice in (None, "on") or ready is None:
        return None
    resolved = ready.resolved.get(candidate.resolved_as)
    if resolved is None or str(resolved) == candidate.choice:
        return None
    return Failure(
        stage="load",
        kind="silent_fallback",
        reason=f"SGLang took `{resolved}` instead of `{candidate.choice}` without saying so",
    )
