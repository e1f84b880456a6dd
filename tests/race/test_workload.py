"""Workloads: what people type, what no server could hold, and what a workload says of itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolaunch.errors import EXIT_USAGE
from autolaunch.race.workload import TOKENS_LIMIT, Workload, WorkloadError, default_workload, parse_workload


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("in=1024,out=256,concurrency=32", (1024, 256, 32)),
        ("concurrency=1, out=8 ,in = 4", (4, 8, 1)),
        ("in=7", (7, 256, 32)),
        ("out=7", (1024, 7, 32)),
        ("concurrency=7", (1024, 256, 7)),
    ],
)
def test_a_shape(text: str, shape: tuple[int, int, int]) -> None:
    workload = parse_workload(text)
    assert (workload.input_tokens, workload.output_tokens, workload.concurrency) == shape
    assert workload.rounds == 1
    assert workload.held_tokens == shape[2] * (shape[0] + shape[1])
    assert parse_workload(workload.words) == workload


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no `in`, `out` or `concurrency` in ``"),
        ("in", "needs a whole number from 1 for `in`, not ``"),
        ("in=1k", "not `1k`"),
        ("in=0", "not `0`"),
        ("in=-1", "not `-1`"),
        ("in=²", "not `²`"),
        ("in=1_0", "not `1_0`"),
        ("in=1,in=2", "gives `in` twice"),
        ("in=1,", "in ``"),
        ("input=1", "in `input=1`"),
        ("in=1234567890", "more for `in` than any server takes"),
        ("in=999999,concurrency=999", "larger than any server holds"),
        ("@", "names no file"),
        ("@/nowhere/x", "`/nowhere/x` cannot be read"),
        ("/nowhere/x.jsonl", "cannot be read"),
        ("in=5,@x.jsonl", "gives `in` and a file"),
        ("@~nobody-of-that-name/x", "cannot be read"),
    ],
)
def test_what_is_no_workload(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r"workload|read") as caught:
        parse_workload(text)
    assert isinstance(caught.value, WorkloadError)
    assert caught.value.exit_code == EXIT_USAGE
    assert said in str(caught.value)


def test_the_largest_that_is_taken() -> None:
    assert parse_workload(f"in={TOKENS_LIMIT - 1},out=1,concurrency=1").held_tokens == TOKENS_LIMIT


@given(
    st.text(max_size=30) | st.from_regex(r"(in|out|concurrency)=\d{1,12}(,(in|out|concurrency)=\d{1,12})*")
)
def test_any_text_is_a_workload_or_an_error(text: str) -> None:
    try:
        assert parse_workload(text).held_tokens <= TOKENS_LIMIT
    except WorkloadError as error:
        assert error.what


@given(st.integers(1, 10_000), st.integers(1, 1000), st.integers(1, 1000), st.permutations([0, 1, 2]))
def test_keys_come_in_any_order(tokens: int, answer: int, slots: int, order: list[int]) -> None:
    parts = [f"in={tokens}", f"out={answer}", f"concurrency={slots}"]
    text = ",".join(parts[place] for place in order)
    assert parse_workload(text) == Workload(tokens, answer, slots, rounds=1)


def test_defaults_of_the_platforms() -> None:
    assert default_workload(on_gpu=False) == Workload() == parse_workload("in=64,out=24,concurrency=4")
    assert default_workload(on_gpu=True) == parse_workload("in=1024,out=256,concurrency=32")


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("context", [None, 3, 60, 1024, 8192])
def test_the_usual_workload_is_the_same_load_where_it_is_typed(on_gpu: bool, context: int | None) -> None:
    usual = default_workload(on_gpu=on_gpu, context=context)
    assert parse_workload(usual.words).to_json() == usual.to_json()


@pytest.mark.parametrize("form", ["{}", "@{}", "concurrency=16,out=9,@{}", "out=9, concurrency=16,@{}"])
def test_a_file(form: str, tmp_path: Path) -> None:
    file = tmp_path / "run=3,x.jsonl"
    file.write_text('{"prompt": "what is in a name"}\n')
    workload = parse_workload(form.format(file))
    assert [turn.text for one in workload.conversations for turn in one.turns] == ["what is in a name"]
    assert workload.input_tokens == 5
    assert (workload.concurrency, workload.output_tokens) == ((16, 9) if "," in form else (32, 256))
    assert workload.held_tokens == workload.concurrency * (5 + workload.output_tokens)


def test_no_word_of_a_conversation_is_shown(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(json.dumps({"turns": ["sekret one", "sekret two"], "max_tokens": 4}) + "\n")
    workload = parse_workload(f"@{file}")
    shown = [repr(workload), repr(workload.conversations), json.dumps(workload.to_json()), workload.words]
    assert not any("sekret" in text for text in shown)
    assert workload.to_json()["turns"] == 2
    assert workload.to_json()["source"]["conversations"] == 1
    assert len(workload.to_json()["source"]["sha256"]) == 64


def test_a_workload_without_a_file_says_nothing_of_one() -> None:
    assert Workload().to_json() == {
        "input_tokens": 64,
        "output_tokens": 24,
        "concurrency": 4,
        "rounds": 1,
    }


@pytest.mark.parametrize(
    ("context", "shape"),
    [(None, (1024, 256)), (8192, (1024, 256)), (1281, (1024, 256)), (1024, (819, 204)), (3, (1, 1))],
)
def test_the_usual_workload_fits_a_small_model(context: int | None, shape: tuple[int, int]) -> None:
    workload = default_workload(on_gpu=True, context=context)
    assert (workload.input_tokens, workload.output_tokens) == shape
    assert workload.beyond(context) is None


def test_a_workload_too_long_for_the_model_says_so() -> None:
    workload = parse_workload("in=4000,out=200,concurrency=2")
    assert workload.beyond(4200) is None
    assert workload.beyond(None) is None
    assert workload.beyond(4096) == (
        "a request of the workload `in=4000,out=200,concurrency=2` has 4200 tokens, and the model takes 4096"
    )
