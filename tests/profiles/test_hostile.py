"""Files that somebody made to do harm cost little, run nothing, go nowhere, and hide no sound profile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autolaunch.profiles.document import SIZE_LIMIT, to_toml
from autolaunch.profiles.names import name_of
from autolaunch.profiles.store import Store
from tests.profiles.made import made
from tests.real_server import ROOT

SECONDS, MEGABYTES = 1.0, 100
# Memory of a process that has the modules, then of one that has looked; processor time without the imports, for other
# tests may run beside this one.
LOOK = """
import json, resource, sys, time
from pathlib import Path
from autolaunch.profiles.store import Store
import autolaunch.profiles.document, msgspec, tomli
store = Store((Path(sys.argv[1]),))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
started = time.process_time()
found = store.candidates_for("h200", "Qwen3-8B", config_digest="c0ffee" * 10)
every = store.all() if sys.argv[2:] else []
print(json.dumps({"s": time.process_time() - started, "kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before,
  "found": [one.name for one in found], "all": len(every), "doubts": store.doubts}))
"""


def fill(folder: Path, number: int) -> Path:
    """A name that a start would look at."""
    return folder / f"Qwen3-8B.tp1.throughput.{number:08x}.toml"


def plant(folder: Path) -> None:
    """Everything harmful that fits into a folder of profiles."""
    sound = to_toml(made())
    later = "\n".join(f'[later{number}]\nx = "{"y" * 200}"' for number in range(900)).encode()
    texts = [
        b"[" * SIZE_LIMIT,
        b"a = " + b"[" * (SIZE_LIMIT - 100),
        b"a = " + b"{a=" * 60_000,
        b".".join([b"a"] * 100_000) + b" = 1",
        b"\n".join(b"[" + b".".join([b"a"] * 60) + b"]" for _ in range(2000)),
        b"\n".join(f"[[x{number}]]".encode() for number in range(20_000)),
        b"\n".join(f"k{number} = {number}".encode() for number in range(15_000)),
        b"x = " + b"9" * 200_000,
        b"x = 1e" + b"9" * 200_000,
        b'x = "' + b"\\u0041" * 40_000 + b'"',
        b"x = '''" + b"'" * 200_000,
        b"#" * (SIZE_LIMIT - 1),
        b"\xff\xfe" * 1000,
        b"\x00" * 1000,
        b"",
        sound.encode() * 8,
        sound.replace("verified", "x").replace('"fresh"', '"sound"').encode(),
        sound.replace("autolaunch.profile/1", "autolaunch.profile/2").encode(),
        sound.replace("value = 1395.0", "value = nan").encode(),
        sound.replace('model = "Qwen3-8B"', 'model = "\\u001b]0;owned\\u0007"').encode(),
        b"!!python/object/apply:os.system ['touch owned']",
        sound.replace('created = "', 'created = "x').encode() + later,
    ]
    for number, text in enumerate(texts):
        fill(folder, number).write_bytes(text)
    with fill(folder, 100).open("wb") as file:
        file.truncate(50 << 30)
    os.mkfifo(fill(folder, 101))
    fill(folder, 102).symlink_to(fill(folder, 103))
    fill(folder, 103).symlink_to(fill(folder, 102))
    fill(folder, 104).symlink_to("/dev/zero")
    fill(folder, 105).symlink_to("/etc/passwd")
    fill(folder, 106).mkdir()
    fill(folder, 107).symlink_to("/proc/self/mem")
    fill(folder, 108).symlink_to("../../../../../../../../dev/urandom")
    for name in (
        "Qwen3-8B.tp1.\n.toml",
        "Qwen3-8B.tp1.`reboot`.toml",
        "Qwen3-8B.tp1. .toml",
        "..toml",
        ".toml",
    ):
        (folder / name).write_text(sound)


def look(folder: Path, *more: str) -> dict[str, object]:
    """What a fresh process finds in the store `folder`, and what that costs it."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(folder), *more], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_folder_of_harm_costs_little_and_hides_nothing(tmp_path: Path) -> None:
    store = Store((tmp_path,))
    good = store.save(made())
    plant(good.parent)
    os.utime(good, (0, 0))  # the last that would be read
    found = look(tmp_path)
    assert found["found"] == [name_of(made())]
    assert found["s"] < SECONDS and found["kib"] < MEGABYTES << 10, found  # type: ignore[operator]
    doubts = "\n".join(found["doubts"])  # type: ignore[call-overload]
    for word in ("is no file", "larger than", "newer", "Too many levels", "more than", "UTF-8"):
        assert word in doubts, f"{word}: {doubts}"
    assert "root:" not in doubts  # nothing of a linked file is told
    assert "\x1b" not in doubts
    assert not (ROOT / "owned").exists() and not (tmp_path / "owned").exists()


def test_a_list_of_harm(tmp_path: Path) -> None:
    store = Store((tmp_path,))
    plant(store.save(made()).parent)
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "file").touch()
    found = look(tmp_path, "all")
    assert found["all"] == 1
    assert found["s"] < 2 * SECONDS and found["kib"] < MEGABYTES << 10, found  # type: ignore[operator]


def test_ten_thousand_files(tmp_path: Path) -> None:
    store = Store((tmp_path,))
    good = store.save(made())
    for number in range(10_000):
        (good.parent / f"other.tp1.throughput.{number:08x}.toml").write_bytes(b"[")
    found = look(tmp_path)
    assert found["s"] < SECONDS and found["kib"] < MEGABYTES << 10, found  # type: ignore[operator]


@pytest.mark.parametrize("name", ["../x", "h200/../../x", "/etc/passwd", "h200/x/../../..", "h200/.\0"])
def test_a_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    store = Store((tmp_path / "store",))
    (tmp_path / "x.toml").write_text(to_toml(made()))
    store.save(made())
    assert store.find(name) is None


def test_a_link_for_a_profile_is_replaced_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.toml"
    outside.write_text(to_toml(made(reason="outside")))
    store = Store((tmp_path / "store",))
    path = store.save(made())
    path.unlink()
    path.symlink_to(outside)
    store.mark(name_of(made()), "quarantined", "garbage")
    assert not path.is_symlink() and "quarantined" in path.read_text()
    assert "quarantined" not in outside.read_text()
