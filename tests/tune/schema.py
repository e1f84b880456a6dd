"""What DESIGN says of the trials in the document of a tuning, as a checker."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.race_schema import KINDS, STAGES
from tests.explain.schema import among, is_list, is_object, of

TRIALS = is_list(
    is_object(
        {
            "id": of(str),
            "flags": is_list(of(str)),
            "overlay": is_list(of(str)),
            "resolved": of(dict, None),
            "kernels": of(list, None),
            "stage": among(*STAGES),
            "failure": is_object(
                {"stage": among(*STAGES), "kind": among(*KINDS), "reason": of(str)}, or_null=True
            ),
            "gate": is_object({"passed": of(bool), "label": of(str), "reason": of(str)}, or_null=True),
            "samples": is_list(is_object({"role": among("screen", "round"), "wall_s": of(float)})),
            "summary": is_object(
                {
                    "value": of(float),
                    "unit": among("output_tok_per_s", "latency_ms"),
                    "higher_is_better": of(bool),
                    "windows": of(int),
                    "gain": is_object({"mean": of(float), "low": of(float), "high": of(float)}, or_null=True),
                },
                or_null=True,
            ),
        }
    )
)


def check_trials(trials: Any) -> None:
    """AssertionError where `trials` are none; a failed one has no figure."""
    TRIALS("trials", trials)
    for one in trials:
        assert one["failure"] is None or one["summary"] is None, one["id"]
