"""Cases of a benchmark file as `measure-race` fills them: rows of candidates, regret and noise, a summary.

A case is a dictionary as it stands in the file.  Its candidates have, beside what the file must hold,
`windows` (the figures of the whole model), `race_failure` (how the race saw them end) and `short` (plainly
slow in the race, so that one window of the whole model was enough).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autolaunch.candidates.candidate import ORIGINAL_ID, Candidate

Row = dict[str, Any]
"""A case of the file, or a candidate of a case."""
ALONE = " alone"
"""Ends the name of a batch of one that had failed in company."""
WINDOWS = 3
"""Timed windows of each candidate on the whole model."""
SLOW = 0.5
"""Of the original's speed in the race, below which a candidate is plainly slow."""
NOT_STARTED = frozenset({"table", "start", "load", "capture"})
"""Stages of an engine that never answered."""
PLAIN_FAULTS = frozenset({"rejected", "crash", "environment"})
"""Ends that neither company nor a short budget can have caused."""


def new_row(id: str, flags: Sequence[str], env: Mapping[str, str] | None = None) -> Row:  # noqa: A002 - its name
    """A candidate of which nothing is known yet."""
    row: Row = {"id": id, "flags": list(flags), "whole": None, "race": None, "failure": None, "windows": []}
    return {**row, "env": dict(env)} if env else row


def row_of(case: Row, candidate: Candidate) -> Row | None:
    """The row of `candidate`, by what it adds to the command: workloads may give it different ids."""
    return next((row for row in case["candidates"] if is_same(row, candidate)), None)


def is_same(row: Row, candidate: Candidate) -> bool:
    """Whether `row` is about `candidate`."""
    return bool(row["flags"] == list(candidate.flags) and row.get("env", {}) == dict(candidate.env))


def original_of(case: Row) -> Row:
    """The row of the original command."""
    found: Row = next(row for row in case["candidates"] if row["id"] == ORIGINAL_ID)
    return found


def is_slow(case: Row, row: Row) -> bool:
    """Whether the race found the candidate below half the speed of the original."""
    if (row.get("race_failure") or {}).get("kind") == "slow":
        return True
    mine, original = row["race"], original_of(case)["race"]
    if mine is None or original is None:
        return False
    share = mine / original if case["higher_is_better"] else original / mine
    return bool(share < SLOW)


def belies(case: Row, row: Row) -> bool:
    """Whether the whole model shows a candidate that was slow in the race to be none of the slow ones."""
    mine, original = row["whole"], original_of(case)["whole"]
    if mine is None or original is None:
        return False
    return bool((mine / original if case["higher_is_better"] else original / mine) >= SLOW)


def never_started(row: Row) -> bool:
    """Whether it failed in the race in a way that it will fail again."""
    failure = row.get("race_failure")
    return bool(failure and failure["stage"] in NOT_STARTED and failure["kind"] in PLAIN_FAULTS)


def lacks(row: Row) -> bool:
    """Whether the whole model has still to be timed with the candidate of `row`."""
    return row["failure"] is None and len(row["windows"]) < (1 if row.get("short") else WINDOWS)


def median(figures: Sequence[float]) -> float:
    """The middle one, or the mean of the middle two."""
    ranked = sorted(figures)
    middle = len(ranked) // 2
    return ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2


def spread(row: Row) -> float:
    """Half the range of the figures over their median."""
    figures = row["windows"]
    return float((max(figures) - min(figures)) / 2 / row["whole"])


def timed(case: Row) -> list[Row]:
    """The candidates with a figure of the whole model, the best first."""
    rows = [row for row in case["candidates"] if row["whole"] is not None]
    return sorted(rows, key=lambda row: row["whole"], reverse=case["higher_is_better"])


def noise_of(case: Row) -> float | None:
    """The largest spread among pick, original and best candidate."""
    rows = timed(case)
    told = {case["pick"], case["default"], rows[0]["id"]} if rows else set()
    spreads = [spread(row) for row in rows if row["id"] in told and row["windows"]]
    return min(1.0, max(spreads)) if spreads else None


def whole_values(case: Mapping[str, Any]) -> dict[str, float]:
    """The figures of the whole model by candidate, of those that started there."""
    return {one["id"]: one["whole"] for one in case["candidates"] if one["whole"] is not None}


def regret(case: Mapping[str, Any]) -> float | None:
    """The share of the best candidate's figure that the pick loses; None where the pick has none."""
    values = whole_values(case)
    chosen = values.get(case["pick"])
    if chosen is None:
        return None
    if case["higher_is_better"]:
        best = max(values.values())
        return (best - chosen) / best
    best = min(values.values())
    return (chosen - best) / best


def gain(case: Mapping[str, Any]) -> float | None:
    """By how much the pick beats the original command on the whole model; below zero where it is worse."""
    values = whole_values(case)
    chosen, default = values.get(case["pick"]), values.get(case["default"])
    if chosen is None or default is None:
        return None
    return chosen / default - 1 if case["higher_is_better"] else default / chosen - 1


def exhaustive_s(case: Row, batches: Sequence[str]) -> float | None:
    """Seconds to start and time every candidate of this case, by the plan of loading; None while any lacks.

    Loading and checking count whole although several workloads share them.  What failed in the race at its
    start is not in it: that time is spared here, though an exhaustive measurement would have spent it.
    """
    runs = case.get("whole_runs", {})
    if any(lacks(row) for row in case["candidates"]) or not all(name in runs for name in batches):
        return None
    counted = [one for name, one in runs.items() if name in batches or name.endswith(ALONE)]
    return round(sum(sum(one.values()) for one in counted), 1)


def borrow(document: Row, case: Row) -> None:
    """Take over what the whole model said in a case that differs in nothing but the state of the caches."""
    names = ("model", "flags", "workload", "metric")
    for other in document["cases"]:
        if other is case or any(other[name] != case[name] for name in names):
            continue
        known = {(tuple(row["flags"]), str(row.get("env"))): row for row in other["candidates"]}
        for row in case["candidates"]:
            same = known.get((tuple(row["flags"]), str(row.get("env"))))
            if same is not None and lacks(row) and not lacks(same):
                for name in ("whole", "failure", "windows", "short"):
                    if name in same:
                        row[name] = same[name]
                case["whole_from"] = other["cache_state"]


def summary(case: Row) -> Iterator[str]:
    """A case in a few lines: who was how fast in the race and as a whole, and what the pick is worth."""
    flags = "".join(f" {one}" for one in case["flags"])
    yield f"## {case['model']}{flags} {case['workload']} {case['metric']} {case['cache_state']}"
    rows = timed(case)
    ranks = {row["id"]: number for number, row in enumerate(rows, 1)}
    others = [row for row in case["candidates"] if row["whole"] is None]
    original = original_of(case)
    for row in [*rows, *others]:
        figures = f"{_whole(row, original)}{_race(row, original)}"
        yield f"{ranks.get(row['id'], '-'):>2} {row['id']:4}{figures} {_words(row)}"
    yield _verdict(case, ranks)


def _whole(row: Row, original: Row) -> str:
    if row["whole"] is None:
        return " whole –"
    mark = " (short)" if row.get("short") else f" ±{100 * spread(row):.1f} %" if row["windows"] else ""
    return f" whole {row['whole']:.5g}{_against(row['whole'], original['whole'])}{mark}"


def _race(row: Row, original: Row) -> str:
    return (
        " race –"
        if row["race"] is None
        else f" race {row['race']:.5g}{_against(row['race'], original['race'])}"
    )


def _against(figure: float, original: float | None) -> str:
    return f" ({figure / original:.3f})" if original else ""


def _words(row: Row) -> str:
    words = [*(f"{name}={value}" for name, value in row.get("env", {}).items()), *row["flags"]] or [
        "original"
    ]
    told = ((row["failure"], "FAILED"), (row.get("race_failure"), "race:"))
    for failure, word in told:
        if failure:
            words.append(f"{word} {failure['kind']} at {failure['stage']}: {failure['reason'][:80]}")
            break
    if row.get("race_dropped"):
        words.append(f"race dropped it: {row['race_dropped'][:80]}")
    return " ".join(words)


def _verdict(case: Row, ranks: Mapping[str, int]) -> str:
    lost, won, noise = regret(case), gain(case), case["noise"]
    words = [f"pick {case['pick']} rank {ranks.get(case['pick'], '–')} of {len(ranks)}"]
    if lost is not None:
        words.append(f"regret {100 * lost:.1f} %" + ("" if noise is None else f" ± {100 * noise:.1f}"))
    if won is not None:
        words.append(f"against c0 {100 * won:+.1f} %")
    race_s, plain_s, whole_s = case["race_s"], case["plain_cold_start_s"], case["exhaustive_s"]
    words.append(f"race {race_s} s ({case.get('race_ended')}), plain {plain_s} s, exhaustive {whole_s} s")
    if race_s and plain_s:
        words.append(f"race/plain {race_s / plain_s:.2f}")
    return "; ".join(words)
