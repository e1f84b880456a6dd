"""Writes down what kind of process it is (`FAKE_STATE`), then answers `/health` until SIGTERM.

With a word of `FAKE_DEADLY` on its command line it ends with status 1 before it is healthy.
"""

import argparse
import http.server
import os
import runpy
import signal
import sys

from sglang.srt.server_args import ServerArgs


class Handler(http.server.BaseHTTPRequestHandler):
    """Healthy from the start."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    options = parser.parse_args()
    runpy.run_path(os.environ["FAKE_PROBE"])["record"](os.environ["FAKE_STATE"], sys.argv[1:])
    if set(os.environ.get("FAKE_DEADLY", "").split()) & set(sys.argv):
        sys.exit("the kernels are not for this machine")
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    http.server.HTTPServer((options.host, options.port), Handler).serve_forever()
