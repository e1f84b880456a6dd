"""Becomes a server with the watcher beside it, as the launcher does after a decision.

    python watched_server.py FOLDER ORDERS FLAGS -- ARGV...

FOLDER is that of the attempts, ORDERS the watcher's as JSON; FLAGS, a JSON list, is what the record says was
chosen.  A server that ARGV starts is exec'ed in this process.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from autolaunch.candidates.candidate import Candidate
from autolaunch.command import Command
from autolaunch.launch import attempts
from autolaunch.launch.instructions import watcher_argv
from autolaunch.launch.watching.orders import from_json

COMMAND = Command(("/usr/bin/python3", "-m", "sglang.launch_server", "--model-path", "org/model"))


def main() -> None:
    """Record the start, fork the watcher, exec the server."""
    folder, text, flags = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    orders = from_json(text)
    ticket = attempts.begin(
        folder, COMMAND, pid=os.getpid(), host=orders.host, port=orders.port, verify=orders.verify
    )
    attempts.record_choice(ticket, COMMAND, Candidate("c1", tuple(flags)))
    argv = watcher_argv(ticket, orders)
    if os.fork() == 0:
        os.setpgid(0, 0)
        os.execv(argv[0], argv)
    os.close(int(argv[-1]))
    server = sys.argv[sys.argv.index("--") + 1 :]
    os.execv(server[0], server)


if __name__ == "__main__":
    main()
