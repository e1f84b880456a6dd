"""Starts a server as a process of its own, asks it, stops it, and finds whatever it left behind.

What is started may be SGLang itself or `autolaunch serve`, which becomes SGLang; for the tests both are a
process that some day answers `/health`.  Leftovers are found by descent, not by name or session: the test
process makes itself the *subreaper* of its descendants, so that an orphan, even one that made a session of
its own, becomes a child of the tests and cannot be overlooked.
"""

from __future__ import annotations

import ctypes
import http.client
import importlib.metadata
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

ROOT = Path(__file__).resolve().parent.parent

SMALL_SERVER_FLAGS = ("--host", "127.0.0.1", "--max-total-tokens", "16384", "--max-running-requests", "8")
"""Without `--max-total-tokens` the key/value pool would take most of the machine's memory."""

PR_SET_CHILD_SUBREAPER = 36


HIGHEST_SERVER_PORT = 55535
"""SGLang 0.5.14 also claims the server's port + 10000, for gRPC, and refuses to start past 65535."""


def find_free_port() -> int:
    """A TCP port on 127.0.0.1 that nobody listens on at this moment, and that every SGLang takes."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port <= HIGHEST_SERVER_PORT:
            return port


def server_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment for a server on a small machine without network, and `extra`.

    Where autolaunch is not installed, the repository is put on `PYTHONPATH`, so that the server process
    finds it from any folder.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    try:
        importlib.metadata.distribution("sglang-autolaunch")
    except importlib.metadata.PackageNotFoundError:
        paths = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
        environment["PYTHONPATH"] = os.pathsep.join(paths)
    return {**environment, **(extra or {})}


def become_subreaper() -> None:
    """Let orphaned descendants become children of this process."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


class RealServer:
    """One started command; use it as a context manager, which ends whatever is left of it.

    `argv` must make its server listen on 127.0.0.1:`port`.  Its output goes to the file `log`.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        port: int,
        log: Path,
        environ: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int = subprocess.DEVNULL,
    ) -> None:
        become_subreaper()
        self.port = port
        self.log = log
        self._older = {process.pid for process in psutil.Process().children(recursive=True)}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environ) if environ is not None else server_environment(),
                cwd=cwd,
                start_new_session=True,
            )
        self.started = time.monotonic()

    @property
    def pid(self) -> int:
        """The process that was started, and that is the server in the end."""
        return self.process.pid

    def output(self) -> str:
        """Everything that was printed so far."""
        return self.log.read_text(errors="replace")

    def get(self, path: str, body: object | None = None, timeout_s: float = 60) -> Any:
        """The JSON answer to a GET of `path`, or to a POST of `body`; None for an empty answer."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def is_healthy(self) -> bool:
        """Whether `/health` answers 200 now."""
        try:
            self.get("/health", timeout_s=20)
        except (OSError, http.client.HTTPException):  # refused, reset, or 503 while it loads
            return False
        return True

    def wait_healthy(self, limit_s: float = 180) -> float:
        """Wait until the server answers; returns the seconds since the start.  Fails with the log's end."""
        while not self.is_healthy():
            if self.process.poll() is not None:
                raise AssertionError(
                    f"ended with {self.process.returncode} before it was healthy\n{self.log_tail()}"
                )
            if time.monotonic() - self.started > limit_s:
                raise AssertionError(f"not healthy after {limit_s} s\n{self.log_tail()}")
            time.sleep(0.1)
        return time.monotonic() - self.started

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the output, for messages."""
        return "\n".join(self.output().splitlines()[-lines:])

    def chat(self, question: str, max_tokens: int = 32) -> str:
        """The answer to one chat question, decoded greedily."""
        body = {
            "model": "small",
            "messages": [{"role": "user", "content": question}],
            "temperature": 0,
            "max_tokens": max_tokens,
        }
        return str(self.get("/v1/chat/completions", body)["choices"][0]["message"]["content"])

    def complete(self, prompt: str, max_tokens: int = 32) -> str:
        """The greedy continuation of `prompt`, without the prompt."""
        body = {"model": "small", "prompt": prompt, "temperature": 0, "max_tokens": max_tokens}
        return str(self.get("/v1/completions", body)["choices"][0]["text"])

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the server process alone."""
        self.process.send_signal(number)

    def wait_exit(self, limit_s: float = 60) -> int:
        """The exit code as `subprocess` gives it: negative for a signal.  Fails with the log's end."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {limit_s} s\n{self.log_tail()}") from None

    def stop(self, number: signal.Signals = signal.SIGTERM, limit_s: float = 60) -> int:
        """Send a signal and wait; returns the exit code."""
        self.send(number)
        return self.wait_exit(limit_s)

    def descendants(self) -> list[psutil.Process]:
        """The living processes that came from this command, orphans included, the server itself not."""
        found = []
        for process in psutil.Process().children(recursive=True):
            if process.pid in self._older or process.pid == self.pid:
                continue
            try:
                if process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
                elif process.ppid() == os.getpid():
                    os.waitpid(process.pid, os.WNOHANG)  # an orphan that became our child
            except (psutil.NoSuchProcess, ChildProcessError):
                continue
        return found

    def leftovers(self, patience_s: float = 5) -> list[str]:
        """Command lines of what is still alive after the end, given `patience_s` to go; empty is good."""
        until = time.monotonic() + patience_s
        while (left := self.descendants()) and time.monotonic() < until:
            time.sleep(0.05)
        lines = []
        for process in left:
            try:
                lines.append(f"{process.pid}: {' '.join(process.cmdline()) or process.name()}")
            except psutil.NoSuchProcess:
                continue
        return lines

    def end(self) -> None:
        """Kill the server and all its descendants; harmless when nothing is left."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        until = time.monotonic() + 10
        while (left := self.descendants()) and time.monotonic() < until:
            for process in left:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            time.sleep(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
