"""Verification of a real SGLang: what is sound is found sound, what is not is found out."""

from __future__ import annotations

import json
import re
import signal
import ssl
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autolaunch.launch import attempts
from autolaunch.launch.attempt_record import Attempt
from autolaunch.launch.watching.orders import Orders
from autolaunch.ready import look
from tests.conftest import SmallModel
from tests.launch.harness import HERE, wait_until
from tests.launch.test_watched_answers import make_certificate
from tests.launch.watched_server import COMMAND
from tests.real_server import SMALL_SERVER_FLAGS, RealServer, server_environment

pytestmark = [pytest.mark.sglang, pytest.mark.slow, pytest.mark.timeout(900)]

Start = Callable[..., tuple[RealServer, Attempt]]
CHOSEN = ("--disable-overlap-schedule",)


@pytest.fixture
def verified(
    sglang_python: str,
    small_model: SmallModel,
    free_port: int,
    start_server: Callable[..., RealServer],
    tmp_path: Path,
) -> Start:
    """Starts a watched SGLang with some flags, and waits for the watcher's last word."""

    def start(
        *flags: str, orders: Orders, environ: dict[str, str] | None = None
    ) -> tuple[RealServer, Attempt]:
        folder = tmp_path / "attempts"
        orders = replace(orders, port=free_port)
        argv = [
            *(sys.executable, str(HERE / "watched_server.py"), str(folder), orders.to_json()),
            *(json.dumps(orders.flags), "--", sglang_python, "-m", "sglang.launch_server"),
            *("--model-path", str(small_model), *SMALL_SERVER_FLAGS, "--port", str(free_port)),
            *(*orders.flags, *flags),
        ]
        server = start_server(argv, port=free_port, environ=server_environment(environ or {}))

        def judged() -> bool:
            assert server.process.poll() is None, server.log_tail()
            told = attempts.history(folder, COMMAND)
            return bool(told) and told[-1].verdict is not None

        wait_until(judged, 600, "the watcher has judged")
        attempt = attempts.history(folder, COMMAND)[-1]
        assert look(folder, port=free_port).state not in ("gone", "starting", "verifying")
        wait_until(lambda: "autolaunch: " in server.output(), 60, "it was said")
        return server, attempt

    return start


def said(server: RealServer) -> str:
    """The watcher's line."""
    (line,) = re.findall(r"^autolaunch: (.*)$", server.output(), re.M)
    return line


def status(attempt: Attempt) -> tuple[str, str]:
    """Status and kind of the verdict."""
    assert attempt.verdict is not None
    return attempt.verdict.status, attempt.verdict.kind


def test_a_sound_server_behind_all_that_may_be_in_the_way(
    verified: Start, tmp_path: Path, free_port: int
) -> None:
    """Keys, TLS with a password, every address of IPv6, a root path, another name; and what metrics show."""
    certificate = make_certificate(tmp_path, "word")
    server, attempt = verified(
        *("--host", "::", "--api-key", "for-users", "--admin-api-key", "for-admins"),
        *(
            "--ssl-certfile",
            str(certificate),
            "--ssl-keyfile",
            str(certificate),
            "--ssl-keyfile-password",
            "word",
        ),
        *("--fastapi-root-path", "/behind/a/proxy", "--served-model-name", "another"),
        *("--enable-metrics", "--log-requests", "--log-requests-level", "1"),
        orders=Orders(host="::", tls=True, api_key="for-users", flags=CHOSEN),
    )
    assert status(attempt) == ("verified", "")
    assert attempt.verified
    sound = re.fullmatch(
        r"the server is healthy, \d+ s after its start; its answers are sound \((\d+) requests, [\d.]+ s\)",
        said(server),
    )
    assert sound is not None, said(server)
    assert 14 <= int(sound[1]) <= 18, "answers of a few tokens are not scored"
    assert "autolaunch-verify-" in server.output()
    before = counted(free_port)
    generate(free_port, "for-users")
    wait_until(lambda: counted(free_port) == before + 1, 10, "a user's request is counted")
    assert before <= 1  # SGLang's own warm-up
    server.send(signal.SIGKILL)


def open_(port: int, path: str, key: str = "", body: object = None) -> str:
    """What the server behind TLS answers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(
        f"https://[::1]:{port}{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"content-type": "application/json", "authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(request, timeout=60, context=context) as answer:
        return str(answer.read().decode())


def counted(port: int) -> float:
    """Requests in SGLang's metrics."""
    text = open_(port, "/metrics/", "for-users")
    return sum(float(one) for one in re.findall(r"^sglang:num_requests_total\{.*\} ([\d.]+)$", text, re.M))


def generate(port: int, key: str) -> None:
    """One request of a user."""
    body: dict[str, Any] = {"text": "Hello", "sampling_params": {"max_new_tokens": 2}}
    open_(port, "/generate", key, body)


def test_a_backend_with_wrong_answers_is_quarantined(verified: Start) -> None:
    """Triton's interpreter computes bf16 wrongly; the server is healthy all the same."""
    flags = ("--attention-backend", "triton")
    server, attempt = verified(
        orders=Orders(flags=flags, expects={"attention_backend": "triton"}), environ={"TRITON_INTERPRET": "1"}
    )
    assert status(attempt) == ("quarantined", "garbage")
    assert attempt.healthy and not attempt.verified
    assert "`--attention-backend triton` is quarantined" in said(server)
    assert server.is_healthy()  # nobody stopped it


def test_a_backend_that_is_silently_replaced_is_quarantined(verified: Start) -> None:
    flags = ("--attention-backend", "intel_amx")
    server, attempt = verified(orders=Orders(flags=flags, expects={"attention_backend": "intel_amx"}))
    assert status(attempt) == ("quarantined", "silent_fallback")
    assert "SGLang took `torch_native` instead of `intel_amx`" in said(server)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--is-embedding",), "unasked"),
        (("--skip-tokenizer-init",), "verified"),
        (("--load-format", "dummy", "--tokenizer-worker-num", "2"), "verified"),
    ],
    ids=["embedding", "bare", "dummy"],
)
def test_servers_of_other_kinds(flags: tuple[str, ...], told: str, verified: Start) -> None:
    server, attempt = verified(*flags, orders=Orders(flags=CHOSEN))
    assert status(attempt) == (told, "")
    if "--tokenizer-worker-num" in flags:
        # uvicorn starts a worker anew that ended before it heard of the signal, and then waits for it.
        server.send(signal.SIGKILL)
        return
    started = time.monotonic()
    assert server.stop(signal.SIGTERM) in (0, -signal.SIGTERM)
    assert time.monotonic() - started < 30
    assert server.leftovers() == []
