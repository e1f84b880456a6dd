"""Hands out TCP ports of the loopback address that nobody uses, and none twice.

An engine binds its ports long after it was told, so what is free now says nothing of the next engine's.
"""

from __future__ import annotations

import socket

HIGHEST_PORT = 55_535
"""SGLang 0.5.14 claims the port 10,000 above the server's too."""


class Ports:
    """The ports of one race."""

    def __init__(self) -> None:
        self._given: set[int] = set()

    def next(self) -> int:
        """A port that nobody uses now, that was not given before, at most `HIGHEST_PORT`."""
        while True:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port: int = probe.getsockname()[1]
            if port <= HIGHEST_PORT and port not in self._given:
                self._given.add(port)
                return port
