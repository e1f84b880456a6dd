"""Waits until the server itself is healthy.

`/health` is believed only once the listening socket belongs to the server or a descendant of it: another
server on the same port proves nothing.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from autolaunch.launch.watching.client import Client
from autolaunch.launch.watching.orders import Orders
from autolaunch.launch.watching.processes import listening_inodes, listens
from autolaunch.launch.watching.server import LOOK_EVERY_S, Server

ANSWER_LIMIT_S = 30.0
"""SGLang's `/health` generates a token, behind whatever else it is doing."""


@dataclass(frozen=True, slots=True)
class Health:
    """How the wait ended."""

    after_s: float | None
    """Seconds until `/health` answered 200; None where the server ended before."""
    listened: bool
    """Whether its socket was open."""
    occupied: bool
    """Whether somebody else's was, on its port, when it was last looked at or when it ended."""


def wait_until_healthy(
    server: Server, client: Client, orders: Orders, on_listening: Callable[[], None]
) -> Health:
    """Wait for health or the end; `on_listening` is called once its socket is open."""
    started = time.monotonic()
    listened, occupied = False, is_occupied(server.look(), orders.port)
    while not server.wait(LOOK_EVERY_S):
        bring_in()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)  # children of this process from before it became the watcher
        is_open = listens(server.look(), orders.port)
        occupied = not is_open and is_taken(orders.port)
        if not is_open:
            continue
        if not listened:
            listened = True
            on_listening()
        if not orders.http or client.is_healthy(ANSWER_LIMIT_S):
            return Health(time.monotonic() - started, listened, occupied)
    if not listened:  # a port that is taken ends a server at once, before any look from the loop above
        occupied = occupied or is_occupied(server.left(), orders.port)
    return Health(None, listened, occupied)


def bring_in() -> None:
    """Load what the server is asked with, and marked.

    It takes longer than all else of the watcher, so not at its start, when the server starts too; but long
    before it is used: what is loaded an upgrade of autolaunch or of Python does not change under it.
    """
    import http.client  # noqa: F401
    import subprocess  # noqa: F401

    import autolaunch.launch.watching.verifying  # noqa: F401


def is_occupied(tree: list[int], port: int) -> bool:
    """Whether somebody listens on `port`, and nobody of `tree` does."""
    return is_taken(port) and not listens(tree, port)


def is_taken(port: int) -> bool:
    """Whether anybody listens on `port`."""
    return bool(listening_inodes(port))
