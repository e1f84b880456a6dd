"""A server that answers `/health`: after a while, with a child, behind TLS, or not at all.

    python fake_server.py PORT [--after S] [--status N] [--child] [--ssl CERT] [--host H] [--grandchild-listens]

With `--child` it starts a helper that would outlive it, as SGLang's scheduler does.
"""

import http.server
import os
import signal
import ssl
import subprocess
import sys
import time


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers every GET with the status that was asked for."""

    def do_GET(self) -> None:
        self.send_response(STATUS if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Server6(http.server.HTTPServer):
    """The same on IPv6."""

    address_family = 10


words = sys.argv[1:]


def value(name: str, default: str) -> str:
    return words[words.index(name) + 1] if name in words else default


port, host = int(words[0]), value("--host", "127.0.0.1")
STATUS = int(value("--status", "200"))

if __name__ == "__main__":
    if "--last-words" in words:
        # What it starts in its last moment, nobody has seen before.
        time.sleep(1.2)
        subprocess.Popen([sys.executable, "-c", "import multiprocessing, time; time.sleep(600)"])
        os.kill(os.getpid(), signal.SIGKILL)
    if "--child" in words:
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    time.sleep(float(value("--after", "0")))
    if "--grandchild-listens" in words and os.fork():
        signal.pause()
    server = (Server6 if ":" in host else http.server.HTTPServer)((host, port), Handler)
    if "--ssl" in words:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(value("--ssl", ""))
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()
