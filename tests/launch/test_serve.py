"""`autolaunch serve` from argv to a healthy server, with a stand-in for SGLang and faults on demand."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.launch.harness import HERE, PROBE, wait_until
from tests.real_server import ROOT, RealServer, find_free_port

STAGES = ["read", "detect", "field_of", "reason_not_to_race", "race", "choose", "record"]
FAULTS = ["raises", "hangs", "exits", "exits_at_once", "segfaults", "returns_nothing"]
ANSWERS = {("reason_not_to_race", "returns_nothing"), ("record", "returns_nothing")}
"""None from these is no fault: race, and no watcher."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A folder that looks like a model whose weights are here."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    return folder


class Serve:
    """Starts `autolaunch serve`, again and again, for one model and port."""

    def __init__(self, start_server: Callable[..., RealServer], model: Path, folder: Path) -> None:
        self._start = start_server
        self.model = model
        self.state = folder / "state.json"
        self.port = find_free_port()
        paths = [HERE / "planted", HERE / "fake_sglang", ROOT]
        self.environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "FAKE_STATE": str(self.state),
            "FAKE_PROBE": str(PROBE),
        }

    @property
    def original(self) -> list[str]:
        """SGLang's words of the original command."""
        return ["--model-path", str(self.model), "--host", "127.0.0.1", "--port", str(self.port)]

    def argv(self, *options: str) -> list[str]:
        """The command line."""
        words = [*options, "--host", "127.0.0.1", "--port", str(self.port)]
        return [sys.executable, "-m", "autolaunch", "serve", str(self.model), *words]

    def start(self, *options: str, argv: list[str] | None = None, **extra: str) -> RealServer:
        """Start it with `extra` in the environment."""
        self.state.unlink(missing_ok=True)
        environ = {**self.environ, **extra}
        return self._start(
            argv or self.argv(*options), port=self.port, environ=environ, cwd=self.model.parent
        )

    def words(self) -> list[str]:
        """What the server was started with."""
        words: list[str] = self.what_it_is()["words"]
        return words

    def what_it_is(self) -> dict[str, Any]:
        """What the server process saw of itself."""
        state: dict[str, Any] = json.loads(self.state.read_text())
        return state

    def attempts(self) -> list[dict[str, Any]]:
        """What is on record."""
        (record,) = Path(self.environ["AUTOLAUNCH_HOME"]).glob("state/attempts/*.json")
        found: list[dict[str, Any]] = json.loads(record.read_text())["attempts"]
        return found

    def wait_recorded(self) -> None:
        """Wait until the latest attempt is recorded as healthy."""
        wait_until(lambda: self.attempts()[-1]["healthy"], 10, "healthy is on record")


@pytest.fixture
def serve(start_server: Callable[..., RealServer], model: Path, tmp_path: Path) -> Serve:
    """`autolaunch serve` for the stand-in."""
    return Serve(start_server, model, tmp_path)


def end(server: RealServer, code: int = 0) -> None:
    """SIGTERM gives the server's own exit code, and nothing is left."""
    assert server.stop() == code
    assert server.leftovers() == []


@pytest.mark.parametrize(
    ("stage", "fault"),
    [(stage, fault) for stage in STAGES for fault in FAULTS if (stage, fault) not in ANSWERS],
)
def test_a_planted_fault_ends_in_the_original_server(stage: str, fault: str, serve: Serve) -> None:
    server = serve.start("--budget", "1s", PLANT=f"{stage}:{fault}")
    server.wait_healthy(30)
    what = serve.what_it_is()
    assert what["words"] == serve.original
    assert what["pid"] == server.pid
    assert what["children"] == {}
    assert "warning: the stage" in server.output()
    assert "; starting the original command" in server.output()
    end(server)


@pytest.mark.parametrize("fault", ["raises", "hangs", "segfaults"])
def test_strict_makes_a_planted_fault_an_error(fault: str, serve: Serve) -> None:
    server = serve.start("--strict", PLANT=f"detect:{fault}")
    assert server.wait_exit() == 1
    assert server.output().startswith("error: the stage `detect` ")
    assert not serve.state.exists()


def test_the_winner_is_started_watched_and_recorded(serve: Serve) -> None:
    server = serve.start()
    server.wait_healthy(30)
    what = serve.what_it_is()
    assert what["words"] == [*serve.original, "--disable-overlap-schedule"]
    assert what["pid"] == server.pid
    assert ["watch.py" in line for line in what["children"].values()] == [True]
    serve.wait_recorded()
    (attempt,) = serve.attempts()
    assert attempt["pid"] == server.pid
    assert attempt["candidate_flags"] == ["--disable-overlap-schedule"]
    end(server)


def test_a_choice_that_fails_is_not_chosen_again_and_two_failures_end_the_race(serve: Serve) -> None:
    environ = {"FAKE_DEADLY": "--disable-overlap-schedule --disable-radix-cache", "PLANT_TRIED": "2"}
    first = serve.start(**environ)
    assert first.wait_exit() == 1
    assert serve.words()[-1] == "--disable-overlap-schedule"
    second = serve.start(**environ)
    assert second.wait_exit() == 1
    assert serve.words()[-1] == "--disable-radix-cache"
    assert "racing" not in second.output()
    third = serve.start(**environ)
    third.wait_healthy(30)
    assert serve.words() == serve.original
    text = third.output()
    assert text.count(" is passed over: ") == 2
    assert "launching the original command by the profile cpu/model" in text
    assert "nothing else of the profile is left" in text
    end(third)


def test_one_that_is_killed_while_it_races_counts_too(serve: Serve) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        server = serve.start(PLANT_RACE_S="60")
        wait_until(lambda server=server: "racing the original" in server.output(), 20, "it races")
        assert server.stop(number) == -number
        assert server.leftovers() == []
        home = Path(serve.environ["AUTOLAUNCH_HOME"])
        assert not list(home.glob("state/attempts/*.before")), "the record is on disk before an engine runs"
    third = serve.start(PLANT_RACE_S="60")
    third.wait_healthy(30)
    assert serve.words() == serve.original
    end(third)


def test_a_healthy_start_lets_the_next_one_race(serve: Serve) -> None:
    for _ in range(3):
        server = serve.start("--verify", "off")  # the stand-in answers no prompts, and may be asked too soon
        server.wait_healthy(30)
        serve.wait_recorded()
        assert serve.words()[-1] == "--disable-overlap-schedule"
        end(server)


def test_two_launchers_of_one_command_do_not_disturb_each_other(serve: Serve) -> None:
    """Both race at once and both are recorded; the port goes to one of them, as without autolaunch."""
    servers = [serve.start(PLANT_RACE_S="2")]
    wait_until(lambda: "racing the original" in servers[0].output(), 20, "it races")
    servers.append(serve.start(PLANT_RACE_S="2"))
    wait_until(lambda: any(server.process.poll() == 1 for server in servers), 30, "one has lost the port")
    (winner,) = (server for server in servers if server.process.poll() is None)
    winner.wait_healthy(30)
    wait_until(lambda: any(attempt["healthy"] for attempt in serve.attempts()), 10, "recorded as healthy")
    healthy = {attempt["pid"]: bool(attempt["healthy"]) for attempt in serve.attempts()}
    assert healthy == {server.pid: server is winner for server in servers}
    end(winner)


@pytest.mark.parametrize("options", [(), ("--strict",)])
def test_a_home_that_cannot_be_written(options: tuple[str, ...], serve: Serve) -> None:
    server = serve.start(*options, AUTOLAUNCH_HOME="/dev/null/home")
    if options:
        assert server.wait_exit() == 1
        assert "error: " in server.output()
        return
    server.wait_healthy(30)
    assert serve.words() == serve.original
    end(server)


def test_a_corrupt_record_does_not_keep_it_from_racing(serve: Serve) -> None:
    server = serve.start()
    server.wait_healthy(30)
    serve.wait_recorded()
    end(server)
    (record,) = Path(serve.environ["AUTOLAUNCH_HOME"]).glob("state/attempts/*.json")
    record.write_text("{")
    server = serve.start()
    server.wait_healthy(30)
    assert serve.words()[-1] == "--disable-overlap-schedule"
    end(server)


@pytest.mark.parametrize("option", ["--plain", "--tune=off"])
def test_nothing_to_decide_is_the_original_without_a_watcher(option: str, serve: Serve) -> None:
    server = serve.start(option)
    server.wait_healthy(30)
    assert serve.words() == serve.original
    assert serve.what_it_is()["children"] == {}
    end(server)


def test_the_literal_replacement_starts_the_same_server(serve: Serve) -> None:
    argv = [sys.executable, "-m", "autolaunch.launch_server", *serve.original]
    server = serve.start(argv=argv)
    server.wait_healthy(30)
    assert serve.words() == [*serve.original, "--disable-overlap-schedule"]
    end(server)


@pytest.mark.parametrize(
    "options", [("--dry-run",), ("--dry-run", "--plain"), ("--dry-run", "--tune", "quick")]
)
def test_a_dry_run_prints_what_a_shell_can_run(options: tuple[str, ...], serve: Serve) -> None:
    done = subprocess.run(
        serve.argv(*options),
        env=serve.environ,
        cwd=serve.model.parent,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    words = shlex.split(done.stdout.splitlines()[-1])
    assert words[1:3] == ["-m", "sglang.launch_server"]
    raced = ["--disable-overlap-schedule"] if "quick" in options else []
    assert words[3:] == [*serve.original, *raced]
    assert not Path(serve.environ["AUTOLAUNCH_HOME"], "state").exists()


def test_stdin_environment_and_exit_code_are_the_servers(serve: Serve) -> None:
    plain = subprocess.run(
        [sys.executable, "-m", "sglang.launch_server", *serve.original, "--attention-backend", "nonsense"],
        env=serve.environ,
        capture_output=True,
    )
    server = serve.start("--attention-backend", "nonsense")
    assert server.wait_exit() == plain.returncode == 2
    server = serve.start(MARKER="here")
    server.wait_healthy(30)
    environ = serve.what_it_is()["python_environ"]
    expected = {**serve.environ, "MARKER": "here"}
    assert {name: environ[name] for name in expected} == expected
    assert set(environ) - set(expected) <= {"LC_CTYPE"}
    end(server)


@pytest.mark.parametrize("moment_s", [0.0, 0.05, 0.15, 0.25, 0.35, 0.5, 0.7, 0.9, 1.1, 1.5])
def test_a_signal_at_ten_moments_leaves_no_process(moment_s: float, serve: Serve) -> None:
    server = serve.start(PLANT_RACE_S="0.5")
    time.sleep(moment_s)
    server.send(signal.SIGTERM)
    assert server.wait_exit() in (-signal.SIGTERM, 0)
    assert server.leftovers() == []


def test_an_interrupt_while_it_loads_ends_it_without_a_traceback(serve: Serve) -> None:
    """As early as one can be sure that the interpreter itself is up: when the first imports of ours run."""
    code = (
        "import os, runpy, signal, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'autolaunch.cli': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "sys.argv[1:] = ['serve', 'm']\n"
        "runpy.run_module({!r}, run_name='__main__')"
    )
    for module in ("autolaunch", "autolaunch.launch_server"):
        server = serve.start(argv=[sys.executable, "-c", code.format(module)])
        assert server.wait_exit() == -signal.SIGINT
        assert server.output() == ""


@pytest.mark.parametrize(
    "broken",
    [
        {"AUTOLAUNCH_HOME": "~nobody-of-that-name/here"},
        {"AUTOLAUNCH_HOME": "/" + "x" * 5000},
        {"PLANT_IMPORT": "autolaunch.serve.stages"},
        {"PLANT_IMPORT": "psutil"},
    ],
)
def test_what_cannot_be_looked_up_or_imported_keeps_no_server_from_starting(
    broken: dict[str, str], serve: Serve
) -> None:
    server = serve.start("--tune", "off", **broken)
    server.wait_healthy(30)
    assert serve.words() == serve.original
    assert "Traceback" not in server.output()
    end(server)


@pytest.mark.parametrize("options", [("--plain",), ("--tune", "off"), ("--budget", "1s")])
def test_a_deleted_working_folder(options: tuple[str, ...], serve: Serve, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = shlex.join(serve.argv(*options))
    server = serve.start(argv=["sh", "-c", f"cd {gone} && rmdir {gone} && exec {command}"])
    server.wait_healthy(30)
    raced = ["--disable-overlap-schedule"] if "--budget" in options else []
    assert serve.words() == [*serve.original, *raced]
    assert "starting the original command" not in server.output()
    end(server)
