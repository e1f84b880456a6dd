"""What is better: a window of timings turned into one cost, by what the user wants of the server.

Throughput is seconds per output token, latency is milliseconds to a whole answer.  On a CPU both are wall
time.  A traced window has GPU times instead, and the cost is that of the workload's whole answer, however
few steps were traced:

    batch_ms   = prefill_ms + (output_tokens - 1) * decode_step_ms / tokens_per_step
    throughput = batch_ms / 1000 / (prompts * output_tokens)          s per output token
    latency    = batch_ms                                             ms, every prompt of the batch alike
    tpot_ms    = (latency - ttft) / (output_tokens - 1)               the first token is not part of it

Costs of one race are comparable only on one `Basis`, which `basis` settles from all of its windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from autolaunch.race.outcomes import GpuTimes, Window
from autolaunch.race.slo import Slo, parse_slo
from autolaunch.units import format_ms

__all__ = [
    "Basis",
    "Objective",
    "ObjectiveName",
    "Slo",
    "Tail",
    "describe",
    "parse_slo",
    "percentile",
    "phases",
]

ObjectiveName = Literal["throughput", "latency"]
Basis = Literal["extrapolated", "slice", "streamed", "wall"]
"""What costs are made of: GPU times at full depth or as traced; wall times, with first tokens or without."""
Bound = Literal["ttft", "tpot"]
PERCENTILE = 0.95
"""Of the requests of a window; under the median, one request in two may break a ceiling that is kept."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The 95th percentile of one bounded time over the windows of one candidate."""

    bound: Bound
    ceiling_ms: float
    found_ms: float | None
    """None where the windows cannot tell."""
    basis: Basis

    @property
    def breach(self) -> str | None:
        """The words for a person, where the ceiling is broken."""
        if self.found_ms is None or self.found_ms <= self.ceiling_ms:
            return None
        how = {"extrapolated": " by GPU time, extrapolated to the whole depth"}.get(self.basis, "")
        return f"p95 {self.bound} {format_ms(self.found_ms)}{how}, above {format_ms(self.ceiling_ms)}"


@dataclass(frozen=True, slots=True)
class Objective:
    """What the user wants more or less of, and within which ceilings."""

    name: ObjectiveName = "throughput"
    slo_ttft_ms: float | None = None
    slo_tpot_ms: float | None = None

    @staticmethod
    def of(name: ObjectiveName, slo: Slo | None = None) -> Objective:
        """The objective `name` within the ceilings `slo`."""
        return Objective(name, slo.ttft_ms if slo else None, slo.tpot_ms if slo else None)

    @property
    def unit(self) -> str:
        """Of `value`, as it is stored."""
        return "output_tok_per_s" if self.name == "throughput" else "latency_ms"

    @property
    def higher_is_better(self) -> bool:
        """Whether more of `value` is better; less of `cost` always is."""
        return self.name == "throughput"

    def basis(self, windows: Sequence[Window]) -> Basis:
        """What the costs of all `windows` can be made of alike: the best that none of them lacks."""
        traced = [window.gpu for window in windows]
        if traced and all(gpu is not None for gpu in traced):
            whole = all(gpu is not None and _whole(gpu) for gpu in traced)
            return "extrapolated" if whole else "slice"
        streamed = windows and all(_is_streamed(window) for window in windows)
        return "streamed" if streamed else "wall"

    def cost(
        self,
        window: Window,
        basis: Basis | None = None,
        *,
        tokens_per_step: float = 1.0,
        cached_share: float = 0.0,
        output_tokens: int | None = None,
    ) -> float:
        """Lower is better: seconds per output token, or milliseconds of latency; infinite without an answer.

        `tokens_per_step` is what drafting makes of one traced step, `cached_share` the part of the prompts
        that the prefix cache spares of a traced prefill; wall times hold both already.  `output_tokens`
        is for answers of another length than the window's own.
        """
        basis = basis or self.basis((window,))
        wanted = output_tokens or self.wanted(window)
        if basis in ("extrapolated", "slice"):
            times = phases(window, basis)
            if times is None or window.prompts < 1:
                return math.inf
            prefill_ms, step_ms = times
            batch_ms = prefill_ms * (1 - cached_share) + (wanted - 1) * step_ms / tokens_per_step
            tokens = window.prompts * wanted
            cost = batch_ms if self.name == "latency" else batch_ms / 1000 / tokens
        elif self.name == "throughput":
            cost = window.wall_s / window.output_tokens if window.output_tokens else math.inf
        elif basis == "streamed":
            cost = fmean(window.ttfts_s) * 1000 + (wanted - 1) * fmean(_tpots_ms(window) or (0.0,))
        else:
            cost = 1000 * (fmean(window.latencies_s) if window.latencies_s else window.wall_s)
        return cost if cost > 0 else math.inf

    @staticmethod
    def wanted(window: Window) -> int:
        """Output tokens of one prompt that the workload of `window` wants."""
        return window.wanted_output_tokens or _own_length(window)

    def shown(self, cost: float) -> float:
        """The value, in `unit`, of a `cost`."""
        return 1 / cost if self.higher_is_better else cost

    def value(self, window: Window, basis: Basis | None = None) -> float:
        """What is shown and stored of one window, in `unit`."""
        return self.shown(self.cost(window, basis))

    def tails(self, windows: Sequence[Window], *, tokens_per_step: float = 1.0) -> tuple[Tail, ...]:
        """What `windows` of one candidate say of each ceiling."""
        ceilings: tuple[tuple[Bound, float | None], ...] = (
            ("ttft", self.slo_ttft_ms),
            ("tpot", self.slo_tpot_ms),
        )
        basis = self.basis(windows)
        return tuple(
            Tail(bound, ceiling_ms, _tail_ms(windows, bound, basis, tokens_per_step), basis)
            for bound, ceiling_ms in ceilings
            if ceiling_ms is not None
        )

    def breach(self, windows: Sequence[Window], *, tokens_per_step: float = 1.0) -> str | None:
        """Which ceilings `windows` of one candidate break, in words; None where none is seen to break."""
        found = [tail.breach for tail in self.tails(windows, tokens_per_step=tokens_per_step)]
        return "; ".join(words for words in found if words) or None

    def unknown(self, windows: Sequence[Window]) -> str | None:
        """Which ceilings `windows` say nothing about, and why; such a one excludes nobody."""
        lost = [tail for tail in self.tails(windows) if tail.found_ms is None]
        if not lost:
            return None
        why = {
            "slice": "the slice could not be extrapolated",
            "extrapolated": "prompts were read while others were answered",
        }.get(lost[0].basis, "no first token was seen")
        return f"p95 {' and '.join(tail.bound for tail in lost)} unknown: {why}"


def phases(window: Window, basis: Basis) -> tuple[float, float] | None:
    """Milliseconds of the prefill of the whole batch and of one decode step, as `basis` has them."""
    gpu = window.gpu
    if gpu is None:
        return None
    if basis == "slice":
        return gpu.prefill_ms, gpu.decode_step_ms
    if gpu.prefill_full_ms is None or gpu.decode_step_full_ms is None:
        return None
    return gpu.prefill_full_ms, gpu.decode_step_full_ms


def describe(basis: Basis, *, layers: int | None = None, total_layers: int | None = None) -> str:
    """Where a figure comes from, for a person."""
    if basis in ("streamed", "wall"):
        return "wall time"
    if layers is not None and layers == total_layers:
        return "GPU time of the whole model"
    of = f" of {layers}" if layers is not None else ""
    of += f" of {total_layers} layers" if of and total_layers is not None else " layers" if of else ""
    # A figure of the slice itself is no figure of the server: the layers left out would shift every ratio.
    return f"GPU time on a slice{of}, {'' if basis == 'extrapolated' else 'not '}extrapolated"


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of `values`, at least one, that `share` of them do not exceed."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def _tail_ms(windows: Sequence[Window], bound: Bound, basis: Basis, tokens_per_step: float) -> float | None:
    """The percentile of one bounded time; None where `windows` cannot tell."""
    if basis == "slice" or not windows:
        return None
    if basis == "extrapolated":
        # Every prompt of a traced batch waits for the whole prefill, and every step is one token of each; not
        # so where prefills ran among the steps.
        if any(window.gpu is not None and window.gpu.overlapping for window in windows):
            return None
        both = [times for window in windows if (times := phases(window, basis)) is not None]
        parts = [prefill if bound == "ttft" else step / tokens_per_step for prefill, step in both]
        return percentile(parts, PERCENTILE)
    if basis == "wall":
        return None
    if bound == "ttft":
        return percentile([1000 * one for window in windows for one in window.ttfts_s], PERCENTILE)
    found = [one for window in windows for one in _tpots_ms(window)]
    return percentile(found, PERCENTILE) if found else None


def _tpots_ms(window: Window) -> tuple[float, ...]:
    """Time per output token after the first, of each request; empty where there is one token only."""
    steps = _own_length(window) - 1
    if steps < 1:
        return ()
    pairs = zip(window.latencies_s, window.ttfts_s, strict=True)
    return tuple(1000 * (whole - first) / steps for whole, first in pairs)


def _own_length(window: Window) -> int:
    """Output tokens of one prompt in the window itself."""
    return max(1, round(window.output_tokens / window.prompts)) if window.prompts else 1


def _is_streamed(window: Window) -> bool:
    """Whether each request of `window` has a time to its first token."""
    return 0 < len(window.ttfts_s) == len(window.latencies_s)


def _whole(gpu: GpuTimes) -> bool:
    """Whether both phases are known at the whole depth."""
    return gpu.prefill_full_ms is not None and gpu.decode_step_full_ms is not None
