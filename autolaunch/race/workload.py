"""What a timed window sends: how many prompts at once, how long they are and how much is generated.

A workload is a shape (`in=1024,out=256,concurrency=32`), or a file of the user's own conversations that is
read by `race.prompts_file`.  The text of a conversation leaves no trace: neither what a workload prints nor
its JSON holds any of it, only counts and the digest of the file.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from autolaunch.race.conversations import Conversation, Source, Turn, WorkloadError
from autolaunch.race.prompts_file import read_conversations

__all__ = [
    "Conversation",
    "Source",
    "Turn",
    "Workload",
    "WorkloadError",
    "default_workload",
    "parse_workload",
    "random_prompts",
]

FALLBACK_VOCAB_SIZE = 1000
"""Where an engine does not say: every tokenizer of a served model has more."""
DEFAULT_INPUT_TOKENS, DEFAULT_OUTPUT_TOKENS, DEFAULT_CONCURRENCY = 1024, 256, 32
"""Where a workload says nothing, on GPUs: a chat with a page of context, on a server that is in use."""
TOKENS_LIMIT = 1 << 24
"""Of all prompts and answers at once; no cache of keys and values holds more."""
KEYS = {"in": "input_tokens", "out": "output_tokens", "concurrency": "concurrency"}
_DIGITS_LIMIT = 9


@dataclass(frozen=True, slots=True)
class Workload:
    """Closed-loop load: `concurrency` prompts at once, all of one shape, or conversations of its mean."""

    input_tokens: int = 64
    """Tokens of each prompt."""
    output_tokens: int = 24
    """Tokens generated for each prompt, forced."""
    concurrency: int = 4
    rounds: int = 1
    """Prompts sent per slot; the engine keeps the slots full.  A yardstick may send more."""
    conversations: tuple[Conversation, ...] = field(default=(), repr=False)
    """Empty: random prompts of the shape."""
    source: Source | None = None

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens", "concurrency", "rounds"):
            if getattr(self, name) < 1:
                raise ValueError(f"a workload needs at least 1 for `{name}`, not {getattr(self, name)}")

    @property
    def prompts(self) -> int:
        """Prompts in one window."""
        return self.concurrency * self.rounds

    @property
    def held_tokens(self) -> int:
        """Tokens that the cache of keys and values must hold for all slots at once."""
        longest = self.input_tokens + self.output_tokens
        if (
            self.conversations
        ):  # the mean of the longest, since one long conversation does not fill every slot
            longest = max(longest, round(fmean(one.held_tokens for one in self.conversations)))
        return self.concurrency * longest

    def beyond(self, context: int | None) -> str | None:
        """Why no request of this shape fits into a model that takes `context` tokens; None where it does."""
        longest = self.input_tokens + self.output_tokens
        if context is None or longest <= context:
            return None
        return f"a request of the workload `{self.words}` has {longest} tokens, and the model takes {context}"

    @property
    def words(self) -> str:
        """This workload as a person types it, or what may be said of the file."""
        shape = f"in={self.input_tokens},out={self.output_tokens},concurrency={self.concurrency}"
        if self.source is None:
            return shape
        turns = sum(len(one.turns) for one in self.conversations)
        return f"{len(self.conversations)} conversations with {turns} turns, about {shape}"

    def to_json(self) -> dict[str, Any]:
        """This workload as plain JSON values, without a word of any conversation."""
        shape: dict[str, Any] = {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "concurrency": self.concurrency,
            "rounds": self.rounds,
        }
        if self.source is not None:
            shape["conversations"] = len(self.conversations)
            shape["turns"] = sum(len(one.turns) for one in self.conversations)
            shape["source"] = {"sha256": self.source.sha256, "conversations": self.source.conversations}
        return shape


def default_workload(*, on_gpu: bool, context: int | None = None) -> Workload:
    """What is sent where the user says nothing; on a CPU little, since every token takes long.

    A model that takes fewer tokens than that, `context` of them, is sent as many as nearly fill it: old
    versions of SGLang leave one free.
    """
    usual = Workload()
    if on_gpu:
        usual = Workload(DEFAULT_INPUT_TOKENS, DEFAULT_OUTPUT_TOKENS, DEFAULT_CONCURRENCY)
    if context is None or context < 3 or usual.beyond(context - 1) is None:
        return usual
    output_tokens = max(1, context * usual.output_tokens // (usual.input_tokens + usual.output_tokens))
    return replace(usual, input_tokens=context - 1 - output_tokens, output_tokens=output_tokens)


def parse_workload(text: str) -> Workload:
    """The workload that `text` asks for; WorkloadError, a ValueError, says what is wrong.

    `in=1024,out=256,concurrency=32` in any order, each with a default; `FILE.jsonl` or `@FILE`, the user's
    conversations; or `concurrency=16,out=128,@FILE`, where `out` is for turns that do not say.
    """
    shape, path = split_workload(text)
    if path is None:
        return shape_workload(parse_shape(shape, text))
    counts = parse_shape(shape, text) if shape else {}
    if "input_tokens" in counts:
        raise WorkloadError(
            f"`--workload {text}` gives `in` and a file", because=("the file says how long prompts are",)
        )
    return conversations_workload(path, counts)


def split_workload(text: str) -> tuple[str, str | None]:
    """The `KEY=N` part of `text` and the file it names, if any."""
    text = text.strip()
    if text.startswith("@"):
        return "", text[1:]
    if text.endswith((".jsonl", ".json", ".ndjson")) and ",@" not in text:
        return "", text
    shape, at, path = text.partition(",@")
    return (shape, path) if at else (text, None)


def parse_shape(shape: str, text: str) -> dict[str, int]:
    """The fields of a workload that `shape` sets; `text` is the whole of what was typed."""
    found: dict[str, int] = {}
    hint = "write it like `in=1024,out=256,concurrency=32`, or name a `.jsonl` file"
    for part in shape.split(","):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in KEYS:
            raise WorkloadError(
                f"`--workload {text}` has no `in`, `out` or `concurrency` in `{part}`", hint=hint
            )
        if KEYS[name] in found:
            raise WorkloadError(f"`--workload {text}` gives `{name}` twice", hint=hint)
        if not (value.isascii() and value.isdecimal() and int(value[:_DIGITS_LIMIT]) > 0):
            raise WorkloadError(
                f"`--workload {text}` needs a whole number from 1 for `{name}`, not `{value}`"
            )
        if len(value) > _DIGITS_LIMIT:
            raise WorkloadError(f"`--workload {text}` gives more for `{name}` than any server takes")
        found[KEYS[name]] = int(value)
    return found


def shape_workload(counts: dict[str, int]) -> Workload:
    """A workload of random prompts, one prompt a slot, as long as `counts` say."""
    defaults = default_workload(on_gpu=True)
    workload = Workload(
        counts.get("input_tokens", defaults.input_tokens),
        counts.get("output_tokens", defaults.output_tokens),
        counts.get("concurrency", defaults.concurrency),
    )
    return within_limits(workload)


def conversations_workload(path: str, counts: dict[str, int]) -> Workload:
    """A workload of the conversations in `path`, with their mean shape."""
    conversations, source = read_conversations(path, counts.get("output_tokens", DEFAULT_OUTPUT_TOKENS))
    workload = Workload(
        input_tokens=round(fmean(count for one in conversations for count in one.prompt_tokens)),
        output_tokens=round(fmean(turn.output_tokens for one in conversations for turn in one.turns)),
        concurrency=counts.get("concurrency", DEFAULT_CONCURRENCY),
        conversations=conversations,
        source=source,
    )
    return within_limits(workload)


def within_limits(workload: Workload) -> Workload:
    """`workload`, unless no server could hold it."""
    if workload.held_tokens > TOKENS_LIMIT:
        raise WorkloadError(
            f"the workload `{workload.words}` is larger than any server holds",
            because=(
                f"all slots together are {workload.held_tokens} tokens, and {TOKENS_LIMIT} is the limit",
            ),
        )
    return workload


def random_prompts(count: int, tokens: int, vocab_size: int | None, seed: int) -> list[list[int]]:
    """`count` prompts of `tokens` random token ids below `vocab_size`, the same for the same `seed`.

    The first id of each is its own, so no two prompts of one call share even a prefix of one token while
    the vocabulary allows it.  The lowest and highest ids, where special tokens usually live, are left out.
    """
    generator = random.Random(seed)  # noqa: S311 - load, not a secret
    low, high = _ordinary_ids(vocab_size or FALLBACK_VOCAB_SIZE)
    width = high - low
    offset = generator.randrange(width)
    prompts = []
    for number in range(count):
        first = low + (offset + number) % width
        prompts.append([first, *(generator.randrange(low, high) for _ in range(tokens - 1))])
    return prompts


def _ordinary_ids(vocab_size: int) -> tuple[int, int]:
    """A range of ids that are words, not control tokens: special ids cluster at both ends."""
    margin = min(256, vocab_size // 8)
    low, high = margin, vocab_size - margin
    return (low, high) if high - low >= 2 else (0, max(vocab_size, 2))
