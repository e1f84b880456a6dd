"""Logs of engines are kept without secrets, and of a size that somebody reads."""

from __future__ import annotations

import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from autolaunch.race import journal as journal_module
from autolaunch.race.engine import Engine
from autolaunch.race.journal import open_journal
from autolaunch.race.logs import KEPT_BYTES, hide_secrets
from autolaunch.redact import STAND_IN
from tests.race.processes import Mark

PLANTED = {
    "HF_TOKEN": "plantedHuggingFaceOne",
    "AWS_SECRET_ACCESS_KEY": "planted/aws+one",
    "HTTPS_PROXY": "http://me:planted%20proxy@proxy:3128",
    "SIGNING_KEY": "-----BEGIN PRIVATE KEY-----\nplantedLineOfAKey0\n-----END PRIVATE KEY-----",
}
TYPED = (
    "--api-key",
    "planted-key",
    "--admin-api=planted-admin-key",
    "--ssl-keyfile-pass",
    "planted-password",
)


def written(log: Path, text: bytes, environ: dict[str, str] | None = None) -> str:
    """`log` with `text` in it, after its secrets were hidden."""
    log.write_bytes(text)
    hide_secrets(log, environ or {})
    return log.read_text()


def test_a_log_without_secrets_is_left_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "c0.log"
    text = b"token usage: 0.02, api_key=None\n\xff\x00 and so on\n"
    log.write_bytes(text)
    before = log.stat()
    hide_secrets(log, {"HF_TOKEN": "plantedHuggingFaceOne"})
    assert log.read_bytes() == text
    assert log.stat().st_ino == before.st_ino


def test_secrets_by_name_by_shape_and_by_value_are_hidden(tmp_path: Path) -> None:
    shown = written(
        tmp_path / "c0.log",
        b"api_key='planted' hf_planted123456 \xff then planted/aws+one and planted proxy, planted%20proxy",
        PLANTED,
    )
    assert "planted" not in shown
    assert "\\xff then *** and ***, ***" in shown


def test_nobody_else_reads_what_was_rewritten(tmp_path: Path) -> None:
    written(tmp_path / "c0.log", b"api_key='planted'\n")
    assert stat.S_IMODE((tmp_path / "c0.log").stat().st_mode) & 0o077 == 0
    assert [path.name for path in tmp_path.iterdir()] == ["c0.log"]


def test_of_a_large_log_the_middle_goes(tmp_path: Path) -> None:
    line = b"a line of a log that goes on and on\n"
    shown = written(tmp_path / "c0.log", b"first\n" + line * (2 * KEPT_BYTES // len(line)) + b"last\n")
    assert shown.startswith("first\n")
    assert shown.endswith("last\n")
    assert KEPT_BYTES - 2 * len(line) <= len(shown) < KEPT_BYTES + 200
    cut = [one for one in shown.splitlines() if one not in ("first", line.decode().strip(), "last", "")]
    assert len(cut) == 1, "no line is cut in two"
    assert "was left out" in cut[0]


def test_a_log_that_cannot_be_rewritten_is_emptied(tmp_path: Path) -> None:
    """On a full disk, say; what is secret does not stay for want of room."""
    program = (
        "import resource, sys; from pathlib import Path; from autolaunch.race.logs import hide_secrets\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10)); hide_secrets(Path(sys.argv[1]), {})"
    )
    log = tmp_path / "c0.log"
    log.write_bytes(b"the key is api_key='planted' and so on\n")
    subprocess.run([sys.executable, "-c", program, str(log)], check=True, timeout=60)
    assert log.read_bytes() == b""
    assert [path.name for path in tmp_path.iterdir()] == ["c0.log"]


def test_a_log_that_is_not_there_is_no_fault(tmp_path: Path) -> None:
    hide_secrets(tmp_path / "c0.log", {})
    hide_secrets(tmp_path, {})


@pytest.mark.parametrize("how", ["well", "load-raise"])
def test_an_engine_leaves_no_secret_in_its_log(
    fake_engine: Callable[..., Engine], mark: Mark, tmp_path: Path, how: str
) -> None:
    engine = fake_engine("load-leak" if how == "well" else how, *TYPED, more_environ=PLANTED)
    with engine:
        if how == "well":
            engine.wait_ready(20)
            assert "plantedHuggingFaceOne" in engine.log.read_text(), (
                "the log is written by the engine itself"
            )
            assert STAND_IN in engine.log.read_text()
            assert not re.search("planted-(key|admin|password)", engine.log.read_text()), (
                "it has no use for them"
            )
            for pid in engine.pids:
                assert b"planted-" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert "planted" not in engine.log.read_text()


def test_what_a_killed_launcher_left_is_hidden_by_the_next_race(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, live, done = (
        tmp_path / f"20000101T00000{n}-{pid}" for n, pid in enumerate((ended.pid, 1, ended.pid))
    )
    for folder in (left, live, done):
        folder.mkdir()
        (folder / "c0.log").write_text("api_key='planted'\n")
    (done / journal_module.FINISHED).touch()
    (left / "c1.log").symlink_to(done / "c0.log")
    with open_journal(tmp_path) as journal:
        shown = [(folder / "c0.log").read_text() for folder in (left, live, done)]
        assert not (journal.folder / journal_module.FINISHED).exists()
    assert ["planted" in text for text in shown] == [False, True, True]
    assert (left / journal_module.FINISHED).exists()
    assert (journal.folder / journal_module.FINISHED).exists()
