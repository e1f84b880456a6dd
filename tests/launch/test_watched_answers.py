"""The watcher as a process of its own beside a server that talks: what it writes, says, holds and gives away."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from autolaunch.launch import attempt_record
from autolaunch.launch.instructions import MARKS
from autolaunch.launch.watching.orders import Kept, Orders, hand_over, take_over
from autolaunch.launch.watching.record import mark_profile
from autolaunch.launch.watching.verifying import Finding
from autolaunch.profiles.profile import Chosen
from autolaunch.profiles.store import Store
from autolaunch.ready import look
from tests.launch.harness import wait_until
from tests.launch.test_watch import CHOICE, Watched, is_alive
from tests.profiles.made import made

ORDERS = Orders(flags=CHOICE.flags)


class Talking(Watched):
    """A talking server with its watcher."""

    def __init__(self, folder: Path, port: int, *words: str, **options: Any) -> None:
        self.asked_file = folder / "asked.jsonl"
        super().__init__(
            folder,
            port,
            str(self.asked_file),
            *words,
            server="talking_server.py",
            **{"orders": ORDERS, **options},
        )

    def wait_for_words(self) -> str:
        """What was said, once the watcher has given up its stderr."""
        fd = Path(f"/proc/{self.watcher.pid}/fd/2")
        wait_until(lambda: str(fd.readlink()) == "/dev/null", 30, "stderr is given up")
        return self.log.read_text()


@pytest.fixture
def talking(tmp_path: Path, free_port: int) -> Iterator[Callable[..., Talking]]:
    """Starts `Talking`, and leaves nothing of it."""
    started: list[Talking] = []

    def start(*words: str, **options: Any) -> Talking:
        started.append(Talking(tmp_path, free_port, *words, **options))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        wait_until(lambda one=one: not is_alive(one.watcher), 10, "the watcher ended")  # type: ignore[misc]


def test_sound_answers_are_recorded_and_said_in_one_line(talking: Callable[..., Talking]) -> None:
    server = talking("drafts", "--after", "0.5")
    words = server.wait_for_words()
    attempt = server.attempt
    assert attempt.healthy and attempt.verified
    assert attempt.verdict is not None and attempt.verdict.status == "verified"
    assert words.count("\n") == 1
    assert words.startswith("autolaunch: the server is healthy, ")
    assert "; its answers are sound (19 requests, " in words
    assert words.endswith("; 2.75 tokens a decode step\n")
    assert len(server.asked_file.read_text().splitlines()) == 19


def test_garbage_is_recorded_and_said_and_the_server_runs_on(talking: Callable[..., Talking]) -> None:
    server = talking("exclamation")
    words = server.wait_for_words()
    attempt = server.attempt
    assert attempt.healthy and not attempt.verified
    assert attempt.verdict is not None
    assert (attempt.verdict.status, attempt.verdict.kind) == ("quarantined", "garbage")
    assert "one token over and over (`!!!!" in attempt.verdict.reason
    assert words.startswith("autolaunch: warning: this server is not to be trusted: ")
    assert words.endswith(
        "`--disable-overlap-schedule` is quarantined, and the next start takes something else\n"
    )
    assert server.process.poll() is None


def test_from_another_container_it_is_as_little_ready(
    talking: Callable[..., Talking], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose PIDs mean nothing here: that its watcher lives is all there is to see of it."""
    server = talking("exclamation")
    server.wait_for_words()
    monkeypatch.setattr(attempt_record, "pid_namespace", lambda: "elsewhere")
    found = look(server.folder)
    assert (found.state, found.is_ready, found.source) == ("quarantined", False, "record")
    server.end()
    assert look(server.folder).state == "gone"


def test_what_a_server_says_of_its_errors_is_written_nowhere(talking: Callable[..., Talking]) -> None:
    server = talking("error")
    words = server.wait_for_words()
    assert server.attempt.verdict is not None and server.attempt.verdict.kind == "crash"
    for text in (words, server.ticket.record.read_text(), look(server.folder).to_json()):
        assert "nobodys-business" not in text and "\x1b" not in text
    assert "4 of 4 requests failed with status 500; " in words


def test_a_warning_changes_nothing(talking: Callable[..., Talking]) -> None:
    server = talking("exclamation", orders=replace(ORDERS, verify="warn"))
    assert server.wait_for_words().endswith("; nothing is changed by that\n")
    assert server.attempt.verdict is not None
    assert server.attempt.verdict.status == "warned"


def test_of_the_original_command_it_is_only_said(talking: Callable[..., Talking]) -> None:
    server = talking("exclamation", orders=Orders())
    assert server.wait_for_words().endswith("; it is the original command\n")


def test_switched_off_nothing_is_asked(talking: Callable[..., Talking]) -> None:
    server = talking("exclamation", orders=replace(ORDERS, verify="off"))
    words = server.wait_for_words()
    assert words.endswith(" s after its start\n")
    assert not server.asked_file.exists()
    assert server.attempt.healthy and server.attempt.verdict is None
    assert look(server.folder).state == "gone"  # nobody's PID is in this record


def test_a_server_of_grpc_is_healthy_once_it_listens(talking: Callable[..., Talking]) -> None:
    server = talking("ill", orders=replace(ORDERS, http=False, unasked="it speaks gRPC"))
    assert server.wait_for_words().endswith("; its answers are not verified: it speaks gRPC\n")


@pytest.mark.parametrize(("fault", "ended"), [("dies", "exit 1"), ("killed", "SIGKILL")])
def test_a_server_that_ends_under_its_first_requests_is_left_to_judge(
    fault: str, ended: str, talking: Callable[..., Talking]
) -> None:
    server = talking(fault)
    server.process.wait(30)
    wait_until(lambda: server.attempt.ended is not None, 10, "its end is recorded")
    attempt = server.attempt
    assert (attempt.ended, attempt.verdict, attempt.verified) == (ended, None, None)
    assert attempt.healthy


def test_an_operator_who_ends_it_meanwhile_waits_for_nobody(talking: Callable[..., Talking]) -> None:
    server = talking("hangs")
    wait_until(
        lambda: server.asked_file.exists() and "generate" in server.asked_file.read_text(), 20, "it is asked"
    )
    started = time.monotonic()
    server.end(signal.SIGTERM)
    assert time.monotonic() - started < 30, "it waits ten times as long for an answer"
    assert server.attempt.ended == "SIGTERM"


def make_certificate(folder: Path, password: str) -> Path:
    """A certificate of nobody's, with its key behind `password`, in one file."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    make = (
        f"openssl req -x509 -newkey rsa:2048 -days 1 -subj /CN=elsewhere -passout pass:{password} "
        f"-keyout {key} -out {certificate}"
    )
    if subprocess.run(make.split(), capture_output=True).returncode != 0:
        pytest.skip("no openssl here")
    key.write_text(key.read_text() + certificate.read_text())
    return key


SECRET = "not-for-everybody"


def test_key_tls_ipv6_and_root_path_together(talking: Callable[..., Talking], tmp_path: Path) -> None:
    if not Path("/proc/net/if_inet6").exists():
        pytest.skip("no IPv6 here")
    certificate = make_certificate(tmp_path, "word")
    server = talking(
        *("--host", "::", "--ssl", str(certificate), "--ssl-password", "word"),
        *("--key", SECRET, "--root", "/behind/a/proxy"),
        host="::",
        ssl=True,
        orders=replace(ORDERS, api_key=SECRET),
    )
    assert "its answers are sound" in server.wait_for_words()


def test_the_key_is_in_nothing_that_anybody_can_read(talking: Callable[..., Talking]) -> None:
    server = talking("--key", SECRET, "--think", "0.1", orders=replace(ORDERS, api_key=SECRET))
    process = Path(f"/proc/{server.watcher.pid}")
    assert SECRET not in (process / "cmdline").read_text() + (process / "environ").read_text()
    server.wait_for_words()
    assert server.attempt.verified
    assert SECRET not in server.log.read_text() + server.ticket.record.read_text()
    assert all(SECRET not in str(fd.readlink()) for fd in (process / "fd").iterdir())


def test_a_finding_goes_into_the_profile(talking: Callable[..., Talking], tmp_path: Path) -> None:
    store = Store((tmp_path / "store",))
    profile = made(chosen=Chosen(CHOICE.flags, id="c1", origin="table"))
    name = store.save(profile).relative_to(tmp_path / "store").with_suffix("").as_posix()
    kept = Kept(str(MARKS), (str(tmp_path / "store"),), name)
    server = talking("drafts", orders=replace(ORDERS, profile=kept))
    server.wait_for_words()
    found = store.find(name)
    assert found is not None
    assert found.profile.status == "verified"
    assert found.profile.measured.acceptance_length == 2.75
    assert found.profile.extra["resolved"]["attention_backend"] == "fa3"


def test_garbage_quarantines_the_profile(talking: Callable[..., Talking], tmp_path: Path) -> None:
    store = Store((tmp_path / "store",))
    profile = made(chosen=Chosen(CHOICE.flags, id="c1", origin="table"))
    name = store.save(profile).relative_to(tmp_path / "store").with_suffix("").as_posix()
    server = talking(
        "nan", orders=replace(ORDERS, profile=Kept(str(MARKS), (str(tmp_path / "store"),), name))
    )
    server.wait_for_words()
    found = store.find(name)
    assert found is not None
    assert found.profile.status == "quarantined"
    assert "not finite" in found.profile.status_reason


def test_who_reads_the_servers_stderr_waits_for_no_profile_after_its_end(
    talking: Callable[..., Talking], tmp_path: Path
) -> None:
    program, begun = tmp_path / "marks.py", tmp_path / "begun"
    program.write_text(
        "import os, pathlib, sys, time\n"
        f"sys.stdin.read(); new = pathlib.Path({str(begun)!r} + '.new'); new.write_text(str(os.getpid()))\n"
        f"new.rename({str(begun)!r}); time.sleep(600)"  # behind others that hold the store's lock
    )
    kept = Kept(str(program), (str(tmp_path),), "cpu/model.tp1.throughput.00000000")
    server = talking(orders=replace(ORDERS, profile=kept))
    wait_until(begun.exists, 60, "the profile is being marked")
    marking = psutil.Process(int(begun.read_text()))
    server.process.kill()
    server.process.wait()
    wait_until(lambda: not is_alive(server.watcher), 30, "the watcher ended with the server")
    assert not is_alive(marking)
    assert server.attempt.verified
    assert "could not be marked: the server ended\n" in server.log.read_text()


def test_a_profile_gets_to_know_a_choice_of_any_length(tmp_path: Path) -> None:
    program = tmp_path / "marks.py"
    program.write_text("import sys, time; time.sleep(0.5); sys.exit(len(sys.stdin.read()) < 500_000)")
    orders = replace(ORDERS, flags=("x" * 500_000,), profile=Kept(str(program), (str(tmp_path),), "a/b"))
    assert mark_profile(orders, Finding("verified"), lambda _: False) is None


@pytest.mark.parametrize("folder", ["/proc/nowhere", "a-file"])
def test_a_store_that_cannot_be_written_costs_one_clause(
    folder: str, talking: Callable[..., Talking], tmp_path: Path
) -> None:
    (tmp_path / "a-file").touch()
    kept = Kept(str(MARKS), (str(tmp_path / folder),), "cpu/model.tp1.throughput.00000000")
    server = talking(orders=replace(ORDERS, profile=kept))
    words = server.wait_for_words()
    assert words.count("\n") == 1
    assert "its answers are sound" in words and "; the profile could not be marked: " in words
    assert server.attempt.verified


def test_a_full_disk_is_said_once_and_the_finding_is_kept_when_there_is_room(
    talking: Callable[..., Talking],
) -> None:
    server = talking("--after", "1.5")
    lock = server.ticket.record.with_suffix(".lock")
    lock.unlink()
    lock.mkdir()  # nobody can write
    wait_until(lambda: "could not record in" in server.log.read_text(), 20, "it complains")
    lock.rmdir()
    wait_until(lambda: server.attempt.verified, 45, "it was tried again")
    assert server.log.read_text().count("could not record in") == 1


def test_orders_of_any_length_arrive() -> None:
    orders = replace(ORDERS, flags=tuple("x" * 100_000 for _ in range(3)), env=(("A", "é"),), api_key="k")
    assert take_over(hand_over(orders)) == orders
    with pytest.raises(OSError, match="take"):
        hand_over(replace(orders, flags=("x" * (2 << 20),)))
    before = len(list(Path("/proc/self/fd").iterdir()))
    kept = Kept("a", ("b", "c"), "d")
    assert take_over(hand_over(replace(ORDERS, profile=kept, expects={"a": "b"}))).profile == kept
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert json.loads(orders.to_json())["api_key"] == "k"
