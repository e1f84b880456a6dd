"""Own options: split by exact spelling, never taken from SGLang, each with its variable."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from autolaunch.cli import launch_server, own_option_names, run_command, serve
from autolaunch.errors import EXIT_USAGE
from autolaunch.options.declarations import serve_options
from autolaunch.options.options import ServeOptions, split_own
from autolaunch.race.slo import Slo
from autolaunch.race.workload import Workload
from tests.real_server import ROOT


@click.command()
@serve_options
def probe(**options: Any) -> None:
    """Print the options as a value."""
    click.echo(repr(ServeOptions(**options)))


def parsed(args: list[str], **env: str) -> ServeOptions:
    """What `args` and variables make of the options."""
    result = CliRunner().invoke(probe, args, env=env)
    assert result.exit_code == 0, result.output
    found: ServeOptions = eval(result.output)
    return found


@pytest.mark.parametrize(
    ("tokens", "own", "rest"),
    [
        ([], [], []),
        (["m", "--tp", "8"], [], ["m", "--tp", "8"]),
        (["--plain", "m"], ["--plain"], ["m"]),
        (["m", "--tp=8", "--dry-run", "--host", "::1"], ["--dry-run"], ["m", "--tp=8", "--host", "::1"]),
        (["m", "--budget", "30s", "--x"], ["--budget", "30s"], ["m", "--x"]),
        (["m", "--budget=30s", "--x"], ["--budget=30s"], ["m", "--x"]),
        (["--candidate", "--attention-backend triton"], ["--candidate", "--attention-backend triton"], []),
        (["m", "--budget"], ["--budget"], ["m"]),
        (["m", "--dry", "--plai", "--Plain"], [], ["m", "--dry", "--plai", "--Plain"]),
        (["m", "--", "--plain"], [], ["m", "--", "--plain"]),
        (["m", "--json-model-override-args", '{"a": "--plain"}'], [], ["m", "--json-model-override-args", '{"a": "--plain"}']),
        (["m", "--tp", "2", "--tp", "4"], [], ["m", "--tp", "2", "--tp", "4"]),
    ],
)  # fmt: skip
def test_split(tokens: list[str], own: list[str], rest: list[str]) -> None:
    assert split_own(tokens, probe.params) == (own, rest)


def test_variables() -> None:
    options = parsed(
        [],
        AUTOLAUNCH_PLAIN="1",
        AUTOLAUNCH_DRY_RUN="true",
        AUTOLAUNCH_STRICT="yes",
        AUTOLAUNCH_PYTHON="/opt/venv",
        AUTOLAUNCH_TUNE="off",
        AUTOLAUNCH_BUDGET="90s",
        AUTOLAUNCH_CANDIDATE="--attention-backend triton\n--disable-radix-cache",
        AUTOLAUNCH_WORKLOAD="in=8,out=4,concurrency=2",
        AUTOLAUNCH_OBJECTIVE="latency",
        AUTOLAUNCH_SLO="ttft=200ms",
        AUTOLAUNCH_START_DEADLINE="5m",
        AUTOLAUNCH_PROFILE="h200/model",
        AUTOLAUNCH_PROFILE_DIR="/new::/kept",
        AUTOLAUNCH_STALE="retune",
        AUTOLAUNCH_VERIFY="warn",
    )
    assert options == ServeOptions(
        plain=True,
        dry_run=True,
        strict=True,
        python="/opt/venv",
        tune="off",
        budget_s=90.0,
        candidates=("--attention-backend triton", "--disable-radix-cache"),
        workload=Workload(8, 4, 2, rounds=1),
        objective="latency",
        slo=Slo(ttft_ms=200),
        start_deadline_s=300.0,
        profile="h200/model",
        profile_dirs=("/new", "/kept"),
        stale="retune",
        verify="warn",
    )


def test_defaults_are_those_of_the_value() -> None:
    assert parsed([]) == ServeOptions()


def test_the_command_line_wins_over_variables() -> None:
    assert parsed(["--budget", "10s"], AUTOLAUNCH_BUDGET="90s").budget_s == 10.0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--workload", "in=0"], "needs a whole number from 1 for `in`, not `0`"),
        (["--workload", "@/nowhere"], "`/nowhere` cannot be read"),
        (["--objective", "fast"], "'fast' is not one of 'throughput', 'latency'"),
        (["--slo", "ttft=200"], "`ttft=200` has no unit"),
        (["--start-deadline", "soon"], "`soon` is not a duration"),
        (["--tune", "slow"], "'slow' is not one of 'auto', 'off', 'quick', 'full'"),
        (["--stale", "ask"], "'ask' is not one of 'table', 'use', 'retune', 'fail'"),
        (["--admit", "fa3"], "`--admit fa3` is not DIMENSION=CHOICE"),
        (["--verify", "maybe"], "'maybe' is not one of 'on', 'warn', 'off'"),
    ],
)
def test_values_are_checked_at_once(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before SGLang is even looked for."""
    assert run_command(serve, ["no-model", *args, "--python", "/nowhere"], "autolaunch serve") == EXIT_USAGE
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""


def test_the_light_path_reads_no_workload() -> None:
    code = (
        "import sys, autolaunch.cli; "
        "print([name for name in sys.modules if name.startswith('autolaunch.race') or name == 'random'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stderr


def test_options_of_a_workload_show_nothing_of_its_text(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "sekret"}')
    result = CliRunner().invoke(probe, ["--workload", f"@{file}"])
    assert result.exit_code == 0
    assert "sekret" not in result.output


@pytest.mark.parametrize("command", [serve, launch_server])
def test_every_option_has_its_variable(command: click.Command) -> None:
    for option in command.params:
        assert isinstance(option, click.Option)
        longest = max(option.opts, key=len)
        assert option.envvar == "AUTOLAUNCH_" + longest.lstrip("-").replace("-", "_").upper()


def test_spellings_are_long_and_lower() -> None:
    assert all(re.fullmatch(r"--[a-z][a-z-]{2,}", name) for name in own_option_names())
