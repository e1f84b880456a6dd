"""`autolaunch profile …`: what is printed where, with which exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autolaunch.profiles.document import to_toml
from autolaunch.profiles.names import name_of
from autolaunch.profiles.profile import Chosen, Entrant
from autolaunch.profiles.store import SHIPPED, Store
from tests.profiles.made import FA3, made
from tests.real_server import ROOT

NAME = name_of(made())


@pytest.fixture
def store(isolated_home: Path) -> Store:
    """The user's own folder, which is not there yet."""
    return Store((isolated_home / "data/profiles",))


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Type `autolaunch profile` and `words`."""
    return subprocess.run(
        [sys.executable, "-m", "autolaunch", "profile", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def told(*words: str, **environment: str) -> str:
    """What is printed where all is well."""
    done = run(*words, **environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def as_json(*words: str) -> dict[str, Any]:
    """The JSON that is printed."""
    found: dict[str, Any] = json.loads(told(*words, "--format", "json"))
    return found


def test_list(store: Store) -> None:
    store.save(made(status="quarantined", status_reason="garbage"))
    lines = told("list").splitlines()
    assert lines[0].split() == ["name", "status", "result", "age", "workload", "choice"]
    mine = next(line for line in lines if line.startswith(NAME))
    for words in (
        "quarantined",
        "1395 tok/s (+25.3%)",
        "in=1024,out=256,concurrency=32",
        "--attention-backend triton",
    ):
        assert words in mine
    assert any(line.startswith("rtx-pro-6000-blackwell-server-edition/") for line in lines)


def test_list_as_json(store: Store) -> None:
    path = store.save(made())
    document = as_json("list")
    assert document["schema"] == "autolaunch.profiles/1"
    assert document["folders"][0] == {"path": str(store.written), "written": True, "there": True}
    assert document["folders"][1]["path"] == str(SHIPPED)
    mine = next(one for one in document["profiles"] if one["name"] == NAME)
    assert (mine["path"], mine["status"], mine["flags"], mine["tp"]) == (
        str(path),
        "fresh",
        ["--attention-backend", "triton"],
        1,
    )
    assert mine["gain"]["mean"] == 0.253 and mine["age_s"] > 0 and mine["gpu"] == "NVIDIA H200"


def test_a_list_names_what_cannot_be_read(store: Store) -> None:
    store.save(made()).write_text("[")
    done = run("list")
    assert done.returncode == 0
    assert done.stderr.count("warning: ") == 1 and f"{NAME}.toml" in done.stderr
    assert as_json("list")["doubts"]


def test_show(store: Store) -> None:
    entrants = (
        *made().entrants,
        Entrant(Chosen(("--x", "y"), (), "c3"), lost="it answered garbage", failure="garbage", stage="gate"),
    )
    store.save(made(entrants=entrants, warnings=("beware",), provenance=("me",), notes=("well",)))
    text = told("show", NAME)
    for words in (
        "status: fresh",
        "choice: --attention-backend triton",
        "because: it is 25.3 % faster",
        "1395 tok/s (+25.3%), on a slice; the original 1113",
        "--attention-backend fa3",
        "it is slower than c1",
        "garbage at gate; it answered garbage",
        "gpu.name: NVIDIA H200",
        "warning: beware",
        "from: me",
        "note: well",
    ):
        assert words in text, text
    document = as_json("show", NAME)
    assert document["name"] == NAME and document["chosen"]["flags"] == ["--attention-backend", "triton"]


def test_diff(store: Store) -> None:
    store.save(made())
    other = made(
        chosen=FA3,
        fingerprint={"version.sglang": "0.5.22", "gpu.power_limit_w": 500, "model.name": "Qwen3-8B-Base"},
    )
    store.save(other)
    text = told("diff", NAME, name_of(other))
    assert "choice: --attention-backend triton → --attention-backend fa3" in text
    assert (
        "version.sglang: 0.5.21 → 0.5.22; trust: neither answers nor speed were checked with this version"
        in text
    )
    assert "gpu.power_limit_w: not set → 500; speed: another choice may be faster" in text
    document = as_json("diff", NAME, name_of(other))
    assert {one["field"] for one in document["fingerprint"]} >= {"version.sglang", "gpu.power_limit_w"}
    assert told("diff", NAME, NAME).endswith("they differ in nothing\n")


def test_export_and_import(store: Store, tmp_path: Path) -> None:
    store.save(made(status="verified"))
    assert told("export", NAME) == told("export", NAME, "-o", "-") == to_toml(made(status="verified"))
    file = tmp_path / "carried.toml"
    done = run("export", NAME, "--output", str(file))
    assert (done.returncode, done.stdout) == (0, "")
    other = str(tmp_path / "other")
    for words in (NAME, f"{NAME} is here already"):
        done = run("import", str(file), "--profile-dir", other)  # stderr: where tests run in a container
        assert (done.returncode, done.stdout) == (0, f"{words}\n")
    kept = Store((Path(other),)).find(NAME)
    assert kept is not None and (kept.profile.origin, kept.profile.status) == ("imported", "fresh")


def test_an_import_that_would_set_other_flags_says_so(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "evil.toml"
    file.write_text(to_toml(made(chosen=Chosen(("--trust-remote-code",), (), "c1"))))
    done = run("import", str(file))
    assert done.returncode == 0
    assert "will not be launched" in done.stderr and "--trust-remote-code" in done.stderr


def test_path(store: Store, tmp_path: Path) -> None:
    assert told("path").splitlines() == [str(store.written), str(SHIPPED)]
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    assert told("path", "--profile-dir", a, "--profile-dir", b).splitlines() == [a, b, str(SHIPPED)]
    assert told("path", AUTOLAUNCH_PROFILE_DIR=f"{a}:{b}").splitlines() == [a, b, str(SHIPPED)]


def test_remove(store: Store) -> None:
    path = store.save(made())
    assert run("remove", NAME).returncode == 0
    assert not path.exists()
    assert run("remove", NAME).returncode == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["show", "none"], 2),
        (["show", "/none.toml"], 2),
        (["show"], 2),
        (["show", "a", "b"], 2),
        (["diff", "none", "none"], 2),
        (["export", "none"], 2),
        (["import", "/none.toml"], 2),
        (["import", "/dev/zero"], 2),
        (["remove", "none"], 2),
        (["remove", "h200/Qwen3-8B-FP8.tp1.throughput"], 1),
        (["export", "h200/Qwen3-8B-FP8.tp1.throughput", "-o", "/proc/none/x"], 1),
        (
            ["import", str(SHIPPED / "h200/Qwen3-8B-FP8.tp1.throughput.toml"), "--profile-dir", "/proc/none"],
            1,
        ),
        (["frobnicate"], 2),
        ([], 2),
        (["list", "--format", "xml"], 2),
    ],
)
def test_exit_codes(words: list[str], code: int) -> None:
    done = run(*words)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if code and words:
        assert done.stderr.startswith("error: ") and done.stdout == ""


def test_a_store_that_cannot_be_written(tmp_path: Path, isolated_home: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(to_toml(made()))
    isolated_home.parent.mkdir(exist_ok=True)
    isolated_home.touch()  # a file in the place of the folder
    done = run("import", str(file))
    assert done.returncode == 1
    assert done.stderr.startswith("error: no profile can be kept in `")


def test_nothing_that_a_terminal_would_obey(store: Store) -> None:
    store.save(made(reason="a\u202eb", status_reason="\u2066"))
    text = told("show", NAME)
    assert "\u202e" not in text and "\u2066" not in text


def test_secrets_are_in_no_output(store: Store) -> None:
    secret = "hf_" + "a1b2c3d4e5f6"
    store.save(
        made(chosen=Chosen(("--api-key", secret), (("HF_TOKEN", secret),), "c1"), reason=f"Bearer {secret}")
    )
    name = next(one.name for one in store.all())
    for words in (["list"], ["show", name], ["export", name], ["show", name, "--format", "json"]):
        assert secret not in told(*words)
