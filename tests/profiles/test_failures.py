"""What failed here: kept by many at once, bounded, and never a reason not to start."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autolaunch.profiles.failed import Recalled
from autolaunch.profiles.failures import recall, remember
from autolaunch.profiles.failures_file import FILE, KEPT, SIZE_LIMIT_BYTES
from tests.profiles.made import SETTING, failed


def test_what_is_kept_is_recalled(tmp_path: Path) -> None:
    store = tmp_path / "new" / "store"
    assert remember(store, [failed()])
    assert recall([store]).failures == (failed(),)
    assert recall([store]).doubts == ()
    assert (store / FILE).stat().st_mode & 0o777 == 0o600
    assert store.stat().st_mode & 0o777 == 0o700


def test_nothing_is_no_doubt(tmp_path: Path) -> None:
    assert recall([tmp_path / "nowhere", tmp_path]) == Recalled()
    assert not remember(tmp_path / "nowhere", [])
    assert not (tmp_path / "nowhere").exists()


def test_the_same_failure_is_one_row_and_counts(tmp_path: Path) -> None:
    remember(tmp_path, [failed()])
    before = (tmp_path / FILE).stat().st_mtime_ns
    assert not remember(tmp_path, [failed()]), "the same start, told once more, is nothing new"
    assert (tmp_path / FILE).stat().st_mtime_ns == before
    later = failed(date="2026-12-02T03:00:00+00:00", kind="garbage", stage="gate", reason="loops")
    assert remember(tmp_path, [later])
    assert recall([tmp_path]).failures == (replace(later, times=2),)


def test_in_another_setting_it_is_another_failure(tmp_path: Path) -> None:
    other = failed(setting=replace(SETTING, versions=(("sglang", "0.5.23"),)))
    remember(tmp_path, [failed()])
    remember(tmp_path, [other])
    assert set(recall([tmp_path]).failures) == {failed(), other}


def test_what_is_sound_since_is_forgotten(tmp_path: Path) -> None:
    remember(tmp_path, [failed(), failed("triton")])
    assert remember(tmp_path, [], sound=[(failed().key, SETTING)])
    assert recall([tmp_path]).failures == (failed("triton"),)
    assert not remember(tmp_path, [], sound=[(failed().key, replace(SETTING, tp=4))])


def test_what_is_sound_is_forgotten_also_where_one_of_both_did_not_look_into_the_checkpoint(
    tmp_path: Path,
) -> None:
    unread = replace(SETTING, architecture="", scheme="")
    remember(tmp_path, [failed(setting=unread)])
    assert not remember(tmp_path, [], sound=[((("--flag",), ()), unread)])
    assert remember(tmp_path, [], sound=[(failed().key, SETTING)])
    assert recall([tmp_path]).failures == ()


@pytest.mark.parametrize("kind", ["environment", "memory", "slow"])
def test_what_tells_of_the_day_is_not_kept(kind: Any, tmp_path: Path) -> None:
    assert not remember(tmp_path, [failed(kind=kind)])
    assert not (tmp_path / FILE).exists()


def test_one_hang_tells_nothing_two_do() -> None:
    assert not failed(kind="hang").tells
    assert failed(kind="hang", times=2).tells
    assert failed().tells


def test_folders_lie_over_each_other(tmp_path: Path) -> None:
    mine, base = tmp_path / "mine", tmp_path / "base"
    remember(base, [failed("triton"), failed(date="2026-11-01T00:00:00+00:00")])
    remember(mine, [failed()])
    base.chmod(0o500)
    assert [one.choice for one in recall([mine, base]).failures] == ["fa3", "triton"]
    assert recall([mine, base]).failures[0] == failed()


def test_the_newest_are_kept(tmp_path: Path) -> None:
    many = [failed(f"choice{n}", date=f"2026-12-01T00:00:00.{n:06}+00:00") for n in range(KEPT + 50)]
    started = time.process_time()
    remember(tmp_path, many)
    assert time.process_time() - started < 2
    started = time.process_time()
    found = recall([tmp_path]).failures
    assert time.process_time() - started < 1
    assert (len(found), found[0].choice, found[-1].choice) == (KEPT, f"choice{KEPT + 49}", "choice50")


def test_long_ones_leave_room_for_few(tmp_path: Path) -> None:
    words = tuple("x" * 5000 for _ in range(200))
    many = [
        failed(f"c{n}", flags=(*words, str(n)), reason="y" * 9000, date=f"2026-12-01T00:00:00.{n:06}+00:00")
        for n in range(100)
    ]
    remember(tmp_path, many)
    assert (tmp_path / FILE).stat().st_size <= SIZE_LIMIT_BYTES
    found = recall([tmp_path])
    assert found.doubts == () and found.failures
    assert found.failures[0].choice == "c99"


def test_no_secret_and_nothing_that_a_terminal_obeys_is_written(tmp_path: Path) -> None:
    one = failed(
        flags=("--api-key", "sesame-123", "--attention-backend", "fa3"),
        env=(("HF_TOKEN", "hf_abcdefghijkl"),),
        reason="ask https://me:sesame-123@host/\x1b[31m\nand more",
        setting=replace(SETTING, given=("env.SGLANG_API_KEY=sesame-123",), gpu="\x1b]0;title\x07"),
    )
    remember(tmp_path, [one])
    text = (tmp_path / FILE).read_text()
    assert "sesame" not in text and "abcdefghijkl" not in text
    assert "\x1b" not in text and "\\u001B" not in text
    (found,) = recall([tmp_path]).failures
    assert found.reason == "ask https://***@host/ [31m and more"


# Writing ------------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from tests.profiles.made import failed
from autolaunch.profiles.failures import remember
folder, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for number in range(count):
    remember(folder, [failed(f"{name}-{number}")])
"""
ROOT = Path(__file__).parents[2]


def writer(folder: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    """A process that keeps `count` failures, one after the other."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), name, str(count)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    running = [writer(tmp_path, f"w{n}", 10) for n in range(6)]
    assert [one.wait(120) for one in running] == [0] * 6
    assert {one.choice for one in recall([tmp_path]).failures} == {
        f"w{n}-{number}" for n in range(6) for number in range(10)
    }


def test_a_writer_that_is_killed_leaves_a_readable_file(tmp_path: Path) -> None:
    remember(tmp_path, [failed("first")])
    for number in range(6):
        one = writer(tmp_path, f"k{number}", 1000)
        deadline = time.monotonic() + 30
        while len(recall([tmp_path]).failures) < 2 + number and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.003 * number)
        one.kill()
        one.wait(30)
        found = recall([tmp_path])
        assert found.doubts == ()
        assert any(row.choice == "first" for row in found.failures)
    assert remember(tmp_path, [failed("after")]), "the lock went with its holder"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_an_os_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OSError):
        remember(tmp_path, [failed()])
    tmp_path.chmod(0o700)


def test_where_a_file_stands_for_the_folder_it_is_an_os_error(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    with pytest.raises(OSError):
        remember(tmp_path / "store", [failed()])
    assert len(recall([tmp_path / "store"]).doubts) <= 1


def test_a_full_disk_leaves_what_was_there(tmp_path: Path) -> None:
    remember(tmp_path, [failed()])
    before = (tmp_path / FILE).read_bytes()

    def small() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 10, len(before) + 10))

    code = f"import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n{WRITER}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), "big", "1"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=small,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1 and "OSError" in done.stderr
    assert (tmp_path / FILE).read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} <= {FILE, ".lock"}
