"""What a race writes down: whole lines, no secrets, in a folder that does not grow for ever."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from autolaunch.race import journal as journal_module
from autolaunch.race.journal import KEPT_RUNS, open_journal


def test_a_line_is_an_object_without_secrets(tmp_path: Path) -> None:
    with open_journal(tmp_path / "runs") as journal:
        journal.write("start", id="c0", flags=("--api-key", "opensesame"), folder=tmp_path)
        journal.write("failed", reason="a line\nand another", limit_s=float("inf"))
    text = (journal.folder / "journal.jsonl").read_text()
    first, second = map(json.loads, text.splitlines())
    assert (first["event"], first["id"], first["folder"]) == ("start", "c0", str(tmp_path))
    assert "opensesame" not in text
    assert second["reason"] == "a line\nand another"
    assert first["t"] <= second["t"]


def test_nobody_else_reads_it(tmp_path: Path) -> None:
    with open_journal(tmp_path / "runs") as journal:
        files = (journal.folder, journal.folder / "journal.jsonl")
        assert [stat.S_IMODE(path.stat().st_mode) & 0o077 for path in files] == [0, 0]


def test_a_log_lies_beside_it(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        assert journal.log("c3") == journal.folder / "c3.log"


def test_where_runs_cannot_be_written_the_temporary_folder_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module.tempfile, "tempdir", str(tmp_path))
    with open_journal(Path("/proc/nowhere")) as journal:
        journal.write("race")
    assert journal.folder.parent == tmp_path


def test_the_oldest_runs_go(tmp_path: Path) -> None:
    for number in range(KEPT_RUNS + 5):
        (tmp_path / f"20000101T0000{number:02d}-1").mkdir()
    (tmp_path / "a note.txt").write_text("not a run")
    with open_journal(tmp_path) as journal:
        left = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert len(left) == KEPT_RUNS
    assert left[0] == "20000101T000006-1"
    assert left[-1] == journal.folder.name
    assert (tmp_path / "a note.txt").exists()


def test_what_somebody_else_put_there_stays(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    runs = tmp_path / "runs"
    for number in range(KEPT_RUNS + 5):
        (runs / f"20000101 notes {number}").mkdir(parents=True)
    (runs / "20000101T000000-1").symlink_to(elsewhere)
    before = set(runs.iterdir())
    with open_journal(runs):
        assert before <= set(runs.iterdir())
    assert (elsewhere / "precious").exists()


def test_a_path_deeper_than_python_goes_costs_no_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module.tempfile, "tempdir", str(tmp_path))
    with open_journal(tmp_path.joinpath(*"d" * 1900)) as journal:
        assert journal.folder.parent == tmp_path


def test_a_clock_that_was_set_back_costs_no_journal(tmp_path: Path) -> None:
    for number in range(KEPT_RUNS):
        (tmp_path / f"99990101T0000{number:02d}-1").mkdir()
    with open_journal(tmp_path) as journal:
        journal.write("race")
    assert (journal.folder / "journal.jsonl").read_text()
    assert len(list(tmp_path.iterdir())) == KEPT_RUNS
