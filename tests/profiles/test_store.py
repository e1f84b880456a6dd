"""A store: found, kept, laid over another, marked; nothing of it believed further than it can be read."""

from __future__ import annotations

import errno
import os
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from autolaunch.errors import AutolaunchError
from autolaunch.folders import Folders
from autolaunch.profiles import files
from autolaunch.profiles.document import to_toml
from autolaunch.profiles.names import name_of
from autolaunch.profiles.profile import Profile
from autolaunch.profiles.store import SHIPPED, Store
from tests.profiles.made import FA3, TRITON, made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """An empty store of one folder, which is not there yet."""
    return Store((tmp_path / "profiles",))


def put(folder: Path, profile: Profile, name: str | None = None) -> Path:
    """Lay a profile into `folder` by hand."""
    path = folder / f"{name or name_of(profile)}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_toml(profile))
    return path


def found(store: Store, model: str = "Qwen3-8B", **more: str) -> list[Profile]:
    """What a start of `model` on an H200 may use."""
    return [one.profile for one in store.candidates_for("h200", model, **more)]


def test_what_is_saved_is_found(store: Store) -> None:
    path = store.save(made())
    assert path == store.written / f"{name_of(made())}.toml"
    assert found(store) == [made()]
    kept = store.find(name_of(made()))
    assert kept is not None and (kept.profile, kept.path, kept.writable) == (made(), path, True)
    assert store.doubts == ()


def test_it_is_for_its_owner_alone(store: Store) -> None:
    path = store.save(made())
    modes = [stat.S_IMODE(one.stat().st_mode) for one in (path, path.parent, store.written)]
    assert modes == [0o600, 0o700, 0o700]


def test_the_same_start_replaces_and_another_is_added(store: Store) -> None:
    store.save(made())
    store.save(made(reason="measured again", created="2026-12-02T00:00:00+00:00"))
    other = made(fingerprint={"version.sglang": "0.5.22"}, created="2026-12-03T00:00:00+00:00")
    store.save(other)
    assert [one.reason for one in found(store)] == [other.reason, "measured again"]


def test_only_what_can_matter_is_read(store: Store) -> None:
    store.save(made())
    store.save(made(fingerprint={"gpu.name": "NVIDIA B200"}))
    store.save(made(model="Qwen3-8B-FP8", fingerprint={"checkpoint.config": "f" * 64}))
    broken = store.written / "h200/Llama-3.tp1.throughput.toml"
    broken.write_text("not = [toml")
    assert found(store) == [made()]
    assert store.doubts == ()


def test_a_model_under_another_name_is_known_by_its_configuration(store: Store) -> None:
    mine = made(model="renamed", fingerprint={"model.name": "renamed"})
    store.save(mine)
    assert found(store) == []
    assert found(store, config_digest="c0ffee" * 10) == [mine]
    assert found(store, config_digest="d" * 60) == []
    assert store.doubts == ()


def test_a_base_is_read_and_the_first_folder_stands_before_it(tmp_path: Path) -> None:
    base, first = tmp_path / "base", tmp_path / "first"
    put(base, made())
    other = made(fingerprint={"version.sglang": "0.5.22"}, created="2026-11-29T00:00:00+00:00")
    put(base, other)
    store = Store((first, base))
    assert [one.writable for one in store.candidates_for("h200", "Qwen3-8B")] == [False, False]
    put(first, made(reason="mine"))
    assert [(one.profile.reason, one.writable) for one in store.candidates_for("h200", "Qwen3-8B")] == [
        ("mine", True),
        (other.reason, False),
    ]


def test_a_profile_of_a_base_is_marked_by_a_copy(tmp_path: Path) -> None:
    base, first = tmp_path / "base", tmp_path / "first"
    path = put(base, made())
    before = path.read_bytes()
    store = Store((first, base))
    marked = store.mark(name_of(made()), "quarantined", "it answered `!!!!`")
    assert marked == first / f"{name_of(made())}.toml"
    assert path.read_bytes() == before
    profile = found(store)[0]
    assert (profile.status, profile.status_reason) == ("quarantined", "it answered `!!!!`")
    assert profile.status_since and profile.chosen == TRITON


def test_a_corrupt_copy_hides_nothing(tmp_path: Path) -> None:
    base, first = tmp_path / "base", tmp_path / "first"
    put(base, made())
    put(first, made()).write_text("[")
    store = Store((first, base))
    assert found(store) == [made()]
    assert len(store.doubts) == 1 and str(first) in store.doubts[0]


def test_a_base_that_was_made_anew_counts_again(tmp_path: Path) -> None:
    base, first = tmp_path / "base", tmp_path / "first"
    put(base, made())
    store = Store((first, base))
    store.mark(name_of(made()), "quarantined", "garbage")
    later = "2026-12-24T00:00:00+00:00"
    put(base, made(created=later))
    assert found(store)[0].status == "quarantined"  # the same choice is not sound for being measured again
    put(base, made(created=later, chosen=FA3))
    assert [(one.chosen, one.status) for one in found(store)] == [(FA3, "fresh")]
    store.mark(name_of(made()), "verified", "sound", launched=FA3)
    assert [(one.chosen, one.status) for one in found(store)] == [(FA3, "verified")]


def test_marks_follow_what_happens(store: Store) -> None:
    store.save(made())
    name = name_of(made())
    assert store.mark(
        name,
        "verified",
        "19 answers were sound",
        acceptance=2.5,
        resolved=[("--attention-backend", "triton")],
    )
    profile = found(store)[0]
    assert (profile.status, profile.measured.acceptance_length) == ("verified", 2.5)
    assert profile.extra["resolved"] == {"--attention-backend": "triton"}
    assert store.mark(name, "suspect", "it ended before it was healthy, by SIGTERM")
    assert store.mark(name, "verified", "it was healthy later")
    assert store.mark(name, "quarantined", "NaN")
    assert store.mark(name, "verified", "by luck") is None
    assert found(store)[0].status == "quarantined"


def test_what_another_candidate_did_is_noted_with_it(store: Store) -> None:
    store.save(made())
    assert store.mark(name_of(made()), "verified", "sound", launched=FA3) is None
    assert store.mark(name_of(made()), "quarantined", "garbage", launched=FA3)
    profile = found(store)[0]
    assert profile.status == "fresh"
    assert [one.chosen.id for one in profile.next_best] == ["c0"]


def test_a_race_after_a_start_is_not_blamed_for_it(store: Store) -> None:
    store.save(made())
    store.save(made(chosen=FA3, created="2026-12-02T00:00:00+00:00"))
    store.mark(name_of(made()), "quarantined", "garbage", launched=TRITON)
    assert found(store)[0].status == "fresh"


def test_a_file_outside_is_marked_inside(store: Store, tmp_path: Path) -> None:
    path = put(tmp_path / "elsewhere", made())
    assert store.read_file(path).profile.status == "fresh"
    assert store.mark(path, "quarantined", "garbage")
    assert store.read_file(path).profile.status == "quarantined"
    assert found(store)[0].origin == "imported"


def test_a_profile_that_is_not_there_cannot_be_marked(store: Store) -> None:
    for name in ("h200/none", "../../etc/passwd", "", "h200/../../x"):
        with pytest.raises(AutolaunchError, match="there is no profile"):
            store.mark(name, "verified", "")


def test_what_is_older_is_told_by_its_date_and_not_by_its_file(store: Store) -> None:
    dates = ["2026-12-01T10:00:00+02:00", "2026-12-01T09:00:00Z", "2026-11-30T00:00:00+00:00"]
    for number, date in enumerate(dates):
        path = store.save(made(fingerprint={"n": number}, created=date))
        os.utime(path, (number, number))
    assert [one.created for one in found(store)] == [dates[1], dates[0], dates[2]]


def test_leftovers_of_killed_writers_are_swept(store: Store) -> None:
    path = store.save(made())
    old, new = path.with_name(".x.1.ab.new"), path.with_name(".y.1.ab.new")
    old.touch()
    new.touch()
    os.utime(old, (time.time() - 7200,) * 2)
    store.save(made())
    assert (old.exists(), new.exists()) == (False, True)
    assert found(store) == [made()]


def test_a_lock_that_is_not_given_back_ends_in_words(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.save(made())
    monkeypatch.setattr(files, "LOCK_LIMIT_S", 0.2)
    with (
        files.locked(store.written),
        pytest.raises(OSError, match="another process holds its lock") as raised,
    ):
        store.save(made(reason="other"))
    assert raised.value.errno == errno.ETIMEDOUT
    assert found(store) == [made()]
    assert not list(store.written.rglob("*.new"))


def test_who_has_little_patience_waits_so_long_in_all(store: Store) -> None:
    store.save(made())
    began = time.monotonic()
    with files.locked(store.written), files.patience(0.2):
        for _ in range(3):
            with pytest.raises(OSError, match="another process holds its lock"):
                store.mark(name_of(made()), "quarantined", "garbage")
    assert 0.2 <= time.monotonic() - began < 2
    with files.patience(0):
        assert store.mark(name_of(made()), "quarantined", "garbage"), "a lock that nobody holds costs no time"


def test_only_what_came_with_autolaunch_is_shipped(store: Store, tmp_path: Path) -> None:
    """Such a profile need not state every field."""
    shipped = tmp_path / "shipped"
    forged = made(origin="shipped")
    name = name_of(forged)
    path = store.save(forged)
    (kept,) = store.all()
    assert kept.profile.origin == store.read_file(path).profile.origin == "imported"
    mine = tmp_path / "mine.toml"
    path.rename(mine)
    assert store.read_file(mine).profile.origin == "imported"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("autolaunch.profiles.store.SHIPPED", shipped)
        Store((shipped,)).save(forged)
        both = Store((store.written, shipped))
        assert [one.profile.origin for one in both.all()] == ["shipped"]
        both.mark(name, "verified", "sound")
        assert path.exists(), "a marked copy stands before it"
        assert [(one.profile.origin, one.profile.status) for one in both.all()] == [("shipped", "verified")]
        text = path.read_text()
        for changed in (text.replace('"triton"', '"fa9"'), text.replace('sglang = "0.5.21"', 'x = "1"')):
            assert changed != text
            path.write_text(changed)
            assert [one.profile.origin for one in both.all()] == ["imported"]


def test_a_file_system_without_locks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("autolaunch.profiles.files.fcntl.flock", refuse)
    store.save(made())
    assert store.mark(name_of(made()), "verified", "sound")


@pytest.mark.parametrize(
    "lost",
    [
        made(created="yesterday"),
        made(fingerprint={f"flag.f{number}": "v" * 190 for number in range(2000)}),
        made(workload={"a": {"b": {"c": {"d": {"e": {"f": {"g": 1}}}}}}}),
    ],
    ids=["date", "size", "depth"],
)
def test_what_could_not_be_read_again_is_not_written(store: Store, lost: Profile) -> None:
    store.save(made())
    with pytest.raises(OSError, match="no profile can be kept in"):
        store.save(lost)
    assert [one.profile for one in store.all()] == [made()]
    assert not list(store.written.rglob("*.new"))


def test_the_users_folders(tmp_path: Path) -> None:
    own = Folders(tmp_path / "cache", tmp_path / "state", tmp_path / "data")
    assert Store.of((), own).folders == (own.profiles, SHIPPED)
    assert Store.of((), own, shipped=False).folders == (own.profiles,)
    named = (str(tmp_path / "a"), str(tmp_path / "b"))
    assert Store.of(named, own).folders == (tmp_path / "a", tmp_path / "b", SHIPPED)
    assert Store.of((named[0], named[0]), own, shipped=False).folders == (tmp_path / "a",)


def test_what_cannot_be_written_becomes_a_base(tmp_path: Path) -> None:
    own = Folders(tmp_path / "cache", tmp_path / "state", tmp_path / "data")
    (tmp_path / "file").touch()
    named = [str(tmp_path / "file/x"), str(tmp_path / "b")]
    assert Store.of(named, own, shipped=False).folders == (tmp_path / "b", tmp_path / "file/x")
    assert Store.of([str(tmp_path / "file")], own, shipped=False).folders == (own.profiles, tmp_path / "file")


def test_no_more_than_some_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autolaunch.profiles.store._SAME_NAME_LIMIT", 3)
    for number in range(5):
        path = store.save(made(fingerprint={"n": number}, created=f"2026-12-0{number + 1}T00:00:00+00:00"))
        os.utime(path, (number, number))
    assert [one.fingerprint["n"] for one in found(store)] == [4, 3, 2]


def test_everything(store: Store, tmp_path: Path) -> None:
    store.save(made())
    store.save(made(fingerprint={"gpu.name": "NVIDIA B200"}, created="2026-12-02T00:00:00+00:00"))
    both = Store((*store.folders, SHIPPED))
    names = [one.name for one in both.all()]
    assert [name.partition("/")[0] for name in names if not name.startswith("rtx")].count("b200") == 1
    assert name_of(made()) in names and len(names) > 2


def test_nothing_is_lost_of_what_a_later_schema_may_add(store: Store) -> None:
    path = store.save(made())
    path.write_text(path.read_text().replace('model = "', 'later = "kept"\nmodel = "', 1))
    store.mark(name_of(made()), "verified", "sound")
    assert 'later = "kept"' in path.read_text()
    assert found(store)[0].status == "verified"


def test_an_identical_mark_changes_only_the_time(store: Store) -> None:
    store.save(
        replace(made(), status="verified", status_reason="sound", status_since="2026-01-01T00:00:00+00:00")
    )
    store.mark(name_of(made()), "verified", "sound")
    assert found(store)[0].status_since > "2026-01-02"
