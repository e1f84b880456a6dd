"""When a race would be wrong or unwise: the table of holds, and what may override them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.candidates.generate import Field
from autolaunch.detect.gpus import Gpu, Machine
from autolaunch.detect.nvml import Tenant
from autolaunch.race.when import HOW_TO_TUNE, why_not_race
from autolaunch.request.catalogue import bundled_catalogue, bundled_versions
from autolaunch.request.command_line import read_request
from autolaunch.request.interpreter import Interpreter
from autolaunch.tables import load_rows

VERSION = "0.5.21"
HOLDS = load_rows("race_holds", "hold")
CHALLENGED = Field((ORIGINAL, Candidate("c1", ("--disable-radix-cache",))), ())


def reason(
    tokens: str = "",
    tune: str = "auto",
    environ: Mapping[str, str] | None = None,
    *,
    field: Field = CHALLENGED,
    weights_are_local: bool = True,
    **more: Any,
) -> str | None:
    """Why `serve ./model TOKENS` would not race."""
    catalogue = bundled_catalogue(VERSION)
    here = Interpreter("/python", Path("/sglang"), VERSION, "test")
    request = read_request(["./model", *tokens.split()], "serve", here, catalogue, Path("/"), {})
    return why_not_race(
        request, catalogue, field, tune, environ or {}, weights_are_local=weights_are_local, **more
    )


def gpu(**fields: Any) -> Machine:
    """A machine with one GPU of 100 GiB."""
    one = Gpu(
        **{
            "index": 0,
            "name": "H200",
            "sm": 90,
            "memory_bytes": 100 << 30,
            "memory_free_bytes": 99 << 30,
            **fields,
        }
    )
    return Machine(platform="cuda", source="nvml", cores=16, memory_available_bytes=64 << 30, gpus=(one,))


@pytest.mark.parametrize("tune", ["auto", "quick"])
def test_an_ordinary_start_races(tune: str) -> None:
    assert reason("--port 30001", tune) is None


def test_off_means_off() -> None:
    assert reason(tune="off") == "`--tune off`"


def test_nothing_to_decide() -> None:
    assert reason(field=Field((ORIGINAL,), ()), tune="quick") == "there is nothing to decide"


def test_another_entry_point() -> None:
    assert "another entry point" in (reason("--model-type llm", "quick") or "")


@pytest.mark.parametrize(
    "tokens",
    [
        "--nnodes 2",
        "--disaggregation-mode prefill",
        "--disaggregation-mode=decode",
        "--encoder-only",
        "--is-embedding",
        "--use-ray",
        "--grpc-mode",
        "--smg-grpc-mode",
        "--load-format remote",
    ],
)
def test_a_hard_hold_is_never_overridden(tokens: str) -> None:
    assert reason(tokens) == reason(tokens, "quick") is not None


@pytest.mark.parametrize("tokens", ["--nnodes 1", "--disaggregation-mode null", "--load-format safetensors"])
def test_a_harmless_value_holds_nothing(tokens: str) -> None:
    assert reason(tokens) is None


def test_weights_elsewhere_are_not_fetched_for_a_race() -> None:
    assert reason(weights_are_local=False, tune="quick") == "the weights are not on this machine"


@pytest.mark.parametrize(
    ("tokens", "environ"),
    [("--load-format dummy", {}), ("", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})],
)
def test_caution_says_how_to_override_it(tokens: str, environ: Mapping[str, str]) -> None:
    assert (reason(tokens, environ=environ) or "").endswith(f"; {HOW_TO_TUNE}")
    assert "`--tune quick`" in HOW_TO_TUNE and "`autolaunch tune`" in HOW_TO_TUNE
    assert reason(tokens, "quick", environ) is None
    assert reason(tokens, "full", environ) is None


def test_caution_does_not_hide_what_is_impossible() -> None:
    cautious = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert reason(environ=cautious, weights_are_local=False) == "the weights are not on this machine"
    assert reason("--load-format dummy --is-embedding", "quick") == reason("--is-embedding")


def test_an_orchestrator_with_a_stated_deadline_holds_nothing() -> None:
    orchestrators = [row["variable"] for row in HOLDS if row.get("unless_deadline")]
    assert "KUBERNETES_SERVICE_HOST" in orchestrators
    for variable in orchestrators:
        assert reason(environ={variable: "x"})
        assert reason(environ={variable: "x"}, deadline_s=600.0, expected_s=120.0) is None


@pytest.mark.parametrize("tune", ["auto", "quick", "full"])
def test_a_race_that_would_end_too_late_is_not_begun(tune: str) -> None:
    late = reason(tune=tune, deadline_s=60.0, expected_s=150.0)
    assert (
        late
        == "a race takes about 2 min 30 s, and `--start-deadline` leaves 60 s; `autolaunch tune` races ahead of a start"
    )
    assert reason(tune=tune, deadline_s=60.0, expected_s=59.0) is None
    assert reason(tune=tune, deadline_s=60.0) is None


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (gpu(), None),
        (gpu(memory_used_bytes=1 << 20), None),
        (gpu(memory_used_bytes=34 << 30), "GPU 0 is in use (34.0 GiB are taken)"),
        (gpu(tenants=(Tenant(7, None),)), "GPU 0 is in use (process 7)"),
        (
            gpu(tenants=tuple(Tenant(n, None) for n in range(5))),
            "GPU 0 is in use (process 0, process 1, process 2, 2 more)",
        ),
        (gpu(memory_free_bytes=80 << 30), "only 80 % of the memory of GPU 0 is free"),
        (gpu(memory_free_bytes=80 << 30, unified=True), None),
        (gpu(memory_free_bytes=None), None),
    ],
)
def test_gpus_that_others_use(machine: Machine, words: str | None) -> None:
    found = reason(machine=machine)
    assert found == (None if words is None else f"{words}; {HOW_TO_TUNE}")
    assert reason(tune="quick", machine=machine) is None, "a caution, no more"


def test_rows_are_whole() -> None:
    names = {name for version in bundled_versions() for name in bundled_catalogue(version).names()}
    assert len({row["id"] for row in HOLDS}) == len(HOLDS) > 0
    for row in HOLDS:
        assert set(row) <= {
            "id",
            "flag",
            "values",
            "more_than",
            "variable",
            "unless_deadline",
            "hard",
            "reason",
        }, row["id"]
        assert re.fullmatch(r"hold\.[a-z-]+", row["id"])
        assert isinstance(row["hard"], bool)
        assert row["reason"] and not row["reason"].endswith(".")
        assert ("flag" in row) != ("variable" in row)
        assert row.get("flag") is None or row["flag"] in names, f"{row['flag']} is a flag of no known version"


@pytest.mark.parametrize("tune", ["auto", "quick", "full"])
def test_a_workload_that_no_request_of_fits_is_not_raced_with(tune: str) -> None:
    assert reason(tune=tune, too_long="it is too long") == "it is too long"
