"""What was typed and what was chosen into the watcher's orders and its argv."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from autolaunch.candidates.candidate import Candidate
from autolaunch.candidates.dimensions import shown_as
from autolaunch.launch.attempts import Ticket
from autolaunch.launch.watching.orders import DEFAULT_HOST, DEFAULT_PORT, Kept, Orders, Verify, hand_over
from autolaunch.request.command_line import SWITCHED_OFF, Pin
from autolaunch.request.flags import FlagCatalogue

MARKS: Final = Path(__file__).parents[1] / "profiles" / "marks.py"

_SILENT: Final[Mapping[str, str]] = {
    "is_embedding": "an embedding model generates no text",
    "encoder_only": "an encoder generates no text",
    "grpc_mode": "it speaks gRPC, which is not asked",
    "smg_grpc_mode": "it speaks gRPC, which is not asked",
}
"""Switches of servers that answer no prompt over HTTP."""


def orders_for(
    pins: Mapping[str, Pin],
    candidate: Candidate,
    *,
    catalogue: FlagCatalogue | None = None,
    verify: Verify = "on",
    store: Sequence[Path] = (),
    profile: str | None = None,
) -> Orders:
    """What to tell the watcher of a server that was pinned like this and is launched with `candidate`.

    `catalogue` has the field of SGLang's server info that shows a choice that came from a profile; `profile`
    is the name, in the folders `store`, of the one that gets to know what became of the server.
    """
    kept = None
    if profile is not None:
        folders = tuple(str(folder.absolute()) for folder in store)  # the watcher's own folder is the root
        kept = Kept(str(MARKS.absolute()), folders, profile)
    field = candidate.resolved_as
    if field is None and catalogue is not None and candidate.dimension:
        field = shown_as(catalogue, candidate.dimension)
    expects = {}
    if field is not None and candidate.choice not in (None, "on"):
        expects[field] = candidate.choice or ""
    return Orders(
        host=value_of(pins, "host") or DEFAULT_HOST,
        port=port_of(pins),
        tls=bool(value_of(pins, "ssl_certfile")),
        http=not (is_on(pins, "grpc_mode") or is_on(pins, "smg_grpc_mode")),
        api_key=value_of(pins, "api_key"),
        verify=verify,
        unasked=why_unasked(pins),
        flags=candidate.flags,
        env=candidate.env,
        expects=expects,
        profile=kept,
    )


def watcher_argv(ticket: Ticket, orders: Orders) -> tuple[str, ...]:
    """The argv of the process that watches the server of `ticket`; OSError where there are no descriptors.

    It names a descriptor of this process, which the watcher is exec'ed in: nobody else can be told it.
    """
    watch = Path(__file__).with_name("watch.py")
    return (
        *(sys.executable, "-I", "-S", str(watch)),
        *("--pid", str(ticket.pid), "--record", str(ticket.record), "--attempt", ticket.attempt),
        *("--orders", str(hand_over(orders))),
    )


def why_unasked(pins: Mapping[str, Pin]) -> str:
    """Why a server that was pinned like this is asked nothing, in words; empty for one that answers."""
    for dest, words in _SILENT.items():
        if is_on(pins, dest):
            return words
    mode = value_of(pins, "disaggregation_mode")
    if mode in ("prefill", "decode"):
        return f"a {mode} server answers nothing alone"
    if (value_of(pins, "node_rank") or "0") != "0":
        return "the server of the first node is the one that answers"
    return ""


def port_of(pins: Mapping[str, Pin]) -> int:
    """The port that was typed, or SGLang's; SGLang will say what it thinks of one that is none."""
    port = value_of(pins, "port") or ""
    is_port = port.isascii() and port.isdecimal() and len(port) <= 10 and int(port) < 1 << 16
    return int(port) if is_port else DEFAULT_PORT


def value_of(pins: Mapping[str, Pin], dest: str) -> str | None:
    """The value the user gave for `dest`."""
    pin = pins.get(dest)
    return pin.values[-1] if pin is not None and pin.values else None


def is_on(pins: Mapping[str, Pin], dest: str) -> bool:
    """Whether the user turned the switch `dest` on."""
    return dest in pins and pins[dest].values != SWITCHED_OFF
