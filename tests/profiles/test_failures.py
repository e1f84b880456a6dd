"""The file of what failed here: kept by many at once, bounded, and never a reason not to start."""

from __future__ import annotations

import itertools
import os
import resource
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autolaunch.profiles.failed import Failed, Recalled, Setting
from autolaunch.profiles.failures import FILE, KEPT, SCHEMA, SIZE_LIMIT_BYTES, recall, remember

SETTING = Setting(
    platform="cuda",
    config="c0ffee" * 5,
    sm=90,
    gpu="NVIDIA H200",
    versions=(("driver", "580.95.05"), ("flashinfer", "0.6.7"), ("sglang", "0.5.21")),
    architecture="Qwen3MoeForCausalLM",
    scheme="fp8_block",
    tp=8,
    given=("flag.kv_cache_dtype=fp8_e5m2",),
)


def failed(choice: str = "fa3", **changes: Any) -> Failed:
    """A crash of `--attention-backend CHOICE` in a race; with `changes`."""
    one = Failed(
        flags=("--attention-backend", choice),
        kind="crash",
        stage="capture",
        reason="RuntimeError: no kernel image is available",
        where="race",
        date="2026-12-01T03:00:00+00:00",
        setting=SETTING,
        env=(("TRITON_INTERPRET", "1"),),
        dimension="--attention-backend",
        choice=choice,
        beside=(("--moe-runner-backend", "triton"),),
        depth="the first 4 of 60 layers",
    )
    return replace(one, **changes)


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


# Files of others ----------------------------------------------------------------------------------

ROW = """
[settings.a]
platform = "cuda"
config = "c"
[[failure]]
setting = "a"
flags = ["--attention-backend", "fa3"]
kind = "crash"
stage = "load"
reason = "r"
where = "race"
date = "2026-12-01"
"""


def broken(name: str) -> bytes:
    """A file that somebody else has put there."""
    head = f'schema = "{SCHEMA}"\n'
    return {
        "empty": b"",
        "binary": bytes(range(256)) * 100,
        "not TOML": b"schema = [",
        "another schema": b'schema = "autolaunch.profile/1"\n',
        "no schema": ROW.encode(),
        "settings are a list": f"{head}settings = [1]\n".encode(),
        "failures are a table": f"{head}[failure]\nflags = []\n".encode(),
        "huge": b"#" + b"x" * (50 << 20),
        "deep lists": f"{head}a = {'[' * 900}{']' * 900}".encode(),
        "deeper lists": (head + "a = " + "[\n" * 100_000).encode(),
        "deep tables": (head + "".join(f"[{'.'.join(['a'] * 900)}{n}]\n" for n in range(190))).encode(),
        "a long key": f"{head}{'.'.join(['a'] * 100_000)} = 1\n".encode(),
        "a large number": f"{head}a = 1{'0' * 1900}\n".encode(),
        "many keys": filled(head, lambda n: f"k{n}.{'a.' * 980}z = 1\n"),
        "many keys of six parts": filled(head, lambda n: f"{n:x}.a.a.a.a.a = 1\n"),
        "many headers": filled(head, lambda n: f"[k{n}.{'a.' * 980}z]\n"),
        "many headers of six parts": filled(head, lambda n: f"[{n:x}.a.a.a.a.a]\n"),
        "many empty tables": filled(head, lambda n: f"{n:x} = {{}}\n"),
        "quotes that close nowhere": filled(head, lambda _: '\\""" "\n'),
        "many values": filled(f"{head}a = [", lambda _: "1,"),
        "a huge number": filled(f"{head}a = 0x", lambda _: "f"),
        "a setting of many that is none": filled(
            f"{head}{ROW}"
            + ROW[ROW.index("[[") :] * (KEPT - 1)
            + '[settings.b]\nplatform = "cuda"\n[settings.a.versions]\n',
            lambda n: f"{n:x}=1\n" if n < 12_000 else "#",
        ),
    }[name]


def filled(before: str, line: Callable[[int], str]) -> bytes:
    """`before`, and lines after it until the file is as large as it may be."""
    parts, size = [before], len(before)
    for number in itertools.count():
        size += len(line(number))
        if size > SIZE_LIMIT_BYTES:
            return "".join(parts).encode()
        parts.append(line(number))
    raise AssertionError


@pytest.mark.parametrize(
    "name",
    [
        *("empty", "binary", "not TOML", "another schema", "no schema", "settings are a list"),
        *("failures are a table", "huge", "deep lists", "deeper lists", "deep tables", "a long key"),
        *(
            "a large number",
            "many keys",
            "many keys of six parts",
            "many headers",
            "many headers of six parts",
        ),
        *("many empty tables", "quotes that close nowhere", "many values", "a huge number"),
        "a setting of many that is none",
    ],
)
def test_a_broken_file_is_a_doubt_and_costs_little(name: str, tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_bytes(broken(name))
    tracemalloc.start()
    started = time.process_time()
    found = recall([tmp_path])
    took_s, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.failures == ()
    if name not in ("a large number", "a huge number"):
        assert len(found.doubts) == 1 and len(found.doubts[0]) < 500
    assert took_s < 4, "with the allocator traced, which triples it"
    assert peak < 100 << 20


@pytest.mark.parametrize("name", ["binary", "not TOML", "no schema"])
def test_a_broken_file_is_put_aside_by_who_writes(name: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(broken(name))
    assert remember(tmp_path, [failed()])
    assert recall([tmp_path]) == Recalled((failed(),))
    assert (tmp_path / FILE).with_suffix(".corrupt").read_bytes() == broken(name)


def test_a_file_of_a_later_version_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('schema = "autolaunch.failures/2"\n')
    assert recall([tmp_path]) == Recalled()
    with pytest.raises(OSError, match="a later version"):
        remember(tmp_path, [failed()])
    assert (tmp_path / FILE).read_text() == 'schema = "autolaunch.failures/2"\n'


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('kind = "crash"', 'kind = "curse"'),
        ('stage = "load"', "stage = 3"),
        ('setting = "a"', 'setting = "b"'),
        ('reason = "r"', 'reason = "\\u001b[31m"'),
        ('flags = ["--attention-backend", "fa3"]', 'flags = "--attention-backend"'),
        ('where = "race"', 'where = "elsewhere"'),
        ('config = "c"', "config = 1"),
        ('platform = "cuda"\n', ""),
        ("[settings.a]", "[settings.a]\nversions = 3"),
        ("[settings.a]", "[settings.a]\nversions = { sglang = 3 }"),
    ],
)
def test_a_row_that_says_nothing_is_skipped(old: str, new: str, tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text(f'schema = "{SCHEMA}"\n{ROW}')
    assert len(recall([tmp_path]).failures) == 1
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    found = recall([tmp_path])
    assert found.failures == ()
    assert found.doubts == (f"1 rows of `{path}` cannot be understood",)


def test_what_a_newer_version_adds_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(f'schema = "{SCHEMA}"\nmore = 1\n{ROW}also = 2\n')
    assert len(recall([tmp_path]).failures) == 1


def test_all_folders_together_cost_little(tmp_path: Path) -> None:
    """The first folder is this user's own, and is always read."""
    folders = [tmp_path / str(number) for number in range(20)]
    for number, folder in enumerate(folders):
        remember(folder, [failed(f"choice{number}")])
        with (folder / FILE).open("ab") as file:
            file.write(filled("", lambda n: f"[{n:x}.a.a.a]\n" if n < 6000 else "#")[: -(4 << 10)])
    started = time.process_time()
    found = recall(folders)
    assert time.process_time() - started < 4
    assert "choice0" in [one.choice for one in found.failures]
    assert 1 <= len(found.failures) < 4
    assert len(found.doubts) == 20 - len(found.failures)
    assert all("all may" in doubt for doubt in found.doubts)


def test_many_small_files_are_read(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(20)]
    for number, folder in enumerate(folders):
        remember(folder, [failed(f"choice{number}")])
    found = recall(folders)
    assert len(found.failures) == 20 and not found.doubts


def test_five_hundred_in_settings_of_their_own_are_kept(tmp_path: Path) -> None:
    many = [
        failed(f"c{n}", reason="r", setting=replace(SETTING, config=f"{n}", given=("a=b",) * 3))
        for n in range(KEPT)
    ]
    small = [
        replace(one, beside=(), depth="", setting=replace(one.setting, architecture="", gpu=""))
        for one in many
    ]
    remember(tmp_path, small)
    found = recall([tmp_path])
    assert (len(found.failures), found.doubts) == (KEPT, ())


def test_what_has_more_values_than_are_read_is_not_written(tmp_path: Path) -> None:
    words = tuple("x" for _ in range(200))
    many = [
        failed(
            f"c{n}",
            flags=(*words, str(n)),
            setting=replace(SETTING, config=f"{n}", given=words),
            date=f"2026-12-01T00:00:00.{n:06}+00:00",
        )
        for n in range(KEPT)
    ]
    remember(tmp_path, many)
    found = recall([tmp_path])
    assert found.doubts == () and found.failures and found.failures[0].choice == f"c{KEPT - 1}"


@pytest.mark.parametrize("value", ["0x" + "f" * 5000, "-1" + "0" * 30, "nan", "1979-05-27"])
def test_a_row_with_a_value_that_cannot_be_written_again_is_skipped(value: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(f'schema = "{SCHEMA}"\n{ROW}times = {value}\n')
    assert recall([tmp_path]).failures == ()
    assert remember(tmp_path, [failed()])
    assert recall([tmp_path]) == Recalled((failed(),))


def test_a_pipe_or_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    (tmp_path / "other" / FILE).mkdir(parents=True)
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / FILE).symlink_to(tmp_path / "loop" / FILE)
    found = recall([tmp_path, tmp_path / "other", tmp_path / "loop"])
    assert found.failures == () and len(found.doubts) == 3


# Writing ------------------------------------------------------------------------------------------

WRITER = """
import sys
from pathlib import Path
from tests.profiles.test_failures import failed
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
