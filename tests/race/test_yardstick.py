"""What a race measures with, and that it asks for it in the right words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autolaunch.race import yardstick as module
from autolaunch.race.conversations import Conversation, Turn
from autolaunch.race.engine import Engine
from autolaunch.race.outcomes import Window
from autolaunch.race.workload import Workload
from autolaunch.race.yardstick import MAX_WINDOW_ROUNDS, TraceYardstick, WallYardstick

SMALL = Workload(input_tokens=8, output_tokens=4, concurrency=2, rounds=1)


class Namesake:
    """Nobody asks it anything."""


def window(wall_s: float) -> Window:
    """A window of that length."""
    return Window(2, 2, 16, 8, wall_s)


def test_the_wall(fake_engine: Callable[..., Engine]) -> None:
    yardstick = WallYardstick(SMALL)
    with fake_engine() as engine:
        engine.wait_ready(20)
        yardstick.warmed(engine, yardstick.warm_up(engine).finish(20))
        yardstick.calibrate(engine, limit_s=20)
        assert yardstick.workload.rounds == MAX_WINDOW_ROUNDS, "8 ms are made longer, up to a limit"
        found = yardstick.window(engine, 1, limit_s=20)
        assert yardstick.reuse(engine, limit_s=20) is None
    assert found.gpu is None
    assert found.prompts == 2 * MAX_WINDOW_ROUNDS
    assert found.wall_s > 0.2


@pytest.mark.parametrize(("wall_s", "rounds"), [(0.5, 3), (1.5, 1), (30.0, 1), (0.0, MAX_WINDOW_ROUNDS)])
def test_windows_get_long_enough_to_mean_something(
    wall_s: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.measure, "measure_window", lambda *a, **k: window(wall_s))
    yardstick = WallYardstick(SMALL)
    yardstick.calibrate(None, limit_s=1)  # type: ignore[arg-type]
    assert yardstick.workload.rounds == rounds


def test_a_trace_says_what_was_traced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def measure_traced(engine: Any, workload: Workload, seed: int, **more: Any) -> Window:
        asked.update(more, seed=seed, workload=workload)
        return window(1.0)

    monkeypatch.setattr(module.traced, "measure_traced", measure_traced)
    yardstick = TraceYardstick(SMALL, tmp_path, layers=4, total_layers=48, period=2, tail_layers=1)
    assert yardstick.calibrate(None, limit_s=1) is None  # type: ignore[arg-type,func-returns-value]
    engine = Namesake()
    yardstick.window(engine, 7, limit_s=9)  # type: ignore[arg-type]
    assert asked == {
        "seed": 7,
        "workload": SMALL,
        "folder": tmp_path,
        "layers": 4,
        "total_layers": 48,
        "limit_s": 9,
        "period": 2,
        "tail_layers": 1,
        "tokens_per_step": 1.0,
    }
    assert yardstick.reuse(None, limit_s=1) is None  # type: ignore[arg-type]


def test_an_engine_that_drafts_is_traced_for_as_many_steps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[float] = []
    drafting, plain = Namesake(), Namesake()
    warm = {drafting: replace(window(1.0), accept_length=2.5), plain: window(1.0)}
    monkeypatch.setattr(
        module.traced,
        "measure_traced",
        lambda *a, **more: asked.append(more["tokens_per_step"]) or window(1.0),
    )
    yardstick = TraceYardstick(SMALL, tmp_path, layers=4)
    for engine in (drafting, plain):
        yardstick.warmed(engine, warm[engine])  # type: ignore[arg-type]
        yardstick.window(engine, 1, limit_s=1)  # type: ignore[arg-type]
    assert asked == [2.5, 1.0]


def test_a_whole_model_is_as_deep_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}
    monkeypatch.setattr(module.traced, "measure_traced", lambda *a, **more: asked.update(more) or window(1.0))
    TraceYardstick(SMALL, tmp_path, layers=36).window(Namesake(), 1, limit_s=1)  # type: ignore[arg-type]
    assert (asked["layers"], asked["total_layers"]) == (36, 36)


def test_reuse_is_looked_at_where_there_are_conversations(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module.measure, "measure_window", lambda *a, **k: window(2.0))
    told = Workload(8, 4, 2, 1, conversations=(Conversation((Turn("hello", 4),)),))
    found = TraceYardstick(told, tmp_path, layers=4).reuse(None, limit_s=1)  # type: ignore[arg-type]
    assert found is not None and found.wall_s == 2.0
