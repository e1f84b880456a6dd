"""What a file `benchmarks/race-*.json` holds, as a checker: keys, types, and figures that fit together."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

from tests.explain.schema import Check, among, is_list, is_object, of

STAGES = ("table", "start", "load", "capture", "gate", "serve")
KINDS = (
    "rejected",
    "crash",
    "oom",
    "hang",
    "garbage",
    "silent_fallback",
    "slow",
    "memory",
    "environment",
)


def positive(where: str, value: Any) -> None:
    """A number above zero, or null: what was not measured."""
    of(int, float, None)(where, value)
    assert value is None or 0 < value < float("inf"), f"{where} is {value!r}"


def share(where: str, value: Any) -> None:
    """A number from 0 to 1, or null."""
    of(int, float, None)(where, value)
    assert value is None or 0 <= value <= 1, f"{where} is {value!r}"


def failure(where: str, value: Any) -> None:
    """Stage, kind and reason, or null."""
    is_object({"stage": among(*STAGES), "kind": among(*KINDS), "reason": of(str)}, or_null=True)(where, value)


CANDIDATE: Check = is_object(
    {
        "id": of(str),
        "flags": is_list(of(str)),
        "whole": positive,
        "race": positive,
        "failure": failure,
    }
)
CASE: Check = is_object(
    {
        "model": of(str),
        "workload": of(str),
        "metric": of(str),
        "higher_is_better": of(bool),
        "noise": share,
        "candidates": is_list(CANDIDATE),
        "default": of(str),
        "pick": of(str, None),
        "race_s": positive,
        "plain_cold_start_s": positive,
        "exhaustive_s": positive,
        "cache_state": among("warm", "cold"),
    }
)
DOCUMENT: Check = is_object(
    {
        "machine": of(dict, str),
        "software": of(dict, str),
        "command": of(str),
        "date": of(str),
        "cases": is_list(CASE),
    }
)


def check_races(document: Mapping[str, Any]) -> None:
    """AssertionError where `document` is no such file, with the place in it."""
    DOCUMENT("document", document)
    datetime.date.fromisoformat(document["date"])
    seen = []
    for at, case in enumerate(document["cases"]):
        where = f"cases[{at}]"
        ids = [one["id"] for one in case["candidates"]]
        assert len(ids) == len(set(ids)), f"{where}: two candidates of one id"
        assert case["default"] in ids, f"{where}: the default is no candidate"
        assert case["pick"] is None or case["pick"] in ids, f"{where}: the pick is no candidate"
        for one in case["candidates"]:
            wrong = one["whole"] is not None and one["failure"] is not None
            assert not wrong, f"{where}.{one['id']}: a failed candidate has no figure"
        flags = " ".join(case.get("flags", ()))
        seen.append((case["model"], flags, case["workload"], case["metric"], case["cache_state"]))
    assert len(seen) == len(set(seen)), "two cases of one name"
