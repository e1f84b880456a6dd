"""What the watcher asks a healthy server, and what it makes of each kind of answer."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autolaunch.launch.watching.asking import (
    MOST_IDS,
    PREFIX,
    Answer,
    Heard,
    ServerEndedError,
    answer_of,
    scores_of,
)
from autolaunch.launch.watching.client import MOST_REQUESTS, Client, Reply
from autolaunch.launch.watching.judging import fault_of, is_loop, is_stuck, shift_of
from autolaunch.launch.watching.orders import Orders
from autolaunch.launch.watching.server import Server
from autolaunch.launch.watching.verifying import Finding, Verifier, resolved_of
from tests.launch.harness import HERE, wait_until

CHOICE = Orders(flags=("--attention-backend", "fa3"), expects={"attention_backend": "fa3"})


class Talk:
    """A talking server, and what it was asked."""

    def __init__(self, folder: Path, port: int, *words: str) -> None:
        self._port = port
        self._file = folder / "asked.jsonl"
        argv = [sys.executable, str(HERE / "talking_server.py"), str(port), str(self._file), *words]
        self.process = subprocess.Popen(argv)
        client = Client("127.0.0.1", port, tls=False)
        wait_until(lambda: client.is_healthy(5), 20, "it is healthy")

    def find(self, orders: Orders = CHOICE) -> Finding:
        """What the watcher finds."""
        orders = replace(orders, port=self._port)
        client = Client(orders.host, orders.port, tls=orders.tls, api_key=orders.api_key)
        return Verifier(orders, Server(self.process.pid), client).find()

    @property
    def asked(self) -> list[dict[str, Any]]:
        """Every request but those for health."""
        return [json.loads(line) for line in self._file.read_text().splitlines()]


@pytest.fixture
def talk(tmp_path: Path, free_port: int) -> Iterator[Callable[..., Talk]]:
    """Starts a talking server, and ends it."""
    started: list[Talk] = []

    def start(*words: str) -> Talk:
        started.append(Talk(tmp_path, free_port, *words))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()


def test_a_sound_server_is_verified_by_fewer_than_twenty_requests(talk: Callable[..., Talk]) -> None:
    server = talk()
    found = server.find()
    assert (found.status, found.reason, found.kind) == ("verified", "", "")
    assert found.requests == len(server.asked) == 18
    assert MOST_REQUESTS < 20
    assert found.resolved == {"attention_backend": "fa3", "fp4_gemm_runner_backend": "flashinfer_cudnn"}
    assert found.acceptance_length is None


def test_a_few_are_asked_alone_and_then_twelve_at_once(talk: Callable[..., Talk]) -> None:
    server = talk("--think", "1.0")
    assert server.find().status == "verified"
    times = [one["at"] for one in server.asked if one["path"] == "/generate"]
    alone = [later - earlier for earlier, later in itertools.pairwise(times[:5])]
    assert min(alone) > 0.9
    assert len(times) == 16
    assert times[-1] - times[4] < 1.0, "the last is asked before the first is answered"


def test_every_request_can_be_told_apart(talk: Callable[..., Talk]) -> None:
    server = talk()
    server.find()
    bodies = [one["body"] for one in server.asked if one["path"] == "/generate"]
    assert all(body["rid"].startswith(PREFIX) and body["log_metrics"] is False for body in bodies)
    assert len({body["rid"] for body in bodies}) == len(bodies)
    assert {one["agent"] for one in server.asked} == {"autolaunch-verify"}
    assert all(body["sampling_params"]["temperature"] == 0 for body in bodies)


GARBAGE = [
    ("nan", "log-probabilities are not finite in 12 of 12 answers"),
    ("null", "log-probabilities are not finite in 12 of 12 answers"),
    ("flat", "all tokens were equally probable in 12 of 12 answers"),
    ("exclamation", "4 of 4 answers are one token over and over (`!!!!!!!!!!!!!!!!!!!!!!!!`), one at a time"),
    ("loop", "4 of 4 answers repeat themselves (`7 8 7 8 7 8 7 8 7 8 7 8 `), one at a time"),
    ("empty", "all 4 answers are empty, one at a time"),
    ("itself", "generating and reading the same tokens are 9.0 nats apart; sound servers 2.0 at most"),
    ("unlike", "8 of 8 answers at once have nothing to do with those one at a time"),
]
FAILING = [
    ("error", "4 of 4 requests failed with status 500", "crash"),
    ("error-at-once", "8 of 16 requests failed with status 500", "crash"),
    ("abort", "12 of 12 answers were given up", "crash"),
    *[(fault, reason, "garbage") for fault, reason in GARBAGE],
]


@pytest.mark.parametrize(("fault", "reason", "kind"), FAILING, ids=[row[0] for row in FAILING])
def test_what_no_sound_server_says_quarantines(
    fault: str, reason: str, kind: str, talk: Callable[..., Talk]
) -> None:
    server = talk(fault)
    found = server.find()
    assert (found.status, found.reason, found.kind) == ("quarantined", reason, kind)
    assert len(server.asked) == found.requests <= MOST_REQUESTS


@pytest.mark.parametrize(
    "orders",
    [replace(CHOICE, verify="warn"), replace(CHOICE, flags=(), expects={})],
    ids=["warn", "original"],
)
def test_where_it_changes_nothing_it_is_a_warning(orders: Orders, talk: Callable[..., Talk]) -> None:
    found = talk("exclamation").find(orders)
    assert (found.status, found.kind) == ("warned", "garbage")


def test_a_choice_of_variables_alone_is_no_original() -> None:
    assert Orders().is_original
    assert not Orders(env=(("SGLANG_X", "1"),)).is_original


def test_a_choice_that_was_silently_replaced(talk: Callable[..., Talk]) -> None:
    found = talk().find(replace(CHOICE, expects={"attention_backend": "trtllm_mha"}))
    assert (found.status, found.kind) == ("quarantined", "silent_fallback")
    assert found.reason == "SGLang took `fa3` instead of `trtllm_mha` without saying so"


def test_a_choice_that_the_server_does_not_show_is_believed(talk: Callable[..., Talk]) -> None:
    assert talk().find(replace(CHOICE, expects={"some_backend": "x"})).status == "verified"


UNASKED = [
    ("embeds", "an embedding model generates no text"),
    ("prefill", "a prefill server answers nothing alone"),
    ("decode", "a decode server answers nothing alone"),
    ("bare-health", "`/model_info` was answered with 404"),
]


@pytest.mark.parametrize(("kind", "reason"), UNASKED)
def test_a_server_that_generates_nothing_is_asked_nothing(
    kind: str, reason: str, talk: Callable[..., Talk]
) -> None:
    server = talk(kind)
    found = server.find()
    assert (found.status, found.reason) == ("unasked", reason)
    assert all(one["path"] != "/generate" for one in server.asked)


def test_what_is_known_before_is_not_asked_at_all(talk: Callable[..., Talk]) -> None:
    server = talk("embeds")
    assert server.find(replace(CHOICE, unasked="a reason")).reason == "a reason"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("busy", "it was busy (status 503)"),
        ("refuses", "status 400"),
        ("nonsense", "its answers could not be understood"),
        ("one-error", "status 500"),
        ("long", "broken: an answer of over 262144 bytes"),
    ],
)
def test_who_refuses_or_is_busy_is_not_judged(fault: str, reason: str, talk: Callable[..., Talk]) -> None:
    found = talk(fault).find()
    assert (found.status, found.reason) == ("unasked", reason)


def test_with_a_wrong_key_nothing_is_known(talk: Callable[..., Talk]) -> None:
    server = talk("--key", "right")
    found = server.find(replace(CHOICE, api_key="wrong"))
    assert (found.status, found.reason) == ("unasked", "`/model_info` was answered with 401")
    assert server.find().status == "unasked"


def test_the_key_goes_along(talk: Callable[..., Talk]) -> None:
    assert talk("--key", "right").find(replace(CHOICE, api_key="right")).status == "verified"


def test_a_server_without_a_tokenizer_gets_tokens(talk: Callable[..., Talk]) -> None:
    server = talk("bare")
    assert server.find().status == "verified"
    assert all("text" not in one["body"] for one in server.asked)


def test_a_server_that_gives_no_logprobs_is_asked_without(talk: Callable[..., Talk]) -> None:
    server = talk("no-logprobs")
    found = server.find()
    assert (found.status, found.requests) == ("verified", 15)


def test_one_loop_of_four_says_nothing(talk: Callable[..., Talk]) -> None:
    assert talk("one-loop").find().status == "verified"


def test_random_weights_may_loop(talk: Callable[..., Talk]) -> None:
    assert talk("dummy", "flat").find().status == "verified"


def test_acceptance_is_read(talk: Callable[..., Talk]) -> None:
    found = talk("drafts").find()
    assert (found.status, found.acceptance_length, found.requests) == ("verified", 2.75, MOST_REQUESTS)


SHORT = replace(CHOICE, request_limit_s=1.0, total_limit_s=5.0)


@pytest.mark.parametrize("fault", ["hangs", "drips"])
def test_no_answer_from_a_healthy_server_is_not_judged(fault: str, talk: Callable[..., Talk]) -> None:
    started = time.monotonic()
    found = talk(fault).find(SHORT)
    assert (found.status, found.kind) == ("unasked", "")
    assert "no answer in 1 s" in found.reason
    assert time.monotonic() - started < 20


def test_no_answer_and_no_health_is_a_hang(talk: Callable[..., Talk]) -> None:
    found = talk("stuck").find(SHORT)
    assert (found.status, found.kind) == ("quarantined", "hang")
    assert found.reason == "a request got no answer in 1 s, nor did `/health`"


@pytest.mark.parametrize(("fault", "code"), [("dies", 1), ("killed", -signal.SIGKILL)])
def test_a_server_that_ends_under_its_first_requests(
    fault: str, code: int, talk: Callable[..., Talk]
) -> None:
    server = talk(fault)
    with pytest.raises(ServerEndedError):
        server.find()
    assert server.process.wait() == code


class Speaker:
    """Sends the same bytes to whoever connects, and then the rest, one piece after another, for ever."""

    def __init__(self, first: bytes, rest: bytes = b"") -> None:
        self._first, self._rest = first, rest
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._speak)
        self._thread.start()

    def _speak(self) -> None:
        while not self._over.is_set():
            link, _ = self._socket.accept()
            with link, contextlib.suppress(OSError):
                link.sendall(self._first)
                while self._rest and not self._over.wait(0.02):
                    link.sendall(self._rest)
                link.shutdown(socket.SHUT_WR)
                link.settimeout(10)
                while link.recv(65536):  # what is not read would be answered by a reset
                    pass

    def close(self) -> None:
        """End it."""
        self._over.set()
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        self._thread.join(10)
        self._socket.close()


@pytest.fixture
def speaks() -> Iterator[Callable[..., int]]:
    """Starts a `Speaker`, on the port that is returned."""
    started: list[Speaker] = []

    def start(first: bytes, rest: bytes = b"") -> int:
        started.append(Speaker(first, rest))
        return started[-1].port

    yield start
    for one in started:
        one.close()


DRIPS = [
    (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    (b"HTTP/1.1 2", b"0"),
    (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
]


@pytest.mark.parametrize(("first", "rest"), DRIPS, ids=["header", "status", "continue", "chunks", "body"])
def test_who_drips_gets_no_more_time(first: bytes, rest: bytes, speaks: Callable[..., int]) -> None:
    client = Client("127.0.0.1", speaks(first, rest), tls=False)
    replies: list[Reply] = []
    thread = threading.Thread(target=lambda: replies.append(client.ask("/x", {}, 0.5)), daemon=True)
    thread.start()
    thread.join(30)
    assert replies == [Reply(0, None, "timeout", "no answer in 0 s")]


def test_of_an_answer_no_more_is_read_than_was_asked_for(speaks: Callable[..., int]) -> None:
    """The rest would come for ever; with a status of its own it is that which tells."""
    client = Client("127.0.0.1", speaks(b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536), tls=False)
    assert client.ask("/x", {}, 600).detail == f"an answer of over {256 << 10} bytes"
    assert client.ask("/x", None, 600).detail == f"an answer of over {8 << 20} bytes"
    assert not client.is_healthy(600)
    client = Client("127.0.0.1", speaks(b"HTTP/1.1 500 No\r\n\r\n", b"x" * 65536), tls=False)
    assert client.ask("/x", {}, 600).is_fault


def test_of_a_list_no_more_is_read_than_was_asked_for() -> None:
    pairs = [[-0.1, token, None] for token in range(100_000)]
    meta = {"output_token_logprobs": pairs, "input_token_logprobs": pairs}
    found = answer_of(Reply(200, {"meta_info": meta}))
    assert found is not None
    assert (len(found.ids), len(found.logprobs), found.prompt_ids) == (MOST_IDS, MOST_IDS, ())
    bare = answer_of(Reply(200, {"output_ids": list(range(100_000))}))
    assert bare is not None and len(bare.ids) == MOST_IDS


@pytest.mark.parametrize(
    ("host", "port", "key"),
    [("a\0b", 80, None), ("a..b", 80, None), ("127.0.0.1", 99999, None), ("", 0, "a\nb")],
)
def test_nothing_is_too_odd_to_be_asked(
    host: str, port: int, key: str | None, speaks: Callable[..., int]
) -> None:
    client = Client(host, port or speaks(b"HTTP/1.1 200 OK\r\n\r\n"), tls=False, api_key=key)
    reply = client.ask("/x", {}, 5)
    assert reply.problem == "broken"
    assert key is None or reply.detail == "ValueError"


SPOKEN = [
    b"sk-a-key-of-somebodys\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nsk-a-key-of-somebodys\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: sk-a-key-of-somebodys\r\n\r\n{",
    b'HTTP/1.1 500 sk-a-key-of-somebodys\r\n\r\n{"error": "sk-a-key-of-somebodys"}',
]


@pytest.mark.parametrize("words", SPOKEN, ids=["status", "chunks", "length", "error"])
def test_nothing_that_a_server_says_of_its_errors_is_repeated(
    words: bytes, speaks: Callable[..., int]
) -> None:
    """There may be keys in it, and its log has it anyway."""
    reply = Client("127.0.0.1", speaks(words), tls=False).ask("/x", {}, 5)
    assert "sk-a" not in reply.detail
    assert reply.status == (500 if b" 500 " in words else 200 if b"Length" in words else 0)


def answer(ids: list[int], probabilities: list[float]) -> Answer:
    return Answer((1,), tuple(ids), tuple(math.log(one) for one in probabilities), "")


@pytest.mark.parametrize(
    ("before", "after", "shift"),
    [
        (answer([1, 2, 3], [0.9, 0.8, 0.7]), answer([1, 2, 3], [0.9, 0.7, 0.7]), 0.1),
        (answer([1, 2, 3], [0.9, 0.5, 0.9]), answer([1, 4, 9], [0.9, 0.45, 0.9]), 0.0),  # a near tie
        (answer([1, 2], [0.9, 0.95]), answer([1, 3], [0.9, 0.9]), 0.85),  # sure of two things
        (answer([1], [0.9]), answer([1], [0.1]), 0.8),
        (Answer((), (1,), (), ""), Answer((), (2,), (), ""), 0.0),
    ],
)
def test_where_two_answers_part(before: Answer, after: Answer, shift: float) -> None:
    assert shift_of(before, after) == pytest.approx(shift, abs=1e-9)


@pytest.mark.parametrize(
    ("ids", "loops"),
    [
        ([1] * 24, True),
        ([*range(12), *[1, 2, 3, 4] * 3], True),
        ([*range(12), *[1, 2, 3, 4, 5] * 3][:24], False),
        (list(range(24)), False),
    ],
)
def test_loops(ids: list[int], loops: bool) -> None:
    assert is_loop(ids) is loops


WRONG = (
    [354] * 24,
    [*[370] * 22, 373, 370],
    [495, 73, 495, 495, 73, *[354] * 19],
    [*[354] * 5, 315, *[354] * 12, 315, 495, *[354] * 4],
)
"""What a 0.5.21 with Triton's interpreter, which computes bf16 wrongly, said to the four prompts (CPU, 2026-12-01)."""


def test_loops_that_stumble_are_loops_too() -> None:
    assert not is_loop(WRONG[1]) and not is_loop(WRONG[3])
    assert all(is_stuck(ids) for ids in WRONG)
    assert not is_stuck([281, 14] * 7 + [259, 14])  # the same model, sound, to "1, 2, 3, 4, 5, 6,"


ODD: list[Any] = [
    *(None, [], {}, 1, "x", {"meta_info": 1}, {"meta_info": {"output_token_logprobs": 7}}),
    {"meta_info": {"output_token_logprobs": [[], [1], 5, [None, "x"], [10**400, 3, None], [[], 4]]}},
    {"text": 5, "output_ids": "x", "meta_info": {"finish_reason": "stop", "spec_accept_length": 10**400}},
    {"output_ids": [None, 1], "meta_info": {"finish_reason": {"type": "abort", "message": 5}}},
]


@pytest.mark.parametrize("body", ODD, ids=range(len(ODD)))
def test_no_answer_is_too_odd(body: Any) -> None:
    reply = Reply(200, body)
    found = answer_of(reply)
    scores_of(reply, Answer((1,), (1, 2, 3), (0.0, 0.0, 0.0), ""))
    answers = (found,) * 4
    fault_of(Heard((reply,) * 4, answers, (reply,) * 8, tuple(enumerate(answers)) * 2))
    if isinstance(body, dict):
        resolved_of(body)


def test_of_server_info_only_backends_are_kept() -> None:
    info = {
        "a_backend": "x" * 500,
        "c_backend": "a\x1b[31m",
        "api_key": "secret",
        "b_backend": None,
        "quantization": "fp8",
        "model_path": "p",
    }
    assert resolved_of(info) == {"a_backend": "x" * 80, "quantization": "fp8"}
    assert len(resolved_of({f"n{at}_backend": "x" for at in range(1000)})) == 40
