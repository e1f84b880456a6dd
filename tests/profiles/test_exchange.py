"""Profiles by hand: named, brought in, removed; every mistake has its answer and loses nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autolaunch.errors import AutolaunchError, UsageError
from autolaunch.profiles.document import to_toml
from autolaunch.profiles.exchange import bring_in, named, remove
from autolaunch.profiles.names import name_of
from autolaunch.profiles.store import Store
from tests.profiles.made import made

NAME = name_of(made())


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with a folder that is written and one that is only read."""
    return Store((tmp_path / "first", tmp_path / "base"))


def file_of(folder: Path, text: str | None = None) -> Path:
    """A file with a profile, or with `text`."""
    path = folder / "mine.toml"
    path.write_text(to_toml(made()) if text is None else text)
    return path


def test_a_name_and_a_file(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = store.save(made())
    assert named(store, NAME).path == saved
    assert named(store, str(saved)).name == NAME
    path = file_of(tmp_path)
    monkeypatch.chdir(tmp_path)
    for text in ("mine.toml", "./mine.toml", str(path)):
        kept = named(store, text)
        assert (kept.profile, kept.path, kept.name, kept.writable) == (made(), path, NAME, False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert named(store, "~/mine.toml").path == path


@pytest.mark.parametrize(
    "text",
    [
        "none",
        "h200/none",
        "none.toml",
        "/none/none.toml",
        "",
        "~nobody-here/x",
        "x" * 5000,
        "a\0b",
        "a\0b.toml",
        "\udc80",
    ],
)
def test_there_is_none(store: Store, text: str) -> None:
    store.save(made())
    with pytest.raises(UsageError) as raised:
        named(store, text)
    assert raised.value.exit_code == 2
    assert str(raised.value).encode(errors="backslashreplace")


def test_a_wrong_name_is_told_the_right_ones(store: Store) -> None:
    with pytest.raises(UsageError, match="no profile is in"):
        named(store, "x")
    store.save(made())
    with pytest.raises(UsageError) as raised:
        named(store, "x")
    assert NAME in (raised.value.hint or "")
    for number in range(10):
        store.save(made(fingerprint={"n": number}))
    with pytest.raises(UsageError, match="and 3 more"):
        named(store, "x")


def test_a_corrupt_one_says_why(store: Store, tmp_path: Path) -> None:
    store.save(made()).write_text("model = [")
    with pytest.raises(UsageError) as raised:
        named(store, NAME)
    assert "not TOML" in str(raised.value)
    with pytest.raises(UsageError, match="not TOML"):
        named(store, str(file_of(tmp_path, "model = [")))
    with pytest.raises(UsageError, match="newer"):
        named(store, str(file_of(tmp_path, to_toml(made()).replace("profile/1", "profile/9"))))
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(UsageError, match="cannot be read"):
            named(store, f"{path}/" if path.is_dir() else str(path))


def test_what_is_brought_in_is_fresh(store: Store, tmp_path: Path) -> None:
    path = file_of(
        tmp_path,
        to_toml(
            made(status="quarantined", status_reason="garbage", status_since="2026-12-01T00:00:00+00:00")
        ),
    )
    kept, is_new = bring_in(store, str(path))
    assert is_new and kept.name == NAME
    found = named(store, NAME).profile
    assert (found.origin, found.status, found.status_reason, found.status_since) == (
        "imported",
        "fresh",
        "",
        "",
    )
    assert found.notes == ("it was quarantined where it came from: garbage",)
    assert bring_in(store, str(path)) == (store.find(NAME), False)


def test_what_is_here_is_not_lost(store: Store, tmp_path: Path) -> None:
    store.save(made(reason="measured here", status="verified"))
    with pytest.raises(AutolaunchError, match="is here already") as raised:
        bring_in(store, str(file_of(tmp_path)))
    assert raised.value.exit_code == 1 and f"autolaunch profile remove {NAME}" in (raised.value.hint or "")
    assert named(store, NAME).profile.reason == "measured here"


def test_what_was_measured_here_stays_as_it_is_where_the_same_comes_in(store: Store, tmp_path: Path) -> None:
    store.save(made(status="verified"))
    kept, is_new = bring_in(store, str(file_of(tmp_path)))
    assert (is_new, kept.profile.status, kept.profile.origin) == (False, "verified", "tune")


def test_remove(store: Store) -> None:
    Store(store.folders[1:]).save(made(reason="below"))
    store.save(made())
    below = remove(store, NAME)
    assert below is not None and below.profile.reason == "below"
    with pytest.raises(AutolaunchError, match="cannot be removed") as raised:
        remove(store, NAME)
    assert raised.value.exit_code == 1
    assert (store.folders[1] / f"{NAME}.toml").exists()
    for text in ("none", "h200/none", "../../x", ""):
        with pytest.raises(UsageError, match="there is no profile"):
            remove(store, text)


def test_one_that_cannot_be_read_can_be_removed(store: Store) -> None:
    path = store.save(made())
    path.write_text("[")
    assert remove(store, NAME) is None
    path.symlink_to("nowhere")
    assert remove(store, NAME) is None
    assert not os.path.lexists(path)
