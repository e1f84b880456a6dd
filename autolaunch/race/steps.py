"""The kernels of a traced batch into its prefill and its decode steps.

Where decode runs as CUDA graphs, a step is what lies between the starts of two replays of the same graph;
a replay is a group of more than eight kernels with one correlation.  Prefill can consist of replays as
well, of whole passes or of pieces between attention layers, so the graph of decode is looked for at the
end, where nothing but decode is left.  With drafts a step holds several replays; the largest counts.
With overlapped scheduling one more step is run than is needed.

Without graphs a step is what lies between two launches of a kernel that comes once a step.  Where
neither shows, there are no steps, and nothing is guessed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from autolaunch.race.trace_file import Kernel, TraceError, busy_us

REPLAY_KERNELS = 8
"""A group of more kernels than this is a replay; SGLang launches some small graphs of its own, too."""
FEWEST_OUTPUT_TOKENS = 4
"""With fewer there is no telling a decode step from the rest."""
SETTLED_SHARE = 1 / 3
"""The last third counts: after a large prefill the power cap slows the first 20 to 30 ms (H200)."""
ALIKE = 0.85
"""Of two sets of kernels that are taken for the same work; a few kernels on other streams change places."""
CROWDED = 1.3
"""Times the usual number of kernels, from which on a step holds more than decode."""
MOST_AFTER = 2
"""Times the kernels of a step that may come after the last replay."""
LONGEST = 1.5
"""Times the usual time of a step, from which on it is none; under the power cap 1.2 was seen."""
MOST_PREFILL_PASSES = 64
"""Prefill passes of one batch, at most."""

Kernels = Sequence[Kernel]


@dataclass(frozen=True, slots=True)
class Phases:
    """One batch, taken apart."""

    prefill: tuple[Kernel, ...]
    """Everything before the first step."""
    steps: tuple[Kernels, ...]
    """Steps of decode and nothing else, in their order, all their kernels."""
    count: int
    """Steps in all, those included that are not in `steps`: mixed ones and the last."""
    mixed: tuple[Kernels, ...] = ()
    """Steps among whose kernels are such of a prefill."""
    late_prefill: tuple[Kernel, ...] = ()
    """The kernels of `mixed` that the graphs of decode did not launch: whole passes, and what a step launches
    besides."""
    forward: tuple[Kernels, ...] = ()
    """Of each of `steps` the kernels of the largest replay, the model's own pass; all without graphs."""
    drafting: bool = False
    """Whether every step has further replays, as with drafts."""
    decode_from_us: float = 0.0
    """When the first step began, a mixed one too."""
    periods_us: tuple[float, ...] = ()
    """Of each of `steps` the time to the next step's start, whichever that is."""

    @property
    def settled(self) -> range:
        """Indices into `steps` that count."""
        return range(len(self.steps) - max(1, int(len(self.steps) * SETTLED_SHARE)), len(self.steps))


def split_phases(kernels: Kernels, output_tokens: int) -> Phases:
    """Prefill and decode steps of a batch whose prompts were each answered with `output_tokens`.

    TraceError when they cannot be told apart.
    """
    if output_tokens < FEWEST_OUTPUT_TOKENS:
        raise TraceError(f"{output_tokens} tokens are too few to find the decode steps of a trace")
    phases = _by_replays(kernels, output_tokens) or _by_marker(kernels, output_tokens)
    if phases is None:
        raise TraceError("the decode steps of the trace cannot be told from the rest")
    return phases


@dataclass(frozen=True, slots=True)
class _Replay:
    kernels: tuple[Kernel, ...]
    graph: int
    """The same for replays of the same graph, as their kernels show it."""

    @property
    def start_us(self) -> float:
        return self.kernels[0].start_us


def _replays(kernels: Kernels) -> list[_Replay]:
    groups: dict[int, list[Kernel]] = defaultdict(list)
    for kernel in kernels:
        if kernel.correlation is not None:
            groups[kernel.correlation].append(kernel)
    known: dict[frozenset[tuple[str, int]], int] = {}
    found = []
    for group in groups.values():
        if len(group) > REPLAY_KERNELS:
            content = frozenset(Counter(kernel.name for kernel in group).items())
            found.append(_Replay(tuple(group), known.setdefault(content, len(known))))
    return sorted(found, key=lambda replay: replay.start_us)


def _by_replays(kernels: Kernels, output_tokens: int) -> Phases | None:
    replays = _replays(kernels)
    # With drafts several tokens come from one step, but that has several replays.
    tail = replays[-max(3, (output_tokens - 1) // 2) :]
    if len(replays) < FEWEST_OUTPUT_TOKENS - 1:
        return None
    weight: Counter[int] = Counter()
    for replay in tail:
        weight[replay.graph] += round(busy_us(replay.kernels))
    main = weight.most_common(1)[0][0]
    mains = [replay for replay in replays if replay.graph == main]
    if len(mains) < 3 or len(mains) > 2 * output_tokens * _waves(kernels, mains):
        return None  # pieces of a step, not steps
    beside = {replay.graph for replay in tail} - {main}
    first = next(replay for replay in replays if replay.graph == main or replay.graph in beside)
    steps, forward, periods_us, mixed, late = _between(kernels, replays, mains)
    after = sum(1 for kernel in kernels if kernel.start_us > mains[-1].kernels[-1].start_us)
    if not steps or after > MOST_AFTER * median(len(step) for step in steps):
        return None  # graphs of the prefill alone
    return Phases(
        prefill=tuple(kernel for kernel in kernels if kernel.start_us < first.start_us),
        steps=tuple(steps),
        count=len(mains),
        mixed=tuple(mixed),
        late_prefill=tuple(late),
        forward=tuple(forward),
        drafting=bool(beside),
        decode_from_us=first.start_us,
        periods_us=tuple(periods_us),
    )


def _waves(kernels: Kernels, mains: Sequence[_Replay]) -> int:
    """How often a long stretch without a replay of the graph may have begun a new wave of prompts."""
    periods = [later.start_us - former.start_us for former, later in pairwise(mains)]
    usual = median(periods)
    return 1 + sum(1 for period in periods if period > 3 * usual)


def _between(
    kernels: Kernels, replays: Sequence[_Replay], mains: Sequence[_Replay]
) -> tuple[list[Kernels], list[Kernels], list[float], list[Kernels], list[Kernel]]:
    """Kernels between the starts of successive `mains`: pure steps, their main replays, their periods, mixed
    ones, and what no graph of decode launched in those.
    """
    spans: list[list[Kernel]] = [[] for _ in mains]
    inside: list[Counter[int]] = [Counter() for _ in mains]
    at = -1
    for kernel in kernels:
        while at + 1 < len(mains) and kernel.start_us >= mains[at + 1].start_us:
            at += 1
        if at >= 0:
            spans[at].append(kernel)
    at = -1
    for replay in replays:
        while at + 1 < len(mains) and replay.start_us >= mains[at + 1].start_us:
            at += 1
        if at >= 0:
            inside[at][replay.graph] += 1
    # The last one has no end: what follows it is the end of the batch.
    spans, inside = spans[:-1], inside[:-1]
    usual = Counter(frozenset(one.items()) for one in inside).most_common(1)[0][0]
    size = median(len(span) for span in spans)
    of_decode = {graph for graph, _ in usual}
    launched = {replay.kernels[0].correlation for replay in replays if replay.graph in of_decode}
    steps: list[Kernels] = []
    forward: list[Kernels] = []
    periods_us: list[float] = []
    mixed: list[Kernels] = []
    late: list[Kernel] = []
    for span, graphs, (main, following) in zip(spans, inside, pairwise(mains), strict=True):
        if frozenset(graphs.items()) == usual and len(span) <= CROWDED * size:
            steps.append(tuple(span))
            forward.append(main.kernels)
            periods_us.append(following.start_us - main.start_us)
        elif len(span) > CROWDED * size:
            mixed.append(tuple(span))
            late += [kernel for kernel in span if kernel.correlation not in launched]
    return steps, forward, periods_us, mixed, late


def _by_marker(kernels: Kernels, output_tokens: int) -> Phases | None:
    """Steps between launches of the kernel that shows the longest row of like steps at the end."""
    places: dict[str, list[int]] = defaultdict(list)
    for at, kernel in enumerate(kernels):
        places[kernel.name].append(at)
    best: list[int] = []
    for found in places.values():
        if output_tokens - 1 <= len(found) <= output_tokens + MOST_PREFILL_PASSES:
            row = _row_of_like(kernels, found)
            # One more is run with overlapped scheduling; the last has no end.
            if output_tokens - 2 <= len(row) - 1 <= output_tokens and len(row) > len(best):
                best = row
    if not best:
        return None
    steps = tuple(tuple(kernels[start:end]) for start, end in pairwise(best))
    return Phases(
        prefill=tuple(kernels[: best[0]]),
        steps=steps,
        count=len(steps),
        forward=steps,
        decode_from_us=kernels[best[0]].start_us,
        periods_us=tuple(kernels[end].start_us - kernels[start].start_us for start, end in pairwise(best)),
    )


def _row_of_like(kernels: Kernels, at: Sequence[int]) -> list[int]:
    """The last of the places `at` between which the kernels are the same work, as far back as they are."""
    counts = [Counter(kernel.name for kernel in kernels[start:end]) for start, end in pairwise(at)]
    busy = [busy_us(kernels[start:end]) for start, end in pairwise(at)]
    if len(counts) < 2:
        return []
    typical, usual_us = counts[-(1 + len(counts) // 4)], median(busy[len(busy) // 2 :])
    first = len(counts)
    while (
        first > 0 and likeness(counts[first - 1], typical) >= ALIKE and busy[first - 1] <= LONGEST * usual_us
    ):
        first -= 1
    return list(at[first:])


def likeness(left: Counter[str], right: Counter[str]) -> float:
    """Share of kernels that two counts have in common, 0 to 1."""
    both, either = (left & right).total(), (left | right).total()
    return both / either if either else 1.0
