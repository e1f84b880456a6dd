"""Hosts one SGLang engine in this process and does what is asked over the control socket.

    python engine_host.py --control FD

The first line that comes in is the job:

    {"argv": [SGLang's tokens], "overlay": [more tokens], "held": false}

One that is held imports SGLang, and waits for a second line, `{"go": true}`, before it looks at anything: its
model may not be there yet.  The server arguments are made as `python -m sglang.launch_server` makes them:
plugins first, then SGLang's own parser.  Out go events, one JSON object a line:

    {"event": "stage", "stage": "start" | "load"}
    {"event": "ready", "ready_s": 1234.5, "resolved": {...}, "engine": {"vocab_size": 512, ...}}
    {"event": "error", "stage": ..., "type": ..., "message": ..., "traceback": ...}

and then, for each request `{"id": 1, "op": "load", "args": {...}}`, one answer `{"id": 1, "value": ...}` or
`{"id": 1, "error": {...}}`.  End-of-file means that nobody wants anything any more.  `ready_s` is the
monotonic clock, which all processes of a machine share, so a launcher that is late to read is not misled.

Read for SGLang 0.5.9 to 0.5.23, where all of this is spelled alike: `prepare_server_args` and
`Engine(server_args=…)`.  Only `load_plugins` is missing before 0.5.11.  What can be asked is in
`operations.py`, beside this file.

NOTE: runs by path under SGLang's interpreter, 3.10 or later, with nothing of autolaunch importable;
SGLang's spawned processes import this file again, hence the guard at its end and no work above it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

Json = dict[str, Any]

OPERATIONS = Path(__file__).with_name("operations.py")


def main(argv: Sequence[str]) -> int:
    """Serve one engine on the socket whose number follows `--control`."""
    control = Control(int(argv[argv.index("--control") + 1]))
    job = control.read()
    if job is None:
        return 0
    look_like_launch_server()
    stage = "start"
    control.send({"event": "stage", "stage": stage})
    try:
        prepare = import_parser()
        if job["held"] and control.read() is None:
            return 0
        server_args = make_server_args(prepare, job["argv"], job["overlay"])
        stage = "load"
        control.send({"event": "stage", "stage": stage})
        operations = load_operations()
        host = operations.Host(importlib.import_module("sglang").Engine(server_args=server_args))
        ready_s = time.monotonic()
        ready = {
            "event": "ready",
            "ready_s": ready_s,
            "resolved": host.server_info(),
            "engine": host.facts(),
        }
    except BaseException as error:  # SystemExit is how argparse refuses a flag
        control.send({"event": "error", "stage": stage, **describe(error)})
        raise
    control.send(ready)
    serve(control, host, operations.REFUSABLE)
    return 0


def load_operations() -> ModuleType:
    """The module beside this file, by its path: this folder is not where SGLang's process looks for any."""
    spec = importlib.util.spec_from_file_location("autolaunch_operations", OPERATIONS)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {OPERATIONS}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def look_like_launch_server() -> None:
    """Make `sys.path` what `python -m sglang.launch_server` has: the working directory first, or nothing."""
    if not getattr(sys.flags, "safe_path", False) and sys.path:
        try:
            sys.path[0] = str(Path.cwd())
        except OSError:  # it has been deleted, and holds no modules
            del sys.path[0]


def import_parser() -> Callable[[list[str]], Any]:
    """SGLang's own reading of its tokens, plugins loaded first where the version has any."""
    try:
        plugins = importlib.import_module("sglang.srt.plugins")
    except ModuleNotFoundError as error:
        if error.name != "sglang.srt.plugins":
            raise
    else:
        plugins.load_plugins()
    prepare: Callable[[list[str]], Any] = importlib.import_module(
        "sglang.srt.server_args"
    ).prepare_server_args
    return prepare


def make_server_args(prepare: Callable[[list[str]], Any], argv: list[str], overlay: list[str]) -> Any:
    """The server arguments that SGLang makes of its tokens and those of the overlay."""
    with understanding_absent(overlay):
        return prepare([*argv, *overlay])


@contextlib.contextmanager
def understanding_absent(overlay: list[str]) -> Iterator[None]:
    """While this lasts, `--no-NAME` in the overlay means "as if `--NAME` had not been given".

    Only where the parser has no such flag itself.  A switch cannot be unset on a command line, and a
    configuration file that sets it is merged behind our back; so the parsed result is corrected.
    """
    original = argparse.ArgumentParser.parse_args

    def parse_args(parser: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
        known = parser._option_string_actions
        absent = {token for token in overlay if token.startswith("--no-") and token not in known}
        parsed = original(parser, [token for token in args or () if token not in absent], namespace)
        for token in absent:
            action = known.get("--" + token[len("--no-") :])
            if action is not None:
                setattr(parsed, action.dest, action.default)
        return parsed

    setattr(argparse.ArgumentParser, "parse_args", parse_args)  # noqa: B010 - a method cannot be assigned
    try:
        yield
    finally:
        setattr(argparse.ArgumentParser, "parse_args", original)  # noqa: B010


def serve(control: Control, host: Any, refusable: Sequence[str]) -> None:
    """Answer requests until end-of-file; of the `refusable` ones an error is a value like any other."""
    while True:
        request = control.read()
        if request is None:
            # Not sys.exit: SGLang's exit handlers take seconds, and the guard ends its processes anyway.
            os._exit(0)
        try:
            answer = {"value": host.do(request["op"], request.get("args") or {})}
        except Exception as error:  # noqa: BLE001 - whatever SGLang raises is the answer
            answer = {"error": describe(error)}
            if request["op"] in refusable:
                answer = {"value": {"error": f"{type(error).__name__}: {error}"}}
        control.send({"id": request["id"], **answer})


def describe(error: BaseException) -> Json:
    """Type, message and traceback of an exception."""
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return {"type": type(error).__name__, "message": str(error), "traceback": trace}


class Control:
    """JSON lines over the socket; numbers that JSON lacks (NaN, infinity) go out as Python spells them."""

    def __init__(self, fd: int) -> None:
        """Speak on the connected socket `fd`, which no child inherits."""
        self.socket = socket.socket(fileno=fd)
        self.socket.set_inheritable(False)
        self.lines = self.socket.makefile("r", encoding="utf-8", newline="\n")

    def read(self) -> Json | None:
        """The next object, or None at end-of-file."""
        line = self.lines.readline()
        message: Json | None = json.loads(line) if line else None
        return message

    def send(self, message: Json) -> None:
        """Write `message`; when nobody listens any more, end."""
        try:
            self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
