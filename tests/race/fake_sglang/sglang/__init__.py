"""The part of SGLang that the engine host touches, with faults on demand (`--behave`)."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

VOCABULARY = 512
KV_TOKENS = 16384


def made_trace(steps: int, layers: int, step_us: float) -> list[dict[str, Any]]:
    """Events of a trace: every layer has four kernels, and what comes before the layers and after has two."""
    names = ["embed", *["norm", "attention", "up", "down"] * layers, "head", "sample"]
    events, at, correlation = [], 0.0, 0
    for step in range(steps + 1):
        correlation += 100
        for number, name in enumerate(names):
            graph = 0 if step and name != "sample" else number
            args = {"correlation": correlation + graph, "block": [128, 1, 1]}
            event = {"ph": "X", "cat": "kernel", "name": name, "ts": at, "dur": step_us / 20, "args": args}
            events.append(event)
            at += step_us / 20
    return events


class Tokenizer:
    """One token a character."""

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`."""
        return [ord(letter) % VOCABULARY for letter in text]


class Engine:
    """Answers with the successor of the last token, each with probability 1/e; misbehaves when told to."""

    def __init__(self, server_args: Any) -> None:
        self.behave = server_args.behave
        self.server_args = server_args
        self.loop = asyncio.new_event_loop()
        self.flushes = 0
        self.steps = 0
        self.seen: list[list[int]] = []
        tokenizer = None if server_args.skip_tokenizer_init else Tokenizer()
        self.tokenizer_manager = SimpleNamespace(
            tokenizer=tokenizer, model_config=SimpleNamespace(vocab_size=VOCABULARY, context_len=4096)
        )
        # A scheduler in a session of its own, as hard to end as one can be.
        self.scheduler = subprocess.Popen(
            [sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True
        )
        print(f"stdin holds {sys.stdin.read()!r}, TMPDIR is {os.environ['TMPDIR']}", flush=True)
        self.misbehave("load")

    def misbehave(self, where: str) -> None:
        """Do what `--behave` says, if it is about this place."""
        what = self.behave.removeprefix(f"{where}-")
        if what == self.behave:
            return
        if what == "hang":
            time.sleep(60)
        if what == "raise":
            raise RuntimeError("Not enough memory. Please try to increase --mem-fraction-static.")
        if what == "kill":
            print(
                "Traceback (most recent call last):\n  File x\nValueError: the kernel is not for this device"
            )
            sys.stdout.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "kill-group":
            os.killpg(os.getpgrp(), signal.SIGKILL)
        if what == "quit-parent":
            os.kill(os.getppid(), signal.SIGQUIT)
        if what == "leak":
            print(vars(self.server_args), *os.environ.values(), flush=True)
        if what == "close":
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # whatever number the launcher's end had
            time.sleep(60)

    async def async_generate(self, stream: bool = False, **call: Any) -> Any:
        """An answer, or a stream of its first token and the whole; of several prompts, streams with indices."""
        if not stream:
            return await self.answer(call)
        many = "input_ids" in call and isinstance(call["input_ids"][0], list)
        calls = [call]
        if many:
            pairs = zip(call["input_ids"], call["sampling_params"], strict=True)
            calls = [{**call, "input_ids": ids, "sampling_params": params} for ids, params in pairs]
        return self.stream(calls, many)

    async def stream(self, calls: list[dict[str, Any]], many: bool) -> AsyncIterator[dict[str, Any]]:
        """First the first token of each, then the whole answers."""
        assert all(one["sampling_params"]["stream_interval"] > 1 for one in calls), "a part for each token"
        shortened = [
            {**one, "sampling_params": {**one["sampling_params"], "max_new_tokens": 1}} for one in calls
        ]
        for index, answer in enumerate(await asyncio.gather(*map(self.answer, shortened))):
            if calls[index]["sampling_params"]["max_new_tokens"] > 1:
                yield answer | ({"index": index} if many else {})
        for index, answer in enumerate(await asyncio.gather(*map(self.answer, calls))):
            yield answer | ({"index": index} if many else {})

    async def answer(self, call: dict[str, Any]) -> dict[str, Any]:
        """One answer, after 2 ms a token."""
        self.misbehave("serve")
        prompt = call["input_ids"] if "input_ids" in call else Tokenizer().encode(call["prompt"])
        count = call["sampling_params"]["max_new_tokens"]
        self.steps = max(self.steps, count)
        if self.behave == "serve-short":
            count -= 1
        await asyncio.sleep(0.002 * count)
        ids = [prompt[-1]] * count if self.behave == "answer-loop" else self.successors(prompt[-1], count)
        logprob = {"answer-nan": float("nan"), "answer-far": -3.0}.get(self.behave, -1.0)
        decoded = -4.0 if self.behave == "answer-decode" else logprob
        remembered = self.remembered(prompt) if self.behave == "serve-remembers" else 0
        self.seen.append([*prompt, *ids])
        meta = {
            "prompt_tokens": len(prompt),
            "completion_tokens": count,
            "cached_tokens": 7 if self.behave == "serve-cached" else remembered,
            "spec_verify_ct": (count - 1) // 3 if self.behave == "serve-drafts" else 0,
            "finish_reason": {"type": "length"},
        }
        if call.get("return_logprob"):
            start = call.get("logprob_start_len", len(prompt))
            meta["input_token_logprobs"] = [(logprob, token, None) for token in prompt[start:]]
            meta["output_token_logprobs"] = [(decoded, token, None) for token in ids]
        if call.get("top_logprobs_num"):
            best = [(-0.5 - place, place, None) for place in range(call["top_logprobs_num"])]
            meta["input_top_logprobs"] = [best for _ in meta["input_token_logprobs"]]
        return {"text": "".join(map(chr, ids)), "output_ids": ids, "meta_info": meta}

    def start_profile(
        self, output_dir: str, activities: list[str], with_stack: bool, record_shapes: bool
    ) -> None:
        """Remember where the trace goes."""
        assert (activities, with_stack, record_shapes) == (["GPU"], False, False)
        self.profiling = Path(output_dir)
        self.steps = 0

    def stop_profile(self) -> None:
        """Write a trace of each rank: a prefill of 20 kernels, and a graph of 20 for every token."""
        self.misbehave("profile")
        for rank in range(self.server_args.tp_size):
            events = made_trace(self.steps, layers=4, step_us=1000.0 * (1 + rank))
            if self.behave == "profile-empty":
                events = []
            data = gzip.compress(json.dumps({"traceEvents": events}).encode())
            if self.behave == "profile-garbage":
                data = gzip.compress(b"[")
            (self.profiling / f"{time.time()}-TP-{rank}.trace.json.gz").write_bytes(data)

    def remembered(self, prompt: list[int]) -> int:
        """Length of the longest sequence that was said to its end and begins the prompt."""
        return max(
            (len(one) for one in self.seen if one == prompt[: len(one)] and len(one) < len(prompt)), default=0
        )

    @staticmethod
    def successors(token: int, count: int) -> list[int]:
        """The `count` ids after `token`."""
        return [(token + step) % VOCABULARY for step in range(1, count + 1)]

    def flush_cache(self) -> Any:
        """Count the call and forget."""
        self.flushes += 1
        self.seen = []
        return SimpleNamespace(success=True)

    def get_server_info(self) -> dict[str, Any]:
        """The arguments, and things JSON cannot hold."""
        return {
            **vars(self.server_args),
            "launch_command": "sglang --api-key s3cret",
            "odd": object(),
            "infinite": float("inf"),
            "sets": {1},
            "flushes": self.flushes,
            "version": "0.0.fake",
            "max_total_num_tokens": KV_TOKENS,
        }
