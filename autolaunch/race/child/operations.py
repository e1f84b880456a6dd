"""What the engine host can be asked to do with its `sglang.Engine`: the operations of the protocol.

Read for SGLang 0.5.9 to 0.5.23, where all of this is spelled alike: `async_generate` on `engine.loop`,
with `stream=True` an asynchronous generator; a list of token lists as one message to the scheduler, so
that a batch is prefilled as one (answers then carry their `index`); `stream_interval` in the sampling
parameters, where the first token is always sent at once; `flush_cache`, `get_server_info`,
`start_profile(output_dir=…, activities=…, with_stack=…, record_shapes=…)` and `stop_profile()`, which
returns when rank 0 has written `ID-TP-0….trace.json.gz`.

NOTE: the engine host loads this file by path, under SGLang's interpreter, 3.10 or later; nothing of
autolaunch is importable there.
"""

from __future__ import annotations

import asyncio
import gzip
import math
import re
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

Json = dict[str, Any]

SECRET = re.compile(
    r"(api|access|secret|private)_?key|password|passphrase|secret|(hf|auth|bearer)_?token", re.IGNORECASE
)
"""Names whose values never leave this process."""
DROPPED = ("launch_command",)
"""Holds the command line as typed, keys included."""
DEEPEST = 8
GPU_ONLY = {"activities": ["GPU"], "with_stack": False, "record_shapes": False}
"""What is profiled: kernels and copies; that costs wall time, up to half of it, and no GPU time."""
REFUSABLE = ("attempt",)
"""Operations of which an error is an answer like any other, and no fault of the engine."""
TRACE_FILES = "*.json*"
TRACE_LIMIT_S = 20.0
"""How long the other ranks may take for their files after rank 0 has written its own."""


class Host:
    """The operations of the protocol, on one engine."""

    def __init__(self, engine: Any) -> None:
        """Operate on SGLang's `Engine`."""
        self.engine = engine
        self.operations: dict[str, Callable[..., Any]] = {
            "generate": self.generate,
            "load": self.load,
            "profile": self.profile,
            "conversations": self.conversations,
            "score": self.score,
            "tokenize": self.tokenize,
            "attempt": self.attempt,
            "flush": self.flush,
            "server_info": self.server_info,
        }

    def do(self, op: str, args: Json) -> Any:
        """The value of operation `op`; an unknown one is a ValueError."""
        if op not in self.operations:
            raise ValueError(f"unknown operation: {op}")
        return self.operations[op](**args)

    def generate(
        self,
        input_ids: list[list[int]] | None = None,
        prompts: list[str] | None = None,
        sampling: Json | None = None,
        logprobs: bool = False,
        concurrency: int = 1,
    ) -> list[Json]:
        """Continue each prompt; text, ids and, if wanted, the log-probability of every generated token."""
        named = [{"prompt": text} for text in prompts or ()] + [{"input_ids": ids} for ids in input_ids or ()]
        calls = [
            {**prompt, "sampling_params": dict(sampling or {}), "return_logprob": logprobs}
            for prompt in named
        ]
        return [summary(output, logprobs) for output in self._run(calls, concurrency)]

    def attempt(self, input_ids: list[int], sampling: Json) -> Json:
        """Continue one prompt; where the engine refuses, `{"error": ...}` is the value (see `REFUSABLE`)."""
        call = {"input_ids": input_ids, "sampling_params": dict(sampling)}
        return summary(self._run([call], 1)[0], logprobs=False)

    def load(self, input_ids: list[list[int]], output_tokens: int, concurrency: int) -> Json:
        """Keep `concurrency` requests in flight until all are answered with exactly `output_tokens` tokens.

        The wall time is from the first request to the last answer; each request comes with its own, and
        with the time to its first token.  Prompts that all fit at once are sent as one batch.
        """
        requests: list[Json] = [{} for _ in input_ids]
        started_s = time.monotonic()
        if 1 < len(input_ids) <= concurrency:
            self.engine.loop.run_until_complete(self._send(input_ids, output_tokens, requests))
        else:
            pairs = zip(input_ids, requests, strict=True)
            sends = [partial(self._send, [ids], output_tokens, [request]) for ids, request in pairs]
            self._in_slots(sends, concurrency)
        return {"wall_s": time.monotonic() - started_s, "started_s": started_s, "requests": told(requests)}

    def profile(self, input_ids: list[list[int]], output_tokens: int, concurrency: int, folder: str) -> Json:
        """`load` under SGLang's profiler: its answer, with the `traces` of all ranks that lie in `folder`."""
        return self._profiled(folder, lambda: self.load(input_ids, output_tokens, concurrency))

    def conversations(
        self, conversations: list[list[Json]], concurrency: int, folder: str | None = None
    ) -> Json:
        """Hold conversations, `concurrency` of them at a time; profiled into `folder` when one is given.

        A turn is `{"input_ids": [...], "output_tokens": 8}` and is sent after all that was said before it.
        The answer is like that of `load`, one request a turn, each with its `conversation` and `turn`.
        """
        if folder is not None:
            return self._profiled(folder, lambda: self.conversations(conversations, concurrency))
        requests: list[list[Json]] = [[{} for _ in turns] for turns in conversations]
        started_s = time.monotonic()
        pairs = zip(conversations, requests, strict=True)
        self._in_slots([partial(self._hold, turns, noted) for turns, noted in pairs], concurrency)
        wall_s = time.monotonic() - started_s
        for number, noted in enumerate(requests):
            for at, request in enumerate(noted):
                request.update(conversation=number, turn=at)
        every = [request for noted in requests for request in noted]
        return {"wall_s": wall_s, "started_s": started_s, "requests": told(every)}

    def score(
        self, input_ids: list[list[int]], starts: list[int], concurrency: int = 1, top: int = 0
    ) -> list[Any]:
        """Teacher-forced log-probability of each token from its sequence's start (1 or more) on.

        With `top`, each sequence gives `{"logprobs": [...], "top": [[[logprob, id], ...], ...]}`, the most
        probable tokens at each place, best first.
        """
        calls: list[Json] = [
            {
                "input_ids": ids,
                "sampling_params": {"temperature": 0.0, "max_new_tokens": 1, "ignore_eos": True},
                "return_logprob": True,
                # The first position asked for has no predecessor, hence no value; it is dropped below.
                "logprob_start_len": start - 1,
                **({"top_logprobs_num": top} if top else {}),
            }
            for ids, start in zip(input_ids, starts, strict=True)
        ]
        scores: list[Any] = []
        for output, ids, start in zip(self._run(calls, concurrency), input_ids, starts, strict=True):
            wanted = len(ids) - start
            entries = output["meta_info"]["input_token_logprobs"][-wanted:]
            if [entry[1] for entry in entries] != list(ids[start:]):
                raise RuntimeError("input_token_logprobs are not about the tokens that were sent")
            logprobs = [entry[0] for entry in entries]
            if not top:
                scores.append(logprobs)
                continue
            places = output["meta_info"]["input_top_logprobs"][-wanted:]
            best = [[[entry[0], entry[1]] for entry in place or ()] for place in places]
            scores.append({"logprobs": logprobs, "top": best})
        return scores

    def tokenize(self, texts: list[str]) -> list[list[int]] | None:
        """Token ids of each text, or None where the engine runs without a tokenizer."""
        tokenizer = getattr(self.engine.tokenizer_manager, "tokenizer", None)
        if tokenizer is None:
            return None
        return [[int(token) for token in tokenizer.encode(text)] for text in texts]

    def flush(self) -> bool:
        """Empty the prefix cache; whether it was emptied (it is not while requests run)."""
        return bool(getattr(self.engine.flush_cache(), "success", True))

    def server_info(self) -> Json:
        """What SGLang reports about itself, without what is secret or cannot be written as JSON."""
        info: Json = plain(self.engine.get_server_info())
        return {key: value for key, value in info.items() if key not in DROPPED}

    def facts(self) -> Json:
        """What a workload must know and the server info does not say."""
        manager = self.engine.tokenizer_manager
        config = getattr(manager, "model_config", None)
        return {
            "device": self._device(),
            "vocab_size": getattr(config, "vocab_size", None),
            "context_len": getattr(config, "context_len", None),
            "kv_tokens": self.engine.get_server_info().get("max_total_num_tokens"),
            "has_tokenizer": getattr(manager, "tokenizer", None) is not None,
            "operations": sorted(self.operations),
        }

    async def _hold(self, turns: list[Json], requests: list[Json]) -> None:
        """One conversation: each turn after everything before it, answers included."""
        said: list[int] = []
        for turn, request in zip(turns, requests, strict=True):
            said = [*said, *turn["input_ids"]]
            await self._send([said], turn["output_tokens"], [request])
            said = [*said, *request["output_ids"]]

    async def _send(self, input_ids: list[list[int]], output_tokens: int, requests: list[Json]) -> None:
        """Send the prompts in one message, streamed, and note in `requests` when what came."""
        sampling = {
            "temperature": 0.0,
            "max_new_tokens": output_tokens,
            "ignore_eos": True,
            # The first token at once, and then only the whole answer: the rest of the stream is not read.
            "stream_interval": output_tokens + 1,
        }
        batch = input_ids if len(input_ids) > 1 else input_ids[0]
        params = [dict(sampling) for _ in input_ids] if len(input_ids) > 1 else sampling
        started_s = time.monotonic()
        stream: AsyncIterator[Json] = await self.engine.async_generate(
            input_ids=batch, sampling_params=params, stream=True
        )
        async for output in stream:
            after_s = time.monotonic() - started_s
            request, meta = requests[output.get("index") or 0], output["meta_info"]
            request.setdefault("ttft_s", after_s)
            request["latency_s"] = after_s
            for name in ("prompt_tokens", "completion_tokens", "spec_verify_ct"):
                request[name] = meta.get(name)
            request["cached_tokens"] = meta.get("cached_tokens", 0)
            ids, count = list(output.get("output_ids") or ()), meta.get("completion_tokens") or 0
            # Each part of a stream holds all tokens so far, or with `--incremental-streaming-output` the new.
            former = request.get("output_ids", [])
            request["output_ids"] = ids if len(ids) >= count else [*former, *ids][:count]

    def _profiled(self, folder: str, work: Callable[[], Json]) -> Json:
        """The answer of `work` with the traces that the profiler wrote into `folder` meanwhile."""
        if self._device() == "cpu":  # asked for GPU kernels all the same, SGLang's scheduler would die of it
            raise ValueError("this engine runs on a CPU: there are no GPU kernels to profile")
        there = set(Path(folder).glob(TRACE_FILES))
        self.engine.start_profile(output_dir=folder, **GPU_ONLY)
        try:
            answer = work()
        finally:
            self.engine.stop_profile()
        return {**answer, "traces": wait_for_traces(Path(folder), there, self._ranks(), TRACE_LIMIT_S)}

    def _device(self) -> str | None:
        """`cuda` or `cpu`, as SGLang resolved it."""
        device = getattr(getattr(self.engine, "server_args", None), "device", None)
        return None if device is None else str(device)

    def _ranks(self) -> int:
        """Processes that write a trace each."""
        args = self.engine.server_args
        ranks = getattr(args, "tp_size", 1) * getattr(args, "pp_size", 1)
        # With attention in data parallel, the replicas share the ranks of the tensor parallel group.
        return int(
            ranks * (1 if getattr(args, "enable_dp_attention", False) else getattr(args, "dp_size", 1))
        )

    def _run(self, calls: list[Json], concurrency: int) -> list[Json]:
        """The output of each call, at most `concurrency` of them in flight."""
        outputs: list[Json] = [{} for _ in calls]

        async def one(number: int) -> None:
            outputs[number] = await self.engine.async_generate(**calls[number])

        self._in_slots([partial(one, number) for number in range(len(calls))], concurrency)
        return outputs

    def _in_slots(self, jobs: Sequence[Callable[[], Awaitable[None]]], concurrency: int) -> None:
        """Do all `jobs`, at most `concurrency` of them at a time."""

        async def run() -> None:
            slots = asyncio.Semaphore(concurrency)

            async def one(job: Callable[[], Awaitable[None]]) -> None:
                async with slots:
                    await job()

            await asyncio.gather(*map(one, jobs))

        self.engine.loop.run_until_complete(run())


def told(requests: list[Json]) -> list[Json]:
    """`requests` without the tokens of their answers, which nobody asked for."""
    return [{key: value for key, value in one.items() if key != "output_ids"} for one in requests]


def wait_for_traces(folder: Path, there: set[Path], ranks: int, limit_s: float) -> list[str]:
    """The files in `folder` that were not `there` before, once `ranks` of them are whole.

    RuntimeError when they are not after `limit_s`.
    """
    deadline = time.monotonic() + limit_s
    while True:
        found = sorted(set(folder.glob(TRACE_FILES)) - there)
        whole = [str(path) for path in found if is_whole(path)]
        if len(whole) >= ranks and len(whole) == len(found):
            return whole
        if time.monotonic() >= deadline:
            raise RuntimeError(f"the profiler left {len(whole)} whole traces of {ranks} in {folder}")
        time.sleep(0.05)


def is_whole(path: Path) -> bool:
    """Whether a trace has been written to its end."""
    try:
        if path.suffix != ".gz":
            return path.read_bytes().rstrip().endswith(b"}")
        with gzip.open(path) as file:
            if not file.read(1):
                return False
            while file.read(1 << 20):
                pass
    except (OSError, EOFError, zlib.error):
        return False
    return True


def summary(output: Json, logprobs: bool) -> Json:
    """The part of one of SGLang's outputs that the launcher reads."""
    meta = output["meta_info"]
    found = {
        "text": output.get("text"),
        "output_ids": output.get("output_ids"),
        "prompt_tokens": meta.get("prompt_tokens"),
        "completion_tokens": meta.get("completion_tokens"),
        "finish_reason": meta.get("finish_reason"),
    }
    if logprobs:
        entries = meta["output_token_logprobs"]
        found["logprobs"] = [entry[0] for entry in entries]
        found["output_ids"] = [entry[1] for entry in entries]
    return found


def plain(value: Any, depth: int = 0) -> Any:
    """`value` as JSON can hold it, values under secret names removed, odd objects as their class name."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth > DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {
            str(key): plain(item, depth + 1)
            for key, item in value.items()
            if item is None or not SECRET.search(str(key))
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, depth + 1) for item in value]
    return f"<{type(value).__name__}>"
