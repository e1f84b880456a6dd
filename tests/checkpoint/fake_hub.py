"""A hub on this machine: serves the files of folders as huggingface.co does, and misbehaves on request."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "c" * 40


@dataclass
class FakeHub:
    """What the server does, and what it was asked."""

    models: dict[str, Path] = field(default_factory=dict)
    behaviour: str = "good"
    url: str = ""
    asked: list[str] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    sent: int = 0


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep the test's output clean."""

    def do_GET(self) -> None:
        """Answer as the hub's behaviour is."""
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(path)
        self.hub.tokens.add(self.headers.get("authorization"))
        api = re.fullmatch(r"/api/models/(.+)/revision/(.+)", path)
        file = re.fullmatch(r"/(.+)/resolve/([^/]+)/([^/]+)", path)
        behaviour = self.hub.behaviour
        status = re.fullmatch(r"(\d+)(?:/(\w+))?", behaviour)
        if status:
            return self._send(int(status[1]), b"{}", {"X-Error-Code": status[2]} if status[2] else {})
        if behaviour == "gated" and file:
            return self._send(
                401 if not self.headers.get("authorization") else 403, b"", {"X-Error-Code": "GatedRepo"}
            )
        if behaviour == "loop":
            return self._send(302, b"", {"Location": self.path})
        if behaviour == "garbage":
            return self._send(200, b"<html>Please log in to the network</html>")
        if behaviour == "list":
            return self._send(200, b"[]")
        if behaviour == "endless" or (behaviour == "endless file" and file):
            return self._drip(b" " * 65536, 0)
        if behaviour == "slow":
            return self._drip(b" ", 0.2)
        if behaviour == "cut" and file:
            self.hub.behaviour = "cut"
            return self._send(200, b"{", length=1000)
        folder = self.hub.models.get(api[1] if api else file[1] if file else "")
        if folder is None:
            return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        if api:
            files = [{"rfilename": one.name, "size": one.stat().st_size} for one in sorted(folder.iterdir())]
            return self._send(
                200, json.dumps({"sha": COMMIT, "siblings": [*files, {"rfilename": "a/b"}, 1]}).encode()
            )
        assert file is not None
        return self._file(folder / file[3])

    def _file(self, path: Path) -> None:
        """A file, or the range of it that is asked for."""
        if not path.is_file() or self.hub.behaviour == f"no {path.name}":
            return self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range") or "")
        with path.open("rb") as stream:
            if asked and self.hub.behaviour != "no ranges":
                stream.seek(int(asked[1]))
                return self._send(206, stream.read(int(asked[2]) - int(asked[1]) + 1))
            self.send_response(200)
            self.send_header("Content-Length", str(path.stat().st_size))
            self.end_headers()
            try:
                while chunk := stream.read(1 << 16):
                    self.wfile.write(chunk)
                    self.hub.sent += len(chunk)
            except OSError:
                self.close_connection = True  # the client has seen enough

    def _drip(self, chunk: bytes, seconds: float) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(1 << 40))
        self.end_headers()
        try:
            while True:
                self.wfile.write(chunk)
                time.sleep(seconds)
        except OSError:
            self.close_connection = True

    def _send(
        self, status: int, content: bytes, headers: dict[str, str] | None = None, length: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        try:
            self.wfile.write(content)
            self.hub.sent += len(content)
        except OSError:
            pass  # the client has seen enough
        self.close_connection = length is not None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients leave as soon as they have seen enough: no reason to print anything."""


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """A hub that runs until the end of the block."""
    hub = FakeHub()
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = _Server(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
