"""Asks one HTTP server, never for long, never more than so often; the key goes along and is shown nowhere."""

from __future__ import annotations

import contextlib
import io
import json
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ssl import SSLContext

MOST_REQUESTS = 19
"""After health; it is in a user's way, and must be no load."""
LONGEST_ANSWER_BYTES = 256 << 10
"""Two dozen tokens with their scores take a few KiB."""
LONGEST_INFO_BYTES = 8 << 20
"""Server info of many ranks takes a few MiB at most."""
USER_AGENT = "autolaunch-verify"

Problem = Literal["", "timeout", "broken"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of one request."""

    status: int
    """0 where no whole answer came."""
    body: Any
    """The JSON of it; None where it is none."""
    problem: Problem = ""
    detail: str = ""
    """Why there is no answer; nothing that the server wrote, in whose errors there are keys and prompts."""

    @property
    def is_good(self) -> bool:
        """Whether it was answered as asked."""
        return self.status == 200

    @property
    def is_busy(self) -> bool:
        """Whether the server had other things to do; that says nothing of its answers."""
        return self.status in (429, 503)

    @property
    def is_fault(self) -> bool:
        """Whether the server itself failed."""
        return self.status >= 500 and not self.is_busy


class _Link(io.RawIOBase):
    """A connection that is over at `deadline`, however slowly what is read drips; it is closed elsewhere.

    A socket's own limit is for one read, and every byte that comes begins it anew.
    """

    def __init__(self, link: socket.socket, deadline: float) -> None:
        self._link = link
        self._deadline = deadline

    def sendall(self, data: Any) -> None:
        """Send all of `data`; TimeoutError where that takes too long."""
        self._link.settimeout(left_until(self._deadline))
        self._link.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """What `http.client` reads an answer from."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read once; TimeoutError where nothing came in time."""
        self._link.settimeout(left_until(self._deadline))
        return self._link.recv_into(buffer)

    def close(self) -> None:
        """Nothing: `http.client` closes what it is done with, and reads the rest after that."""


class Client:
    """One server at one address."""

    def __init__(self, host: str, port: int, *, tls: bool, api_key: str | None = None) -> None:
        self._host = reachable(host)
        self._port = port
        self._context = own_context() if tls else None
        self._api_key = api_key
        self._lock = threading.Lock()
        self.asked = 0
        """Requests so far, those for health not among them."""

    @property
    def may_ask(self) -> bool:
        """Whether one more request is allowed."""
        return self.asked < MOST_REQUESTS

    def is_healthy(self, limit_s: float) -> bool:
        """Whether `GET /health` answers 200 within `limit_s`."""
        # With `--fastapi-root-path` SGLang 0.5.21 wants the key for `/health` too.
        return self._send("GET", "/health", None, limit_s, LONGEST_ANSWER_BYTES).status == 200

    def ask(self, path: str, body: object | None, limit_s: float) -> Reply:
        """The answer to a GET, or to a POST of `body`; counted."""
        with self._lock:
            if not self.may_ask:
                return Reply(0, None, "broken", f"{MOST_REQUESTS} requests were made already")
            self.asked += 1
        if body is None:
            return self._send("GET", path, None, limit_s, LONGEST_INFO_BYTES)
        return self._send("POST", path, body, limit_s, LONGEST_ANSWER_BYTES)

    def _send(self, method: str, path: str, body: object | None, limit_s: float, most_bytes: int) -> Reply:
        import http.client  # loaded before (`health.bring_in`), but not at the watcher's start

        deadline = time.monotonic() + limit_s
        headers = {"User-Agent": USER_AGENT, "Connection": "close", "Accept": "application/json"}
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key}"
        try:
            with contextlib.ExitStack() as stack:
                link = stack.enter_context(self._connect(deadline))
                connection = http.client.HTTPConnection(self._host, self._port)
                timed: Any = _Link(link, deadline)
                connection.sock = timed  # nothing of the environment's proxies takes part
                connection.request(method, path, body=data, headers=headers)
                answer = stack.enter_context(connection.getresponse())
                text = bytearray()
                while len(text) <= most_bytes and (more := answer.read1(1 << 16)):
                    text += more
        except TimeoutError:
            return Reply(0, None, "timeout", f"no answer in {limit_s:.0f} s")
        except OSError as error:
            words = f": {error.strerror}" if error.strerror else ""
            return Reply(0, None, "broken", f"{type(error).__name__}{words}"[:200])
        except (http.client.HTTPException, ValueError, OverflowError) as error:  # no HTTP; an odd host or key
            return Reply(0, None, "broken", type(error).__name__)  # its words hold what was odd
        if len(text) > most_bytes and answer.status == 200:
            return Reply(0, None, "broken", f"an answer of over {most_bytes} bytes")
        return Reply(answer.status, parsed(text))

    def _connect(self, deadline: float) -> socket.socket:
        link = socket.create_connection((self._host, self._port), timeout=left_until(deadline))
        if self._context is None:
            return link
        try:
            link.settimeout(left_until(deadline))
            return self._context.wrap_socket(link, server_hostname=self._host)
        except (OSError, ValueError):
            link.close()
            raise


def left_until(deadline: float) -> float:
    """Seconds until `deadline`, of the monotonic clock; TimeoutError once it has passed."""
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def reachable(host: str) -> str:
    """Where to connect to for a server that listens on `host`, as SGLang's own warm-up does."""
    bare = host.strip().removeprefix("[").removesuffix("]")
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(bare, bare)  # noqa: S104


def own_context() -> SSLContext:
    """TLS towards ourselves, of whom no certificate is asked."""
    from ssl import CERT_NONE, PROTOCOL_TLS_CLIENT, SSLContext  # here: a Python may have been built without

    context = SSLContext(PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, CERT_NONE
    return context


def parsed(text: bytes | bytearray) -> Any:
    """The JSON value of `text`, None where it is none; NaN and the infinities are read as what they are."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
