"""The table that names kernels, each row by its own example."""

from __future__ import annotations

import re
from typing import Any

import pytest

from autolaunch.race.kernels import SHORTENED, classify, shorten
from autolaunch.request.catalogue import bundled_catalogue, bundled_versions
from autolaunch.tables import load_rows

ROWS = load_rows("kernels", "kernel")
KEYS = {"id", "pattern", "phase", "dimension", "backend", "example", "evidence"}


def known_choices() -> dict[str, set[str]]:
    """Choices of each flag over all bundled versions."""
    found: dict[str, set[str]] = {}
    for version in bundled_versions():
        for flag in bundled_catalogue(version).flags:
            for name in flag.names:
                found.setdefault(name, set()).update(map(str, flag.choices or ()))
    return found


CHOICES = known_choices()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_a_row(row: dict[str, Any]) -> None:
    assert set(row) <= KEYS
    assert row.get("phase") in (None, "prefill", "decode")
    assert row["evidence"]
    assert all({"kind", "ref"} == set(one) for one in row["evidence"])
    first = next(other for other in ROWS if re.search(other["pattern"], row["example"]))
    assert first["id"] == row["id"], "an earlier row takes the example"
    shown = classify(row["example"], row.get("phase") or "decode")
    assert shown is not None
    assert (shown.dimension, shown.backend) == (row["dimension"], row["backend"])
    if row["dimension"] != "all-reduce":
        assert row["backend"] in CHOICES[row["dimension"]]


def test_ids_are_unique() -> None:
    assert len({row["id"] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    "name",
    [
        "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*",
        "Memcpy HtoD (Pinned -> Device)",
        "_fwd_kernel_ep_gather",
        "void (anonymous namespace)::act_and_mul_kernel<__nv_bfloat16",
        "moe_align_block_size_kernel",
    ],
)
def test_kernels_that_every_choice_has(name: str) -> None:
    assert classify(name, "decode") is None
    assert classify(name, "prefill") is None


def test_long_names_keep_both_ends() -> None:
    assert shorten("void a<b>(c)") == "a<b>(c)"
    short = shorten("void begin" + "x" * 4000 + "end")
    assert len(short) == SHORTENED
    assert short.startswith("begin")
    assert short.endswith("end")
