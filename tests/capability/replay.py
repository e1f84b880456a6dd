"""Public reports from the field, played again: the start they tell of, through facts and table.

A row of `field_reports.jsonl` has the start (`sm`, `gpus`, `flags`, `env`, `flashinfer`), a model by its id in
`tests/checkpoint/models.jsonl` with the `facts` in which the reported one differs, and what was reported: the
`dimension`, the `choice` there, the `outcome`.  `sglang` is the known version nearest to what was `stated`, by `how`:

- `release`: the newest known version that is not above the stated release (below the first: the first);
- `main`: a build of the main branch of that day, taken for the known version released nearest to it;
- `before`: what a pull request of that day mended, taken for the newest known version released until then;
- `after`: what a pull request or an image of that day brought, or what worked on main then, taken for the first known
  version released after it.

Where that version does not have the model's class, or what the report names, the next that does is meant.

The checkpoints of `models.jsonl` hold experts in two layers only, so nothing is asked of the memory estimate here, and
the number of parameters is a fact of the row.
"""

from __future__ import annotations

import functools
import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autolaunch.capability.evaluate import evaluate
from autolaunch.capability.fact_names import UNKNOWN, UNSET
from autolaunch.capability.facts import facts_of
from autolaunch.capability.flag_facts import FactSheet
from autolaunch.capability.rules import Rule
from autolaunch.capability.table import bundled_table
from autolaunch.capability.verdicts import Evaluation, TableWarning
from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.detect.plan import Planned, machine_for
from autolaunch.detect.ranks import ranks, used_gpus
from autolaunch.detect.software import detect_software
from autolaunch.request.catalogue import bundled_catalogue
from autolaunch.request.command_line import read_request
from autolaunch.request.interpreter import Interpreter
from tests.checkpoint.test_models import ROWS, build

HARMFUL: Final = frozenset(
    {"crash_startup", "crash_runtime", "garbage", "unsupported_error", "silent_fallback", "slow"}
)
REPORTS: Final = tuple(
    json.loads(line) for line in (Path(__file__).parent / "field_reports.jsonl").read_text().splitlines()
)
REFUSED: Final = "request.unknown-flag"
"""The notice about a flag that this SGLang does not have."""
_TABLE: Final = bundled_table()
_RULES: Final[dict[str, Rule]] = {
    rule.id: rule for stem in _TABLE.rule_files() for rule in _TABLE.rules(stem)
}
_PYTHON: Final = Interpreter("python", Path("/nonexistent/sglang"), "", "assumed")


@dataclass(frozen=True, slots=True)
class Replay:
    """What is said of one reported start."""

    report: Mapping[str, Any]
    version: str
    evaluation: Evaluation
    refused: tuple[str, ...]
    """The notices on reported flags that this version does not take."""

    @property
    def harmful(self) -> bool:
        """Whether it was a failure that was reported."""
        return self.report["outcome"] in HARMFUL

    @property
    def excluded(self) -> bool:
        """Whether the reported choice of the reported dimension is excluded."""
        dimension = self.evaluation.dimension(self.report["dimension"])
        if dimension is None:
            return False
        choice = self.report["choice"] or dimension.pinned
        verdict = dimension.choice(choice) if choice else None
        return verdict is not None and verdict.verdict == "excluded"

    @property
    def about(self) -> tuple[str, ...]:
        """The rules of all warnings and repairs that speak of what was reported."""
        said = [one.id for one in self.evaluation.warnings if self._speaks_of_it(one)]
        found = self.evaluation.dimension(self.report["dimension"])
        if found is not None and found.decision == "repaired":
            said.append(f"repaired to {found.value}")
        return tuple(dict.fromkeys([*said, *self.refused]))

    @property
    def answered(self) -> bool:
        """Whether it is excluded or warned of."""
        return self.excluded or bool(self.about)

    def _speaks_of_it(self, warning: TableWarning) -> bool:
        """Whether a warning is about the reported dimension, or about what the report pins."""
        dimension, choice = self.report["dimension"], self.report["choice"]
        rule = _RULES.get(warning.id)
        found = _TABLE.dimension(dimension)
        asked = rule is not None and found is not None and f"flag.{found.dest}" in rule.names
        typed = any(self._newest(text.split()[0]) == dimension for text in warning.flags)
        named = choice is not None and len(choice) > 3 and choice in " ".join(warning.flags)
        about = rule is not None and dimension in rule.dimensions
        return warning.pinned or asked or typed or named or about

    @staticmethod
    def _newest(flag: str) -> str:
        found = _TABLE.dimension(flag)
        return found.flag if found else flag


@functools.cache
def checkpoint_of(model: str) -> Checkpoint:
    """The checkpoint of a row of `models.jsonl`."""
    (row,) = [one for one in ROWS if one["id"] == model]
    with tempfile.TemporaryDirectory() as folder:
        return build(row, Path(folder) / "model")[0]


def replay(report: Mapping[str, Any], version: str | None = None) -> Replay:
    """What is said of the start of `report` under `version`, by default the one it is mapped to."""
    version = version or report["sglang"]
    catalogue = bundled_catalogue(version)
    request = read_request(
        ["--model-path", "model", *report["flags"]], "serve", _PYTHON, catalogue, Path("/"), {}
    )
    gpus = report["gpus"]
    planned = Planned(sm=str(report["sm"] or 90), gpus=max(gpus, 1) if gpus else None)
    machine, _ = used_gpus(request, machine_for(planned, _no_machine, ranks=ranks(request)))
    software = detect_software(None, {}, for_sglang=version, for_flashinfer=report.get("flashinfer"))
    model, differs = checkpoint_of(report["model"]), report.get("facts", {})
    facts = facts_of(machine, software, model, request, catalogue, _TABLE.dimensions, report.get("env", {}))
    _differ(facts, differs)
    evaluation = evaluate(facts, _TABLE, catalogue)
    refused = tuple(notice.id for notice in request.notices if notice.id == REFUSED)
    return Replay(report, version, evaluation, refused)


def _differ(facts: FactSheet, differs: Mapping[str, Any]) -> None:
    """Put what the reported model has otherwise into `facts`, and what follows from it."""
    facts.update(differs)
    tp, ep = int(str(facts.get("tp", 1))), int(str(facts.get("ep", 1)))
    width = facts.get("expert_width", UNKNOWN)
    if "expert_width" in differs and isinstance(width, int):
        share = max(1, tp // ep)
        facts["expert_width_per_rank"] = width // share if width % share == 0 else width / share
    if facts.get("flag.is_embedding", UNSET) is True:
        facts["embedding"] = True


def _no_machine() -> Any:
    raise AssertionError("a report names its GPUs")
