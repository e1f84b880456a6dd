"""The program that the watcher runs: by path, isolated, and with an exit code that says whether it is kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from autolaunch.profiles import marks
from autolaunch.profiles.names import name_of
from autolaunch.profiles.store import Store
from tests.profiles.made import FA3, TRITON, made

NAME = name_of(made())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with one profile in a folder that is only read."""
    Store((tmp_path / "base",)).save(made())
    return Store((tmp_path / "first", tmp_path / "base"))


def run(store: Store, text: str | None = None, **asked: Any) -> subprocess.CompletedProcess[str]:
    """Run the program as the watcher does, in the root folder and without any environment."""
    orders = {
        "folders": [str(one) for one in store.folders],
        "name": NAME,
        "status": "verified",
        "reason": "sound",
        **asked,
    }
    return subprocess.run(
        [sys.executable, "-I", marks.__file__],
        input=json.dumps(orders) if text is None else text,
        capture_output=True,
        text=True,
        cwd="/",
        env={},
    )


def test_a_profile_is_marked(store: Store) -> None:
    done = run(
        store,
        acceptance_length=2.61,
        resolved={"attention_backend": "triton"},
        chosen={"flags": list(TRITON.flags), "env": {}},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    kept = store.find(NAME)
    assert kept is not None and kept.writable
    assert (kept.profile.status, kept.profile.status_reason) == ("verified", "sound")
    assert kept.profile.measured.acceptance_length == 2.61
    assert kept.profile.extra == {"resolved": {"attention_backend": "triton"}}


def test_nulls_are_as_good_as_nothing(store: Store) -> None:
    done = run(store, acceptance_length=None, resolved=None, chosen=None, reason=None)
    assert (done.returncode, done.stderr) == (0, "")


def test_another_candidate_changes_nothing_and_that_is_no_failure(store: Store) -> None:
    done = run(store, chosen={"flags": list(FA3.flags), "env": {}})
    assert (done.returncode, done.stderr) == (0, "")
    assert not (store.written / f"{NAME}.toml").exists()


@pytest.mark.parametrize("file", ["mine.toml", "mine", "first/mine", "first/h200/mine", "base/mine.toml"])
def test_a_file_that_was_named_is_marked_in_the_store(store: Store, tmp_path: Path, file: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((tmp_path / "base" / f"{NAME}.toml").read_bytes())
    assert run(store, name=str(path), status="quarantined").returncode == 0
    kept = store.find(NAME)
    assert kept is not None and kept.profile.status == "quarantined"


@pytest.mark.parametrize(
    "asked",
    [
        {"name": "h200/none.tp1.throughput"},
        {"name": "../../../etc/passwd"},
        {"name": None},
        {"status": "excellent"},
        {"status": ["verified"]},
        {"reason": 5},
        {"folders": []},
        {"folders": None},
        {"folders": ["/proc/nowhere"]},
        {"chosen": []},
        {"chosen": {"flags": None}},
        {"acceptance_length": "many"},
        {"resolved": ["x"]},
    ],
)
def test_what_cannot_be_done_ends_with_one_line(store: Store, asked: dict[str, Any]) -> None:
    done = run(store, **asked)
    assert done.returncode == 1
    assert done.stderr.startswith("autolaunch: the profile could not be marked: ")
    assert done.stderr.count("\n") == 1
    kept = store.find(NAME)
    assert kept is not None and kept.profile == made()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "7", "{", "[" * 100_000, "null", '{"folders": ["\\u0000"], "name": "a/b", "status": "fresh"}'],
)
def test_orders_that_are_none(store: Store, text: str) -> None:
    done = run(store, text)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr


def test_numbers_that_are_none_are_not_kept(store: Store) -> None:
    assert run(store, acceptance_length=float("nan")).returncode == 0
    kept = store.find(NAME)
    assert kept is not None and kept.profile.measured.acceptance_length is None
