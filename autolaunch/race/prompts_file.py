"""A JSONL file of the user's own prompts, turned into conversations; read as a stream, within limits.

A line is one object, in any of the forms in use: `{"prompt": "…"}`, `{"messages": [{"role", "content"}]}`,
`{"turns": ["…"]}` or `{"conversations": [{"from", "value"}]}`, with `max_tokens` or `output_tokens` where
the length of the answers is known.  Recorded answers are not sent: they only say how long the model's own
shall be.  No message quotes what the file holds.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from autolaunch.race.conversations import Conversation, Source, Turn, WorkloadError, tokens_of
from autolaunch.units import format_bytes

FILE_LIMIT_BYTES = 256 << 20
LINE_LIMIT_BYTES = 16 << 20
LINES_LIMIT = 1_000_000
KEPT_LIMIT = 1024
"""Conversations that a workload keeps, drawn evenly from the file: a race sends no more."""
KEPT_LIMIT_BYTES = 64 << 20
ANSWER_LIMIT_TOKENS = 1 << 20
_USERS = frozenset({"user", "human", "system", "developer", "tool", "function", "observation"})
_MODELS = frozenset({"assistant", "gpt", "model", "chatgpt", "bing", "bard"})
_HINT = 'a line is like {"prompt": "…"} or {"messages": [{"role": "user", "content": "…"}]}'


class _BadLineError(Exception):
    """Why a line cannot be used."""


def read_conversations(path: str, output_tokens: int) -> tuple[tuple[Conversation, ...], Source]:
    """The conversations in `path`; answers are `output_tokens` long where nothing says.

    WorkloadError names the first line that cannot be used, and why.
    """
    digest = hashlib.sha256()
    kept = _Sample()
    with _open(path) as file:
        for number, line in _lines(file, path):
            digest.update(line)
            if line.strip():
                try:
                    kept.offer(_conversation(line.strip(), output_tokens))
                except _BadLineError as error:
                    what = f"line {number} of `{path}` is no conversation"
                    raise WorkloadError(what, because=(str(error),), hint=_hint(line)) from None
    if not kept.offered:
        raise WorkloadError(
            f"`{path}` holds no conversation", because=("it has no line with words",), hint=_HINT
        )
    return kept.in_order(), Source(digest.hexdigest(), kept.offered)


class _Sample:
    """At most `KEPT_LIMIT` of all that is offered, each with the same chance, the same for the same file."""

    def __init__(self) -> None:
        self.offered = 0
        self._kept: list[tuple[int, Conversation]] = []
        self._random = random.Random(0)  # noqa: S311 - a sample, not a secret
        self._bytes = 0

    def offer(self, conversation: Conversation) -> None:
        """Count one conversation, and keep it or not."""
        number, self.offered = self.offered, self.offered + 1
        if len(self._kept) < KEPT_LIMIT and self._bytes < KEPT_LIMIT_BYTES:
            self._kept.append((number, conversation))
            self._bytes += sum(len(turn.text) for turn in conversation.turns)
            return
        place = self._random.randrange(self.offered)
        if place < len(self._kept):
            self._kept[place] = (number, conversation)

    def in_order(self) -> tuple[Conversation, ...]:
        """What was kept, as the file has it: neighbours may share a prefix."""
        return tuple(conversation for _, conversation in sorted(self._kept, key=lambda one: one[0]))


def _open(path: str) -> BinaryIO:
    """`path` for reading, a plain file of bearable size."""
    if not path.strip() or "\0" in path:
        raise WorkloadError("`--workload` names no file", hint="name one: `--workload @prompts.jsonl`")
    try:
        where = Path(path).expanduser()
        # Not blocking, since opening a pipe that nobody writes to would wait for ever.
        file = os.fdopen(os.open(where, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise WorkloadError(f"`{path}` cannot be read", because=(str(reason),)) from None
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        file.close()
        raise WorkloadError(f"`{path}` is not a file", because=("it is a folder, a pipe or a device",))
    if status.st_size > FILE_LIMIT_BYTES:
        file.close()
        raise _too_large(path)
    return file


def _too_large(path: str) -> WorkloadError:
    """The error about a file beyond the limit."""
    return WorkloadError(
        f"`{path}` is larger than {format_bytes(FILE_LIMIT_BYTES)}",
        because=(f"a race sends a few hundred prompts, and keeps {KEPT_LIMIT}",),
        hint=f"take a part of it: `shuf -n {KEPT_LIMIT} FILE > part.jsonl`",
    )


def _lines(file: BinaryIO, path: str) -> Iterator[tuple[int, bytes]]:
    """The lines of `file` with their numbers; WorkloadError where they are too many or too long."""
    number = size = 0
    try:
        while line := file.readline(LINE_LIMIT_BYTES + 1):
            number, size = number + 1, size + len(line)
            if len(line) > LINE_LIMIT_BYTES:
                what = f"line {number} of `{path}` is longer than {format_bytes(LINE_LIMIT_BYTES)}"
                raise WorkloadError(what, hint="one conversation a line, as `jq -c '.[]'` writes them")
            if size > FILE_LIMIT_BYTES:  # it grew while it was read
                raise _too_large(path)
            if number > LINES_LIMIT:
                raise WorkloadError(f"`{path}` has more than {LINES_LIMIT} lines")
            yield number, line
    except OSError as error:
        raise WorkloadError(f"`{path}` cannot be read", because=(str(error.strerror),)) from None


def _hint(line: bytes) -> str:
    """What helps with a line that is no conversation."""
    if line.lstrip(b"\xef\xbb\xbf \t").startswith(b"["):
        return "one object a line: `jq -c '.[]' FILE > FILE.jsonl` makes lines of a list"
    return _HINT


def _conversation(line: bytes, output_tokens: int) -> Conversation:
    """The conversation of one line; _BadLineError without a word of what it holds."""
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise _BadLineError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise _BadLineError(f"it is not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError):
        raise _BadLineError("it is JSON that is nested too deep or holds too long a number") from None
    if not isinstance(row, dict):
        raise _BadLineError("it is JSON, but no object")
    told = _length(row)
    turns = _turns(row, told or output_tokens, fixed=told is not None)
    for turn in turns:
        try:
            turn.text.encode()
        except UnicodeEncodeError:
            raise _BadLineError("a text holds half of a surrogate pair") from None
    return Conversation(turns)


def _length(row: dict[str, Any]) -> int | None:
    """How long the answers of `row` shall be, where it says."""
    for key in ("max_tokens", "output_tokens"):
        value = row.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= ANSWER_LIMIT_TOKENS:
            raise _BadLineError(f"`{key}` is not a whole number from 1 to {ANSWER_LIMIT_TOKENS}")
        return value
    return None


def _turns(row: dict[str, Any], output_tokens: int, *, fixed: bool) -> tuple[Turn, ...]:
    """The turns of `row`, by the one of its forms that it has."""
    if "prompt" in row:
        return (Turn(_text(row["prompt"], "prompt"), output_tokens),)
    if "turns" in row:
        texts = _list(row["turns"], "turns")
        return tuple(Turn(_text(text, f"turns[{n}]"), output_tokens) for n, text in enumerate(texts))
    for key, who, what in (("messages", "role", "content"), ("conversations", "from", "value")):
        if key in row:
            said = [_message(one, f"{key}[{n}]", who, what) for n, one in enumerate(_list(row[key], key))]
            return _spoken(said, output_tokens, fixed=fixed)
    raise _BadLineError("it has none of `prompt`, `messages`, `turns` and `conversations`")


def _spoken(said: list[tuple[bool, str]], output_tokens: int, *, fixed: bool) -> tuple[Turn, ...]:
    """Turns of messages, each with whether the model said it: what comes between answers is one turn."""
    if all(by_model for by_model, _ in said):
        raise _BadLineError("nobody but the model speaks")
    turns: list[Turn] = []
    waiting: list[str] = []
    heard = False
    for by_model, text in said:
        if not by_model or not heard:  # an opening of the model's is part of the first prompt
            waiting += [text] if text else []
            heard = heard or not by_model
        elif waiting:
            length = output_tokens if fixed else min(max(1, tokens_of(text)), ANSWER_LIMIT_TOKENS)
            turns.append(Turn("\n\n".join(waiting), length))
            waiting = []
    if waiting:
        turns.append(Turn("\n\n".join(waiting), output_tokens))
    return tuple(turns)


def _message(value: object, where: str, who: str, what: str) -> tuple[bool, str]:
    """Whether the model said the message `value`, and its text."""
    if not isinstance(value, dict):
        raise _BadLineError(f"`{where}` is no object")
    speaker = value.get(who)
    if not isinstance(speaker, str) or speaker.lower() not in _USERS | _MODELS:
        raise _BadLineError(f"`{where}.{who}` names nobody who speaks in a conversation")
    by_model = speaker.lower() in _MODELS
    if by_model and value.get(what) in (None, "", []):
        return True, ""  # an answer that only called a tool
    return by_model, _text(value.get(what), f"{where}.{what}")


def _list(value: object, where: str) -> list[Any]:
    """`value`, a list that is not empty."""
    if not isinstance(value, list) or not value:
        raise _BadLineError(f"`{where}` is not a list of one or more")
    return value


def _text(value: object, where: str) -> str:
    """`value`, a text; a list of parts that are all text will do, as OpenAI's interface has it."""
    if isinstance(value, list) and value:
        parts = [part.get("text") if isinstance(part, dict) else None for part in value]
        if not all(isinstance(part, str) for part in parts):
            raise _BadLineError(f"`{where}` has a part that is not text")
        value = "\n".join(map(str, parts))
    if not isinstance(value, str) or not value.strip():
        raise _BadLineError(f"`{where}` is not a text of one or more words")
    return value
