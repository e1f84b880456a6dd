"""The README's first command ends in a live server, and prints the line that asks it."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.loading import load_script
from tests.real_server import ROOT, RealServer

DEMO = ROOT / "scripts" / "demo"


@pytest.mark.parametrize(
    ("arguments", "port"),
    [
        ([], "30000"),
        (["--port", "5"], "5"),
        (["--port=6", "--tp", "1"], "6"),
        (["--port", "5", "--port", "7"], "7"),
    ],
)
def test_the_printed_port_is_the_one_that_is_served(arguments: list[str], port: str) -> None:
    assert load_script("scripts/demo").asked_port(arguments) == port


@pytest.fixture
def demo_environment() -> Path:
    """The environment of this checkout; the demo would make it, but not in the middle of somebody's tests."""
    venv = ROOT / ".venv"
    if not (venv / ".done").exists() and not os.environ.get("AUTOLAUNCH_TEST_REQUIRE_SGLANG"):
        pytest.skip("this checkout has no `.venv`; `scripts/test` makes one")
    return venv


def printed_curl(output: str) -> list[str]:
    """The words of the `curl` line in what the demo printed."""
    start = output.index("curl -s http")
    line = output[start : output.index("}'", start) + 2]
    return shlex.split(line.replace("\\\n", " "))  # as a shell joins lines


@pytest.mark.sglang
def test_the_demo_becomes_a_server_that_the_printed_line_asks(
    demo_environment: Path, start_server: Callable[..., RealServer], free_port: int
) -> None:
    server = start_server([str(DEMO), "--port", str(free_port), "--tune", "off"], port=free_port)
    server.wait_healthy()
    words = printed_curl(server.output())
    assert words[0] == "curl"
    if subprocess.run(["which", "curl"], capture_output=True).returncode == 0:
        answer = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        assert '"content":"Paris."' in answer
    assert server.chat("What is the capital of France?") == "Paris."
    # The process that was started is the server: it became autolaunch, and that became SGLang.
    command_line = Path(f"/proc/{server.pid}/cmdline").read_bytes().split(b"\0")
    assert b"sglang.launch_server" in command_line or command_line[0].startswith(b"sglang")
    assert server.stop() == 0
    assert server.leftovers() == []


@pytest.mark.sglang
def test_options_go_to_serve(demo_environment: Path) -> None:
    ran = subprocess.run([DEMO, "--dry-run", "--plain"], check=True, capture_output=True, text=True)
    command = shlex.split(ran.stdout.splitlines()[-1])
    assert command[1:4] == ["-m", "sglang.launch_server", "--model-path"]
    assert "--max-total-tokens" in command
    assert "--dry-run" not in command
