"""How the commands end: the exit code, and one message without a traceback, whoever listens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_server import ROOT


def run(*words: str, redirect: str = "", **extra: str) -> subprocess.CompletedProcess[str]:
    """Run `autolaunch` with `words` in a shell that redirects its output as told."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **extra}
    return subprocess.run(
        ["sh", "-c", f'"$@" {redirect}', "sh", sys.executable, "-m", "autolaunch", *words],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="surrogateescape",
        timeout=60,
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Usage: autolaunch"),
        (["serv"], "error: No such command"),
        (["serve", "m", "--tune"], "error: Option"),
        (["serve", "m", "--tune", "fast"], "error: Invalid value"),
        (["serve", "m", "--plain=1"], "error: Option"),
        (["serve", "m", "--budget", "9" * 400], "error: Invalid value"),
        (["serve", "m", "--candidate", "triton"], "error: `--candidate triton` holds no SGLang flag"),
        (["serve", "m", "--candidate", "-- x"], "error: `--candidate -- x` holds no SGLang flag"),
        (["serve", "m", "--candidate", "--a'b"], "error: `--candidate --a'b` cannot be split"),
        (["serve", "m", "--workload", "in=0"], "error: `--workload in=0` needs a whole number"),
        (["serve", "m", "--slo", "ttft=200"], "error: Invalid value"),
        (["serve", "m", "--python", "/nowhere"], "error: `--python /nowhere` is not there"),
    ],
)
@pytest.mark.parametrize("redirect", ["", "2>&-", "2>/dev/full", ">&-", "2>&1 >&-"])
def test_a_wrong_command_line(words: list[str], said: str, redirect: str) -> None:
    done = run(*words, redirect=redirect)
    assert done.returncode == 2
    if redirect in ("", ">&-"):
        assert done.stderr.startswith(said)
    assert "Traceback" not in done.stderr + done.stdout


def test_a_wrong_variable_is_named() -> None:
    done = run("serve", "m", AUTOLAUNCH_BUDGET="soon")
    assert done.returncode == 2
    assert "because the variable AUTOLAUNCH_BUDGET says so" in done.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("WORKLOAD", "soon"), ("WORKLOAD", "@/nowhere"), ("CANDIDATE", "no flag")]
)
def test_a_variable_that_holds_more_than_a_word_is_named(name: str, value: str) -> None:
    done = run("serve", "m", **{f"AUTOLAUNCH_{name}": value})
    assert done.returncode == 2
    assert f"because the variable AUTOLAUNCH_{name} says so" in done.stderr.replace("  and ", "because ")
    assert "variable" not in run("serve", "m", f"--{name.lower()}", value).stderr


def test_a_secret_is_in_no_message() -> None:
    done = run("serve", "m", "--candidate", "triton --api-key sekret123")
    assert done.returncode == 2
    assert "sekret123" not in done.stderr
    assert "***" in done.stderr


@pytest.mark.parametrize("words", [["--version"], ["serve", "m", "--plain", "--dry-run"]])
def test_a_stdout_that_takes_nothing(words: list[str], fake_sglang: str) -> None:
    done = run(*words, redirect=">/dev/full", PYTHONPATH=fake_sglang)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)
    assert done.stderr.startswith("error: could not write")
    assert "No space left on device" in done.stderr


@pytest.mark.parametrize("options", [["--plain"], ["--tune", "off"]])
def test_a_dry_run_prints_bytes_as_they_were_typed(options: list[str], fake_sglang: str) -> None:
    for name in ("modèle", os.fsdecode(b"\xff\xfe")):
        done = run("serve", name, *options, "--dry-run", PYTHONPATH=fake_sglang, PYTHONIOENCODING="ascii")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1].endswith(f"--model-path '{name}'")


@pytest.fixture
def fake_sglang() -> str:
    """A path with a stand-in for SGLang on it."""
    return os.pathsep.join([str(ROOT), str(Path(__file__).parent / "launch" / "fake_sglang")])
