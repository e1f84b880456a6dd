"""Temporary homes of slices: private, gone at the end, and swept when their owner was killed."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolaunch.slice import home as homes
from autolaunch.slice.home import PREFIX, Owner, SliceHome, sweep_leftovers, this_process
from autolaunch.slice.problems import SliceError
from tests.real_server import ROOT

HOLD = """
import sys, time
from pathlib import Path
from autolaunch.slice.home import SliceHome
with SliceHome(Path(sys.argv[1])) as home:
    (home.new("a")).mkdir()
    (home.new("a") / "link").symlink_to(sys.argv[2])
    print(home.folder, flush=True)
    time.sleep(60)
"""


def named(owner: Owner, end: str = "abcd1234") -> str:
    """The name of a folder of `owner`."""
    return f"{PREFIX}{owner.boot}-{owner.space}-{owner.pid}-{owner.ticks}-{end}"


def gone(**other: object) -> Owner:
    """A process of this boot that is over."""
    here = this_process()
    facts = {"boot": here.boot, "space": here.space, "pid": here.pid, "ticks": here.ticks + 1, **other}
    return Owner(**facts)  # type: ignore[arg-type]


def test_a_home_is_private_and_goes(tmp_path: Path) -> None:
    with SliceHome(tmp_path) as home:
        assert home.folder.parent == tmp_path
        assert stat.S_IMODE(home.folder.stat().st_mode) == 0o700
        home.new("quick").mkdir()
        (home.new("quick") / "link").symlink_to(tmp_path)
        assert sweep_leftovers(tmp_path) == (), "its owner lives"
    assert list(tmp_path.iterdir()) == []


def test_a_home_goes_when_the_race_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), SliceHome(tmp_path) as home:
        home.new("a").mkdir()
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_fork_leaves_the_home_alone(tmp_path: Path) -> None:
    with SliceHome(tmp_path) as home:
        child = os.fork()
        if child == 0:
            home.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(child, 0)
        assert home.folder.is_dir()


@pytest.mark.parametrize("name", ["", "..", "a/b", "/tmp"])
def test_a_slice_has_a_plain_name(name: str, tmp_path: Path) -> None:
    with SliceHome(tmp_path) as home, pytest.raises(SliceError):
        home.new(name)


def test_no_home_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(SliceError, match="cannot make a folder"), SliceHome(tmp_path / "none"):
        pass
    with pytest.raises(SliceError):
        SliceHome(tmp_path).new("a")


def test_what_a_killed_launcher_left_is_swept_and_nothing_behind_a_link(tmp_path: Path) -> None:
    base, models = tmp_path / "base", tmp_path / "models"
    base.mkdir()
    models.mkdir()
    (models / "weights").write_text("precious")
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(base), str(models)], stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as holder:
        assert holder.stdout is not None
        left = Path(holder.stdout.readline().strip())
        assert sweep_leftovers(base) == (), "its owner lives"
        assert left.is_dir()
        holder.send_signal(signal.SIGKILL)
    assert left.is_dir()
    with SliceHome(base):
        assert not left.exists(), "the next start sweeps"
    assert (models / "weights").read_text() == "precious"


def test_a_pid_that_is_used_again_is_another_owner(tmp_path: Path) -> None:
    left = tmp_path / named(gone())
    left.mkdir(mode=0o700)
    assert sweep_leftovers(tmp_path) == (left,)


@pytest.mark.parametrize("other", [{"boot": "ab" * 16}, {"space": "1"}])
def test_what_cannot_be_seen_from_here_stays_for_a_day(other: dict[str, str], tmp_path: Path) -> None:
    left = tmp_path / named(gone(**other))
    left.mkdir(mode=0o700)
    assert sweep_leftovers(tmp_path) == ()
    old = time.time() - homes.ELSEWHERE_S - 60
    os.utime(left, (old, old))
    assert sweep_leftovers(tmp_path) == (left,)


def test_links_and_open_folders_and_files_stay(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (tmp_path / named(gone(), "aaaaaaaa")).symlink_to(target)
    (tmp_path / named(gone(), "bbbbbbbb")).write_text("")
    (tmp_path / named(gone(), "cccccccc")).mkdir(mode=0o755)
    (tmp_path / named(gone(), "cccccccc")).chmod(0o755)
    before = sorted(tmp_path.iterdir())
    assert sweep_leftovers(tmp_path) == ()
    assert sorted(tmp_path.iterdir()) == before


def test_a_foreign_users_folder_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = tmp_path / named(gone())
    left.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: left.stat().st_uid + 1)
    assert sweep_leftovers(tmp_path) == ()
    assert left.is_dir()


@given(name=st.text(alphabet="0123456789abcdef-_ .é\n", max_size=40))
def test_a_hostile_name_stays(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    base = tmp_path_factory.mktemp("hostile")
    (base / f"{PREFIX}{name}").mkdir(mode=0o700)
    own = named(gone())[len(PREFIX) :]
    assert name == own or sweep_leftovers(base) == ()


def test_a_base_that_is_not_there_has_no_leftovers(tmp_path: Path) -> None:
    assert sweep_leftovers(tmp_path / "none") == ()


def test_folders_deeper_than_python_goes_stay(tmp_path: Path) -> None:
    left = tmp_path / named(gone())
    left.mkdir(mode=0o700)
    before = Path.cwd()
    try:
        os.chdir(left)
        for _ in range(1100):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.chdir(before)
    sweep_leftovers(tmp_path)
    with SliceHome(tmp_path) as home:
        assert home.folder.is_dir()
    subprocess.run(["rm", "-rf", left], check=True)  # no limit there


def test_digits_of_other_scripts_are_no_owner(tmp_path: Path) -> None:
    owner = gone()
    left = tmp_path / named(owner).replace(f"-{owner.pid}-", "-\u0669\u0669-")
    left.mkdir(mode=0o700)
    assert sweep_leftovers(tmp_path) == ()


def test_no_temporary_folder_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(homes, "default_base", nowhere)
    with pytest.raises(SliceError, match="cannot make a folder for slices") as caught:
        SliceHome()
    assert caught.value.hint == "set TMPDIR to a folder that can be written"
    assert sweep_leftovers() == ()
