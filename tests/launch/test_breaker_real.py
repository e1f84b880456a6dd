"""A real SGLang on the CPU, started again and again: measured once, verified, used again, and bad choices left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from autolaunch.launch.attempt_record import Attempt, read_record
from autolaunch.profiles.profile import Chosen
from tests.conftest import SmallModel
from tests.launch.harness import wait_until
from tests.launch.plant import Planted, choice, plant, start_of
from tests.launch.test_signals import may_unshare
from tests.real_server import SMALL_SERVER_FLAGS, RealServer, server_environment

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(900)]

DIES = choice("--attention-backend", "fa3")
"""Its scheduler fails, and the server kills itself (sglang 0.5.21 on a CPU)."""
IS_REFUSED = choice("--attention-backend", "trtllm_mha", id="c2")
"""The main process raises, and exits with 1."""
IS_SLOW = choice("--attention-backend", "flex_attention", TRITON_INTERPRET="1")
"""Healthy after a minute, as it compiles by interpreting."""
ANSWERS_GARBAGE = choice("--attention-backend", "triton", TRITON_INTERPRET="1")
"""Wrong in bf16, right in fp32 (sglang 0.5.21 on a CPU)."""
IS_SOUND = choice("--disable-overlap-schedule", id="c3")
ONE_OPEN = ("--attention-backend", "torch_native", "--disable-radix-cache")
"""Pins that leave one dimension to a race, so that two engines are enough."""


@pytest.fixture(autouse=True)
def deaf_to_orphans() -> Iterator[None]:
    """A scheduler of SGLang's sends SIGQUIT to its parent when it fails, whoever has adopted it by then."""
    before = signal.signal(signal.SIGQUIT, lambda *_: None)
    yield
    signal.signal(signal.SIGQUIT, before)


class House:
    """One command line of `autolaunch serve`, with one home, that is started again and again."""

    def __init__(
        self, python: str, model: SmallModel, port: int, home: Path, start: Callable[..., RealServer]
    ) -> None:
        self.python, self.port, self.home = python, port, home
        self.tokens: tuple[str, ...] = (str(model), *SMALL_SERVER_FLAGS, "--port", str(port))
        self.environ: Mapping[str, str] = server_environment()
        self._start = start

    def argv(self, word: str, *more: str) -> list[str]:
        """`autolaunch serve` or another command of it."""
        return [sys.executable, "-m", "autolaunch", word, *self.tokens, "--python", self.python, *more]

    def serve(self, *more: str, prefix: tuple[str, ...] = ()) -> RealServer:
        """Start it."""
        return self._start([*prefix, *self.argv("serve", *more)], port=self.port, environ=self.environ)

    def plant(self, *ranked: Chosen) -> Planted:
        """A profile that was made for just this start."""
        start = start_of(self.tokens, self.python, self.environ, Path.cwd())
        return plant(start, *ranked)

    @property
    def attempts(self) -> list[Attempt]:
        """The record."""
        (record,) = self.home.glob("state/attempts/*.json")
        return read_record(record) or []

    def wait_judged(self, server: RealServer) -> Attempt:
        """The attempt of `server`, once its watcher has nothing more to find out."""
        server.wait_healthy(240)
        wait_until(lambda: self.attempts[-1].verdict is not None, 600, "judged")
        words = ("autolaunch: the server is healthy", "autolaunch: warning: this server")
        wait_until(lambda: any(word in said(server) for word in words), 60, "it is said")
        return self.attempts[-1]


@pytest.fixture
def house(
    sglang_python: str,
    small_model: SmallModel,
    free_port: int,
    isolated_home: Path,
    start_server: Callable[..., RealServer],
) -> House:
    """The small model."""
    return House(sglang_python, small_model, free_port, isolated_home, start_server)


def said(server: RealServer) -> str:
    """What the launcher and the watcher said; a line of the server's may have come in between."""
    return "\n".join(line for line in server.output().splitlines() if "autolaunch: " in line)


def answers_right(server: RealServer, model: SmallModel) -> bool:
    """Whether the server says what the small model was taught."""
    question, answer = next(iter(model.answers.items()))
    return server.chat(question) == answer


def stopped(server: RealServer) -> None:
    """End it in order, with nothing left."""
    server.stop(signal.SIGTERM)
    assert server.leftovers() == []


def test_tuned_once_verified_and_used_again(house: House, small_model: SmallModel) -> None:
    house.tokens = (*house.tokens, *ONE_OPEN)
    tuned = subprocess.run(
        house.argv("tune", "--budget", "4m", "--format", "json"),
        env=house.environ,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert tuned.returncode == 0, tuned.stderr
    document = json.loads(tuned.stdout)
    assert document["profile"]["status"] == "fresh"
    if not document["chosen"]["flags"]:
        house.plant(IS_SOUND)  # noise decided for the original, whose answers nobody judges
    for status in ("fresh", "verified"):
        server = house.serve()
        attempt = house.wait_judged(server)
        assert attempt.verified and attempt.verdict is not None and attempt.verdict.status == "verified"
        assert attempt.candidate_flags == IS_SOUND.flags
        assert "racing" not in said(server)
        assert f"launching --disable-overlap-schedule by the profile {attempt.profile} ({status}" in said(
            server
        )
        assert "its answers are sound" in said(server)
        assert answers_right(server, small_model)
        stopped(server)


def test_after_two_choices_that_die_at_start_the_third_start_is_healthy(
    house: House, small_model: SmallModel
) -> None:
    planted = house.plant(DIES, IS_REFUSED, IS_SOUND)
    first = house.serve()
    assert first.wait_exit(120) in (-signal.SIGKILL, 0)
    assert f"launching --attention-backend fa3 by the profile {planted.name}" in said(first)
    wait_until(lambda: house.attempts[-1].ended is not None, 10, "somebody saw the end")
    second = house.serve()
    assert second.wait_exit(120) == 1
    assert "`--attention-backend fa3` is passed over: the last server started with" in said(second)
    assert planted.now.profile.status == "quarantined"
    assert "ended before it was seen healthy (SIGKILL)" in planted.now.profile.status_reason
    third = house.serve()
    third.wait_healthy()
    assert "the last 2 starts of this command ended before the server was seen healthy" in said(third)
    assert "launching the original command" in said(third)
    assert answers_right(third, small_model)
    wait_until(lambda: house.attempts[-1].healthy is not None, 30, "recorded as healthy")
    assert [(one.candidate_flags, one.ended) for one in house.attempts[:2]] == [
        (DIES.flags, "SIGKILL"),
        (IS_REFUSED.flags, "exit 1"),
    ]
    stopped(third)
    fourth = house.serve()
    assert house.wait_judged(fourth).candidate_flags == IS_SOUND.flags
    assert "by the profile" in said(fourth)
    stopped(fourth)


def test_a_choice_that_answers_garbage_is_quarantined(house: House, small_model: SmallModel) -> None:
    planted = house.plant(ANSWERS_GARBAGE)
    first = house.serve()
    attempt = house.wait_judged(first)
    assert attempt.verdict is not None
    assert (attempt.verdict.status, attempt.verified) == ("quarantined", None), attempt.verdict
    wait_until(lambda: planted.now.profile.status == "quarantined", 60, "the profile knows")
    wait_until(lambda: "is quarantined, and the next start takes" in said(first), 10, "it is said")
    assert first.is_healthy(), "nobody stops it"
    first.send(signal.SIGKILL)
    first.wait_exit()
    first.end()
    second = house.serve()
    second.wait_healthy()
    assert "--attention-backend triton` was not sound: " in said(second)
    assert "launching the original command" in said(second)
    assert answers_right(second, small_model)
    stopped(second)


def test_a_start_that_a_probe_ends_twice_falls_back(house: House, small_model: SmallModel) -> None:
    """The first SIGTERM may be an operator's; after the second, nobody waits for that choice again."""
    planted = house.plant(IS_SLOW, IS_SOUND)
    for _ in range(2):
        server = house.serve()
        wait_until(lambda: "by the profile" in said(server), 60, "launched")  # noqa: B023
        assert "launching TRITON_INTERPRET=1 --attention-backend flex_attention" in said(server)
        time.sleep(5)
        assert server.stop(signal.SIGTERM) == -signal.SIGTERM
        assert server.leftovers() == []
        assert house.attempts[-1].ended == "SIGTERM"
    third = house.serve()
    third.wait_healthy()
    assert "launching the original command" in said(third)
    assert planted.now.profile.status == "suspect"
    assert answers_right(third, small_model)
    stopped(third)


def test_as_pid_1_with_the_watcher_signals_and_zombies_are_right(
    house: House, small_model: SmallModel
) -> None:
    if not may_unshare():
        pytest.skip("PID namespaces are not permitted here")
    planted = house.plant(IS_SOUND)
    server = house.serve(prefix=("unshare", "--pid", "--fork", "--mount-proc", "--kill-child"))
    house.wait_judged(server)
    wait_until(lambda: planted.now.profile.status == "verified", 60, "the profile knows")
    assert answers_right(server, small_model)
    (inner,) = psutil.Process(server.pid).children()
    assert "NSpid:\t" + f"{inner.pid}\t1\n" in Path(f"/proc/{inner.pid}/status").read_text()
    states = {process.pid: process.status() for process in inner.children(recursive=True)}
    assert psutil.STATUS_ZOMBIE not in states.values()
    watchers = [one for one in inner.children() if any(word.endswith("watch.py") for word in one.cmdline())]
    assert len(watchers) == 1
    began = time.monotonic()
    inner.send_signal(signal.SIGTERM)
    assert server.wait_exit() == 0
    assert time.monotonic() - began < 60, "a plain SGLang takes 1 to 7 s"
    assert server.leftovers() == []
