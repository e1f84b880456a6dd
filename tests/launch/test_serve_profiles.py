"""`autolaunch serve` with profiles: which one is found, what it is worth, and what is launched by it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autolaunch.profiles import files
from tests.checkpoint.make_checkpoint import write_checkpoint
from tests.launch.harness import HERE, PROBE, wait_until
from tests.real_server import ROOT, RealServer, find_free_port
from tests.tune.harness import CONFIG

WINNER, SECOND = "--disable-overlap-schedule", "--disable-radix-cache"
BY_PROFILE = re.compile(r"^autolaunch: launching (.*) by the profile (cpu/model\.tp1\.\S+) \((\w+), 20", re.M)


class Box:
    """A model, a stand-in for SGLang with a scripted race, and a home with profiles."""

    def __init__(self, folder: Path, start_server: Callable[..., RealServer]) -> None:
        self._start_server = start_server
        self.home = Path(os.environ["AUTOLAUNCH_HOME"])
        self.state = folder / "state.json"
        self.port = find_free_port()
        tensors = [("model.embed_tokens.weight", "BF16", (512, 64))]
        self.model = write_checkpoint(folder / "model", tensors, config=CONFIG)
        paths = [HERE / "planted", HERE / "fake_sglang", ROOT]
        self.environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "FAKE_STATE": str(self.state),
            "FAKE_PROBE": str(PROBE),
            "PLANT_TRIED": "2",
        }

    def argv(self, *words: str) -> list[str]:
        """The command line of a start."""
        return [
            sys.executable,
            "-m",
            "autolaunch",
            "serve",
            str(self.model),
            "--port",
            str(self.port),
            *words,
        ]

    def dry(self, *words: str, code: Any = 0, **environ: str) -> subprocess.CompletedProcess[str]:
        """A dry run."""
        done = subprocess.run(
            self.argv("--dry-run", *words),
            env={**self.environ, **environ},
            cwd=self.home.parent,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        return done

    def added(self, *words: str, **environ: str) -> list[str]:
        """What a dry run would put behind the original command line."""
        line = self.dry(*words, **environ).stdout.splitlines()[-1].split()
        own = [one for one in words if one in line]
        return [one for one in line[line.index(str(self.port)) + 1 :] if one not in own]

    def race(self, *words: str, **environ: str) -> Path:
        """Race at the start of a server that is healthy and then stopped; the profile."""
        server = self.serve(*words, **environ)
        server.wait_healthy(30)
        wait_until(lambda: bool(self.attempts()[-1]["healthy"]), 10, "healthy is on record")
        assert server.stop() == 0
        return self.profiles()[-1]

    def serve(self, *words: str, **environ: str) -> RealServer:
        """Start a server."""
        self.state.unlink(missing_ok=True)
        env = {**self.environ, **environ}
        return self._start_server(self.argv(*words), port=self.port, environ=env, cwd=self.model.parent)

    def words(self) -> list[str]:
        """What the last server was started with, behind the port."""
        found: list[str] = json.loads(self.state.read_text())["words"]
        return found[found.index(str(self.port)) + 1 :]

    def attempts(self) -> list[dict[str, Any]]:
        """What is on record."""
        (record,) = self.home.glob("state/attempts/*.json")
        found: list[dict[str, Any]] = json.loads(record.read_text())["attempts"]
        return found

    def profiles(self) -> list[Path]:
        """The user's own profiles, the newest last."""
        return sorted(self.home.glob("data/profiles/cpu/*.toml"), key=lambda one: one.stat().st_mtime_ns)


@pytest.fixture
def box(tmp_path: Path, start_server: Callable[..., RealServer]) -> Box:
    """Nothing was measured yet."""
    return Box(tmp_path, start_server)


@pytest.fixture
def raced(box: Box) -> Box:
    """A profile was made by a race of `serve`."""
    box.race("--verify", "off")
    return box


def change(path: Path, old: str, new: str) -> None:
    """Write `new` in place of `old` into a profile."""
    text = path.read_text()
    assert old in text, text
    path.write_text(text.replace(old, new, 1))


def test_the_second_start_takes_what_the_first_has_measured(raced: Box) -> None:
    assert raced.words() == [WINNER]
    (kept,) = raced.profiles()
    assert 'origin = "serve"' in kept.read_text()
    server = raced.serve("--verify", "off")
    server.wait_healthy(30)
    assert raced.words() == [WINNER]
    text = server.output()
    found = BY_PROFILE.search(text)
    assert (
        found and found[1] == WINNER and found[2] == str(kept.relative_to(kept.parents[1]))[: -len(".toml")]
    )
    assert "100 % more output tok/s" in text
    assert "racing" not in text
    assert raced.attempts()[-1]["profile"] == found[2]
    assert server.stop() == 0
    assert server.leftovers() == []


def test_the_line_names_the_workload_where_none_was_said(box: Box) -> None:
    box.race("--verify", "off", "--workload", "in=100,out=10,concurrency=2")
    assert "for in=100,out=10,concurrency=2, throughput" in box.dry().stderr
    assert box.added() == [WINNER]
    other = box.dry("--workload", "in=9,out=9,concurrency=9")
    assert "by the profile" not in other.stderr
    assert "note: the nearest profile cpu/model" in other.stderr
    assert "`workload` was in=100,out=10,concurrency=2 and is in=9,out=9,concurrency=9" in other.stderr
    assert "by the profile" not in box.dry("--objective", "latency").stderr
    assert "by the profile" in box.dry("--objective", "throughput").stderr


@pytest.mark.parametrize(
    ("words", "added", "said"),
    [
        ((), [], "launching the original command: the profile cpu/model"),
        (("--stale", "table"), [], "; the table decides"),
        (("--stale", "use"), [WINNER], "; it is used all the same, as `--stale use` says"),
        (("--stale", "fail"), [], "warning: the profile cpu/model"),
    ],
)
def test_a_stale_profile_is_named_field_by_field(
    words: tuple[str, ...], added: list[str], said: str, raced: Box
) -> None:
    change(raced.profiles()[0], 'sglang = "0.0.0.dev7"', 'sglang = "0.0.0.dev6"')
    text = raced.dry(*words, SGLANG_SOMETHING="1").stderr
    assert said in text
    assert "`version.sglang` was 0.0.0.dev6 and is 0.0.0.dev7: " in text
    assert "`env.SGLANG_SOMETHING` was not set and is 1: " in text
    assert raced.added(*words, SGLANG_SOMETHING="1") == added


def test_a_stale_profile_is_measured_anew_where_the_user_says_so(raced: Box) -> None:
    change(raced.profiles()[0], 'sglang = "0.0.0.dev7"', 'sglang = "0.0.0.dev6"')
    server = raced.serve("--stale", "retune", "--verify", "off")
    server.wait_healthy(30)
    text = server.output()
    assert re.search(r"^note: the profile \S+ was made for something else; it is measured anew$", text, re.M)
    assert "racing the original command and 5 others on cpu, as `--stale retune` says so" in text
    assert server.stop() == 0


def test_a_stale_profile_may_be_an_error(raced: Box) -> None:
    change(raced.profiles()[0], 'sglang = "0.0.0.dev7"', 'sglang = "0.0.0.dev6"')
    done = raced.dry("--stale", "fail", "--strict", code=1)
    assert re.search(r"^error: the profile cpu/model\S+ is stale$", done.stderr, re.M)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        (('created = "20', 'created = "19'), "fits"),
        (("tp = 1\n", "tp = 2\n"), "other"),
        (('name = "model"', 'name = "someone"'), "fits"),
        (("cores = ", "cores = 1"), "stale"),
    ],
)
def test_what_differs_decides(changed: tuple[str, str], word: str, raced: Box) -> None:
    change(raced.profiles()[0], *changed)
    text = raced.dry().stderr
    assert ("by the profile" in text) is (word == "fits")
    assert ("was made for something else" in text) is (word == "stale")
    assert ("is for another start" in text) is (word == "other")


@pytest.mark.parametrize("status", ["quarantined", "suspect"])
def test_a_choice_that_is_not_trusted_gives_way_to_the_next_best(status: str, raced: Box) -> None:
    (kept,) = raced.profiles()
    change(kept, 'status = "fresh"', f'status = "{status}"\nstatus_reason = "it said !!!!"')
    done = raced.dry()
    assert f"`{WINNER}` is passed over: it is {status}: it said !!!!" in done.stderr
    assert f"launching {SECOND} by the profile" in done.stderr
    assert "the next best of the profile" in done.stderr
    assert done.stdout.split()[-1] == SECOND
    change(kept, "rank = 2\n", "")
    done = raced.dry()
    assert "launching the original command by the profile" in done.stderr
    assert "nothing else of the profile is left" in done.stderr


def test_a_choice_that_died_is_marked_and_the_third_start_is_healthy(box: Box) -> None:
    environ = {"FAKE_DEADLY": WINNER}
    assert box.serve(**environ).wait_exit() == 1
    assert box.words() == [WINNER]
    second = box.serve("--verify", "off", **environ)
    second.wait_healthy(30)
    assert box.words() == [SECOND]
    (kept,) = box.profiles()
    assert 'status = "quarantined"' in kept.read_text()
    assert f'status_since = "{box.attempts()[0]["started"]}"' in kept.read_text()
    wait_until(lambda: bool(box.attempts()[-1]["healthy"]), 10, "healthy is on record")
    assert second.stop() == 0
    other = box.dry("--host", "127.0.0.1", "--stale", "use")
    assert f"`{WINNER}` is passed over: it is quarantined" in other.stderr, "for every command line"
    assert other.stdout.split()[-1] == SECOND


def test_a_start_with_the_original_by_a_profile_is_recorded_too(raced: Box) -> None:
    """A probe that asks the record finds it, and its profile learns how it fared."""
    (path,) = raced.profiles()
    change(path, f'flags = [\n  "{WINNER}",\n]', "flags = []")
    before = len(raced.attempts())
    server = raced.serve()
    server.wait_healthy(30)
    assert raced.words() == []
    wait_until(lambda: bool(raced.attempts()[-1]["healthy"]), 10, "healthy is on record")
    assert len(raced.attempts()) == before + 1
    assert raced.attempts()[-1]["profile"] == f"cpu/{path.stem}"
    assert server.stop() == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (f'  "{WINNER}",', '"--trust-remote-code"', "`--trust-remote-code`"),
        (f'  "{WINNER}",', '"--port", "1"', "`--port`"),
        (f'  "{WINNER}",', '"--attention-backend", "fa9"', "fa9"),
        (f'"{WINNER}",\n]', f'"{WINNER}",\n]\n\n[chosen.env]\nLD_PRELOAD = "/x.so"', "LD_PRELOAD"),
    ],
)
def test_a_hostile_profile_sets_nothing(old: str, new: str, said: str, raced: Box) -> None:
    change(raced.profiles()[0], old, new)
    done = raced.dry()
    assert " is passed over: " in done.stderr
    assert said in done.stderr
    assert done.stdout.split()[-1] == SECOND
    assert "LD_PRELOAD" not in done.stdout


def test_a_flag_that_the_user_set_is_never_overridden(raced: Box) -> None:
    """Not even by a profile that says it was made for just that."""
    (kept,) = raced.profiles()
    change(kept, f'  "{WINNER}",', '"--attention-backend", "triton"')
    change(
        kept, "[fingerprint.version]", '[fingerprint.pin]\nattention_backend = "fa3"\n\n[fingerprint.version]'
    )
    done = raced.dry("--attention-backend", "fa3")
    assert "is passed over: you pinned `--attention-backend fa3`" in done.stderr
    assert "triton" not in done.stdout


def test_a_named_profile_is_the_only_one(raced: Box, tmp_path: Path) -> None:
    (kept,) = raced.profiles()
    mine = tmp_path / "mine.toml"
    mine.write_text(kept.read_text().replace(WINNER, SECOND))
    name = f"cpu/{kept.name.removesuffix('.toml')}"
    for words in (
        ("--profile", str(mine)),
        ("--profile", "mine.toml"),
        ("--profile", f"{mine}", "--tune", "off"),
    ):
        assert raced.added(*words) == [SECOND]
    assert raced.added("--profile", name) == [WINNER]
    assert raced.added(AUTOLAUNCH_PROFILE=name) == [WINNER]
    change(mine, "tp = 1\n", "tp = 4\n")
    done = raced.dry("--profile", str(mine))
    assert "warning: the profile" in done.stderr
    assert "is for another start, and is not used" in done.stderr
    assert "`parallel.tp` was 4 and is 1" in done.stderr
    assert done.stdout.split()[-1] == str(raced.port), "and no other is looked at"


@pytest.mark.parametrize("named", ["cpu/nothing", "nowhere.toml", "/nowhere/x.toml", "."])
def test_a_named_profile_that_is_not_there_is_a_usage_error(named: str, raced: Box) -> None:
    done = raced.dry("--profile", named, code=2)
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_folders_of_profiles_are_laid_over_each_other(raced: Box, tmp_path: Path) -> None:
    base, top = tmp_path / "base", tmp_path / "top"
    (base / "cpu").mkdir(parents=True)
    (kept,) = raced.profiles()
    kept.rename(base / "cpu" / kept.name)
    assert raced.added("--profile-dir", str(base)) == [WINNER]
    assert raced.added(AUTOLAUNCH_PROFILE_DIR=f"{top}:{base}") == [WINNER]
    assert "by the profile" not in raced.dry().stderr


def test_a_store_that_somebody_holds_keeps_no_server_from_starting(box: Box) -> None:
    assert box.serve(FAKE_DEADLY=WINNER).wait_exit() == 1
    (kept,) = box.profiles()
    with files.locked(kept.parents[1]):
        began = time.monotonic()
        server = box.serve("--verify", "off", FAKE_DEADLY=WINNER)
        server.wait_healthy(30)
        assert time.monotonic() - began < 15, "the whole limit of a stage is longer"
        assert box.words() == [SECOND]
        text = server.output()
    assert re.search(r"warning: the profile cpu/\S+ could not be marked as quarantined", text)
    assert "another process holds its lock" in text
    assert f"launching {SECOND} by the profile" in text
    assert server.stop() == 0


def test_a_file_of_any_name_is_marked(raced: Box, tmp_path: Path) -> None:
    (kept,) = raced.profiles()
    mine = tmp_path / "mine"
    kept.rename(mine)
    named = ("--profile", str(mine))
    assert raced.serve(*named, FAKE_DEADLY=WINNER).wait_exit() == 1
    assert raced.attempts()[-1]["profile"] == str(mine)
    second = raced.serve(*named, "--verify", "off", FAKE_DEADLY=WINNER)
    second.wait_healthy(30)
    (marked,) = raced.profiles()
    assert 'status = "quarantined"' in marked.read_text()
    assert second.stop() == 0
    other = raced.dry(*named, "--host", "127.0.0.1")
    assert f"`{WINNER}` is passed over: it is quarantined" in other.stderr, "for every command line"


@pytest.mark.parametrize("is_proven", [True, False])
def test_a_failure_by_a_profile_is_kept_for_every_command_line(is_proven: bool, raced: Box) -> None:
    """What it is bound to was written down by the race, or else is looked up at the start."""
    (record,) = raced.home.glob("state/attempts/*.json")
    record.unlink()
    if not is_proven:
        shutil.rmtree(raced.home / "state/proofs")
    raced.port = find_free_port()
    assert raced.serve(FAKE_DEADLY=WINNER).wait_exit() == 1
    assert raced.attempts()[-1]["profile"].startswith("cpu/model")
    server = raced.serve("--verify", "off", FAKE_DEADLY=WINNER)
    server.wait_healthy(30)
    assert WINNER in (raced.home / "data/profiles/failures.toml").read_text()
    assert server.stop() == 0


def test_a_store_that_cannot_be_written_costs_the_profile_alone(box: Box) -> None:
    (box.home / "data").mkdir(parents=True)
    (box.home / "data" / "profiles").write_text("in the way")
    server = box.serve("--verify", "off")
    server.wait_healthy(30)
    assert box.words() == [WINNER]
    text = server.output()
    assert "warning: the result could not be kept for the next start" in text
    assert f"launching {WINNER}: 100 % more" in text
    assert server.stop() == 0


def test_a_document_names_the_profile(raced: Box) -> None:
    value = json.loads(raced.dry("--format", "json").stdout)
    assert value["chosen"]["flags"] == [WINNER]
    profile = value["profile"]
    assert profile["path"] == str(raced.profiles()[0])
    assert (profile["status"], profile["reused"], profile["origin"]) == ("fresh", True, "serve")
    assert profile["measured"]["gain"]["mean"] == pytest.approx(1, abs=0.01)
    assert json.loads(raced.dry("--format", "json", "--tune", "off").stdout)["profile"] is None


@pytest.mark.parametrize("words", [("--tune", "off"), ("--plain",)])
def test_who_wants_no_tuning_gets_no_profile(words: tuple[str, ...], raced: Box) -> None:
    assert raced.added(*words) == []


def test_what_cannot_be_read_as_flags_may_mean_anything(raced: Box) -> None:
    assert "by the profile" not in raced.dry("--no-such-flag").stderr


def test_nothing_is_written_by_a_dry_run(box: Box, tmp_path: Path) -> None:
    box.dry("--tune", "quick", "--profile-dir", str(tmp_path / "profiles"))
    assert not (tmp_path / "profiles").exists()
    assert not (box.home / "data").exists()


def test_a_named_profile_for_weights_that_are_elsewhere_is_not_used(raced: Box, tmp_path: Path) -> None:
    name = f"cpu/{raced.profiles()[0].name.removesuffix('.toml')}"
    raced.model = Path("nobody/nothing")
    done = raced.dry("--profile", name, HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path))
    assert f"warning: the profile `{name}` is not used" in done.stderr
    assert "because the weights are not on this machine" in done.stderr
