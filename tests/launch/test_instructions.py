"""What was typed and chosen into the watcher's orders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.launch.attempts import Ticket
from autolaunch.launch.instructions import MARKS, orders_for, watcher_argv
from autolaunch.launch.watching.client import reachable
from autolaunch.launch.watching.orders import Kept, Orders, take_over
from autolaunch.request.catalogue import bundled_catalogue
from autolaunch.request.command_line import Pin

ROOT = Path(__file__).parents[2]
CHOICE = Candidate(
    "c1",
    ("--moe-runner-backend", "cutlass"),
    (("SGLANG_X", "1"),),
    dimension="--moe-runner-backend",
    choice="cutlass",
    resolved_as="moe_runner_backend",
)


def pins(**typed: tuple[str, ...]) -> dict[str, Pin]:
    """Pins as a command line makes them."""
    return {
        dest: Pin(f"--{dest.replace('_', '-')}", dest, f"--{dest}", values, "command line")
        for dest, values in typed.items()
    }


def test_what_nobody_typed_is_sglangs_own() -> None:
    orders = orders_for({}, ORIGINAL)
    assert orders == Orders(host="127.0.0.1", port=30000)
    assert orders.is_original


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ({"host": ("::",), "port": ("8000",)}, {"host": "::", "port": 8000}),
        ({"port": ("many",)}, {"port": 30000}),
        ({"port": ("65536",)}, {"port": 30000}),
        ({"port": ("9" * 5000,)}, {"port": 30000}),
        ({"ssl_certfile": ("c",), "ssl_keyfile": ("k",)}, {"tls": True}),
        ({"enable_ssl_refresh": ()}, {"tls": False}),
        ({"api_key": ("secret",)}, {"api_key": "secret"}),
        ({"admin_api_key": ("secret",)}, {"api_key": None}),
        ({"is_embedding": ()}, {"unasked": "an embedding model generates no text"}),
        ({"encoder_only": ()}, {"unasked": "an encoder generates no text"}),
        ({"disaggregation_mode": ("prefill",)}, {"unasked": "a prefill server answers nothing alone"}),
        ({"disaggregation_mode": ("null",)}, {"unasked": ""}),
        ({"node_rank": ("1",)}, {"unasked": "the server of the first node is the one that answers"}),
        ({"node_rank": ("0",)}, {"unasked": ""}),
        ({"grpc_mode": ()}, {"http": False, "unasked": "it speaks gRPC, which is not asked"}),
        ({"smg_grpc_mode": ()}, {"http": False}),
        ({"is_embedding": ("false",)}, {"unasked": ""}),
    ],
)
def test_what_was_typed(typed: dict[str, tuple[str, ...]], told: dict[str, Any]) -> None:
    orders = orders_for(pins(**typed), CHOICE)
    assert {name: getattr(orders, name) for name in told} == told


def test_what_was_chosen(tmp_path: Path) -> None:
    orders = orders_for({}, CHOICE, verify="warn", store=(tmp_path, Path("there")), profile="h200/name")
    assert (orders.flags, orders.env, orders.verify) == (CHOICE.flags, CHOICE.env, "warn")
    assert orders.expects == {"moe_runner_backend": "cutlass"}
    assert orders.profile == Kept(str(MARKS), (str(tmp_path), str(Path("there").absolute())), "h200/name")
    assert MARKS.is_file()


def test_a_choice_out_of_a_profile_is_looked_for_as_well() -> None:
    catalogue = bundled_catalogue("0.5.21")
    kept = Candidate("c1", ("--fp4-gemm-backend", "x"), dimension="--fp4-gemm-backend", choice="x")
    assert orders_for({}, kept, catalogue=catalogue).expects == {"fp4_gemm_runner_backend": "x"}
    assert orders_for({}, kept).expects == {}


def test_drafting_has_another_name_in_server_info() -> None:
    """SGLang makes EAGLE of NEXTN: taken for a silent fallback, no draft would outlive its verification."""
    flags = ("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "1")
    kept = Candidate("c1", flags, dimension="--speculative-algorithm", choice="NEXTN")
    assert orders_for({}, kept, catalogue=bundled_catalogue("0.5.21")).expects == {}


def test_a_switch_has_no_value_to_look_for() -> None:
    switch = Candidate("c1", ("--enable-x",), choice="on", resolved_as="enable_x")
    assert orders_for({}, switch).expects == {}


def test_the_argv_names_a_descriptor_and_no_secret(tmp_path: Path) -> None:
    orders = orders_for(pins(api_key=("secret",)), CHOICE)
    argv = watcher_argv(Ticket(tmp_path / "record.json", "abc", 7), orders)
    assert argv[1:3] == ("-I", "-S")
    assert "secret" not in " ".join(argv)
    assert take_over(int(argv[-1])) == orders


@pytest.mark.parametrize(
    ("host", "connected"),
    [
        ("", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1"),
        ("::", "::1"),
        ("[::]", "::1"),
        ("[fe80::1]", "fe80::1"),
        ("localhost", "localhost"),
        ("10.0.0.7", "10.0.0.7"),
    ],
)
def test_where_to_connect_to(host: str, connected: str) -> None:
    assert reachable(host) == connected


def test_no_sglang_serves_http_on_a_unix_socket() -> None:
    """Where one does some day, the watcher must learn to look there."""
    snapshots = sorted((ROOT / "autolaunch" / "data" / "flags").glob("*.json"))
    assert snapshots
    for snapshot in snapshots:
        names = {
            name for name in json.dumps(json.loads(snapshot.read_text())).split('"') if name.startswith("--")
        }
        assert not names & {"--uds", "--unix-socket", "--socket", "--uds-path"}, snapshot
