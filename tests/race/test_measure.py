"""Workloads and timed windows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autolaunch.race.engine import Engine
from autolaunch.race.measure import (
    measure_conversations,
    measure_window,
)
from autolaunch.race.outcomes import EngineFailed, Window
from autolaunch.race.warm_up_windows import warm_up
from autolaunch.race.workload import Conversation, Turn, Workload, random_prompts


def test_prompts_are_new_for_each_seed_and_the_same_for_the_same() -> None:
    first = random_prompts(8, 64, 50_000, seed=1)
    assert first == random_prompts(8, 64, 50_000, seed=1)
    assert first != random_prompts(8, 64, 50_000, seed=2)
    assert {len(prompt) for prompt in first} == {64}
    assert len({prompt[0] for prompt in first}) == 8, "not even one token is shared"
    assert all(256 <= token < 50_000 - 256 for prompt in first for token in prompt)


@pytest.mark.parametrize("vocab_size", [1, 2, 7, 32, 512])
def test_small_vocabularies_will_do(vocab_size: int) -> None:
    for prompt in random_prompts(5, 3, vocab_size, seed=0):
        assert all(0 <= token < max(vocab_size, 2) for token in prompt)


@pytest.mark.parametrize("field", ["input_tokens", "output_tokens", "concurrency", "rounds"])
def test_a_workload_needs_something_to_do(field: str) -> None:
    with pytest.raises(ValueError, match=field):
        Workload(**{field: 0})


def test_a_window(fake_engine: Callable[..., Engine]) -> None:
    workload = Workload(input_tokens=10, output_tokens=5, concurrency=3, rounds=2)
    with fake_engine() as engine:
        engine.wait_ready(20)
        warm_up(engine, workload, seed=1).finish(20)
        flushes = engine.ask("server_info", 5)["flushes"]
        window = measure_window(engine, workload, seed=1)
        assert engine.ask("server_info", 5)["flushes"] == flushes + 1
    assert (window.concurrency, window.prompts) == (3, 6)
    assert (window.input_tokens, window.output_tokens, window.cached_tokens) == (60, 30, 0)
    assert window.wall_s >= 2 * 5 * 0.002, "two rounds of five tokens, 2 ms each"
    assert len(window.latencies_s) == 6
    assert all(0.01 <= latency_s <= window.wall_s for latency_s in window.latencies_s)
    assert len(window.ttfts_s) == 6
    assert all(
        0.002 <= first_s < whole_s
        for first_s, whole_s in zip(window.ttfts_s, window.latencies_s, strict=True)
    )
    assert window.accept_length is None
    assert window.gpu is None
    assert window.clean
    assert window.output_tok_per_s == pytest.approx(30 / window.wall_s)
    assert window.to_json()["output_tok_per_s"] == window.output_tok_per_s


def test_hits_of_the_prefix_cache_are_kept_with_the_window(fake_engine: Callable[..., Engine]) -> None:
    with fake_engine("serve-cached") as engine:
        engine.wait_ready(20)
        window = measure_window(engine, Workload(), seed=1)
    assert window.cached_tokens == 7 * window.prompts
    assert not window.clean


def test_short_answers_are_no_measurement(fake_engine: Callable[..., Engine]) -> None:
    with fake_engine("serve-short") as engine:
        engine.wait_ready(20)
        with pytest.raises(EngineFailed, match="generated 92 tokens where 96 were asked for") as caught:
            measure_window(engine, Workload(), seed=1)
    assert (caught.value.failure.stage, caught.value.failure.kind) == ("serve", "garbage")


def test_no_time_is_no_throughput() -> None:
    assert Window(1, 1, 1, 1, wall_s=0.0).output_tok_per_s == 0.0


def test_accepted_drafts_are_counted(fake_engine: Callable[..., Engine]) -> None:
    with fake_engine("serve-drafts") as engine:
        engine.wait_ready(20)
        window = measure_window(engine, Workload(output_tokens=13), seed=1)
    assert window.accept_length == 3.0, "the first token of each is not drafted"


def conversations() -> tuple[Conversation, ...]:
    """Three of them, of three, one and two turns."""
    return (
        Conversation((Turn("abc", 4), Turn("de", 2), Turn("f", 3))),
        Conversation((Turn("ghijk", 2),)),
        Conversation((Turn("l", 2), Turn("m" * 5000, 2))),
    )


def test_turns_are_sent_with_what_was_said_before(fake_engine: Callable[..., Engine]) -> None:
    workload = Workload(concurrency=2, rounds=2, conversations=conversations())
    with fake_engine("serve-remembers") as engine:
        engine.wait_ready(20)
        window = measure_conversations(engine, workload, seed=0)
        assert measure_window(engine, workload, seed=0).kind == "conversations"
        again = measure_conversations(engine, workload, seed=1)
    assert window.kind == "conversations"
    assert window.prompts == 3 + 1 + 1, "the last turn of the third is longer than the context"
    assert window.output_tokens == 4 + 2 + 3 + 2 + 2
    assert window.input_tokens == 3 + (3 + 4 + 2) + (9 + 2 + 1) + 5 + 1
    assert window.cached_tokens == (3 + 4) + (9 + 2), "all that was said before"
    assert len(window.ttfts_s) == 5
    assert again.input_tokens == window.input_tokens, "another order of the same"


def test_conversations_without_a_tokenizer(fake_engine: Callable[..., Engine]) -> None:
    workload = Workload(concurrency=2, rounds=1, conversations=conversations())
    with fake_engine("well", "--skip-tokenizer-init") as engine:
        engine.wait_ready(20)
        window = measure_conversations(engine, workload, seed=0)
    assert (window.prompts, window.input_tokens) == (4, 1 + (1 + 4 + 1) + (6 + 2 + 1) + 2)
