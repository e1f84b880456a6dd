"""Ports for engines that bind them later."""

from __future__ import annotations

from autolaunch.race.ports import HIGHEST_PORT, Ports


def test_no_port_is_given_twice() -> None:
    ports = Ports()
    given = [ports.next() for _ in range(500)]
    assert len(set(given)) == len(given)
    assert max(given) <= HIGHEST_PORT
