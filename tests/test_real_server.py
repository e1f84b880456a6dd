"""The instrument itself: `RealServer` overlooks no process, and says why a server did not come up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real_server import HIGHEST_SERVER_PORT, RealServer, find_free_port

SERVE = """
import http.server, json, sys

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *ignored):
        pass

http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""
STRAY = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
os.wait()
"""


def python(*code: str) -> list[str]:
    """A command that runs pieces of code after one another."""
    return [sys.executable, "-c", "\n".join(map(textwrap.dedent, code))]


def test_a_healthy_server_is_seen_and_stopped(
    start_server: Callable[..., RealServer], free_port: int
) -> None:
    server = start_server([*python(SERVE), str(free_port)], port=free_port)
    assert server.wait_healthy(20) < 20
    assert server.stop(signal.SIGTERM) == -signal.SIGTERM
    assert server.leftovers(0) == []
    assert not server.is_healthy()


def test_a_stray_in_a_session_of_its_own_is_found_and_ended(
    start_server: Callable[..., RealServer], free_port: int
) -> None:
    server = start_server(python(STRAY), port=free_port)
    assert server.wait_exit() == 0
    (stray,) = server.leftovers(0.2)
    assert "time.sleep(60)" in stray
    server.end()
    assert server.leftovers(0) == []
    assert not Path("/proc", stray.partition(":")[0]).exists()


def test_an_early_end_shows_the_log(start_server: Callable[..., RealServer], free_port: int) -> None:
    server = start_server(python("import sys", "print('no such model')", "sys.exit(3)"), port=free_port)
    with pytest.raises(AssertionError, match=r"ended with 3 before it was healthy\nno such model"):
        server.wait_healthy(20)


def test_free_ports_leave_room_for_the_one_that_is_derived() -> None:
    assert max(find_free_port() for _ in range(200)) <= HIGHEST_SERVER_PORT


def test_tests_have_a_home_of_their_own(isolated_home: Path) -> None:
    assert os.environ["AUTOLAUNCH_HOME"] == str(isolated_home)
    assert not isolated_home.exists()


def test_signals_mean_what_they_mean_at_a_terminal() -> None:
    """Also where the tests themselves run in the background, which this one then shows."""
    show = python(
        "import signal", "print([n for n in (1, 2, 3, 15) if signal.getsignal(n) == signal.SIG_IGN])"
    )
    assert subprocess.run(show, capture_output=True, text=True).stdout == "[]\n"
