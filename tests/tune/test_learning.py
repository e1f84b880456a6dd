"""What races and starts teach: only what is sure to be a choice's own, and not tried again where it holds."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.candidates.dimensions import load_choices
from autolaunch.candidates.generate import Field, generate
from autolaunch.capability.table import bundled_table
from autolaunch.command import Command
from autolaunch.detect.machine import Machine
from autolaunch.folders import Folders
from autolaunch.invocation import Invocation, Understood
from autolaunch.launch import attempts
from autolaunch.launch.attempt_record import Attempt
from autolaunch.launch.mistrust import NOTHING, Fallback
from autolaunch.options.options import ServeOptions
from autolaunch.profiles.failed import Failed, Setting
from autolaunch.profiles.failures import recall
from autolaunch.profiles.failures_file import FILE
from autolaunch.race.outcomes import Failure, Window
from autolaunch.race.progress import Progress
from autolaunch.race.result import RaceResult, Trial
from autolaunch.request.catalogue import bundled_catalogue
from autolaunch.request.command_line import read_request
from autolaunch.request.interpreter import Interpreter
from autolaunch.serve.asked import Asked
from autolaunch.serve.launchable import excluded_now
from autolaunch.serve.stages import failures_here
from autolaunch.slice.plan import SlicePlan
from autolaunch.tune.learning import launched, recalled, remember_race, setting_at, why_not
from autolaunch.tune.lessons import from_attempt, of_past, of_race
from tests.tune.harness import Tune

CPU = Machine(platform="cpu", source="none", cores=2, memory_available_bytes=1 << 34)
CRASH = Failure("load", "crash", "ImportError: no module named flash_attn", exit=1)
TRITON = Candidate(
    "c1",
    ("--attention-backend", "triton"),
    (("TRITON_INTERPRET", "1"),),
    dimension="--attention-backend",
    choice="triton",
)
FA3 = Candidate("c2", ("--attention-backend", "fa3"), dimension="--attention-backend", choice="fa3")
SETTING = Setting(platform="cpu", config="c")
WINDOW = Window(4, 4, 256, 96, 1.0)


class Start:
    """A start of a small model on a machine without GPUs, with a home of its own."""

    def __init__(self, home: Path, *tokens: str, version: str = "0.5.21", **options: Any) -> None:
        self.home = home
        model = home / "model"
        model.mkdir(exist_ok=True)
        config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64}
        (model / "config.json").write_text(json.dumps(config))
        interpreter = Interpreter(sys.executable, home, version, "test")
        self.invocation = Invocation(
            "serve",
            (),
            ServeOptions(**options),
            interpreter,
            Command(("python", "-m", "sglang.launch_server", "--model-path", str(model), *tokens)),
            {},
            home,
            Folders(home / "cache", home / "state", home / "data"),
        )
        catalogue = bundled_catalogue("0.5.21")
        request = read_request([str(model), *tokens], "serve", interpreter, catalogue, home, {})
        self.understood = Understood(request, catalogue)
        self.said: list[str] = []

    @property
    def progress(self) -> Progress:
        """A progress whose blocks are kept."""
        progress = Progress()
        progress.block = self.said.append  # type: ignore[method-assign, assignment]
        return progress

    @property
    def asked(self) -> Asked:
        """The start as a race is handed it."""
        return Asked(self.invocation, self.understood, CPU, NOTHING, Field((ORIGINAL,), ()))

    def field(self, past: Fallback = NOTHING) -> Field:
        """Who may race, by what was learned."""
        learned = recalled(self.invocation, past, self.progress)
        failed = why_not(learned, self.invocation, self.understood, CPU)
        request, catalogue = self.understood.request, self.understood.catalogue
        users = self.invocation.options.candidates
        return generate(request, catalogue, CPU, load_choices(), users, failed=failed)

    @property
    def setting(self) -> Setting:
        """What a failure of it is bound to."""
        found = setting_at(self.invocation, self.understood, CPU, None)
        assert found is not None
        return found


def trial(candidate: Candidate, failure: Failure | None = None) -> Trial:
    """A trial that was timed, or failed."""
    return Trial(candidate, failure=failure) if failure else Trial(candidate, screen=WINDOW)


def race(*trials: Trial) -> RaceResult:
    """A race of `trials`."""
    return RaceResult(trials, (), "done", 30.0)


def learned_from(*trials: Trial, **more: Any) -> list[Failed]:
    """What a race of the original, which was sound, and `trials` tells."""
    return list(of_race(race(trial(ORIGINAL), *trials), SETTING, bundled_table(), **more)[0])


# Races ------------------------------------------------------------------------------------------


def test_a_failure_of_a_race_is_kept_with_all_that_it_is_bound_to() -> None:
    (one,) = learned_from(trial(FA3, CRASH), depth="the first 2 of 8 layers")
    assert (one.flags, one.env, one.kind, one.stage) == (FA3.flags, (), "crash", "load")
    assert (one.dimension, one.choice, one.beside) == ("--attention-backend", "fa3", ())
    assert (one.where, one.reason, one.depth) == ("race", CRASH.reason, "the first 2 of 8 layers")
    assert one.setting == SETTING


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (CRASH, True),
        (replace(CRASH, kind="rejected"), True),
        (replace(CRASH, kind="garbage", stage="gate"), True),
        (replace(CRASH, kind="silent_fallback"), True),
        (replace(CRASH, kind="oom", rule="oom.gpu"), True),
        (replace(CRASH, kind="oom", rule="oom.host"), False),
        (replace(CRASH, kind="environment"), False),
        (replace(CRASH, kind="memory"), False),
        (replace(CRASH, kind="slow"), False),
        (replace(CRASH, said_error=False, exit=-9), False),
    ],
)
def test_only_what_is_the_choices_own_is_told(failure: Failure, told: bool) -> None:
    assert bool(learned_from(trial(FA3, failure))) is told


def test_out_of_memory_among_others_tells_nothing() -> None:
    oom = replace(CRASH, kind="oom", rule="oom.gpu")
    assert not learned_from(trial(FA3, oom), crowded=True)
    assert learned_from(trial(FA3, CRASH), crowded=True)


def test_the_original_is_never_kept() -> None:
    found, sound = of_race(race(trial(ORIGINAL, CRASH), trial(FA3)), SETTING, bundled_table())
    assert found == () and sound == (((FA3.flags, ()), SETTING),)


def test_where_nothing_was_sound_something_else_may_be_to_blame() -> None:
    assert of_race(race(trial(ORIGINAL, CRASH), trial(FA3, CRASH)), SETTING, bundled_table()) == ((), ())


@pytest.mark.parametrize(
    ("flags", "dimension", "told"),
    [
        (("--attention-backend", "fa3"), "--attention-backend", True),
        (("--watchdog-timeout", "3"), "--watchdog-timeout", False),
        (("--attention-backend", "fa3", "--page-size", "1"), None, False),
    ],
)
def test_of_the_users_candidates_only_choices_of_the_table_are_told(
    flags: tuple[str, ...], dimension: str | None, told: bool
) -> None:
    one = Candidate("c1", flags, origin="user", dimension=dimension, choice=flags[-1] if dimension else None)
    assert bool(learned_from(trial(one, CRASH))) is told


def test_a_race_is_remembered_and_its_failure_not_tried_again(tmp_path: Path) -> None:
    start = Start(tmp_path)
    assert {one.choice for one in start.field().challengers} >= {"fa3", "triton", "flex_attention"}
    remember_race(start.asked, race(trial(ORIGINAL), trial(FA3, CRASH), trial(TRITON)), start.progress)
    assert (tmp_path / "data" / "profiles" / FILE).exists()
    later = Start(tmp_path, "--port", "1234").field()
    assert "fa3" not in {one.choice for one in later.challengers}
    assert {one.choice for one in later.challengers} >= {"triton", "flex_attention"}
    (dropped,) = [one for one in later.dropped if (one.rule or "").startswith("here.")]
    assert (dropped.label, dropped.stage, dropped.kind) == ("--attention-backend fa3", "load", "crash")
    assert dropped.rule == "here.attention-backend.fa3"
    assert dropped.reason.startswith("it crashed here on ") and dropped.reason.endswith(CRASH.reason)
    assert "`--attention-backend fa3` on cpu" in dropped.evidence and "sglang" in dropped.evidence
    assert start.said == []


@pytest.mark.parametrize(
    "later",
    [
        {"tokens": ("--dtype", "float32")},
        {"tokens": ("--enable-lora",)},
        {"admit": ("attention-backend=fa3",)},
        {"candidates": ("--attention-backend fa3",)},
    ],
)
def test_it_is_tried_again_where_it_says_nothing_or_is_asked_for(
    later: dict[str, Any], tmp_path: Path
) -> None:
    start = Start(tmp_path)
    remember_race(start.asked, race(trial(ORIGINAL), trial(FA3, CRASH)), start.progress)
    again = Start(tmp_path, *later.pop("tokens", ()), **later)
    assert "fa3" in {one.choice for one in again.field().challengers}


def test_another_store_knows_nothing_and_what_lies_under_it_is_known(tmp_path: Path) -> None:
    start = Start(tmp_path)
    remember_race(start.asked, race(trial(ORIGINAL), trial(FA3, CRASH)), start.progress)
    own, other = str(tmp_path / "data" / "profiles"), str(tmp_path / "other")
    alone = Start(tmp_path, profile_dirs=(other,))
    assert "fa3" in {one.choice for one in alone.field().challengers}
    above = Start(tmp_path, profile_dirs=(other, own))
    assert "fa3" not in {one.choice for one in above.field().challengers}


def test_a_kept_choice_that_failed_here_is_not_launched_where_no_table_is_asked(tmp_path: Path) -> None:
    start = Start(tmp_path)
    assert excluded_now(start.asked, FA3) is None
    remember_race(start.asked, race(trial(ORIGINAL), trial(FA3, CRASH)), start.progress)
    asked = replace(start.asked, learned=recalled(start.invocation, NOTHING, start.progress))
    assert (excluded_now(asked, FA3) or "").startswith("it crashed here on ")
    assert excluded_now(asked, TRITON) is None
    assert excluded_now(asked, replace(FA3, origin="user")) is None


def test_a_store_in_the_users_home_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    start = Start(tmp_path, profile_dirs=("~/mine",))
    remember_race(start.asked, race(trial(ORIGINAL), trial(FA3, CRASH)), start.progress)
    assert (tmp_path / "mine" / FILE).exists()
    assert [one.choice for one in failures_here(start.invocation, NOTHING, start.progress)] == ["fa3"]


def test_other_versions_try_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = Start(tmp_path)
    remember_race(start.asked, race(trial(ORIGINAL), trial(FA3, CRASH)), start.progress)
    path = tmp_path / "data" / "profiles" / FILE
    (one,) = recall([path.parent]).failures
    versions = dict(one.setting.versions)
    assert set(versions) >= {"sglang", "torch"}
    for name in versions:
        text = path.read_text()
        path.write_text(text.replace(f'{name} = "{versions[name]}"', f'{name} = "0.0.1"'))
        assert path.read_text() != text
        assert "fa3" in {one.choice for one in start.field().challengers}, name
        path.write_text(text)
    assert "fa3" not in {one.choice for one in start.field().challengers}


def test_another_model_tries_it_again(tmp_path: Path) -> None:
    start = Start(tmp_path)
    remember_race(start.asked, race(trial(ORIGINAL), trial(FA3, CRASH)), start.progress)
    assert "fa3" not in {one.choice for one in start.field().challengers}
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace("64", "128"))
    assert "fa3" in {one.choice for one in start.field().challengers}


def test_what_is_sound_later_is_forgotten(tmp_path: Path) -> None:
    start = Start(tmp_path)
    remember_race(start.asked, race(trial(ORIGINAL), trial(FA3, CRASH)), start.progress)
    remember_race(start.asked, race(trial(ORIGINAL), trial(FA3)), start.progress)
    assert "fa3" in {one.choice for one in start.field().challengers}


def test_a_slice_is_named(tmp_path: Path) -> None:
    start = Start(tmp_path)
    piece = SlicePlan(
        None, "synthetic", 4, 60, 4, (0, 1, 2, 3), {}, {}, weight_bytes=1, mtp=False, reason="", layer_bytes=1
    )
    remember_race(start.asked, race(trial(ORIGINAL), trial(FA3, CRASH)), start.progress, piece=piece)
    (dropped,) = [one for one in start.field().dropped if (one.rule or "").startswith("here.")]
    assert "in a race, with the first 4 of 60 layers and made-up weights: " in dropped.reason


def test_a_dry_run_keeps_nothing(tmp_path: Path) -> None:
    start = Start(tmp_path, dry_run=True)
    remember_race(start.asked, race(trial(ORIGINAL), trial(FA3, CRASH)), start.progress)
    assert not (tmp_path / "data").exists()


def test_a_store_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    start = Start(tmp_path)
    (tmp_path / "data").write_text("in the way")
    remember_race(start.asked, race(trial(ORIGINAL), trial(FA3, CRASH)), start.progress)
    (said,) = start.said
    assert "what failed cannot be kept in" in said


def test_a_broken_file_is_a_warning_and_no_reason_not_to_race(tmp_path: Path) -> None:
    start = Start(tmp_path)
    (tmp_path / "data" / "profiles").mkdir(parents=True)
    (tmp_path / "data" / "profiles" / FILE).write_text("[[")
    assert "fa3" in {one.choice for one in start.field().challengers}
    (said,) = start.said
    assert "what failed before is not known" in said


def test_a_model_that_is_not_here_teaches_nothing(tmp_path: Path) -> None:
    start = Start(tmp_path)
    (tmp_path / "model" / "config.json").write_text("[1]")
    assert setting_at(start.invocation, start.understood, CPU, None) is None
    remember_race(start.asked, race(trial(ORIGINAL), trial(FA3, CRASH)), start.progress)
    assert launched(start.asked, FA3) is None
    assert not (tmp_path / "data").exists()


# Starts -----------------------------------------------------------------------------------------

DEAD = 2**22 + 1  # above any PID


def launch(start: Start, candidate: Candidate, **fields: Any) -> None:
    """A launch of `candidate` that is over, and became what `fields` say."""
    folder, original = start.invocation.folders.attempts, start.invocation.original
    ticket = attempts.begin(folder, original, pid=DEAD)
    attempts.record_choice(ticket, original, candidate, setting=launched(start.asked, candidate))
    data = json.loads(ticket.record.read_text())
    data["attempts"][-1].update(fields)
    ticket.record.write_text(json.dumps(data))


def past(start: Start) -> Fallback:
    """What earlier launches say."""
    return attempts.verdict(attempts.history(start.invocation.folders.attempts, start.invocation.original))


GARBAGE = {
    "healthy": "2026-12-01T03:00:00+00:00",
    "verdict": {"status": "quarantined", "reason": "it repeats one token", "kind": "garbage"},
}


def test_a_server_that_ended_by_itself_is_kept(tmp_path: Path) -> None:
    start = Start(tmp_path)
    launch(start, FA3, ended="exit 1")
    (one,) = of_past(past(start))
    assert (one.kind, one.stage, one.where, one.setting) == ("crash", "start", "start", start.setting)
    later = start.field(past(start))
    (dropped,) = [one for one in later.dropped if (one.rule or "").startswith("here.")]
    assert "when a server was started with it: its server ended before it was seen healthy" in dropped.reason
    elsewhere = Start(tmp_path, "--port", "4321")
    assert "fa3" not in {one.choice for one in elsewhere.field().challengers}, "another command knows it too"


def test_a_server_that_answered_garbage_is_kept(tmp_path: Path) -> None:
    start = Start(tmp_path)
    launch(start, TRITON, **GARBAGE)
    (one,) = of_past(past(start))
    assert (one.kind, one.stage, one.where, one.reason) == (
        "garbage",
        "serve",
        "verify",
        "it repeats one token",
    )
    later = start.field(past(start))
    (dropped,) = [one for one in later.dropped if (one.rule or "").startswith("here.")]
    assert (dropped.label, dropped.kind) == ("TRITON_INTERPRET=1 --attention-backend triton", "garbage")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"ended": "SIGTERM"},
        {"ended": "SIGKILL"},
        {"ended": "exit 1", "excuse": "somebody else had its port"},
        {"healthy": "2026-12-01T03:00:00+00:00"},
        {"ended": "exit 1", "setting": None},
        {"ended": "exit 1", "setting": {"setting": 3}},
        {"ended": "exit 1", "setting": {"setting": {"platform": "cpu"}, "dimension": "", "choice": ""}},
        {"ended": "exit 1", "setting": {"setting": {"platform": "cpu", "config": "c"}}},
    ],
)
def test_an_end_that_may_be_somebodys_wish_or_is_bound_to_nothing_is_not(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    start = Start(tmp_path)
    launch(start, FA3, **fields)
    assert of_past(past(start)) == ()
    start.field(past(start))
    assert not (tmp_path / "data").exists()


def test_the_original_teaches_nothing(tmp_path: Path) -> None:
    start = Start(tmp_path)
    launch(start, ORIGINAL, ended="exit 1")
    assert of_past(past(start)) == ()
    attempt = Attempt("a", "2026", DEAD, 0, "", "", "launch", setting={"setting": SETTING.to_json()})
    assert from_attempt(attempt, "crash", "ended") is None


def test_the_same_start_told_at_every_start_is_one_failure(tmp_path: Path) -> None:
    start = Start(tmp_path)
    launch(start, FA3, ended="exit 1")
    for _ in range(3):
        start.field(past(start))
    (one,) = recall([tmp_path / "data" / "profiles"]).failures
    assert one.times == 1


def test_what_cannot_be_kept_is_known_all_the_same(tmp_path: Path) -> None:
    start = Start(tmp_path)
    launch(start, FA3, ended="exit 1")
    (tmp_path / "data").write_text("in the way")
    assert "fa3" not in {one.choice for one in start.field(past(start)).challengers}
    assert any("cannot be kept" in said for said in start.said)


# From end to end --------------------------------------------------------------------------------


def test_a_race_teaches_the_next_one_and_explain(tmp_path: Path) -> None:
    """The second challenger of the planted race crashes: the next race is without it, in every output."""
    tune = Tune(tmp_path)
    first = tune.document()
    loser = first["trials"][2]
    assert loser["failure"]["kind"] == "crash"
    (second,) = [one for one in tune.document()["dropped"] if (one["rule"] or "").startswith("here.")]
    assert second["label"] == " ".join(loser["flags"])
    assert (second["stage"], second["failure"]) == ("load", "crash")
    assert second["reason"].endswith("in a race: the kernels are not for this machine")
    assert second["evidence"][0]["kind"] == "measured" and "sglang 0." in second["evidence"][0]["ref"]
    assert any(loser["flags"] == one["flags"] for one in first["candidates"])
    again = tune.document("--port", "1234")
    assert not any(loser["flags"] == one["flags"] for one in again["candidates"])

    def explained(*words: str) -> dict[str, Any]:
        argv = [sys.executable, "-m", "autolaunch", "explain", str(tune.model), *words, "--format", "json"]
        done = subprocess.run(argv, env=tune.environ, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    name = loser["flags"][0].removeprefix("--")
    (why,) = explained("--why", f"{name}=on")["why"]
    assert (why["verdict"], why["failure"]) == ("excluded", "crash")
    assert why["evidence"][0]["kind"] == "measured" and why["rules"] == [second["rule"]]
    for words in (("--for-sglang", "0.5.9"), ("--profile-dir", str(tmp_path / "other"))):
        (why,) = explained("--why", f"{name}=on", *words)["why"]
        assert why["verdict"] != "excluded", words
    admitted = tune.document("--admit", f"{name}=on")
    assert any(loser["flags"] == one["flags"] for one in admitted["candidates"])
