"""What a trial engine is given besides its candidate's flags."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from autolaunch.capability.versions import parse_range
from autolaunch.race.overlay import INDUCTOR_CACHE, load_overlay, trial_environment, trial_overlay
from autolaunch.request.catalogue import bundled_catalogue, bundled_versions
from autolaunch.request.command_line import Pin
from autolaunch.request.flags import FlagCatalogue

VERSIONS = bundled_versions()


def catalogue(version: str) -> FlagCatalogue:
    """The bundled flags of `version`."""
    found = bundled_catalogue(version)
    assert found is not None
    return found


def pin(flag: str, *values: str, dest: str | None = None) -> dict[str, Pin]:
    """One pinned flag by its dest."""
    dest = dest or flag.removeprefix("--").replace("-", "_")
    return {dest: Pin(flag=flag, dest=dest, typed=flag, values=values, source="command line")}


@pytest.mark.parametrize("version", VERSIONS)
def test_without_pins(version: str) -> None:
    overlay = trial_overlay({}, catalogue(version), port=41000, nccl_port=41001, max_total_tokens=4096)
    assert overlay == (
        *("--host", "127.0.0.1", "--port", "41000", "--nccl-port", "41001"),
        *("--max-total-tokens", "4096", "--sleep-on-idle"),
    )


def test_without_a_port_for_nccl() -> None:
    assert "--nccl-port" not in trial_overlay({}, catalogue("0.5.21"), port=1, max_total_tokens=1)


@pytest.mark.parametrize(("users", "expected"), [("1000", "1000"), ("99999", "4096"), ("auto", "4096")])
def test_the_smaller_cache_wins(users: str, expected: str) -> None:
    overlay = trial_overlay(
        pin("--max-total-tokens", users), catalogue("0.5.21"), port=1, max_total_tokens=4096
    )
    assert overlay[overlay.index("--max-total-tokens") + 1] == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_a_slice_in_company(version: str) -> None:
    overlay = trial_overlay(
        pin("--mem-fraction-static", "0.5"),
        catalogue(version),
        port=1,
        max_total_tokens=4096,
        slice_folder=Path("/t/slice"),
        company=True,
        max_states=96,
    )
    assert overlay[overlay.index("--model-path") + 1] == "/t/slice"
    assert overlay[overlay.index("--mem-fraction-static") + 1] == "0.9"
    assert overlay[overlay.index("--max-mamba-cache-size") + 1] == "96"
    assert "--sleep-on-idle" in overlay
    assert not any("custom-all-reduce" in token for token in overlay)


def test_company_and_slice_are_apart() -> None:
    lonely = trial_overlay({}, catalogue("0.5.21"), port=1, max_total_tokens=1, slice_folder=Path("/s"))
    assert "--model-path" in lonely and "--mem-fraction-static" not in lonely
    whole = trial_overlay({}, catalogue("0.5.21"), port=1, max_total_tokens=1, company=True)
    assert "--model-path" not in whole and "--mem-fraction-static" in whole
    assert "--max-mamba-cache-size" not in whole, "no number, no flag"


def test_side_effects_of_pinned_flags_are_off() -> None:
    pins = (
        pin("--enable-metrics")
        | pin("--api-key", "s3cret")
        | pin("--kv-events-config", "{}")
        | pin("--delete-ckpt-after-loading")
        | pin("--log-level", "error")
        | pin("--dist-init-addr", "10.0.0.1:5000")
    )
    overlay = trial_overlay(pins, catalogue("0.5.21"), port=1, max_total_tokens=1)
    assert {
        "--no-enable-metrics",
        "--no-api-key",
        "--no-kv-events-config",
        "--no-delete-ckpt-after-loading",
        "--no-dist-init-addr",
    } <= set(overlay)
    assert overlay[overlay.index("--log-level") + 1] == "info"
    assert "s3cret" not in overlay


def test_a_flag_that_a_version_lacks_is_left_out() -> None:
    pins = pin("--load-publish-endpoint", "tcp://*:1")
    with_it = [
        version
        for version in VERSIONS
        if "--no-load-publish-endpoint" in trial_overlay(pins, catalogue(version), port=1, max_total_tokens=1)
    ]
    assert with_it
    assert "0.5.9" not in with_it


def test_rows_are_whole() -> None:
    text = resources.files("autolaunch").joinpath("data/trial_overlay.toml").read_text(encoding="utf-8")
    data: dict[str, Any] = tomllib.loads(text)
    flags, variables = load_overlay()
    assert len({row.id for row in flags}) == len(flags) == len(data["flag"])
    assert len({row.flag for row in flags}) == len(flags)
    names = {name for version in VERSIONS for name in catalogue(version).names()}
    for row in flags:
        assert row.flag in names, f"{row.flag} is a flag of no known version"
        assert row.action in {"set", "switch", "most", "off"}
        assert bool(row.value) == (row.action in {"set", "most"})
        assert row.reason
        assert row.when in {"always", "slice", "company"}
    assert len({row.name for row in variables}) == len(variables) == len(data["variable"])
    for variable in variables:
        assert variable.action in {"drop", "set", "cache"}
        assert bool(variable.value) == (variable.action != "drop")
        assert variable.reason
        assert variable.evidence or variable.action == "drop"
        if variable.sglang:
            assert parse_range(variable.sglang)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_unset_has_no_twin_of_another_meaning(version: str) -> None:
    """`--no-NAME` must not be the name, or an abbreviation, of a flag that does something else."""
    flags = catalogue(version)
    for row in load_overlay()[0]:
        if row.action == "off" and flags.resolve(row.flag) is not None:
            assert flags.resolve(f"--no-{row.flag.removeprefix('--')}") is None


def test_the_environment(tmp_path: Path) -> None:
    base = {"HOME": "/h", "TMPDIR": "/var/tmp", "SGLANG_RUST_SERVER": "1", "PROMETHEUS_MULTIPROC_DIR": "/x"}
    environ = trial_environment(base, tmp_path)
    assert environ["HOME"] == "/h"
    assert environ["TMPDIR"] == str(tmp_path)
    assert environ[INDUCTOR_CACHE].startswith("/var/tmp/torchinductor_"), "compiled kernels are kept"
    assert "SGLANG_RUST_SERVER" not in environ
    assert "PROMETHEUS_MULTIPROC_DIR" not in environ
    assert trial_environment({INDUCTOR_CACHE: "/mine"}, tmp_path)[INDUCTOR_CACHE] == "/mine"


def test_what_was_compiled_is_kept_where_the_server_looks(tmp_path: Path) -> None:
    """A trial has a TMPDIR of its own, and some programs keep compiled kernels in the temporary folder."""
    base = {
        "TMPDIR": "/var/tmp",
        "USER": "me",
        "TRITON_CACHE_DIR": "/t",
        "SGLANG_CACHE_DIR": "/s",
        "DG_JIT_CACHE_DIR": "/d",
    }
    old, new, dev = (
        trial_environment(base, tmp_path, sglang=one) for one in ("0.5.17", "0.5.23", "0.0.0.dev7")
    )
    for environ in (old, new, dev):
        assert {name: environ[name] for name in base if name != "TMPDIR"} == {
            name: base[name] for name in base if name != "TMPDIR"
        }
        assert environ["CUTE_DSL_CACHE_DIR"] == "/var/tmp/me/cutlass_python_cache"
    assert INDUCTOR_CACHE in old
    assert INDUCTOR_CACHE not in new, "SGLang itself points it into the home, unless it is set"
    assert INDUCTOR_CACHE not in dev


def test_ranks_may_see_different_free_memory_only_in_company(tmp_path: Path) -> None:
    check = "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK"
    assert check not in trial_environment({}, tmp_path)
    assert trial_environment({check: "1"}, tmp_path)[check] == "1"
    assert trial_environment({check: "1"}, tmp_path, company=True)[check] == "0"
