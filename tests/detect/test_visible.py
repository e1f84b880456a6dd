"""`CUDA_VISIBLE_DEVICES` as the driver reads it, compared with what a real driver was seen to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolaunch.detect.nvml import Device
from autolaunch.detect.visible import visible_devices

MEASURED: dict[str, Any] = json.loads((Path(__file__).parent / "visible_devices.json").read_text())
CASES = [
    (machine["uuids"], text, seen) for machine in MEASURED["machines"] for text, seen in machine["cases"]
]


def gpus(uuids: list[str], **more: Any) -> list[Device]:
    """One model, in the order of the bus."""
    return [
        Device(index, "NVIDIA H200", uuid, f"00000000:{index:02X}:00.0", 90, 16896, **more)
        for index, uuid in enumerate(uuids)
    ]


@pytest.mark.parametrize(("uuids", "text", "seen"), CASES, ids=[repr(case[1]) for case in CASES])
def test_as_a_real_driver(uuids: list[str], text: str | None, seen: list[int] | None) -> None:
    environ = {} if text is None else {"CUDA_VISIBLE_DEVICES": text}
    visible = visible_devices(gpus(uuids), environ)
    assert [one.index for one in visible.devices] == (seen or [])
    assert visible.source


@pytest.mark.parametrize(("order", "seen"), MEASURED["orders"])
def test_an_order_that_is_misspelt_leaves_nothing(order: str, seen: list[int] | None) -> None:
    visible = visible_devices(gpus(MEASURED["machines"][0]["uuids"]), {"CUDA_DEVICE_ORDER": order})
    assert [one.index for one in visible.devices] == (seen or [])
    assert [one.id for one in visible.notices] == ([] if seen else ["visible.none"])


@pytest.mark.parametrize(
    ("text", "notice"),
    [
        ("", None),
        ("-1", None),
        ("NoDevFiles", None),
        ("1,0,", None),
        ("0,7", "visible.ends"),
        ("x", "visible.ends"),
        ("0,,1", "visible.ends"),
        ("1,1", "visible.none"),
    ],
)
def test_what_was_hardly_meant_is_said(text: str, notice: str | None) -> None:
    visible = visible_devices(gpus(MEASURED["machines"][0]["uuids"]), {"CUDA_VISIBLE_DEVICES": text})
    assert [one.id for one in visible.notices] == ([notice] if notice else [])


def of_several_models() -> list[Device]:
    """A slow GPU first on the bus."""
    return [
        Device(0, "Tesla T4", "GPU-aa", "00000000:01:00.0", 75, 2560, clock_mhz=1590),
        Device(1, "NVIDIA L40S", "GPU-bb", "00000000:02:00.0", 89, 18176, clock_mhz=2520),
        Device(2, "Tesla T4", "GPU-cc", "00000000:03:00.0", 75, 2560, clock_mhz=1590),
    ]


def test_the_fastest_comes_first_and_that_is_a_guess() -> None:
    visible = visible_devices(of_several_models(), {"CUDA_VISIBLE_DEVICES": "0,2"})
    assert [one.index for one in visible.devices] == [1, 2]
    assert [one.id for one in visible.notices] == ["visible.order"]
    visible = visible_devices(
        of_several_models(), {"CUDA_VISIBLE_DEVICES": "0,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    )
    assert [one.index for one in visible.devices] == [0, 2]
    assert visible.notices == ()


def sliced() -> list[Device]:
    """A whole GPU, and one cut in two; and one in MIG mode that holds no slice."""
    slices = tuple(
        Device(
            place,
            f"NVIDIA H100 80GB HBM3 MIG {name}",
            f"MIG-{digit * 8}-1111-1111-1111-111111111111",
            instance=(number, 0),
        )
        for place, (name, digit, number) in enumerate((("3g.40gb", "a", 1), ("4g.40gb", "b", 2)))
    )
    whole, cut, empty = gpus([f"GPU-{digit * 8}-2222-2222-2222-222222222222" for digit in "cde"])
    mig = {"mig_enabled": True}
    return [
        whole,
        Device(**{**fields(cut), **mig, "slices": slices}),
        Device(**{**fields(empty), **mig}),
    ]


def fields(device: Device) -> dict[str, Any]:
    """The fields of a device."""
    return {name: getattr(device, name) for name in Device.__dataclass_fields__}


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, ["MIG 3g.40gb"]),  # a slice hides every whole GPU
        ("0", ["H200"]),
        ("1", ["MIG 3g.40gb"]),
        ("2", []),
        ("MIG-bbbbbbbb-1111-1111-1111-111111111111", ["MIG 4g.40gb"]),
        ("MIG-b", ["MIG 4g.40gb"]),
        ("MIG-a,MIG-b", ["MIG 3g.40gb"]),
        ("MIG-GPU-dddddddd-2222-2222-2222-222222222222/2/0", ["MIG 4g.40gb"]),
        ("MIG-GPU-dddddddd-2222-2222-2222-222222222222/7/0", []),
        ("GPU-d", ["MIG 3g.40gb"]),
        ("MIG-", []),
    ],
)
def test_mig(text: str | None, names: list[str]) -> None:
    visible = visible_devices(sliced(), {} if text is None else {"CUDA_VISIBLE_DEVICES": text})
    assert [
        (one.name or "").rpartition("HBM3 ")[2].removeprefix("NVIDIA ") for one in visible.devices
    ] == names
    several = text in (None, "MIG-a,MIG-b")
    assert ("visible.mig" in [one.id for one in visible.notices]) is several


@given(st.text(max_size=40), st.integers(0, 3))
def test_no_value_is_too_strange(text: str, count: int) -> None:
    devices = gpus([f"GPU-{digit * 8}-2222-2222-2222-222222222222" for digit in "cde"[:count]])
    visible = visible_devices(devices, {"CUDA_VISIBLE_DEVICES": text})
    assert len(visible.devices) <= count
    assert len({one.uuid for one in visible.devices}) == len(visible.devices)


def test_a_huge_value_is_read_at_once() -> None:
    devices = gpus(["GPU-cc"])
    assert visible_devices(devices, {"CUDA_VISIBLE_DEVICES": "9" * 5_000_000}).devices == ()
    assert visible_devices(devices, {"CUDA_VISIBLE_DEVICES": "," * 1_000_000}).devices == ()
    assert visible_devices(devices, {"CUDA_VISIBLE_DEVICES": "0" * 5_000_000}).devices == tuple(devices)
