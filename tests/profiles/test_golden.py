"""Files of today's schema that every later reader must read to the same value."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from autolaunch.profiles.document import from_toml, to_toml
from autolaunch.profiles.matching import judge

FOLDER = Path(__file__).parent / "golden"
FILES = sorted(FOLDER.glob("*.toml"))


def plain(value: Any) -> Any:
    """`value` as JSON has it."""
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_read_to_the_same_value(path: Path) -> None:
    profile = from_toml(path.read_bytes(), where=path.name)
    assert plain(asdict(profile)) == json.loads(path.with_suffix(".json").read_text())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_is_written_and_read_again(path: Path) -> None:
    profile = from_toml(path.read_bytes(), where=path.name)
    again = from_toml(to_toml(profile).encode(), where=path.name)
    assert again == profile
    assert to_toml(again) == to_toml(profile)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_it_fits_its_own_start(path: Path) -> None:
    profile = from_toml(path.read_bytes(), where=path.name)
    now = {"model.name": profile.model, **profile.fingerprint}
    assert judge(profile, now, profile.workload, profile.objective).doubts == ()


def test_what_is_written_is_in_a_fixed_form() -> None:
    """A change of this form makes every profile in a repository differ; `tuned-h200` was written so."""
    path = FOLDER / "tuned-h200.toml"
    written = to_toml(from_toml(path.read_bytes(), where=path.name))
    assert sorted(written.splitlines()) == sorted(path.read_text().splitlines())


def test_they_are_there() -> None:
    assert [path.stem for path in FILES] == ["added-later", "served-cpu", "shipped-by-hand", "tuned-h200"]
