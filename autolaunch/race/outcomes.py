"""What a trial engine can end as: ready, timed, gated, or failed; each frozen and ready for JSON.

A failure has a stage, a kind and a reason, and never a number; a window has numbers and nothing else.
On a GPU the numbers are GPU times from the engine's own profiler trace, beside wall times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from autolaunch.candidates.candidate import FailureKind, Stage

GateLabel = Literal["gated", "agreement", "ungated"]
"""By a truth, or by candidate 0 alone; `ungated`: nothing to compare with, so only looked at."""
Phase = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a candidate is out: where it was, what kind of end it came to, and what the log says."""

    stage: Stage
    kind: FailureKind
    reason: str
    exit: int | None = None
    """Exit status of the engine's first process, negative for a signal; None while it still ran."""
    log_tail: tuple[str, ...] = ()
    """From the first error line on, secrets removed."""
    log: str | None = None
    """Path of the whole log."""
    rule: str | None = None
    """Id of the row in `data/failures.toml` that spoke."""
    said_error: bool = True
    """Whether the engine reported an error before it ended; else it may have been ended from outside."""

    def to_json(self) -> dict[str, Any]:
        """This failure as plain JSON values."""
        return asdict(self) | {"log_tail": list(self.log_tail)}


class EngineFailed(Exception):  # noqa: N818 - an outcome that travels as an exception, not a bug
    """An engine did not do what it was asked; `failure` says why."""

    def __init__(self, failure: Failure) -> None:
        """Travel with `failure`."""
        super().__init__(f"{failure.kind} at {failure.stage}: {failure.reason}")
        self.failure = failure


class RaceInterrupted(Exception):  # noqa: N818 - a request of the user, not an error
    """Raised by an `on_tick` callback to leave whatever an engine is being waited for."""


@dataclass(frozen=True, slots=True)
class EngineReady:
    """A trial engine that answers."""

    startup_s: float
    """From the start of its process to its first readiness."""
    resolved: Mapping[str, Any]
    """What SGLang says it uses: its server info without secrets, `version` included."""

    def to_json(self) -> dict[str, Any]:
        """This readiness as plain JSON values."""
        return {"startup_s": self.startup_s, "resolved": dict(self.resolved)}


@dataclass(frozen=True, slots=True)
class KernelShare:
    """One kernel's part in a phase."""

    name: str
    """As the trace has it, shortened."""
    phase: Phase
    backend: str | None
    """Choice that this kernel shows to have run; None for kernels that every choice has."""
    dimension: str | None
    """The flag it is a choice of, such as `--attention-backend`."""
    share: float
    """Of the kernel time of its phase, 0 to 1."""
    count: int = 0
    """Launches in the phase; in `decode`, in one step."""

    def to_json(self) -> dict[str, Any]:
        """This share as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class GpuTimes:
    """Where the GPU time of one traced batch went; the slowest rank's, where there are several."""

    prefill_ms: float
    """GPU-busy time of everything before the first decode step, for the whole batch."""
    decode_step_ms: float
    """GPU-busy time of one step, all its kernels; median of the settled steps."""
    decode_steps: int
    """Steps seen in all."""
    busy_ms: float
    """Union of all kernels of the window."""
    layers: int
    """Layers of the model that was traced, a slice's where it is one."""
    prefill_full_ms: float | None = None
    """`prefill_ms` extrapolated to the whole depth; None where the layers could not be told apart."""
    decode_step_full_ms: float | None = None
    """`decode_step_ms` extrapolated to the whole depth; None where the layers could not be told apart."""
    kernels: tuple[KernelShare, ...] = ()
    """The largest of each phase."""
    decode_spread: float = 0.0
    """Half the distance between the quartiles of the settled steps, over their median."""
    prefill_signature: str = ""
    """Digest of the kernels of the prefill, names and counts; equal ones ran the same kernels."""
    decode_signature: str = ""
    """The same of a settled step."""
    overlapping: bool = False
    """Whether prefill of some prompts ran among decode steps of others, so that the phases mix."""
    prefill_waited_ms: float = 0.0
    """Time between the first kernel of the prefill and the first decode step in which the GPU ran nothing."""
    decode_step_waited_ms: float = 0.0
    """Time from one step's start to the next one's in which it ran nothing, median of the settled steps."""

    def to_json(self) -> dict[str, Any]:
        """These times as plain JSON values."""
        return asdict(self) | {"kernels": [kernel.to_json() for kernel in self.kernels]}


@dataclass(frozen=True, slots=True)
class Window:
    """One timed batch: `prompts` fresh prompts at once, each answered with a forced number of tokens."""

    concurrency: int
    prompts: int
    input_tokens: int
    """Prompt tokens in all."""
    output_tokens: int
    """Generated tokens in all."""
    wall_s: float
    cached_tokens: int = 0
    """Prompt tokens the engine took from its prefix cache; fresh prompts should leave this at 0."""
    latencies_s: tuple[float, ...] = ()
    """From sending a prompt to its whole answer, in the order of the prompts."""
    seed: int | None = None
    kind: str = "mixed"
    """What the window is about; `mixed` holds prefill and decode together."""
    started_s: float | None = None
    """Clock of the engine's machine at the start, for ordering windows of several engines."""
    ttfts_s: tuple[float, ...] = ()
    """From sending a prompt to its first token, in the order of the prompts, where answers were streamed."""
    gpu: GpuTimes | None = None
    """GPU times, where the window was traced."""
    accept_length: float | None = None
    """Tokens a request got in one step of speculative decoding; None without it."""
    wanted_output_tokens: int | None = None
    """Tokens the workload wants for each prompt, where the window generates another number of them."""

    @property
    def output_tok_per_s(self) -> float:
        """Generated tokens a second over the whole window."""
        return self.output_tokens / self.wall_s if self.wall_s > 0 else 0.0

    @property
    def clean(self) -> bool:
        """Whether the prefix cache helped with less than one prompt token in a hundred."""
        return self.cached_tokens * 100 < self.input_tokens

    def to_json(self) -> dict[str, Any]:
        """This window as plain JSON values, the throughput included."""
        return asdict(self) | {
            "latencies_s": list(self.latencies_s),
            "ttfts_s": list(self.ttfts_s),
            "gpu": None if self.gpu is None else self.gpu.to_json(),
            "output_tok_per_s": self.output_tok_per_s,
        }


@dataclass(frozen=True, slots=True)
class GateReport:
    """Whether an engine's answers can be believed, and by how much they differ from the reference."""

    passed: bool
    reason: str
    kind: FailureKind | None = None
    """Failure kind when not passed."""
    mean_abs_logprob_delta: float | None = None
    """Mean |Δ log-probability| against candidate 0 over the same tokens, the worse of alone and at once."""
    label: GateLabel = "gated"
    sample_text: str = ""
    """Answer to the first prompt, for a person to look at."""
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """This report as plain JSON values."""
        return asdict(self) | {"details": dict(self.details)}
