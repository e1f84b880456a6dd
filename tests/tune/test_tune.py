"""`autolaunch tune`: the report, what is kept, the exit codes, signals and faults, without real engines."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autolaunch.candidates.candidate import Candidate
from autolaunch.command import Command
from autolaunch.launch import attempts
from tests.explain.schema import check_document
from tests.launch.harness import wait_until
from tests.real_server import RealServer, find_free_port
from tests.tune.harness import Tune
from tests.tune.schema import check_trials

WINNER = "--disable-overlap-schedule"


@pytest.fixture
def tune(tmp_path: Path) -> Tune:
    """`autolaunch tune` on the stand-in."""
    return Tune(tmp_path)


def test_the_report_says_who_was_tried_what_won_and_how_to_serve_it(tune: Tune) -> None:
    done = tune.run("--port", "30001")
    assert done.returncode == 0, done.stderr
    text = done.stdout
    assert re.search(r"^id  output tok/s  against c0 +gate +flags$", text, re.M)
    assert re.search(r"^c0  47.9 +reference +the original command$", text, re.M)
    assert re.search(rf"^c1  95.8 +\+99.8 % \(\+99.4 to \+100.1\) +gated +{WINNER}$", text, re.M)
    assert re.search(r"^c2  –", text, re.M)
    assert "    crash at load: the kernels are not for this machine" in text
    assert "not tried:" in text
    assert f"chosen: {WINNER}: 100 % more output tok/s" in text
    served = re.search(r"^serve it: (.*)$", text, re.M)
    assert served and served[1].endswith(f"--port 30001 {WINNER}")
    assert "workload: in=64,out=24,concurrency=4; throughput (output tok/s, higher is better)" in text
    assert "race: 3 tried, 1 failed, in 12 s" in text
    assert "racing the original command" in done.stderr


def test_the_document_is_that_of_explain_with_trials(tune: Tune) -> None:
    value = tune.document()
    check_document(value)
    check_trials(value["trials"])
    assert [one["id"] for one in value["trials"]] == ["c0", "c1", "c2"]
    first, second, third = value["trials"]
    assert (value["chosen"]["id"], value["chosen"]["flags"]) == ("c1", [WINNER])
    assert value["command"][-1] == WINNER
    assert second["flags"] == [WINNER]
    assert second["resolved"]["attention_backend"] == "torch_native"
    assert second["summary"]["value"] == pytest.approx(95.8, abs=0.1)
    assert second["summary"]["unit"] == "output_tok_per_s"
    assert second["summary"]["gain"]["mean"] == pytest.approx(0.998, abs=0.001)
    assert second["gate"]["passed"] is True
    assert [one["role"] for one in second["samples"]] == ["screen", *["round"] * 6]
    assert first["summary"]["gain"] is None
    assert (third["stage"], third["failure"]["kind"], third["summary"], third["samples"]) == (
        "load",
        "crash",
        None,
        [],
    )
    assert value["race"]["ended"] == "done"
    assert value["race"]["workload"]["words"] == "in=64,out=24,concurrency=4"
    profile = value["profile"]
    assert Path(profile["path"]).is_file()
    assert profile["name"].startswith("cpu/model.tp1.throughput.")
    assert (profile["status"], profile["origin"], profile["reused"]) == ("fresh", "tune", False)
    assert profile["measured"]["value"] == second["summary"]["value"]
    assert profile["measured"]["depth"] == "whole"


def test_a_result_is_found_again_by_everything_that_matters(tune: Tune) -> None:
    assert tune.run("--port", "30001", "--tp", "1").returncode == 0
    kept = tune.profiles
    assert len(kept) == 1
    for words in (["--tp", "1"], ["--tp-size=1", "--host", "::1", "--api-key", "abc"]):
        again = tune.run("--if-missing", *words, how="raises")
        assert again.returncode == 0, again.stderr
        assert re.search(r"nothing is measured: cpu/model\S+ \(fresh, 20", again.stderr)
        assert "for in=64,out=24,concurrency=4, throughput): 100 % more output tok/s" in again.stderr
        assert re.search(rf"^already tuned: 20.*, fresh, .*{kept[0].name}$", again.stdout, re.M)
        assert f"chosen: {WINNER}: 100 % more" in again.stdout
    value = tune.document("--if-missing", "--tp", "1", how="raises")
    check_document(value)
    assert (value["chosen"]["id"], value["trials"]) == ("c1", [])
    assert value["profile"]["reused"] is True
    assert value["profile"]["measured"]["unit"] == "output_tok_per_s"
    assert tune.profiles == kept


@pytest.mark.parametrize(
    "words",
    [
        ["--disable-radix-cache"],
        ["--workload", "in=100,out=10,concurrency=2"],
        ["--objective", "latency"],
        ["--lossy"],
        ["--nextn", "off"],
        ["--candidate", "--attention-backend triton"],
        ["--no-such-flag"],
    ],
)
def test_a_result_for_something_else_is_missing(words: list[str], tune: Tune) -> None:
    assert tune.run().returncode == 0
    other = tune.run("--if-missing", *words)
    assert other.returncode == 0, other.stderr
    assert "nothing is measured" not in other.stderr
    assert len(tune.profiles) == 2


def test_another_checkpoint_variable_or_version_is_something_else(tune: Tune) -> None:
    assert tune.run().returncode == 0
    changed = {**json.loads((tune.model / "config.json").read_text()), "rope_theta": 1}
    assert tune.run("--if-missing", SGLANG_SOMETHING="1").returncode == 0
    (tune.model / "config.json").write_text(json.dumps(changed))
    assert tune.run("--if-missing").returncode == 0
    assert len(tune.profiles) == 3


@pytest.mark.parametrize(
    ("words", "again", "said"),
    [
        ([], True, "it is measured anew"),
        (["--stale", "retune"], True, "it is measured anew"),
        (["--stale", "use"], False, "it is used all the same, as `--stale use` says"),
    ],
)
def test_a_stale_profile_does_as_stale_says(words: list[str], again: bool, said: str, tune: Tune) -> None:
    assert tune.run().returncode == 0
    tune.change('"0.0.0.dev7"', '"0.0.0.dev6"')
    done = tune.run("--if-missing", *words, how="wins" if again else "raises")
    assert done.returncode == 0, done.stderr
    assert ("racing the original" in done.stderr) is again
    assert re.search(
        rf"^note: the profile cpu/model\S+ was made for something else; {said}$", done.stderr, re.M
    )
    assert "`version.sglang` was 0.0.0.dev6 and is 0.0.0.dev7: " in done.stderr


def test_a_stale_profile_may_be_an_error(tune: Tune) -> None:
    assert tune.run().returncode == 0
    tune.change('"0.0.0.dev7"', '"0.0.0.dev6"')
    done = tune.run("--if-missing", "--stale", "fail", how="raises")
    assert done.returncode == 1
    assert re.search(r"^error: the profile cpu/model\S+ is stale$", done.stderr, re.M)
    assert "`version.sglang` was 0.0.0.dev6 and is 0.0.0.dev7" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("status", ["quarantined", "suspect"])
def test_a_profile_whose_server_failed_does_not_count(status: str, tune: Tune) -> None:
    assert tune.run().returncode == 0
    tune.change('status = "fresh"', f'status = "{status}"')
    again = tune.run("--if-missing")
    assert again.returncode == 0, again.stderr
    assert f"does not do: it is {status}" in again.stderr
    assert "racing the original" in again.stderr
    assert 'status = "fresh"' in tune.profiles[0].read_text(), "the new one is in its place"


def test_what_is_measured_anew_may_be_launched_again(tune: Tune) -> None:
    """Whatever servers with it did before: somebody asks for it."""
    tune.run()
    command = Command(tuple(shlex.split(tune.serve("--plain", "--dry-run").stdout)))
    folder = Path(tune.environ["AUTOLAUNCH_HOME"]) / "state" / "attempts"
    for flags in ((WINNER,), ("--disable-radix-cache",)):
        ticket = attempts.begin(folder, command, pid=2**22 + 1)  # nobody's
        attempts.record_choice(ticket, command, Candidate("c1", flags))
    dry = tune.serve("--dry-run")
    assert f"`{WINNER}` is passed over: " in dry.stderr
    assert tune.run().returncode == 0
    assert attempts.verdict(attempts.history(folder, command)).suspects == {("--disable-radix-cache",)}
    assert tune.serve("--dry-run").stdout.endswith(f" {WINNER}\n")


def test_full_asks_for_a_whole_model(tune: Tune) -> None:
    assert tune.run().returncode == 0
    assert "racing" not in tune.run("--if-missing", "--full", how="raises").stderr, "on a CPU it was whole"
    tune.change('depth = "whole"', 'depth = "slice"')
    assert "racing" not in tune.run("--if-missing", how="raises").stderr
    again = tune.run("--if-missing", "--full")
    assert "only a slice was measured for it, and `--full` was asked for" in again.stderr
    assert "racing the original" in again.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f'"{WINNER}"', '"--trust-remote-code"'),
        (f'"{WINNER}"', '"--model-path", "/elsewhere"'),
        (f'"{WINNER}"', f'"{WINNER}", "--host", "0.0.0.0"'),
        ('status = "fresh"', "status = 7"),
        ("schema", "scheme"),
        ("[", "[" * 100_000),
    ],
)
def test_a_hostile_or_broken_profile_is_missing_with_a_word(old: str, new: str, tune: Tune) -> None:
    assert tune.run().returncode == 0
    kept = tune.change(old, new)
    again = tune.run("--if-missing")
    assert again.returncode == 0, again.stderr
    assert "does not do: " in again.stderr or "warning: the profile" in again.stderr
    assert "racing the original" in again.stderr
    assert f'"{WINNER}"' in kept.read_text(), "the new one is in its place"
    assert tune.run("--if-missing", how="raises").returncode == 0


def test_a_profile_that_is_no_file_is_missing(tune: Tune) -> None:
    assert tune.run().returncode == 0
    (kept,) = tune.profiles
    kept.unlink()
    os.mkfifo(kept)
    again = tune.run("--if-missing")
    assert again.returncode == 0
    assert f"warning: the profile `{kept}` was passed over" in again.stderr


def failed_start(tune: Tune) -> None:
    """Put on record that a server with the winner ended before it was healthy."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    original = Command((sys.executable, "-m", "sglang.launch_server", "--model-path", str(tune.model)))
    folder = Path(tune.environ["AUTOLAUNCH_HOME"], "state", "attempts")
    ticket = attempts.begin(folder, original, pid=gone.pid)
    attempts.record_choice(ticket, original, Candidate("c1", (WINNER,)))


def test_what_failed_at_a_start_is_measured_again_only_where_a_person_asks(tune: Tune) -> None:
    """An init step runs before every start: it must not let a bad choice fail at every second one."""
    failed_start(tune)
    step = tune.run("--if-missing")
    assert re.search(rf"^  {WINNER}: the last server started with it ended before", step.stdout, re.M)
    assert f"chosen: {WINNER}" not in step.stdout
    again = tune.run()
    assert f"chosen: {WINNER}" in again.stdout
    (record,) = Path(tune.environ["AUTOLAUNCH_HOME"]).glob("state/attempts/*.json")
    assert json.loads(record.read_text())["attempts"][-1]["forgiven"] is True


def test_profiles_are_kept_where_the_user_says(tune: Tune, tmp_path: Path) -> None:
    base, mine = tmp_path / "base", tmp_path / "mine"
    assert tune.run("--profile-dir", str(base)).returncode == 0
    assert tune.profiles == []
    (kept,) = base.glob("cpu/*.toml")
    there = tune.run("--if-missing", how="raises", AUTOLAUNCH_PROFILE_DIR=f"{mine}:{base}")
    assert there.returncode == 0, there.stderr
    assert str(kept) in there.stdout
    assert not mine.exists(), "nothing was to be written"
    assert "racing" in tune.run("--if-missing").stderr, "the user's own folder holds none"


def test_no_secret_is_kept_or_shown(tune: Tune) -> None:
    words = ["--api-key", "sekret123", "--candidate", "--attention-backend fa3 --api-key sekret456"]
    done = tune.run(*words)
    assert done.returncode == 0, done.stderr
    text = done.stdout + done.stderr + json.dumps(tune.document(*words)) + tune.profiles[0].read_text()
    assert "sekret" not in text
    assert "***" in text
    assert oct(tune.profiles[0].stat().st_mode)[-3:] == "600"
    assert tune.run("--if-missing", *words, how="raises").returncode == 0


def test_all_failed_is_exit_3_with_the_report(tune: Tune) -> None:
    done = tune.run(how="fails")
    assert done.returncode == 3
    assert re.search(r"^error: all \d+ candidates failed$", done.stderr, re.M)
    assert "chosen: none; the original command failed in its trial" in done.stdout
    assert tune.profiles == []
    value = tune.document(how="fails", code=3)
    assert {one["failure"]["kind"] for one in value["trials"]} == {"crash"}


def test_a_budget_that_was_too_short_is_a_failure(tune: Tune) -> None:
    done = tune.run(how="late")
    assert done.returncode == 1
    assert "error: the budget ended before anything was measured" in done.stderr
    assert tune.profiles == []


@pytest.mark.parametrize(("how", "code"), [("interrupted", 0), ("nothing", 130)])
def test_an_interrupted_race_is_reported_and_not_kept(how: str, code: int, tune: Tune) -> None:
    done = tune.run(how=how)
    assert done.returncode == code, done.stderr
    assert tune.profiles == []
    if code == 0:
        assert f"chosen: {WINNER}" in done.stdout
        assert "race: 3 tried, 1 failed, in 12 s, interrupted" in done.stdout


@pytest.mark.parametrize("how", ["raises", "segfaults", "hangs"])
def test_a_fault_is_an_error_and_no_server(how: str, tune: Tune) -> None:
    done = tune.run("--budget", "1s", how=how)
    assert done.returncode == 1
    assert (
        re.match(r"error: the stage `race` ", done.stderr.splitlines()[-1])
        or "error: the stage" in done.stderr
    )
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--budget", "0"], 1, "`--budget 0` leaves no time for a race"),
        (["--workload", "nonsense"], 2, "error: "),
        (["--python", "/nowhere"], 2, "error: `--python /nowhere` is not there"),
    ],
)
def test_what_cannot_be_tuned_is_told(words: list[str], code: int, said: str, tune: Tune) -> None:
    done = tune.run(*words)
    assert done.returncode == code
    assert said in done.stderr
    assert done.stdout == ""


def test_what_keeps_serve_from_racing_unattended_does_not_keep_tune(tune: Tune) -> None:
    done = tune.run(KUBERNETES_SERVICE_HOST="10.0.0.1")
    assert done.returncode == 0, done.stderr
    assert f"chosen: {WINNER}" in done.stdout


def test_without_a_model_it_is_a_usage_error(tune: Tune) -> None:
    done = subprocess.run(tune.argv()[:4], env=tune.environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "error: no model was named" in done.stderr


def test_a_broken_checkpoint_is_an_error(tune: Tune) -> None:
    (tune.model / "config.json").write_text("{")
    done = tune.run()
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")


def test_nothing_to_decide_is_done(tune: Tune) -> None:
    pins = ["--attention-backend", "torch_native", "--disable-overlap-schedule", "--disable-radix-cache"]
    done = tune.run(*pins)
    assert done.returncode == 0
    assert "nothing is measured: there is nothing to decide" in done.stderr
    assert "chosen: the original command: there is nothing to decide" in done.stdout
    assert tune.profiles == []


@pytest.mark.parametrize("redirect", [">/dev/full", ">&-"])
def test_a_stdout_that_takes_nothing(redirect: str, tune: Tune) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$@" {redirect}', "sh", *tune.argv()], env=tune.environ, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "could not be written to stdout" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_home_that_cannot_be_written_costs_the_result_alone(tune: Tune) -> None:
    done = tune.run(AUTOLAUNCH_HOME="/dev/null/home")
    assert done.returncode == 0, done.stderr
    assert "warning: the result could not be kept for the next start" in done.stderr
    assert f"chosen: {WINNER}" in done.stdout


def test_a_home_deeper_than_python_goes_costs_the_result_alone(tune: Tune) -> None:
    done = tune.run(AUTOLAUNCH_HOME=f"/tmp/{'d/' * 1900}")
    assert done.returncode == 0, done.stderr
    assert "warning: the result could not be kept for the next start" in done.stderr
    assert "RecursionError" not in done.stderr


def test_an_index_of_any_size_costs_no_memory(tune: Tune) -> None:
    with (tune.model / "pytorch_model.bin.index.json").open("wb") as file:
        file.truncate(100 << 30)
    assert tune.run().returncode == 0
    assert "nothing is measured" in tune.run("--if-missing", how="raises").stderr


@pytest.fixture
def started(tune: Tune, start_server: Callable[..., RealServer]) -> RealServer:
    """A tuning whose race waits."""
    environ = {**tune.environ, "PLANT_RACE": "waits"}
    found = start_server(tune.argv(), port=find_free_port(), environ=environ, cwd=tune.model.parent)
    wait_until(lambda: "autolaunch: waiting" in found.output(), 20, "it races")
    return found


def test_ctrl_c_reports_the_best_so_far(started: RealServer) -> None:
    assert started.stop(signal.SIGINT) == 0
    assert f"chosen: {WINNER}" in started.output()
    assert started.leftovers() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_other_signals_end_it_and_leave_no_process(number: signal.Signals, started: RealServer) -> None:
    assert started.stop(number) == -number
    assert started.leftovers() == []
    assert "chosen" not in started.output()
