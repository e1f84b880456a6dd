"""Files of failures that others wrote: read within limits, row by row, and never a reason not to start."""

from __future__ import annotations

import itertools
import os
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autolaunch.profiles.failed import Recalled
from autolaunch.profiles.failures import recall, remember
from autolaunch.profiles.failures_file import FILE, KEPT, SCHEMA, SIZE_LIMIT_BYTES, Content, Room, read
from tests.profiles.made import SETTING, failed

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


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    """Editors of other systems write one."""
    path = tmp_path / "failures.toml"
    path.write_bytes(b"\xef\xbb\xbf" + f'schema = "{SCHEMA}"\n'.encode())
    assert read(path, Room()) == Content()
