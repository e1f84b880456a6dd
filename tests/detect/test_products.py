"""The table of known GPUs, and names as people write them."""

from __future__ import annotations

import pytest

from autolaunch.detect.products import Products, key_of, product_for, products
from autolaunch.errors import UsageError


@pytest.fixture
def table() -> Products:
    return products()


def test_every_row_says_where_it_is_from(table: Products) -> None:
    assert len(table.rows) >= 45
    assert len({row.id for row in table.rows}) == len(table.rows)
    for row in table.rows:
        assert row.evidence, row.id
        for one in row.evidence:
            assert one["kind"] in ("source", "docs", "issue", "measured"), row.id
            assert one["ref"]
            assert one["checked"]
        assert 70 <= row.sm <= 130, row.id
        assert row.sm_count is None or 8 <= row.sm_count <= 200, row.id
        assert row.memory_bytes is None or 4 << 30 <= row.memory_bytes <= 512 << 30, row.id
        assert row.aliases, row.id


def test_every_compute_capability_has_its_cores(table: Products) -> None:
    assert {row.sm for row in table.rows if row.sm_count} <= set(table.cores_per_sm)


@pytest.mark.parametrize(
    ("name", "id_"),
    [
        ("H200", "h200"),
        ("h200", "h200"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm5-80gb"),
        ("h100-pcie", "h100-pcie-80gb"),
        ("RTX PRO 6000", "rtx-pro-6000-server"),
        ("rtx_pro_6000_max_q", "rtx-pro-6000-max-q"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000-workstation"),
        ("GeForce RTX 5090", "rtx-5090"),
        ("5090", "rtx-5090"),
        ("dgx spark", "gb10"),
        ("GB10", "gb10"),
        ("Jetson AGX Thor", "thor-agx"),
        ("NVIDIA Thor", "thor-agx"),
        ("b300", "b300"),
        ("GB200 NVL72", "gb200"),
        ("A100", "a100-sxm4-80gb"),
        ("A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"),
        ("l40s", "l40s"),
        ("T4", "t4"),
    ],
)
def test_names(name: str, id_: str) -> None:
    assert product_for(name).id == id_


@pytest.mark.parametrize(
    ("sm", "names"),
    [
        (70, ["V100"]),
        (75, ["T4"]),
        (80, ["A100", "A800", "A30"]),
        (86, ["A10", "A40", "RTX A6000", "RTX 3090"]),
        (87, ["Jetson Orin"]),
        (89, ["L4", "L20", "L40", "L40S", "RTX 4090", "RTX 6000 Ada"]),
        (90, ["H100", "H100 PCIe", "H100 NVL", "H200", "H200 NVL", "H20", "H800", "GH200", "L20Z"]),
        (100, ["B100", "B200", "GB200"]),
        (103, ["B300", "GB300"]),
        (110, ["Jetson Thor"]),
        (120, ["RTX 5090", "RTX 5080", "RTX PRO 6000", "RTX PRO 5000", "RTX PRO 4500", "RTX 6000D"]),
        (121, ["GB10"]),
    ],
)
def test_compute_capability(sm: int, names: list[str]) -> None:
    assert {product_for(name).sm for name in names} == {sm}


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("RTX 9090", "RTX"),
        ("h300", "--for-gpu"),
        ("rtx pro 600", "RTX PRO 6000"),
        ("", "--for-sm"),
        ("x" * 100_000, "--for-sm"),
        ("\x1b[31mH2OO", "--for-sm"),
    ],
)
def test_what_is_not_known(name: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        product_for(name)
    assert hint in (caught.value.hint or "")
    assert len(str(caught.value)) < 600
    assert "\x1b" not in str(caught.value)


def test_case_punctuation_and_maker_do_not_matter() -> None:
    assert len({key_of(name) for name in ("RTX 5090", "rtx-5090", "NVIDIA GeForce RTX 5090", "RTX5090")}) == 1
    assert key_of("NVIDIA") == "nvidia"
