"""Many writers at once, writers that are killed, disks that are full or may not be written: nothing is lost."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autolaunch.profiles.names import name_of
from autolaunch.profiles.store import Store
from tests.profiles.made import made
from tests.profiles.writers import SHARED
from tests.real_server import ROOT

WRITERS = ROOT / "tests/profiles/writers.py"
KILLS = 25
MOUNTED = """
import errno, os, subprocess, sys
from pathlib import Path
from autolaunch.profiles.names import name_of
from autolaunch.profiles.store import Store
from tests.profiles.made import made
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", folder], check=True)
store = Store((folder / "store",))
store.save(made())
if sys.argv[2] == "full":
    with open(folder / "filler", "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 1024)
        except OSError:
            pass
else:
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
for change in (lambda: store.save(made(reason="y" * 4000)),
               lambda: store.save(made(fingerprint={"n": 1}, reason="y" * 4000)),
               lambda: store.mark(name_of(made()), "quarantined", "garbage" * 100),
               lambda: store.remove(name_of(made()))):
    try:
        change()
    except OSError as error:
        print(errno.errorcode[error.errno], error.strerror)
        assert store.find(name_of(made())).profile == made()
        assert not list(folder.rglob("*.new"))
print([one.profile == made() for one in store.all()], store.doubts)
"""


@pytest.mark.slow
def test_two_hundred_writers_at_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, WRITERS, "many", tmp_path / "store", "200"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["failed"], done.stderr) == (0, "")
    assert (seen["losses"], seen["doubts"], seen["leftovers"]) == (0, [], [])
    assert seen["looks"] > 3
    assert seen["kept"] == 201
    assert seen["shared"] in ("fresh", "verified")  # whoever was last saved it, or marked what was saved last


@pytest.mark.slow
def test_a_writer_that_is_killed_at_any_moment_leaves_a_whole_store(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    draw = random.Random(5)
    for _ in range(KILLS):
        writer = subprocess.Popen(
            [sys.executable, WRITERS, "endless", folder], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        with writer.stdout:
            assert writer.stdout.readline() == "begun\n"
            time.sleep(draw.uniform(0, 0.05))
            writer.kill()
            assert writer.wait() == -signal.SIGKILL
        store = Store((folder,))
        kept = store.all()
        assert store.doubts == ()
        assert name_of(SHARED) in [one.name for one in kept]
        assert len(kept) >= 2
        assert all(one.profile.entrants == made().entrants for one in kept)
    store = Store((folder,))
    assert store.mark(name_of(SHARED), "suspect", "the lock of the killed is free")
    for leftover in folder.rglob("*.new"):
        os.utime(leftover, (0, 0))
    store.save(made())
    assert not list(folder.rglob("*.new"))


@pytest.mark.parametrize(("state", "code"), [("full", "ENOSPC"), ("read-only", "EROFS")])
def test_a_disk_that_takes_nothing(tmp_path: Path, state: str, code: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    able = subprocess.run(["unshare", "-m", "true"], capture_output=True)
    if os.geteuid() != 0 or able.returncode != 0:
        pytest.skip("only root may mount")
    argv = ["unshare", "-m", sys.executable, "-c", MOUNTED, str(disk), state]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    *errors, last = done.stdout.splitlines()
    assert len(errors) >= 3 and all(
        line.startswith(f"{code} no profile can be kept in `") for line in errors
    ), done.stdout
    assert last.startswith("[True]") or (last.startswith("[]") and state == "full"), done.stdout


def test_a_limit_on_files_leaves_the_old(tmp_path: Path) -> None:
    store = Store((tmp_path,))
    store.save(made())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, before[1]))
    try:
        with pytest.raises(OSError, match="no profile can be kept"):
            store.save(made(reason="longer"))
        with pytest.raises(OSError, match="no profile can be kept"):
            store.mark(name_of(made()), "quarantined", "garbage")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [one.profile for one in store.all()] == [made()]
    assert not list(tmp_path.rglob("*.new"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_rights(tmp_path: Path) -> None:
    store = Store((tmp_path / "store",))
    store.save(made())
    store.written.chmod(0o500)
    (store.written / "h200").chmod(0o500)
    with pytest.raises(OSError, match="Permission denied"):
        store.save(made(reason="other"))
    assert [one.profile for one in store.all()] == [made()]


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "store").touch()
    with pytest.raises(OSError, match="no profile can be kept in"):
        Store((tmp_path / "store",)).save(made())
