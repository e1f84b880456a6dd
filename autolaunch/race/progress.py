"""What a person sees while a race runs: one line a finished step, and one live line on a terminal.

Everything goes to stderr; nothing is read.  Without a terminal the live line is left out, so a
container's log holds only what happened.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from autolaunch.errors import visible
from autolaunch.redact import redact
from autolaunch.units import format_duration

PREFIX = "autolaunch: "
_LIVE_EVERY_S = 0.5


class Progress:
    """Writes lines of a race to `stream`; a stream that is gone is given up, never an error."""

    def __init__(
        self,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        width: int | None = None,
    ) -> None:
        self._stream: TextIO | None = sys.stderr if stream is None else stream
        self._clock = clock
        self._live = ""
        self._last_s = 0.0
        try:
            self._terminal = self._stream is not None and self._stream.isatty()
            self._width = width or (
                os.get_terminal_size(self._stream.fileno()).columns if self._terminal else 0
            )
        except (OSError, ValueError, AttributeError):
            self._terminal, self._width = False, 0  # closed or not a real file: nobody watches

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(self._erased() + f"{PREFIX}{visible(redact(text))}\n")

    def block(self, text: str) -> None:
        """A message of several lines that stays, laid out by `errors.render_message`."""
        self._write(self._erased() + redact(text) + "\n")

    def live(self, text: str, eta_s: float | None = None) -> None:
        """The line that changes while something runs, with the time that is left."""
        if not self._terminal or self._clock() - self._last_s < _LIVE_EVERY_S:
            return
        self._last_s = self._clock()
        if eta_s is not None:
            text += f", about {format_duration(max(0.0, eta_s))} left"
        line = f"{PREFIX}{visible(redact(text))}"[: max(10, self._width - 1)]
        self._write(self._erased() + line)
        self._live = line

    def done(self) -> None:
        """Take the live line away."""
        self._write(self._erased())

    def _erased(self) -> str:
        """What has to be written before anything else, given that a live line stands there."""
        shown, self._live = self._live, ""
        return "\r" + " " * len(shown) + "\r" if shown else ""

    def _write(self, text: str) -> None:
        """Write and flush; when nobody can read any more, stay silent from here on."""
        if self._stream is None or not text:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None
