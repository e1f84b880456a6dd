"""What is remembered of launches, and what it forbids the next one."""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.command import Command
from autolaunch.launch import attempt_record, attempts
from autolaunch.launch.attempts import Attempt, begin, history, key_of, record_choice, verdict
from autolaunch.launch.processes import boot_id, pid_namespace, start_ticks_of
from autolaunch.launch.watching.record import Record
from tests.launch.pasts import past

COMMAND = Command(("/usr/bin/python3", "-m", "sglang.launch_server", "--model-path", "org/model"))
FAST = Candidate("c1", ("--disable-overlap-schedule",))
OTHER = Candidate("c2", ("--attention-backend", "triton"), (("TRITON_INTERPRET", "1"),))
DEAD = 2**22 + 1  # above any PID


def start(
    folder: Path, candidate: Candidate | None = ORIGINAL, *, healthy: bool = False, pid: int = DEAD
) -> attempts.Ticket:
    """One launch of COMMAND, up to the race where `candidate` is None, up to health where it is `healthy`."""
    ticket = begin(folder, COMMAND, pid=pid)
    if candidate is not None:
        record_choice(ticket, COMMAND, candidate)
    if healthy:
        data = json.loads(ticket.record.read_text())
        data["attempts"][-1]["healthy"] = "2026-11-30T12:00:00+00:00"
        ticket.record.write_text(json.dumps(data))
    return ticket


def forbidden(folder: Path) -> attempts.Fallback:
    return verdict(history(folder, COMMAND))


def test_nothing_is_forbidden_without_a_past(tmp_path: Path) -> None:
    assert forbidden(tmp_path / "nowhere") == attempts.Fallback(False, frozenset(), "")


def test_a_choice_that_ended_before_health_is_not_chosen_again(tmp_path: Path) -> None:
    start(tmp_path, FAST)
    fallback = forbidden(tmp_path)
    assert (fallback.no_race, fallback.suspects) == (False, frozenset({FAST.flags}))
    assert fallback.reason == (
        "the last server started with `--disable-overlap-schedule` ended before it was seen healthy"
    )


def test_it_stays_suspect_while_the_original_is_healthy(tmp_path: Path) -> None:
    start(tmp_path, FAST)
    start(tmp_path, ORIGINAL, healthy=True)
    assert forbidden(tmp_path).suspects == {FAST.flags}


def test_it_is_cleared_by_a_healthy_start_of_its_own(tmp_path: Path) -> None:
    start(tmp_path, FAST)
    start(tmp_path, FAST, healthy=True)
    assert forbidden(tmp_path).suspects == frozenset()


@pytest.mark.parametrize(
    ("first", "second"), [(ORIGINAL, ORIGINAL), (FAST, OTHER), (FAST, ORIGINAL), (None, None), (None, FAST)]
)
def test_two_in_a_row_that_ended_before_health_forbid_the_race(
    first: Candidate | None, second: Candidate | None, tmp_path: Path
) -> None:
    start(tmp_path, first)
    assert not forbidden(tmp_path).no_race
    start(tmp_path, second)
    fallback = forbidden(tmp_path)
    assert fallback.no_race
    assert fallback.reason == (
        "the last 2 starts of this command ended before the server was seen healthy; nothing is raced until one is"
    )


def test_a_healthy_start_allows_the_race_again(tmp_path: Path) -> None:
    for _ in range(3):
        start(tmp_path, ORIGINAL)
    start(tmp_path, ORIGINAL, healthy=True)
    assert not forbidden(tmp_path).no_race
    start(tmp_path, ORIGINAL)
    assert not forbidden(tmp_path).no_race


def test_starts_still_under_way_say_nothing(tmp_path: Path) -> None:
    start(tmp_path, ORIGINAL)
    for _ in range(3):
        start(tmp_path, FAST, pid=os.getpid())
    assert [attempt.running for attempt in history(tmp_path, COMMAND)] == [False, True, True, True]
    assert forbidden(tmp_path) == attempts.Fallback(False, frozenset(), "")


def test_a_process_that_was_given_the_same_number_is_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(tmp_path, FAST, pid=os.getpid())
    monkeypatch.setattr(attempt_record, "start_ticks_of", lambda pid: (start_ticks_of(pid) or 0) + 1)
    assert forbidden(tmp_path).suspects == {FAST.flags}


@pytest.mark.parametrize("elsewhere", ["boot_id", "pid_namespace"])
def test_on_another_host_or_in_another_container_the_watcher_is_asked(
    elsewhere: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticket = start(tmp_path, FAST, pid=os.getpid())
    monkeypatch.setattr(attempt_record, elsewhere, lambda: "elsewhere")
    assert not history(tmp_path, COMMAND)[0].running
    alive = attempt_record.lifeline_of(ticket.record, ticket.attempt)
    with alive.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert history(tmp_path, COMMAND)[0].running
        start(tmp_path, ORIGINAL)
        assert alive.exists()
    assert not history(tmp_path, COMMAND)[0].running
    start(tmp_path, ORIGINAL)
    assert not alive.exists()


def test_no_clock_takes_part(tmp_path: Path) -> None:
    first, second = start(tmp_path, FAST), start(tmp_path, ORIGINAL, healthy=True)
    data = json.loads(first.record.read_text())
    data["attempts"][0]["started"] = "2999-01-01T00:00:00+00:00"
    data["attempts"][1]["started"] = "1970-01-01T00:00:00+00:00"
    second.record.write_text(json.dumps(data))
    assert forbidden(tmp_path).suspects == {FAST.flags}


def test_an_attempt_names_its_process_and_its_choice(tmp_path: Path) -> None:
    start(tmp_path, OTHER, pid=os.getpid())
    (attempt,) = history(tmp_path, COMMAND)
    assert dataclasses.replace(attempt, id="", started="") == Attempt(
        id="",
        started="",
        pid=os.getpid(),
        start_ticks=start_ticks_of(os.getpid()) or -1,
        boot_id=boot_id(),
        pid_namespace=pid_namespace(),
        phase="launch",
        candidate_flags=OTHER.flags,
        candidate_env=OTHER.env,
        origin="table",
        running=True,
    )


def test_an_attempt_says_where_it_listens_and_what_it_came_from(tmp_path: Path) -> None:
    ticket = begin(tmp_path, COMMAND, pid=DEAD, host="::1", port=30001, verify="warn")
    record_choice(ticket, COMMAND, FAST, profile="h200/model", setting={"sm": 90})
    (attempt,) = history(tmp_path, COMMAND)
    assert (attempt.host, attempt.port, attempt.verify) == ("::1", 30001, "warn")
    assert (attempt.profile, attempt.setting) == ("h200/model", {"sm": 90})


def test_a_record_of_the_first_version_is_read_as_before(tmp_path: Path) -> None:
    """As the release before profiles wrote it: no word of verification, ends or profiles."""
    record = tmp_path / f"{key_of(COMMAND)}.json"
    one = {
        "id": "0123456789abcdef", "started": "2026-11-30T12:00:00+00:00", "pid": DEAD, "start_ticks": 1,
        "boot_id": "b", "pid_namespace": "pid:[1]", "phase": "launch",
        "candidate_flags": list(FAST.flags), "candidate_env": [], "origin": "table", "healthy": None,
    }  # fmt: skip
    healthy = {**one, "id": "f", "candidate_flags": [], "healthy": "2026-11-30T12:10:00+00:00"}
    record.write_text(json.dumps({"schema": "autolaunch.attempts/1", "command": "", "attempts": [one]}))
    assert forbidden(tmp_path).suspects == {FAST.flags}
    record.write_text(
        json.dumps({"schema": "autolaunch.attempts/1", "command": "", "attempts": [healthy, healthy]})
    )
    assert forbidden(tmp_path) == attempts.Fallback(False, frozenset(), "")
    start(tmp_path, FAST)
    assert len(history(tmp_path, COMMAND)) == 3


@pytest.mark.parametrize("verdict", ["{}", '{"status": 3}', "null", '{"status": "quarantined", "later": 1}'])
def test_a_verdict_of_another_version_is_no_fault(verdict: str, tmp_path: Path) -> None:
    ticket = start(tmp_path, FAST, healthy=True)
    text = ticket.record.read_text().replace('"verdict": null', f'"verdict": {verdict}')
    ticket.record.write_text(text)
    (attempt,) = history(tmp_path, COMMAND)
    told = attempt.verdict
    assert (told is not None and told.status == "quarantined") == ("quarantined" in verdict)


def test_what_was_asked_to_be_measured_again_is_forgiven(tmp_path: Path) -> None:
    attempts.forgive(tmp_path / "nowhere", COMMAND, FAST)
    start(tmp_path, FAST)
    start(tmp_path, OTHER)
    attempts.forgive(tmp_path, COMMAND, FAST)
    assert forbidden(tmp_path).suspects == {OTHER.flags}
    assert [attempt.forgiven for attempt in history(tmp_path, COMMAND)] == [True, False]


def test_the_latest_twenty_are_kept_and_older_failures_of_choices(tmp_path: Path) -> None:
    start(tmp_path, FAST)
    for _ in range(30):
        start(tmp_path, ORIGINAL, healthy=True)
    kept = history(tmp_path, COMMAND)
    assert len(kept) == attempts.KEPT + 2, "with the one by which it is judged"
    assert kept[0].candidate_flags == FAST.flags
    assert forbidden(tmp_path).suspects == {FAST.flags}


@pytest.mark.parametrize(
    "before", ["c1 gone; c0 healthy", "c1 SIGTERM; c1 SIGTERM", "c1 exit 1; c0 exit 1", "c1 garbage; c2 gone"]
)
def test_no_number_of_later_starts_clears_a_choice(before: str, tmp_path: Path) -> None:
    record = tmp_path / f"{key_of(COMMAND)}.json"
    attempt_record.write_record(record, COMMAND, past(before))
    once = forbidden(tmp_path).mistrusted
    for _ in range(50):
        start(tmp_path, ORIGINAL, healthy=True)
    now = forbidden(tmp_path).mistrusted
    assert [one.choice for one in now] == [one.choice for one in once]
    assert len(history(tmp_path, COMMAND)) < 2 * attempts.KEPT


@pytest.mark.parametrize("name", ["ended", "excuse", "profile", "verified", "healthy"])
def test_a_field_of_another_kind_counts_as_absent(name: str, tmp_path: Path) -> None:
    ticket = start(tmp_path, FAST)
    data = json.loads(ticket.record.read_text())
    data["attempts"][0][name] = {"x": 1}
    ticket.record.write_text(json.dumps(data))
    assert forbidden(tmp_path).suspects == {FAST.flags}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("id", odd) for odd in ("../../x", "a\0b", "", "\ud83d", 5, None, "a" * 300)],
        *[("pid", odd) for odd in ("../../x", -1, 0, None, True, 1.5, 10**400)],
        *[("start_ticks", odd) for odd in ("1", -1, None, [1])],
        *[("port", odd) for odd in ("evil", -1, [1], True, 99999999)],
        *[(name, odd) for name in ("started", "host", "boot_id", "pid_namespace") for odd in (None, 5, {})],
        *[("origin", [1]), ("verify", {}), ("phase", 7), ("phase", "later"), ("phase", {})],
        *[(name, odd) for name in ("listened", "gave_up", "forgiven") for odd in ("yes", 1, None)],
        *[("candidate_flags", "--flag"), ("candidate_flags", None), ("candidate_env", {"ab": 1})],
        *[("verdict", "x"), ("verdict", ["x"])],
    ],
)
def test_a_record_that_does_not_say_who_was_started_how_counts_as_none(
    name: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_record, "boot_id", lambda: "elsewhere")  # then the lifeline is looked at
    ticket = start(tmp_path, FAST)
    data = json.loads(ticket.record.read_text())
    data["attempts"][0][name] = value
    ticket.record.write_text(json.dumps(data))
    assert history(tmp_path, COMMAND) == []
    start(tmp_path, ORIGINAL)
    assert len(history(tmp_path, COMMAND)) == 1
    assert ticket.record.with_suffix(".corrupt").exists()


def test_commands_and_folders_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert key_of(COMMAND) == key_of(Command(COMMAND.argv))
    assert key_of(COMMAND) != key_of(Command((*COMMAND.argv, "--tp", "2")))
    outside = key_of(COMMAND)
    (tmp_path / "org").mkdir()
    (tmp_path / "org/model").mkdir()
    assert key_of(COMMAND) != outside, "it now names a folder here"


def test_no_secret_is_written(tmp_path: Path) -> None:
    secret = "sk-very-secret-value-12345"
    command = Command((*COMMAND.argv, "--api-key", secret, f"--admin-api-key={secret}"))
    ticket = begin(tmp_path, command, pid=DEAD)
    env = (("HF_TOKEN", "hf_" + "x" * 34), ("AWS_SECRET", "plain-looking"))
    record_choice(ticket, command, Candidate("c1", ("--api-key", secret), env))
    text = ticket.record.read_text()
    assert secret not in text
    assert "plain-looking" not in text
    assert "hf_xxxx" not in text
    assert secret not in ticket.record.name


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\x00",
        b'{"schema": "autolaunch.attempts/9", "attempts": []}',
        b'{"schema": "autolaunch.attempts/1", "attempts": [{}]}',
        b'{"schema": "autolaunch.attempts/1", "attempts": [3]}',
        b"[" * 100_000,
    ],
)
def test_a_corrupt_record_is_set_aside(content: bytes, tmp_path: Path) -> None:
    ticket = start(tmp_path, FAST)
    attempts.settle(ticket)
    ticket.record.write_bytes(content)
    assert history(tmp_path, COMMAND) == []
    start(tmp_path, ORIGINAL)
    assert len(history(tmp_path, COMMAND)) == 1
    assert ticket.record.with_suffix(".corrupt").read_bytes() == content


@pytest.mark.parametrize("kind", ["pipe", "endless", "folder", "large"])
def test_a_record_that_is_no_file_is_set_aside_unread(kind: str, tmp_path: Path) -> None:
    record = start(tmp_path, FAST).record
    if kind == "large":
        os.truncate(record, 17 << 20)
    else:
        record.unlink()
        {"pipe": os.mkfifo, "folder": os.mkdir, "endless": lambda it: it.symlink_to("/dev/zero")}[kind](
            record
        )
    assert history(tmp_path, COMMAND) == []
    start(tmp_path, ORIGINAL)
    assert len(history(tmp_path, COMMAND)) == 1


def test_a_record_that_cannot_be_written_is_an_oserror_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError):
        begin(tmp_path / "file", COMMAND, pid=DEAD)
    with pytest.raises(OSError):
        begin(Path("/proc/nowhere"), COMMAND, pid=DEAD)


def test_a_full_disk_keeps_the_record_that_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = start(tmp_path, FAST)
    before = ticket.record.read_text()

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(OSError, match="No space left"):
        begin(tmp_path, COMMAND, pid=DEAD)
    with pytest.raises(OSError, match="No space left"):
        record_choice(ticket, COMMAND, FAST)
    assert ticket.record.read_text() == before
    assert not list(tmp_path.glob("*.new"))


def test_a_lock_that_is_never_released_is_an_oserror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_record, "LOCK_LIMIT_S", 0.2)
    ticket = start(tmp_path, FAST)
    with ticket.record.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError):
            begin(tmp_path, COMMAND, pid=DEAD)


def test_an_attempt_that_vanished_cannot_be_chosen_for(tmp_path: Path) -> None:
    ticket = start(tmp_path, None)
    ticket.record.unlink()
    with pytest.raises(FileNotFoundError):
        record_choice(ticket, COMMAND, FAST)


def test_many_launchers_at_once_lose_no_attempt(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from autolaunch.command import Command\n"
        "from autolaunch.candidates.candidate import ORIGINAL; from autolaunch.launch.attempts import *\n"
        f"command = Command({COMMAND.argv!r}); folder = Path({str(tmp_path)!r})\n"
        "for _ in range(4): record_choice(begin(folder, command, pid=1), command, ORIGINAL)"
    )
    crowd = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(4)]
    threads = [threading.Thread(target=lambda: start(tmp_path, FAST)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.wait(60) for process in crowd] == [0] * 4
    assert len(history(tmp_path, COMMAND)) == 19


def test_a_start_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a model that was just downloaded the disk takes as long as the start; the watcher waits beside it."""
    on_disk: list[int] = []
    monkeypatch.setattr(os, "fsync", on_disk.append)
    ticket = start(tmp_path, FAST)
    record_choice(ticket, COMMAND, FAST)
    assert not on_disk
    attempts.settle(ticket)
    assert len(on_disk) == 1
    Record(ticket.record, ticket.attempt, pytest.fail).settle().join()
    assert len(on_disk) == 2
    attempts.forgive(tmp_path, COMMAND, FAST)
    assert len(on_disk) == 3, "nobody's start waits there"


@pytest.mark.parametrize("left", ["", "\0" * 1000])
def test_a_machine_that_crashes_before_that_leaves_what_was_there(tmp_path: Path, left: str) -> None:
    """Some file systems then have an empty file under the new name, or one of zeros."""
    attempts.settle(start(tmp_path, FAST))
    assert not attempt_record.before_of(key(tmp_path)).exists()
    start(tmp_path, OTHER)
    key(tmp_path).write_text(left)
    assert [one.candidate_flags for one in history(tmp_path, COMMAND)] == [FAST.flags]
    start(tmp_path, None)
    assert [one.candidate_flags for one in history(tmp_path, COMMAND)] == [FAST.flags, ()]


def test_a_record_that_somebody_removed_does_not_come_back(tmp_path: Path) -> None:
    attempts.settle(start(tmp_path, FAST))
    start(tmp_path, OTHER)
    assert attempt_record.before_of(key(tmp_path)).exists()
    key(tmp_path).unlink()
    assert not history(tmp_path, COMMAND)


def test_what_was_on_disk_stays_until_the_newest_is(tmp_path: Path) -> None:
    """Another launch may have put its record in the place of the one that just came on disk."""
    attempts.settle(start(tmp_path, FAST))
    before = key(tmp_path).read_text()
    start(tmp_path, OTHER)
    start(tmp_path, FAST)
    assert attempt_record.before_of(key(tmp_path)).read_text() == before


def test_what_does_not_come_on_disk_is_said_by_the_watcher_once(tmp_path: Path) -> None:
    ticket = start(tmp_path, FAST)
    ticket.record.unlink()
    said: list[str] = []
    record = Record(ticket.record, ticket.attempt, said.append)
    record.settle().join()
    assert not record.try_to_note({"healthy": "2026-12-01T00:00:00+00:00"})
    assert [line.split(":")[0] for line in said] == [
        f"could not record in {ticket.record} what became of the server"
    ]


@pytest.mark.parametrize("kind", ["pipe", "folder", "deep", "large", "loop"])
def test_what_lies_in_the_place_of_the_record_holds_no_watcher_up(kind: str, tmp_path: Path) -> None:
    ticket = start(tmp_path, FAST)
    ticket.record.unlink()
    occupy(ticket.record, kind)
    said: list[str] = []
    record = Record(ticket.record, ticket.attempt, said.append)
    record.settle().join(20)
    assert not record.try_to_note({"healthy": "2026-12-01T00:00:00+00:00"})
    assert len(said) == 1


def test_a_pipe_in_the_place_of_the_lock_holds_no_watcher_up(tmp_path: Path) -> None:
    ticket = start(tmp_path, FAST)
    lock = ticket.record.with_suffix(".lock")
    lock.unlink()
    os.mkfifo(lock)
    assert Record(ticket.record, ticket.attempt, pytest.fail).try_to_note({"healthy": "now"})
    assert history(tmp_path, COMMAND)[-1].healthy == "now"


@pytest.mark.parametrize("second", ["pipe", "folder", "loop", "deep"])
@pytest.mark.parametrize("first", ["folder", "loop", "deep"])
def test_what_is_no_record_is_put_aside_every_time(first: str, second: str, tmp_path: Path) -> None:
    for kind in (first, second):
        key(tmp_path).unlink(missing_ok=True)
        occupy(key(tmp_path), kind)
        assert history(tmp_path, COMMAND) == []
        start(tmp_path, FAST)
        assert len(history(tmp_path, COMMAND)) == 1
        assert key(tmp_path).is_file()


def occupy(path: Path, kind: str) -> None:
    """Put something at `path` that is no record."""
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            (path / "full").mkdir(parents=True)
        case "deep":
            path.write_text("[" * 200_000)
        case "large":
            path.write_bytes(b"")
            os.truncate(path, 300 << 30)
        case "loop":
            path.symlink_to(path.name)


def key(folder: Path) -> Path:
    """The record of COMMAND."""
    return folder / f"{key_of(COMMAND)}.json"
