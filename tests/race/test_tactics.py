"""Which engines draw the tactics of their kernels at start."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from autolaunch.candidates.candidate import ORIGINAL, Candidate
from autolaunch.capability.versions import parse_range
from autolaunch.race.tactics import again, drawing_again, draws_tactics
from autolaunch.request.catalogue import bundled_catalogue, bundled_versions
from autolaunch.tables import load_rows

ROWS = load_rows("tactics", "tactics")
MOE = Candidate(
    "c1",
    ("--moe-runner-backend", "flashinfer_cutlass"),
    dimension="--moe-runner-backend",
    choice="flashinfer_cutlass",
)
SOURCES = os.environ.get("AUTOLAUNCH_TEST_SGLANG_DIR", "")


def resolved(version: str = "0.5.23", **fields: Any) -> dict[str, Any]:
    """A server info."""
    return {"version": version, **fields}


def test_a_choice_that_draws() -> None:
    assert draws_tactics(ORIGINAL, resolved(moe_runner_backend="flashinfer_trtllm")) == "tactics.moe"
    assert draws_tactics(ORIGINAL, resolved(moe_runner_backend="triton")) is None
    assert draws_tactics(ORIGINAL, resolved(moe_runner_backend="auto")) is None
    assert draws_tactics(ORIGINAL, resolved()) is None


def test_where_the_server_info_says_auto_the_flag_counts() -> None:
    assert draws_tactics(MOE, resolved(moe_runner_backend="auto")) == "tactics.moe"
    assert draws_tactics(MOE, resolved(moe_runner_backend="triton")) is None


def test_the_log_knows_best() -> None:
    log = ["[2026-11-30 21:20:12] Running FlashInfer autotune with cache: /x.json"]
    assert draws_tactics(ORIGINAL, resolved(moe_runner_backend="auto"), log) == "tactics.sign.flashinfer"


@pytest.mark.parametrize("name", ["disable_flashinfer_autotune", "enable_deterministic_inference"])
def test_nothing_is_drawn_where_it_is_off(name: str) -> None:
    assert draws_tactics(MOE, resolved(moe_runner_backend="flashinfer_cutlass", **{name: True})) is None


def test_old_versions_draw_less() -> None:
    assert draws_tactics(MOE, resolved("0.5.9")) is None
    assert draws_tactics(MOE, resolved("0.5.14")) == "tactics.moe.0_5_14"
    assert draws_tactics(MOE, resolved("not a version")) is None


def test_a_second_start_draws_again() -> None:
    second = drawing_again(MOE, resolved(), 2)
    assert (second.id, second.flags) == ("c1-2", MOE.flags)
    assert second.env == (("SGLANG_FLASHINFER_AUTOTUNE_CACHE", "0"),)
    assert drawing_again(MOE, resolved("0.5.11"), 2).env == (), "nothing was kept there"
    assert again(MOE, 2).env == MOE.env


def test_rows_are_whole() -> None:
    known = {choice for version in bundled_versions() for choice in _choices(version)}
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert set(row) == {"id", "flag", "dest", "choices", "sglang", "reason", "evidence"}
        assert parse_range(row["sglang"]) and row["evidence"] and row["reason"]
        for choice in row["choices"]:
            assert (row["flag"], choice) in known, f"{row['id']}: {choice}"
    for row in (*load_rows("tactics", "sign"), *load_rows("tactics", "again")):
        assert row["evidence"]


def test_rows_of_one_flag_do_not_overlap() -> None:
    for version in bundled_versions():
        flags = [
            row["flag"] for row in ROWS if parse_range(row["sglang"]).holds(version) and "moe" in row["id"]
        ]
        assert len(flags) == len(set(flags)) == 1, version


@pytest.mark.skipif(not SOURCES, reason="needs AUTOLAUNCH_TEST_SGLANG_DIR")
def test_the_sign_is_in_the_sources() -> None:
    pattern = load_rows("tactics", "sign")[0]["pattern"]
    for package in Path(SOURCES).glob("sglang-*"):
        found = [
            path
            for path in (package / "sglang" / "srt" / "model_executor").rglob("*.py")
            if pattern in path.read_text()
        ]
        assert found, package


def _choices(version: str) -> set[tuple[str, str]]:
    """Every (flag, choice) of a version, for the flags of the table."""
    catalogue = bundled_catalogue(version)
    found = set()
    for row in ROWS:
        flag = catalogue.resolve(row["flag"]) if catalogue else None
        found |= {(row["flag"], choice) for choice in (flag.choices or ())} if flag else set()
    return found
