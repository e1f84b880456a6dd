"""The one scale on which all candidates of a race are compared: objective and basis, over all its windows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

from autolaunch.candidates.candidate import ORIGINAL_ID
from autolaunch.race.objective import Basis, Objective, describe, phases
from autolaunch.race.outcomes import Window
from autolaunch.race.paired import Gain, gain
from autolaunch.race.result import MIN_ROUNDS, RaceResult, Trial

Cost = Callable[[Trial, Window], float]


@dataclass(frozen=True, slots=True)
class Scale:
    """How the windows of one race become costs that can be compared."""

    objective: Objective
    basis: Basis
    layers: int | None = None
    total_layers: int | None = None

    @staticmethod
    def of(result: RaceResult, objective: Objective) -> Scale:
        """The scale of `result`, settled by the windows of all that did not fail, those of the final first.

        Challengers that draft have no say: theirs are the traces that are hardest to extrapolate.
        """
        standing = [
            trial
            for trial in result.trials
            if trial.failure is None and (trial.candidate.id == ORIGINAL_ID or not trial.drafts)
        ]
        windows = [window for trial in standing for window in trial.rounds]
        windows = windows or [trial.screen for trial in standing if trial.screen is not None]
        traced = [window.gpu.layers for window in windows if window.gpu is not None]
        return Scale(
            objective,
            objective.basis(windows),
            layers=traced[0] if traced else None,
            total_layers=result.total_layers,
        )

    @property
    def words(self) -> str:
        """Where the figures come from."""
        return describe(self.basis, layers=self.layers, total_layers=self.total_layers)

    @property
    def traced(self) -> bool:
        """Whether costs are made of GPU times, which hold one step and no acceptance of drafts."""
        return self.basis in ("extrapolated", "slice")

    def tokens_per_step(self, trial: Trial) -> float:
        """What one traced step of `trial` is worth; wall times hold it already."""
        acceptance = trial.acceptance
        if not self.traced or acceptance is None or acceptance.tokens_per_step is None:
            return 1.0
        return acceptance.tokens_per_step

    def cost(self, trial: Trial, window: Window) -> float:
        """The cost of `window` of `trial`; infinite where it shows nothing."""
        if window.kind != "conversations" and not window.clean:
            return math.inf  # its prompts were to be new, and the prefix cache helped all the same
        cached = trial.cached_share if self.traced else 0.0
        return self.objective.cost(
            window, self.basis, tokens_per_step=self.tokens_per_step(trial), cached_share=cached
        )

    def typical(self, trial: Trial) -> float:
        """The mean cost of `trial` over its rounds, or that of its screen; infinite where there is none."""
        costs = [self.cost(trial, window) for window in trial.windows]
        return fmean(finite) if (finite := [cost for cost in costs if cost < math.inf]) else math.inf

    def value(self, trial: Trial) -> float | None:
        """The figure of `trial` in the objective's unit; None for one that failed or was not timed."""
        cost = math.inf if trial.failure is not None else self.typical(trial)
        return self.objective.shown(cost) if cost < math.inf else None

    def step_ratio(self, trial: Trial, other: Trial) -> float | None:
        """How many times as long a traced decode step of `trial` takes; None without traces of both."""
        steps = [
            [found[1] for window in one.windows if (found := phases(window, self.basis)) is not None]
            for one in (trial, other)
        ]
        return fmean(steps[0]) / fmean(steps[1]) if self.traced and all(steps) else None

    def gain(self, trial: Trial, other: Trial) -> Gain | None:
        """What `trial` gains over `other` where it gains least; None where the rounds are too few."""
        gains = self.gains(trial, other)
        return min(gains.values(), key=lambda one: one.low) if gains else None

    def gains(self, trial: Trial, other: Trial) -> dict[int, Gain]:
        """What `trial` gains over `other` by concurrency; empty where one of them has too few rounds."""
        return self._paired(trial, other, self.cost)

    def gain_with_waiting(self, trial: Trial, other: Trial) -> float | None:
        """What `trial` gains over `other` where the time counts in which its GPU waits for the host.

        GPU times alone chose FlashInfer's attention for an 8B model in FP8, 2.9 % ahead; its GPU waited 38 ms
        longer in each batch, and the whole model was 2.2 % slower with it (H200, sglang 0.5.17, 2026-12-01).
        The least of it counts, of the rounds at the concurrency where the gain is least: a busy host adds to
        it, and nothing takes away.  None where nothing was traced.
        """
        if not self.traced:
            return None
        gains = []
        for concurrency in {window.concurrency for window in trial.rounds}:
            mine, theirs = (self._batch_ms(one, concurrency) for one in (trial, other))
            if mine is not None and theirs is not None:
                gains.append(theirs / mine - 1)
        return min(gains, default=None)

    def _batch_ms(self, trial: Trial, concurrency: int) -> float | None:
        """A batch at `concurrency` with the least that the GPU waited; None where that is not known."""
        windows = [one for one in trial.rounds if one.concurrency == concurrency and one.gpu is not None]
        costs = [cost for one in windows if (cost := self.cost(trial, one)) < math.inf]
        if not costs:
            return None
        waited_ms = min(1000 * one.wall_s - one.gpu.busy_ms for one in windows if one.gpu is not None)
        # As long as the whole batch of a slice is shorter, what it waits is a larger part of it.
        depth = self.layers / self.total_layers if self.layers and self.total_layers else 1.0
        tokens = windows[0].prompts * self.objective.wanted(windows[0])
        per_ms = 1.0 if self.objective.name == "latency" else 1000 * tokens
        return fmean(costs) * per_ms + max(0.0, waited_ms) * (depth if self.basis == "slice" else 1.0)

    def nearer(self, trial: Trial, other: Trial) -> Gain | None:
        """What `trial` gains over `other` in the time that comes nearest to its ceiling."""
        gains = self._paired(trial, other, self._strain)
        return min(gains.values(), key=lambda one: one.low) if gains else None

    def _strain(self, trial: Trial, window: Window) -> float:
        """The largest part of a ceiling that a window takes; 1 keeps it just so."""
        tails = self.objective.tails((window,), tokens_per_step=self.tokens_per_step(trial))
        known = [tail.found_ms / tail.ceiling_ms for tail in tails if tail.found_ms is not None]
        return max(known, default=math.inf)

    def _paired(self, trial: Trial, other: Trial, cost: Cost) -> dict[int, Gain]:
        """Gains of `trial` over `other` in `cost`, by concurrency."""
        rounds = list(zip(trial.rounds, other.rounds, _starts(trial, other), strict=False))
        found: dict[int, Gain] = {}
        for concurrency in dict.fromkeys(window.concurrency for window in (*trial.rounds, *other.rounds)):
            pairs = [
                (mine, theirs, start)
                for mine, theirs, start in rounds
                if mine.concurrency == theirs.concurrency == concurrency
            ]
            one = gain(
                [cost(trial, mine) for mine, _, _ in pairs],
                [cost(other, theirs) for _, theirs, _ in pairs],
                [start for _, _, start in pairs],
                min_rounds=MIN_ROUNDS,
            )
            if one is None:
                return {}
            found[concurrency] = one
        return found


def _starts(trial: Trial, other: Trial) -> list[tuple[int, int]]:
    """For each round that both took part in, the starts of the two engines it was taken on."""
    count = min(len(trial.rounds), len(other.rounds))
    mine, theirs = ((*one.boot_of_round, *[0] * (count - len(one.boot_of_round))) for one in (trial, other))
    return list(zip(mine[:count], theirs[:count], strict=True))
