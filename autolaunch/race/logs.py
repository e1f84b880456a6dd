"""The log of a program that has ended, made fit to be kept: no secrets, and no more than somebody reads."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from autolaunch.redact import redact, secrets_of

KEPT_BYTES = 4 << 20
"""Of a larger log the first and the last half of that stay."""
_CUT = b"\n[autolaunch: the middle of this log was left out]\n"


def hide_secrets(log: Path, environ: Mapping[str, str]) -> None:
    """Rewrite `log` without secrets, those of `environ` included, if it has any.

    Where it cannot be rewritten, as on a full disk, it is emptied.
    """
    with suppress(OSError):
        size = log.stat().st_size
        text = _read(log, size).decode("utf-8", "backslashreplace")
        hidden = redact(text, secrets_of(environ))
        if hidden == text and size <= KEPT_BYTES:
            return
        try:
            _replace(log, hidden)
        except OSError:
            os.truncate(log, 0)


def _read(log: Path, size: int) -> bytes:
    """The bytes of `log`, without its middle where it is too large."""
    with log.open("rb") as file:
        if size <= KEPT_BYTES:
            return file.read()
        head = file.read(KEPT_BYTES // 2)
        file.seek(size - KEPT_BYTES // 2)
        tail = file.read()
        # At the ends of lines: half a secret is none that would be known.
        return head[: head.rfind(b"\n") + 1] + _CUT + tail[tail.find(b"\n") + 1 :]


def _replace(log: Path, text: str) -> None:
    """Put `text` in the place of `log`, all of it or nothing."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=log.parent, prefix=".", delete=False) as file:
        try:
            file.write(text)
            file.close()
            Path(file.name).replace(log)
        except OSError:
            Path(file.name).unlink(missing_ok=True)
            raise
