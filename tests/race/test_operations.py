"""The operations of the engine host, on an engine that only remembers what it was asked."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autolaunch.race.child import operations
from autolaunch.race.child.operations import Host, is_whole, wait_for_traces


class Stub:
    """Streams each answer as parts of `step` tokens: cumulative, or only what is new."""

    def __init__(self, *, incremental: bool = False, ranks: dict[str, Any] | None = None) -> None:
        self.loop = SimpleNamespace(run_until_complete=asyncio.run)
        self.server_args = SimpleNamespace(**(ranks or {}))
        self.incremental = incremental
        self.calls: list[dict[str, Any]] = []
        self.profiles: list[str] = []
        self.fault: Exception | None = None

    async def async_generate(self, **call: Any) -> AsyncIterator[dict[str, Any]]:
        """The stream of one prompt or of several."""
        self.calls.append(call)
        if self.fault is not None:
            raise self.fault
        return self.parts(call)

    async def parts(self, call: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Two parts of each answer, the second prompt's first."""
        many = isinstance(call["input_ids"][0], list)
        prompts = call["input_ids"] if many else [call["input_ids"]]
        params = call["sampling_params"] if many else [call["sampling_params"]]
        for last in (False, True):
            for index in reversed(range(len(prompts))):
                count = params[index]["max_new_tokens"] if last else 1
                ids = [100 + index] * (count - 1 if last and self.incremental else count)
                meta = {"prompt_tokens": len(prompts[index]), "completion_tokens": count, "cached_tokens": 0}
                yield {"output_ids": ids, "meta_info": meta} | ({"index": index} if many else {})
                await asyncio.sleep(0.001)

    def start_profile(self, output_dir: str, **options: Any) -> None:
        """Note it."""
        self.profiles.append(f"start {sorted(options)}")
        self.folder = Path(output_dir)

    def stop_profile(self) -> None:
        """Note it, and write a file for each of two ranks."""
        self.profiles.append("stop")
        for rank in range(2):
            (self.folder / f"now-TP-{rank}.trace.json.gz").write_bytes(gzip.compress(b"{}"))


def test_a_batch_is_one_message_and_its_answers_find_their_prompts() -> None:
    stub = Stub()
    answer = Host(stub).load(input_ids=[[1], [2, 2], [3, 3, 3]], output_tokens=4, concurrency=8)
    assert [call["input_ids"] for call in stub.calls] == [[[1], [2, 2], [3, 3, 3]]]
    assert [request["prompt_tokens"] for request in answer["requests"]] == [1, 2, 3]
    assert all(
        0 < request["ttft_s"] < request["latency_s"] <= answer["wall_s"] for request in answer["requests"]
    )
    first = [request["ttft_s"] for request in answer["requests"]]
    assert first == sorted(first, reverse=True), "the last prompt was answered first"
    assert "output_ids" not in answer["requests"][0]


def test_more_prompts_than_slots_are_sent_one_by_one() -> None:
    stub = Stub()
    Host(stub).load(input_ids=[[1], [2], [3]], output_tokens=4, concurrency=2)
    assert [call["input_ids"] for call in stub.calls] == [[1], [2], [3]]
    assert all(call["stream"] and call["sampling_params"]["stream_interval"] == 5 for call in stub.calls)


@pytest.mark.parametrize("incremental", [False, True])
def test_a_turn_begins_with_all_that_was_said(incremental: bool) -> None:
    stub = Stub(incremental=incremental)
    turns = [{"input_ids": [1, 2], "output_tokens": 3}, {"input_ids": [7], "output_tokens": 2}]
    answer = Host(stub).conversations([turns, turns[:1]], concurrency=1)
    assert [call["input_ids"] for call in stub.calls] == [[1, 2], [1, 2, 100, 100, 100, 7], [1, 2]]
    assert [(one["conversation"], one["turn"]) for one in answer["requests"]] == [(0, 0), (0, 1), (1, 0)]
    assert all("output_ids" not in one for one in answer["requests"])


def test_conversations_can_be_profiled(tmp_path: Path) -> None:
    stub = Stub(ranks={"tp_size": 2})
    turns = [{"input_ids": [1], "output_tokens": 2}]
    answer = Host(stub).conversations([turns], concurrency=1, folder=str(tmp_path))
    assert [Path(path).name for path in answer["traces"]] == [
        f"now-TP-{rank}.trace.json.gz" for rank in (0, 1)
    ]
    assert stub.profiles == ["start ['activities', 'record_shapes', 'with_stack']", "stop"]


def test_a_load_that_fails_does_not_leave_the_profiler_on(tmp_path: Path) -> None:
    stub = Stub(ranks={"tp_size": 2})
    stub.fault = RuntimeError("no")
    with pytest.raises(RuntimeError, match="no"):
        Host(stub).profile([[1], [2]], output_tokens=2, concurrency=2, folder=str(tmp_path))
    assert stub.profiles[-1] == "stop"


def test_a_cpu_is_not_profiled(tmp_path: Path) -> None:
    stub = Stub(ranks={"device": "cpu"})
    with pytest.raises(ValueError, match="runs on a CPU"):
        Host(stub).profile([[1]], output_tokens=2, concurrency=1, folder=str(tmp_path))
    assert stub.profiles == []


@pytest.mark.parametrize(
    ("ranks", "count"),
    [
        ({}, 1),
        ({"tp_size": 4, "pp_size": 2}, 8),
        ({"tp_size": 4, "dp_size": 2}, 8),
        ({"tp_size": 4, "dp_size": 4, "enable_dp_attention": True}, 4),
    ],
)
def test_every_rank_writes_a_trace(ranks: dict[str, Any], count: int) -> None:
    assert Host(Stub(ranks=ranks))._ranks() == count


def test_traces_are_waited_for_until_they_are_whole(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"traceEvents": []}')
    old = tmp_path / "old.trace.json.gz"
    old.write_bytes(whole)
    path = tmp_path / "new.trace.json.gz"
    for half in (whole[:8], whole[:-4], b""):
        path.write_bytes(half)
        assert not is_whole(path)
        with pytest.raises(RuntimeError, match="left 0 whole traces of 1"):
            wait_for_traces(tmp_path, {old}, ranks=1, limit_s=0.1)
    path.write_bytes(whole)
    assert wait_for_traces(tmp_path, {old}, ranks=1, limit_s=0.1) == [str(path)]
    with pytest.raises(RuntimeError, match="left 1 whole traces of 2"):
        wait_for_traces(tmp_path, {old}, ranks=2, limit_s=0.1)
    plain = tmp_path / "plain.json"
    plain.write_text('{"traceEvents": [')
    assert not is_whole(plain)
    plain.write_text('{"traceEvents": []}\n')
    assert is_whole(plain)


def test_the_most_probable_tokens_come_where_they_are_asked_for() -> None:
    class Scorer(Stub):
        async def async_generate(self, **call: Any) -> Any:
            self.calls.append(call)
            ids, start = call["input_ids"], call["logprob_start_len"]
            meta: dict[str, Any] = {
                "input_token_logprobs": [
                    (None if at == 0 else -1.0, one, None) for at, one in enumerate(ids[start:])
                ]
            }
            if "top_logprobs_num" in call:
                meta["input_top_logprobs"] = [
                    None if at == 0 else [(-0.1, 5, None), (-0.2, 6, None)] for at in range(len(ids) - start)
                ]
            return {"meta_info": meta}

    scorer = Scorer()
    assert Host(scorer).score([[1, 2, 3]], [1]) == [[-1.0, -1.0]]
    assert Host(scorer).score([[1, 2, 3]], [2], top=2) == [
        {"logprobs": [-1.0], "top": [[[-0.1, 5], [-0.2, 6]]]},
    ]
    assert ["top_logprobs_num" in call for call in scorer.calls] == [False, True]


def test_an_attempt_is_one_answer_that_is_not_streamed() -> None:
    class Answerer(Stub):
        async def async_generate(self, **call: Any) -> Any:
            self.calls.append(call)
            return {"text": "{}", "output_ids": [5], "meta_info": {"finish_reason": {"type": "stop"}}}

    answerer = Answerer()
    answer = Host(answerer).do("attempt", {"input_ids": [1, 2], "sampling": {"json_schema": "{}"}})
    assert (answer["text"], answer["finish_reason"]) == ("{}", {"type": "stop"})
    assert answerer.calls == [{"input_ids": [1, 2], "sampling_params": {"json_schema": "{}"}}]


def test_an_unknown_operation() -> None:
    with pytest.raises(ValueError, match="unknown operation: fly"):
        Host(Stub()).do("fly", {})


def test_what_is_profiled() -> None:
    assert operations.GPU_ONLY["activities"] == ["GPU"]
