"""Files of prompts: their forms, their faults by line, and that no message quotes them."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from autolaunch.race import prompts_file
from autolaunch.race.conversations import Conversation, WorkloadError
from autolaunch.race.prompts_file import read_conversations


def written(tmp_path: Path, *rows: Any) -> str:
    """A file with a line for each of `rows`; texts are lines as they are."""
    path = tmp_path / "prompts.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def turns_of(conversation: Conversation) -> list[tuple[str, int]]:
    """Texts and lengths of the answers."""
    return [(turn.text, turn.output_tokens) for turn in conversation.turns]


def said(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    """Messages of who said what."""
    return [{"role": who, "content": what} for who, what in pairs]


@pytest.mark.parametrize(
    ("row", "turns"),
    [
        ({"prompt": "one"}, [("one", 50)]),
        ({"prompt": "one", "max_tokens": 3}, [("one", 3)]),
        ({"prompt": "one", "max_tokens": None, "output_tokens": 4}, [("one", 4)]),
        ({"turns": ["a", "b"], "output_tokens": 2}, [("a", 2), ("b", 2)]),
        ({"messages": said(("user", "a"))}, [("a", 50)]),
        ({"messages": said(("system", "s"), ("user", "a"))}, [("s\n\na", 50)]),
        ({"messages": said(("user", "a"), ("assistant", "12345678"), ("user", "b"))}, [("a", 2), ("b", 50)]),
        ({"messages": said(("user", "a"), ("assistant", "1"), ("user", "b")), "max_tokens": 9}, [("a", 9), ("b", 9)]),
        ({"messages": said(("user", "a"), ("assistant", "x"), ("assistant", "y"))}, [("a", 1)]),
        ({"messages": said(("user", "a"), ("assistant", ""), ("tool", "t"))}, [("a", 1), ("t", 50)]),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "p"}, {"type": "text", "text": "q"}]}]}, [("p\nq", 50)]),
        ({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b" * 40}]}, [("a", 10)]),
        ({"conversations": [{"from": "gpt", "value": "hi"}, {"from": "human", "value": "a"}]}, [("hi\n\na", 50)]),
        ({"id": 3, "prompt": "one", "extra": {"x": [1]}}, [("one", 50)]),
    ],
)  # fmt: skip
def test_the_forms_of_a_line(row: dict[str, Any], turns: list[tuple[str, int]], tmp_path: Path) -> None:
    conversations, source = read_conversations(written(tmp_path, row), 50)
    assert [turns_of(one) for one in conversations] == [turns]
    assert source.conversations == 1


def test_a_turn_is_sent_with_all_before_it(tmp_path: Path) -> None:
    (one,), _ = read_conversations(written(tmp_path, {"turns": ["a" * 40, "b" * 20], "max_tokens": 7}), 50)
    assert one.prompt_tokens == (10, 10 + 7 + 5)
    assert one.held_tokens == 10 + 7 + 5 + 7


BAD = [
    ("sekret", "it is not JSON: Expecting value at column 1"),
    ('{"prompt": "sekret"', "it is not JSON"),
    ('["sekret"]', "it is JSON, but no object"),
    ("3", "no object"),
    ('{"x": "sekret"}', "none of `prompt`, `messages`, `turns` and `conversations`"),
    ('{"prompt": ""}', "`prompt` is not a text of one or more words"),
    ('{"prompt": " \\n"}', "`prompt` is not a text"),
    ('{"prompt": 3}', "`prompt` is not a text"),
    ('{"prompt": null}', "`prompt` is not a text"),
    ('{"prompt": "sekret", "max_tokens": 0}', "`max_tokens` is not a whole number from 1"),
    ('{"prompt": "sekret", "max_tokens": true}', "`max_tokens` is not"),
    ('{"prompt": "sekret", "output_tokens": 1e3}', "`output_tokens` is not"),
    ('{"prompt": "sekret \\ud800"}', "half of a surrogate pair"),
    ('{"turns": []}', "`turns` is not a list of one or more"),
    ('{"turns": "sekret"}', "`turns` is not a list"),
    ('{"turns": ["a", 3]}', "`turns[1]` is not a text"),
    ('{"messages": ["sekret"]}', "`messages[0]` is no object"),
    ('{"messages": [{"content": "sekret"}]}', "`messages[0].role` names nobody"),
    ('{"messages": [{"role": "sekret", "content": "a"}]}', "`messages[0].role` names nobody"),
    ('{"messages": [{"role": "assistant", "content": "sekret"}]}', "nobody but the model speaks"),
    ('{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "sekret"}]}]}', "a part that is not text"),
    ("[" * 100_000, "nested too deep"),
    ('{"max_tokens": ' + "9" * 5000 + "}", "too long a number"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "why"), BAD, ids=range(len(BAD)))
def test_a_bad_line_is_named_and_not_quoted(line: str, why: str, tmp_path: Path) -> None:
    path = written(tmp_path, {"prompt": "fine"}, "", line)
    with pytest.raises(WorkloadError) as caught:
        read_conversations(path, 50)
    assert caught.value.what == f"line 3 of `{path}` is no conversation"
    assert why in caught.value.because[0]
    assert caught.value.hint
    assert "sekret" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_a_list_is_no_jsonl(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="jq -c"):
        read_conversations(written(tmp_path, [{"prompt": "a"}]), 50)
    with pytest.raises(WorkloadError, match="jq -c"):
        read_conversations(written(tmp_path, "[", '{"prompt": "a"}', "]"), 50)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n\xff\n')
    with pytest.raises(WorkloadError, match=r"(?s)line 2 .* it is not UTF-8"):
        read_conversations(str(path), 50)


def test_a_mark_of_byte_order_and_no_last_newline(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a"}\r\n\r\n{"prompt": "b"}')
    assert [turns_of(one)[0][0] for one in read_conversations(str(path), 50)[0]] == ["a", "b"]


@pytest.mark.parametrize("content", ["", "\n\n  \n"])
def test_a_file_of_nothing(content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(WorkloadError, match="holds no conversation"):
        read_conversations(str(path), 50)


def test_what_is_no_plain_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, Path("/dev/zero")):
        with pytest.raises(WorkloadError, match=r"cannot be read|is not a file"):
            read_conversations(str(path), 50)


@pytest.mark.parametrize(
    ("limit", "value", "why"),
    [
        ("FILE_LIMIT_BYTES", 100, "is larger than 100 B"),
        ("LINE_LIMIT_BYTES", 100, "line 2 of .* is longer than 100 B"),
        ("LINES_LIMIT", 1, "has more than 1 lines"),
    ],
)
def test_limits(limit: str, value: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts_file, limit, value)
    with pytest.raises(WorkloadError, match=why):
        read_conversations(written(tmp_path, {"prompt": "a"}, {"prompt": "b" * 100}), 50)


def test_a_long_file_is_drawn_from_evenly_and_always_alike(tmp_path: Path) -> None:
    path = written(tmp_path, *({"prompt": str(n)} for n in range(10_000)))
    kept, source = read_conversations(path, 50)
    numbers = [int(one.turns[0].text) for one in kept]
    assert (len(kept), source.conversations) == (prompts_file.KEPT_LIMIT, 10_000)
    assert numbers == sorted(numbers), "neighbours stay neighbours"
    assert 4_500 < sum(numbers) / len(numbers) < 5_500
    assert read_conversations(path, 50) == (kept, source)


def test_the_digest_tells_files_apart(tmp_path: Path) -> None:
    _, one = read_conversations(written(tmp_path, {"prompt": "a"}), 50)
    _, other = read_conversations(written(tmp_path, {"prompt": "b"}), 50)
    assert one != other


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["prompt", "messages", "turns", "conversations", "role", "content", "from", "value", "text"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(line=JSON.map(json.dumps) | st.text(max_size=20))
@example(line='{"messages": [{"role": "assistant", "content": null}, {"role": "user", "content": "a"}]}')
def test_any_line_is_a_conversation_or_an_error(line: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(line.encode(errors="surrogatepass"))
    try:
        conversations, _ = read_conversations(str(path), 50)
    except WorkloadError as error:
        assert error.what
        return
    for one in conversations:
        assert one.turns and all(turn.text.strip() and turn.output_tokens >= 1 for turn in one.turns)
        assert one.held_tokens > 0


def test_a_hundred_thousand_lines_in_seconds(tmp_path: Path) -> None:
    words = random.Random(0).choices(["alpha", "beta"], k=50)
    path = written(tmp_path, *({"turns": [" ".join(words)] * 3} for _ in range(100_000)))
    assert read_conversations(path, 50)[1].conversations == 100_000
