"""Whatever happens while it is decided, the original starts; nothing of the decision is left."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.launch.harness import Launch, environment, launch

FAULTS = {
    "raises": "the stage `detect` raised `KeyError`: 'nothing'",
    "explains": "no luck; starting the original command\n  because the dice fell badly\n  evidence: dice",
    "exits": "the stage `start` raised `SystemExit`: 7",
    "interrupts": "raised `KeyboardInterrupt`",
    "recurses": "raised `RecursionError`",
    "exits_at_once": "the stage `start` ended with exit status 7",
    "segfaults": "the stage `start` was ended by SIGSEGV",
    "hangs": "the stage `race` took longer than 0.5 s",
    "hangs_deaf": "the stage `race` took longer than 0.5 s",
    "stops": "the stage `race` took longer than 0.5 s",
    "floods": "the stage `race` reported nonsense: 8",
    "floods_with_stages": "the stage `race` reported nonsense: ",
    "half_a_line": "ended with exit status 0, in the middle of a report",
    "nonsense": r"reported nonsense: b'\x00\xff{]'",
    "wrong_shape": 'reported nonsense: b\'{"argv": "/bin/true"',
    "no_pipe": "the stage `start` stopped reporting",
    "wrong_type": "the stages ended in a `str` and no decision",
    "bad_interpreter": "could not execute `/nowhere/python`",
    "keeps_pipe": "ended with exit status 5",
    "watched_by_nobody": "the watcher did not start: No such file or directory",
    "watched_briefly": "did not become the watcher",
    "guarded_hang": "the stage `race` took longer than 0.5 s",
    "broken_fork": "the launcher failed with `BlockingIOError`: [Errno 11] no more processes",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_stage_ends_in_the_original_with_a_warning(fault: str, tmp_path: Path) -> None:
    outcome = launch(fault, tmp_path / "probe", "--exit", "5")
    assert outcome.server == "original"
    assert (outcome.code, outcome.stdout) == (5, "")
    assert f"{FAULTS[fault]}" in outcome.stderr
    assert outcome.stderr.startswith("warning: ")
    assert "; starting the original command" in outcome.stderr
    assert outcome.probe is not None
    assert (outcome.probe["pid"], outcome.probe["children"]) == (outcome.pid, {})


@pytest.mark.parametrize("method", ["fork", "wait_for_outcome", "settle", "_await_census", "_listen"])
@pytest.mark.parametrize("decision", ["broken_launcher"])
def test_a_fault_of_the_launcher_itself_ends_in_the_original_too(
    method: str, decision: str, tmp_path: Path
) -> None:
    outcome = launch(decision, tmp_path / "probe", env=environment(BREAK=method))
    assert (outcome.server, outcome.code) == ("original", 0)
    assert "warning: the launcher failed with `RuntimeError`: planted" in outcome.stderr


@pytest.mark.parametrize(("fault", "code"), [("raises", 1), ("explains", 1), ("hangs", 1), ("segfaults", 1)])
def test_strict_makes_a_fault_an_error(fault: str, code: int, tmp_path: Path) -> None:
    outcome = launch(fault, tmp_path / "probe", "--strict")
    assert (outcome.server, outcome.code) == (None, code)
    assert outcome.stderr.startswith("error: ")
    assert "starting the original" not in outcome.stderr


def test_an_original_that_cannot_be_executed_is_the_only_error_left(tmp_path: Path) -> None:
    outcome = launch("nonexistent_original", tmp_path / "probe")
    assert (outcome.server, outcome.code) == (None, 1)
    assert "error: could not execute `/nowhere/python`\n  because no such file or directory" in outcome.stderr


def test_strict_does_not_put_the_original_in_the_place_of_a_choice(tmp_path: Path) -> None:
    outcome = launch("bad_interpreter", tmp_path / "probe", "--strict")
    assert (outcome.server, outcome.code) == (None, 1)
    assert outcome.stderr.startswith("error: could not execute `/nowhere/python`")


@pytest.mark.parametrize(
    ("decision", "server"),
    [("choice", "choice"), ("hangs", "original"), ("keeps_pipe", "original"), ("guarded_choice", "choice")],
)
def test_a_python_that_was_built_without_pidfds(decision: str, server: str, tmp_path: Path) -> None:
    assert launch(decision, tmp_path / "probe", env=environment(NO_PIDFD="1")).server == server


def test_a_choice_that_cannot_be_executed_leaves_no_watcher(tmp_path: Path) -> None:
    outcome = launch("watched_bad_interpreter", tmp_path / "probe")
    assert outcome.server == "original"
    assert outcome.probe is not None
    assert outcome.probe["children"] == {}


def test_the_choice_is_started_with_its_variables_and_nothing_else(tmp_path: Path) -> None:
    outcome = launch("choice", tmp_path / "probe", "--exit", "3")
    assert (outcome.server, outcome.code) == ("choice", 3)
    assert outcome.stderr == "the choice is faster\n"
    assert outcome.probe is not None
    assert "CHOSEN=1" in outcome.probe["environ"]
    assert outcome.probe["children"] == {}


def test_nothing_of_the_decision_reaches_stdout_or_takes_stdin(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"for the server")
    os.close(write_end)
    outcome = launch("chatty", tmp_path / "probe", "--stdin", stdin=read_end)
    assert outcome.stdout == ""
    assert outcome.stderr == "this is for stderr\nand this\nthe choice is faster\n"
    assert Path(f"{tmp_path / 'probe'}.stdin").read_text() == "for the server"


def test_engines_are_gone_before_the_server_starts(tmp_path: Path) -> None:
    for decision in ("guarded_choice", "guarded_hang"):
        target = tmp_path / decision
        assert launch(decision, target).server
        ended = Path(f"{target}.guard-ended").stat().st_mtime
        assert ended < target.stat().st_mtime


def test_what_the_decision_left_running_is_ended(tmp_path: Path) -> None:
    outcome = launch("leaves_process", tmp_path / "probe", "--sleep", "0.1")
    assert outcome.server == "choice"


def test_the_watcher_is_the_only_child_and_in_a_group_of_its_own(tmp_path: Path) -> None:
    outcome = launch("watched", tmp_path / "probe", "--exit", "4")
    assert (outcome.server, outcome.code) == ("choice", 4)
    assert outcome.probe is not None
    assert len(outcome.probe["children"]) == 1
    assert "pidfd_open" in next(iter(outcome.probe["children"].values()))


@pytest.mark.parametrize("decision", ["choice", "raises", "watched"])
def test_dry_run_prints_the_command_as_the_last_line(decision: str, tmp_path: Path) -> None:
    outcome = launch(decision, tmp_path / "probe", "--dry-run", "an argument")
    assert (outcome.server, outcome.code) == (None, 0)
    subprocess.run(["sh", "-c", outcome.stdout.splitlines()[-1]], check=True, cwd="/", env=environment())
    state = (tmp_path / "probe").read_text()
    assert f'["{"original" if decision == "raises" else "choice"}", "an argument"]' in state


@pytest.mark.parametrize("closing", ["2>&-", "1>&-", "0<&-", "0<&- 1>&- 2>&-", "2>/dev/full", "1>/dev/full"])
@pytest.mark.parametrize("decision", ["raises", "guarded_choice", "watched", "chatty"])
def test_closed_and_full_descriptors_do_not_matter(closing: str, decision: str, tmp_path: Path) -> None:
    if decision == "chatty" and "full" in closing:
        pytest.skip("its own writing fails, which is a fault of the decision like any other")
    prefix = ["sh", "-c", f'exec "$@" {closing}', "sh"]
    outcome = launch(decision, tmp_path / "probe", prefix=prefix)
    assert outcome.code == 0
    assert outcome.server == ("original" if decision == "raises" else "choice")
    assert outcome.probe is not None
    for number in closing.split():
        if number.endswith("&-"):
            assert number[0] not in outcome.probe["fds"]


def test_a_reader_of_stderr_that_has_gone_does_not_matter(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    outcome = launch("raises", tmp_path / "probe", stderr=write_end)
    assert (outcome.server, outcome.code) == ("original", 0)


def test_no_descriptor_left_ends_in_the_original(tmp_path: Path) -> None:
    prefix = ["sh", "-c", 'ulimit -n 5; exec "$@"', "sh"]
    outcome = launch("choice", tmp_path / "probe", prefix=prefix)
    assert (outcome.server, outcome.code) == ("original", 0)
    assert "Too many open files" in outcome.stderr


def test_a_choice_that_is_too_long_for_the_kernel_ends_in_the_original(tmp_path: Path) -> None:
    started = Launch("too_long", tmp_path / "probe")
    outcome = started.wait()
    assert outcome.server == "original"
    assert "because argument list too long" in outcome.stderr
