"""One start, understood: what the stages of `serve` and `tune` hand on before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import TYPE_CHECKING

from autolaunch.detect.machine import Machine
from autolaunch.invocation import Invocation, Understood
from autolaunch.launch.attempts import Fallback

if TYPE_CHECKING:
    from autolaunch.assessment import Assessment
    from autolaunch.candidates.generate import Field
    from autolaunch.profiles.failed import Failed
    from autolaunch.race.objective import Objective
    from autolaunch.race.workload import Workload


@dataclass(frozen=True, slots=True)
class Start:
    """One start, read: what was typed, on which machine, after which earlier starts."""

    invocation: Invocation
    understood: Understood
    machine: Machine
    """The whole machine, of which the start takes a part."""
    past: Fallback
    learned: tuple[Failed, ...] = dataclass_field(default=(), kw_only=True)
    """What failed with this store before, in whatever setting."""

    @property
    def on_gpus(self) -> bool:
        """Whether the server will run on GPUs that the table knows about."""
        return self.machine.platform == "cuda"

    @property
    def is_launch_server(self) -> bool:
        """Whether SGLang's own server is started: other entry points have flags that nobody here knows."""
        return self.understood.request.entry == "launch_server"

    @property
    def may_reuse(self) -> bool:
        """Whether a profile may decide it.

        Ranks on several nodes must choose alike, and each node has profiles of its own: there only one that
        is named counts.
        """
        options, pins = self.invocation.options, self.understood.request.pins
        if not self.is_launch_server or self.understood.request.model is None:
            return False
        nodes = pins.get("nnodes")
        is_alone = nodes is None or not nodes.values or nodes.values[-1] == "1"
        return options.profile is not None or (options.tune == "auto" and is_alone)

    @property
    def workload(self) -> Workload:
        """What a race sends: the user's workload, or the usual one of such a machine."""
        from autolaunch.race.workload import default_workload

        return self.invocation.options.workload or default_workload(
            on_gpu=self.on_gpus, context=self.context_tokens
        )

    @property
    def context_tokens(self) -> int | None:
        """Tokens that the model takes, or that the user allows; None where nobody looked."""
        return None

    @property
    def objective(self) -> Objective:
        """What a race is decided by."""
        from autolaunch.race.objective import Objective

        options = self.invocation.options
        return Objective.of(options.objective or "throughput", options.slo)


@dataclass(frozen=True, slots=True)
class Asked(Start):
    """One start, looked up in the table; nothing is measured yet."""

    field: Field
    assessment: Assessment | None = None
    """What the table says, where it was asked: on GPUs, and where somebody wants a document."""

    @property
    def table(self) -> Assessment:
        """What the table says; RuntimeError where it was not asked."""
        if self.assessment is None:
            raise RuntimeError("the table was not asked")
        return self.assessment

    @property
    def context_tokens(self) -> int | None:
        """As the table's facts have it."""
        if self.assessment is None:
            return None
        found = self.assessment.evaluation.facts.get("context_length")
        return found if isinstance(found, int) and found > 0 else None

    @property
    def may_race(self) -> bool:
        """Whether there is anything to race, and nobody said not to."""
        tune = self.invocation.options.tune
        return bool(tune != "off" and self.field.challengers and self.is_launch_server)
