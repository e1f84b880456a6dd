"""Windows of GPU times."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from autolaunch.race.batches import FEWEST_TRACED_TOKENS, TRACED_TOKENS, Batch, traced_batches
from autolaunch.race.engine import Engine
from autolaunch.race.outcomes import EngineFailed
from autolaunch.race.traced import measure_traced
from autolaunch.race.warm_up_windows import warm_up_traced
from autolaunch.race.workload import Workload


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_a_traced_window(fake_engine: Callable[..., Engine], tmp_path: Path, ranks: str) -> None:
    workload = Workload(input_tokens=40, output_tokens=16, concurrency=3, rounds=1)
    folder = tmp_path / "traces"
    folder.mkdir()
    with fake_engine("well", "--tp", ranks) as engine:
        engine.wait_ready(20)
        warm_up_traced(engine, workload).finish(20)
        window = measure_traced(engine, workload, 1, folder=folder, layers=4, total_layers=10)
    assert (window.kind, window.prompts, window.input_tokens) == ("traced", 3, 120)
    assert window.output_tokens == 3 * TRACED_TOKENS, "as many as a settled step takes"
    assert window.wanted_output_tokens == 16
    assert window.gpu is not None
    assert window.gpu.decode_steps == TRACED_TOKENS
    slowest = int(ranks)
    assert window.gpu.decode_step_ms == pytest.approx(slowest * 19 / 20)
    assert window.gpu.prefill_ms == pytest.approx(slowest * 19 / 20)
    assert window.gpu.decode_step_full_ms == pytest.approx(slowest * (19 + 6 * 4) / 20)
    assert window.gpu.prefill_full_ms == pytest.approx(slowest * (19 + 6 * 4) / 20)
    assert list(folder.iterdir()) == [], "traces are removed when they have been read"
    assert json.loads(json.dumps(window.to_json()))["gpu"]["decode_steps"] == TRACED_TOKENS


def test_long_answers_have_their_step_from_their_middle(
    fake_engine: Callable[..., Engine], tmp_path: Path
) -> None:
    workload = Workload(input_tokens=40, output_tokens=2000, concurrency=2, rounds=1)
    with fake_engine() as engine:
        engine.wait_ready(20)
        warm = warm_up_traced(engine, workload).finish(20)
        window = measure_traced(engine, workload, 1, folder=tmp_path, layers=4, total_layers=4)
    assert (warm.input_tokens, warm.output_tokens) == (80, 2 * FEWEST_TRACED_TOKENS)
    assert (window.input_tokens, window.output_tokens) == (80, 2 * FEWEST_TRACED_TOKENS), (
        "the prefill's batch"
    )
    assert window.wanted_output_tokens == 2000
    assert window.gpu is not None
    assert window.gpu.decode_steps == TRACED_TOKENS, "the other batch's"
    assert {kernel.phase for kernel in window.gpu.kernels} == {"prefill", "decode"}


@pytest.mark.parametrize(
    ("behave", "kind", "reason"),
    [
        ("profile-empty", "environment", "no kernel of a GPU"),
        ("profile-garbage", "environment", "is no trace"),
        ("profile-raise", "memory", "--mem-fraction-static"),
        ("serve-cached", "environment", "the prefix cache held 21 of 120 fresh prompt tokens"),
        ("serve-short", "garbage", "generated 237 tokens where 240 were asked for"),
    ],
)
def test_traces_that_tell_nothing(
    fake_engine: Callable[..., Engine], tmp_path: Path, behave: str, kind: str, reason: str
) -> None:
    workload = Workload(input_tokens=40, output_tokens=16, concurrency=3, rounds=1)
    with fake_engine(behave) as engine:
        engine.wait_ready(20)
        with pytest.raises(EngineFailed, match=reason) as caught:
            measure_traced(engine, workload, 1, folder=tmp_path, layers=4, total_layers=4)
    assert (caught.value.failure.stage, caught.value.failure.kind) == ("serve", kind)


@pytest.mark.parametrize(
    ("facts", "shape", "tokens_per_step", "expected"),
    [
        ({}, (1024, 256, 32), 1.0, [(1024, 80)]),
        ({}, (1024, 16, 32), 1.0, [(1024, 80)]),
        ({}, (1024, 16, 32), 3.0, [(1024, 240)]),
        ({}, (128, 4096, 32), 1.0, [(128, 8), (2096, 80)]),
        ({}, (32, 512, 1), 1.0, [(32, 8), (208, 80)]),
        ({"context_len": 4096}, (4000, 16, 1), 1.0, [(4000, 80)]),
        ({"context_len": 4096}, (4060, 16, 1), 1.0, [(4060, 20)]),
        ({"kv_tokens": 33_280, "context_len": 4096}, (1024, 16, 32), 1.0, [(1024, 8)]),
        ({"kv_tokens": 64_000, "context_len": 4096}, (128, 4096, 32), 1.0, [(128, 80)]),
        ({"kv_tokens": None, "context_len": None}, (128, 4096, 32), 1.0, [(128, 8), (2096, 80)]),
    ],
)
def test_the_batches_that_are_traced(
    facts: dict[str, int | None],
    shape: tuple[int, int, int],
    tokens_per_step: float,
    expected: list[tuple[int, int]],
) -> None:
    batches = traced_batches(facts, Workload(*shape, rounds=1), tokens_per_step)
    assert list(batches) == [Batch(*tokens, shape[2]) for tokens in expected]
    assert batches[0].workload.prompts == shape[2]
