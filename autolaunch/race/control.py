"""The launcher's end of the socket to an engine host: JSON messages, one a line, without ever blocking.

It knows nothing of what the messages mean.
"""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Mapping
from typing import Any

CHUNK_BYTES = 1 << 20


class Control:
    """A pair of sockets, one end of which is for a process that is started next."""

    def __init__(self) -> None:
        self._socket, self._host_end = socket.socketpair()
        self._socket.setblocking(False)
        self._selector: selectors.BaseSelector | None = None
        """None before the host was started, and after it hung up."""
        self._incoming = b""
        self._outgoing = b""

    @property
    def host_fd(self) -> int:
        """What the host inherits."""
        return self._host_end.fileno()

    def listen(self, status_fd: int) -> None:
        """The host was started, and has its end; something on `status_fd` cuts a wait short as well."""
        self._host_end.close()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._selector.register(status_fd, selectors.EVENT_READ)

    def send(self, message: Mapping[str, Any]) -> None:
        """Send `message` with the next exchanges."""
        self._outgoing += json.dumps(message).encode() + b"\n"

    @property
    def unsent(self) -> bool:
        """Whether something is still to be sent."""
        return bool(self._outgoing) and self._selector is not None

    def exchange(self, wait_s: float) -> bool:
        """Send what is to be sent and take in what has come, waiting at most `wait_s` for either.

        Returns whether the host hung up meanwhile; after that, nothing is exchanged any more.
        """
        if self._selector is None:
            return False
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0)
        self._selector.modify(self._socket, events)
        ready = [ready for key, ready in self._selector.select(wait_s) if key.fileobj is self._socket]
        if not ready:
            return False
        try:
            if ready[0] & selectors.EVENT_WRITE:
                self._outgoing = self._outgoing[self._socket.send(self._outgoing) :]
            if ready[0] & selectors.EVENT_READ and not self._receive():
                self.close()
                return True
        except BlockingIOError:
            return False
        except OSError:  # a process was killed in the middle of a sentence; its guard will say more
            self.close()
            return True
        return False

    def drain(self) -> None:
        """Take in the last words of a host that has ended."""
        try:
            while self._receive():
                pass
        except OSError:  # all was read, or this end is closed
            return

    def received(self) -> list[dict[str, Any]]:
        """Whole messages that have come in since the last call."""
        *lines, self._incoming = self._incoming.split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close what is open; what was taken in can still be had."""
        self._host_end.close()
        self._socket.close()
        if self._selector is not None:
            self._selector.close()
            self._selector = None

    def _receive(self) -> bool:
        """Take in a chunk; False where the host closed its end, OSError where nothing is there."""
        data = self._socket.recv(CHUNK_BYTES)
        self._incoming += data
        return bool(data)
