"""No process of an engine survives, whoever dies, at whatever moment."""

from __future__ import annotations

import json
import mmap
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autolaunch.race.guarded import Guarded, make_scratch
from tests.race.processes import Mark

HERE = Path(__file__).parent
TREE = HERE / "tree.py"
REPOSITORY = HERE.parent.parent
TREE_SIZE = 10
"""Two guards, the first process, four leaves of daemons and workers, and what sleeps in between."""

REPORT_STATE = """
import os, resource, signal, json, sys
links = {}
for fd in os.listdir("/proc/self/fd"):
    try:
        links[fd] = os.readlink("/proc/self/fd/" + fd)
    except OSError:
        pass
print(json.dumps({
    "fds": {fd: link for fd, link in links.items() if not link.startswith("/proc/")},
    "ignored": [int(n) for n in signal.valid_signals() if signal.getsignal(n) == signal.SIG_IGN],
    "blocked": [int(n) for n in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
    "leader": os.getsid(0) == os.getpid(), "parent": os.getppid(),
    "stdin": sys.stdin.read(),
}))
"""


def start(
    mark: Mark, tmp_path: Path, *options: str, command: list[str] | None = None, **more: object
) -> Guarded:
    """The fake tree, or `command`, under a guard of this process."""
    return Guarded(
        command or [sys.executable, "-S", str(TREE), *options],
        log=tmp_path / "log",
        environ=mark.environ() | {"TMPDIR": str(tmp_path)},
        cwd=tmp_path,
        scratch=make_scratch({"TMPDIR": str(tmp_path)}),
        **more,  # type: ignore[arg-type]
    )


def parts(mark: Mark) -> dict[str, list[int]]:
    """Pids of the guards, outer first, and of the rest."""
    found = mark.pids()
    guards = sorted(pid for pid, command in found.items() if "guard.py" in command)
    return {"guards": guards, "tree": [pid for pid in found if pid not in guards]}


def test_end_leaves_nothing(mark: Mark, tmp_path: Path) -> None:
    guarded = start(mark, tmp_path)
    assert len(mark.wait_count(TREE_SIZE - 2)) >= TREE_SIZE - 2
    ending = guarded.end()
    assert ending.exit == -signal.SIGKILL
    assert ending.left == ()
    assert mark.pids() == {}
    assert guarded.end() == ending


@pytest.mark.parametrize(("options", "expected"), [(["--exit", "3"], 3), (["--kill-group"], -signal.SIGKILL)])
def test_the_tree_ends_with_its_first_process(
    mark: Mark, tmp_path: Path, options: list[str], expected: int
) -> None:
    guarded = start(mark, tmp_path, *options)
    exited = guarded.exited(10)
    assert exited is not None
    assert exited.exit == expected
    ending = guarded.ending(10)
    assert ending is not None
    assert (ending.exit, ending.left) == (expected, ())
    assert parts(mark)["tree"] == []
    guarded.end()
    assert mark.wait_gone() == {}


def test_a_command_that_does_not_exist(mark: Mark, tmp_path: Path) -> None:
    guarded = start(mark, tmp_path, command=["/does/not/exist"])
    ending = guarded.ending(10)
    guarded.end()
    assert ending is not None
    assert ending.exit == 127
    assert "cannot run /does/not/exist" in (tmp_path / "log").read_text()


def test_a_fork_storm_is_ended(mark: Mark, tmp_path: Path) -> None:
    guarded = start(mark, tmp_path, "--storm")
    time.sleep(0.3)
    began_s = time.monotonic()
    guarded.end()
    assert time.monotonic() - began_s < 20, "it is not raced one PID after another"
    assert mark.pids() == {}


@pytest.mark.parametrize("victim", ["parent", "outer", "inner", "engine"])
def test_sigkill_at_random_moments(mark: Mark, tmp_path: Path, victim: str) -> None:
    """Twenty-five moments from before the guard runs to the whole tree; whoever is killed, nothing stays."""
    moments = random.Random(f"moments of {victim}")
    for number in range(25):
        scratch = make_scratch({"TMPDIR": str(tmp_path)})
        read, write = os.pipe()
        with subprocess.Popen(
            [sys.executable, str(HERE / "parent.py"), str(scratch), str(tmp_path / "log"), str(write)],
            env=mark.environ() | {"PYTHONPATH": str(REPOSITORY)},
            stdout=subprocess.PIPE,
            pass_fds=[write],
        ) as parent:
            os.close(write)
            assert parent.stdout is not None
            assert parent.stdout.readline() == b"starting\n"
            delay_s = moments.uniform(0, 0.25) if number else 0.0
            deadline = time.monotonic() + delay_s
            while time.monotonic() < deadline:
                time.sleep(0.001)
            killed = _kill_one(mark, victim, parent.pid)
            if victim != "parent":
                # Whether or not the victim was there yet: from here on nothing but the parent may be left.
                limit_s = 10.0 if killed else 0.0
                _wait(lambda: set(mark.pids()) <= {parent.pid}, limit_s)
                left = set(mark.pids()) - {parent.pid}
                assert not (killed and left), f"{victim} killed after {delay_s:.3f} s: {mark.pids()}"
                parent.kill()
            parent.wait()
        left_alive = mark.wait_gone()
        assert left_alive == {}, f"{victim} killed after {delay_s:.3f} s"
        assert select.select([read], [], [], 5)[0], "the census pipe is still open"
        assert os.read(read, 1) == b""
        os.close(read)
        # Only a guard that never got as far as its second process leaves an empty folder.
        assert not scratch.exists() or not killed or not any(scratch.iterdir())
    assert mark.pids() == {}


def _kill_one(mark: Mark, victim: str, parent: int) -> bool:
    if victim == "parent":
        os.kill(parent, signal.SIGKILL)
        return True
    found = parts(mark)
    engines = [pid for pid in found["tree"] if pid != parent and _parent_of(pid) in found["guards"][1:]]
    choice = {
        "outer": found["guards"][:1],
        "inner": found["guards"][1:2],
        "engine": engines[:1],
    }[victim]
    for pid in choice:
        os.kill(pid, signal.SIGKILL)
    return bool(choice)


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return -1


def _wait(condition: object, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    assert callable(condition)
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_guards_are_deaf(mark: Mark, tmp_path: Path) -> None:
    """SGLang sends SIGQUIT to whoever its parent is, and terminals send more."""
    guarded = start(mark, tmp_path)
    mark.wait_count(TREE_SIZE - 2)
    guards = parts(mark)["guards"]
    assert len(guards) == 2
    for guard in guards:
        for number in (signal.SIGQUIT, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            os.kill(guard, number)
    time.sleep(0.1)
    assert parts(mark)["guards"] == guards
    assert len({os.getsid(guard) for guard in guards} | {os.getsid(0)}) == 3
    guarded.end()
    assert mark.pids() == {}


def test_what_the_engine_starts_with(mark: Mark, tmp_path: Path) -> None:
    """Default signals, an empty mask, its own session, nothing on stdin, and only the passed descriptor."""
    passed, _other = os.pipe()
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        read, write = os.pipe()
        guarded = start(
            mark, tmp_path, command=[sys.executable, "-c", REPORT_STATE], pass_fds=(passed,), census_fd=write
        )
        guarded.ending(10)
        guarded.end()
    finally:
        signal.signal(signal.SIGTERM, before)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        for fd in (read, write, passed, _other):
            os.close(fd)
    state = json.loads((tmp_path / "log").read_text())
    # Python itself ignores SIGPIPE and SIGXFSZ.
    assert set(state["ignored"]) <= {signal.SIGPIPE, signal.SIGXFSZ}
    assert state["blocked"] == []
    assert state["leader"]
    assert state["core"] == 0
    assert state["stdin"] == ""
    assert set(state["fds"]) == {"0", "1", "2", str(passed)}
    assert state["fds"]["0"] == "/dev/null"


def test_only_scratch_folders_are_removed(mark: Mark, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    read, write = os.pipe()
    read_status, write_status = os.pipe()
    guard = Path(sys.modules["autolaunch.race.guard"].__file__ or "")
    scratch = make_scratch({"TMPDIR": str(tmp_path)})
    (scratch / "socket").touch()
    options = ["--lifeline", str(read), "--status", str(write_status)]
    for folder in (precious, scratch):
        options += ["--scratch", str(folder)]
    subprocess.run(
        [sys.executable, "-I", "-S", str(guard), *options, "--", "true"],
        pass_fds=[read, write_status],
        check=True,
        env=mark.environ(),
    )
    for fd in (read, write, read_status, write_status):
        os.close(fd)
    assert precious.exists()
    assert not scratch.exists()


def test_it_runs_where_nothing_can_be_written_and_whatever_lies_around(mark: Mark, tmp_path: Path) -> None:
    """With its own folder only, without bytecode, and not from what shares a name with its modules."""
    source = REPOSITORY / "autolaunch"
    copy = tmp_path / "site" / "autolaunch"
    for name in ("__init__.py", "race/__init__.py", "race/guard.py"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / name, copy / name)
    shutil.copytree(source / "race/guarding", copy / "race/guarding", ignore=shutil.ignore_patterns("*.pyc"))
    elsewhere = tmp_path / "elsewhere"
    for folder in (elsewhere, copy.parent, copy / "race"):
        folder.mkdir(exist_ok=True)
        for name in ("signal.py", "select.py", "shutil.py"):
            (folder / name).write_text("raise SystemExit('not the one that was meant')")
    (elsewhere / "autolaunch.py").write_text("raise SystemExit('not the one that was meant')")
    folders = [folder for folder in copy.rglob("*") if folder.is_dir()]
    for folder in folders:
        folder.chmod(0o555)
    lifeline = os.pipe()
    status = os.pipe()
    options = ["--lifeline", str(lifeline[0]), "--status", str(status[1])]
    options += ["--scratch", str(tmp_path / "autolaunch-x")]
    try:
        subprocess.run(
            [sys.executable, "-I", "-S", str(copy / "race/guard.py"), *options, "--", "false"],
            pass_fds=[lifeline[0], status[1]],
            check=True,
            env=mark.environ() | {"PYTHONPATH": str(elsewhere)},
            cwd=elsewhere,
        )
        said = os.read(status[0], 4096).decode().splitlines()
    finally:
        for folder in folders:
            folder.chmod(0o755)
        for fd in (*lifeline, *status):
            os.close(fd)
    assert [json.loads(line) for line in said] == [{"exit": 1}, {"exit": 1, "left": []}]
    assert not (tmp_path / "autolaunch-x").exists()


def test_shared_memory_of_the_tree_is_unlinked(mark: Mark, tmp_path: Path) -> None:
    ours = Path(f"/dev/shm/autolaunch-test-{mark.value}-ours")
    shared = Path(f"/dev/shm/autolaunch-test-{mark.value}-shared")
    older = Path(f"/dev/shm/autolaunch-test-{mark.value}-older")
    older.write_bytes(bytes(4096))
    try:
        first = start(mark, tmp_path, "--map", str(ours))
        second = start(mark, tmp_path, "--map", str(shared))
        third = start(mark, tmp_path, "--map", str(older))
        _wait(lambda: ours.exists() and shared.exists() and shared.stat().st_size == 4096, 10)
        with shared.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
            time.sleep(0.3)
            for guarded in (first, second, third):
                guarded.end()
            assert not ours.exists()
            assert shared.exists(), "somebody else still uses it"
        assert older.exists(), "it was there before"
    finally:
        for path in (ours, shared, older):
            path.unlink(missing_ok=True)


def test_a_long_temporary_folder_leaves_room_for_socket_names(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    scratch = make_scratch({"TMPDIR": str(deep)})
    assert len(str(scratch)) < 100 - len("/tmpabcdefgh")
    scratch.rmdir()


def test_a_scratch_folder_where_the_named_place_is_none(tmp_path: Path) -> None:
    """As Python's `tempfile`, and thereby SGLang, passes over a TMPDIR that cannot be used."""
    scratch = make_scratch({"TMPDIR": str(tmp_path / "nowhere")})
    assert scratch.is_dir()
    scratch.rmdir()
