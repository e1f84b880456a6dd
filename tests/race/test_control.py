"""The control socket: messages come whole, nothing blocks, and the end of the host is noticed once."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pytest

from autolaunch.race.control import Control


@pytest.fixture
def control() -> Iterator[Control]:
    """A control socket that is closed at the end."""
    made = Control()
    yield made
    made.close()


@pytest.fixture
def host(control: Control) -> Iterator[socket.socket]:
    """The other end, as a host would have inherited it."""
    status, other = os.pipe()
    with socket.socket(fileno=os.dup(control.host_fd)) as end:
        end.settimeout(5)
        control.listen(status)
        yield end
    os.close(status)
    os.close(other)


def test_messages_come_whole(control: Control, host: socket.socket) -> None:
    host.sendall(b'{"a": 1}\n{"b"')
    control.exchange(5)
    assert control.received() == [{"a": 1}]
    host.sendall(b": 2}\n")
    control.exchange(5)
    assert control.received() == [{"b": 2}]
    assert control.received() == []


def test_what_does_not_fit_into_the_socket_goes_with_later_exchanges(
    control: Control, host: socket.socket
) -> None:
    text = "x" * 3_000_000
    control.send({"text": text})
    taken = b""
    while not taken.endswith(b"\n"):
        control.exchange(0)
        taken += host.recv(1 << 20)
    assert taken == b'{"text": "' + text.encode() + b'"}\n'


def test_an_exchange_waits_no_longer_than_it_may(control: Control, host: socket.socket) -> None:
    began_s = time.monotonic()
    assert control.exchange(0.1) is False
    assert 0.05 < time.monotonic() - began_s < 2


def test_a_host_that_hangs_up_is_noticed_once_and_its_last_words_stay(
    control: Control, host: socket.socket
) -> None:
    host.sendall(b'{"last": "words"}\n')
    host.close()
    assert [control.exchange(5) for _ in range(3)] == [False, True, False]
    assert control.received() == [{"last": "words"}]


def test_last_words_can_be_drained(control: Control, host: socket.socket) -> None:
    host.sendall(b'{"last": "words"}\n')
    control.drain()
    assert control.received() == [{"last": "words"}]
    control.close()
    control.drain()
    assert control.received() == []


def test_nothing_is_exchanged_before_the_host_was_started(control: Control) -> None:
    control.send({"early": True})
    assert control.exchange(0) is False
