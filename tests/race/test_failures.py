"""Ends of engines, from the logs and errors that real ones left."""

from __future__ import annotations

import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import pytest

from autolaunch.candidates.candidate import FailureKind
from autolaunch.race.failures import (
    TAIL_LINES,
    Row,
    classify,
    describe_exit,
    known_endings,
    log_tail,
    read_log,
)

TRACEBACK = """\
[2026-11-30 21:19:40] Load weight begin. avail mem=20.1 GB
[2026-11-30 21:19:43] Scheduler hit an exception: Traceback (most recent call last):
  File "scheduler.py", line 6000, in run_scheduler_process
    scheduler = Scheduler(server_args, port_args)
  File "attention_registry.py", line 240, in create_flashattention_v3_backend
    assert (
AssertionError: FlashAttention v3 Backend requires SM>=80 and SM<=90. Please use `--attention-backend flashinfer`.

[2026-11-30 21:19:43] Received sigquit from a child process. It usually means the child failed.
RuntimeError: CUDA out of memory, says somebody who only noticed
""".splitlines()


def test_a_refusal_inside_the_scheduler() -> None:
    failure = classify(stage="load", exit_status=-9, lines=TRACEBACK[:-1], log="x.log")
    assert (failure.stage, failure.kind, failure.rule) == ("load", "rejected", "rejected.requirement")
    assert failure.reason == (
        "SGLang refuses it: FlashAttention v3 Backend requires SM>=80 and SM<=90. "
        "Please use `--attention-backend flashinfer`"
    )
    assert failure.log_tail[0].endswith("Traceback (most recent call last):")
    assert failure.log == "x.log"


@pytest.mark.parametrize("row", known_endings(), ids=lambda row: row.id)
def test_each_row_explains_its_example(row: Row) -> None:
    """Rows are tried in order, so no earlier row may take an example away from the row it belongs to."""
    failure = classify(
        stage="load", exit_status=-9, lines=["Traceback (most recent call last):", row.example]
    )
    assert failure.rule == row.id
    assert failure.kind == row.kind
    assert "{" not in failure.reason
    assert not failure.reason.endswith(".")


def test_rows_are_whole() -> None:
    text = resources.files("autolaunch").joinpath("data/failures.toml").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = tomllib.loads(text)["failure"]
    assert len({row["id"] for row in rows}) == len(rows)
    for row in rows:
        assert row["kind"] in get_args(FailureKind)
        assert row["id"].startswith(f"{row['kind']}.")
        groups = re.compile(row["pattern"]).groupindex.keys() | {"line"}
        assert set(re.findall(r"\{(\w+)\}", row["reason"])) <= groups
        assert all(
            one["kind"] in {"source", "docs", "issue", "measured"} and one["ref"] for one in row["evidence"]
        )


def test_a_hang_is_a_hang_whatever_the_log_says() -> None:
    failure = classify(stage="load", exit_status=None, lines=TRACEBACK, hung="was not ready within 60 s")
    assert (failure.kind, failure.reason) == ("hang", "was not ready within 60 s")


def test_capture_is_a_stage_of_its_own_until_it_ends() -> None:
    lines = ["Capture cuda graph begin. This can take", "Capturing batches (bs=8 avail_mem=9.1 GB)"]
    error = ["RuntimeError: out of luck"]
    assert classify(stage="load", exit_status=1, lines=lines + error).stage == "capture"
    done = [*lines, "Capture cuda graph end. Time elapsed"]
    assert classify(stage="load", exit_status=1, lines=done + error).stage == "load"
    assert classify(stage="serve", exit_status=1, lines=lines + error).stage == "serve"


@pytest.mark.parametrize(
    ("exit_status", "stage", "kind", "reason"),
    [
        (2, "start", "rejected", "ended with exit status 2"),
        (1, "load", "crash", "ended with exit status 1"),
        (-11, "load", "crash", "was ended by SIGSEGV"),
        (
            -9,
            "load",
            "crash",
            "was ended by SIGKILL and had reported no error; the machine may be out of memory",
        ),
        (None, "serve", "crash", "ended, nobody knows how"),
    ],
)
def test_ends_without_a_word(exit_status: int | None, stage: Any, kind: str, reason: str) -> None:
    failure = classify(stage=stage, exit_status=exit_status, lines=["all is well"])
    assert (failure.kind, failure.reason, failure.log_tail) == (kind, reason, ("all is well",))


def test_what_the_engine_reports_counts_where_the_log_is_silent() -> None:
    event = {"type": "RuntimeError", "message": "CUDA out of memory\nTried to allocate"}
    assert classify(stage="load", exit_status=1, lines=[], event=event).kind == "oom"
    event = {"type": "KeyError", "message": "'layers'"}
    assert classify(stage="serve", exit_status=None, lines=[], event=event).reason == "KeyError: 'layers'"


def test_a_bare_exception_says_where() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/site-packages/sglang/srt/model_executor/cpu_graph_runner.py", line 7, in capture',
        "    raise NotImplementedError",
        "NotImplementedError",
    ]
    failure = classify(stage="load", exit_status=-9, lines=lines)
    assert failure.reason == "NotImplementedError in capture (cpu_graph_runner.py)"


def test_the_tail_begins_at_the_first_error_and_is_short() -> None:
    frames = [line for number in range(100) for line in (f'  File "f{number}.py"', "    call()")]
    lines = ["fine"] * 50 + ["Traceback (most recent call last):", *frames, "ValueError: the point", "later"]
    tail = log_tail(lines)
    assert len(tail) <= TAIL_LINES
    assert tail[0] == "Traceback (most recent call last):"
    assert tail[-1] == "ValueError: the point"
    assert "…" in tail
    short = ["fine", "ValueError: the point", *map(str, range(100))]
    assert log_tail(short) == ("ValueError: the point", *map(str, range(TAIL_LINES - 1)))
    assert log_tail(list(map(str, range(100)))) == tuple(map(str, range(60, 100)))


def test_secrets_do_not_pass() -> None:
    lines = ["ValueError: bad token hf_abcdefghijklmnop for --api-key s3cret"]
    failure = classify(stage="load", exit_status=1, lines=lines)
    assert "hf_abcdefghijklmnop" not in str(failure)
    assert "s3cret" not in str(failure)


def test_a_long_reason_is_cut() -> None:
    failure = classify(stage="load", exit_status=1, lines=["ValueError: " + "x" * 5000])
    assert len(failure.reason) == 300


def test_a_huge_log_is_read_at_both_ends(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first\n" + b"x" * 99 + (b"\n" + b"y" * 99) * 40_000 + b"\n\xff last\n")
    lines = read_log(log)
    assert (lines[0], lines[-1]) == ("first", "\ufffd last")
    assert sum(map(len, lines)) < 2_200_000
    assert read_log(tmp_path / "missing") == []


def test_exits_in_words() -> None:
    assert describe_exit(-6) == "was ended by SIGABRT"
    assert describe_exit(-99) == "was ended by signal 99"
