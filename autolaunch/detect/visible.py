"""Which of the machine's GPUs CUDA would show a process, and in which order.

`CUDA_VISIBLE_DEVICES` is read as the driver reads it, which is not as one would guess: an entry that
means nothing ends the list silently, one named twice is an error that leaves no GPU at all, and so is a
`CUDA_DEVICE_ORDER` that is not spelled right.  Measured on two H200, driver 580.159.04, 2026-11-30; the
cases are in `tests/detect/visible_devices.json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autolaunch.detect.nvml import Device
from autolaunch.request.command_line import Notice

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"

_NUMBER = re.compile(r"[ \t\n\v\f\r]*([+-]?)0*([0-9]*)", re.ASCII)
_LEGACY_SLICE = re.compile(r"MIG-(GPU-[0-9a-f-]{36})/(\d+)/(\d+)", re.IGNORECASE | re.ASCII)
_UUID_DIGITS = 32
_ENUMERATION = "CUDA programming guide, environment variables; measured on two H200, driver 580.159.04"
_ONE_SLICE = "docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html, device enumeration"


@dataclass(frozen=True, slots=True)
class Visible:
    """The devices a process would see."""

    devices: tuple[Device, ...]
    """In CUDA's order; of a GPU in MIG mode, the slice."""
    source: str
    """Which variable chose them, or that none did."""
    notices: tuple[Notice, ...] = ()


class _NoDevicesError(Exception):
    """CUDA would fail to start; the message says why."""


def visible_devices(devices: Sequence[Device], environ: Mapping[str, str]) -> Visible:
    """What CUDA would enumerate of `devices`, which are in NVML's order."""
    notices: list[Notice] = []
    try:
        ordered = _in_order([one for one in devices if "handle" not in one.unread], environ, notices)
        text = environ.get(VISIBLE)
        if text is None:
            return Visible(_one_slice(_all(ordered), notices), f"no `{VISIBLE}`: every GPU", tuple(notices))
        chosen = _chosen(text, ordered, notices)
    except _NoDevicesError as error:
        reason = str(error)
        notices.append(
            Notice("visible.none", "CUDA will find no GPU", (reason,), _ENUMERATION, "correct the variable")
        )
        return Visible((), reason, tuple(notices))
    return Visible(_one_slice(chosen, notices), f"`{VISIBLE}={text}`", tuple(notices))


def _in_order(devices: list[Device], environ: Mapping[str, str], notices: list[Notice]) -> list[Device]:
    """The order of CUDA's ordinals before any are chosen.

    By default the fastest GPU comes first; among GPUs of one model that is the order of the bus.  Which of
    several models CUDA takes for fastest is its secret: cores times clock is our guess, said to be one.
    """
    order = environ.get(ORDER)
    if order not in (None, "FASTEST_FIRST", "PCI_BUS_ID"):
        # Seen: cuInit answers CUDA_ERROR_INVALID_DEVICE for `pci_bus_id`, for `x` and for the empty text.
        raise _NoDevicesError(f"`{ORDER}={order}` is neither `FASTEST_FIRST` nor `PCI_BUS_ID`")
    by_bus = sorted(devices, key=lambda one: (one.bus or "", one.index))
    if order == "PCI_BUS_ID" or len({one.name for one in devices}) < 2:
        return by_bus
    notices.append(
        Notice(
            "visible.order",
            "the order of the GPUs is a guess",
            (
                f"they are of several models and `{ORDER}` is not `PCI_BUS_ID`: CUDA puts the fastest first",
                "autolaunch takes cores times clock for speed",
            ),
            _ENUMERATION,
            f"set `{ORDER}=PCI_BUS_ID`",
        )
    )
    return sorted(by_bus, key=_speed, reverse=True)


def _speed(device: Device) -> tuple[int, int]:
    """Larger is faster, as far as can be told."""
    return (device.cores or 0) * (device.clock_mhz or 1), device.sm or 0


def _all(ordered: list[Device]) -> list[Device]:
    """Every device; of a GPU in MIG mode its slices instead, and nothing when it has none."""
    return [part for one in ordered for part in (one.slices if one.mig_enabled else (one,))]


def _one_slice(chosen: list[Device], notices: list[Notice]) -> tuple[Device, ...]:
    """CUDA shows one MIG slice to a process, and beside it nothing else."""
    slices = [one for one in chosen if one.instance is not None or (one.uuid or "").startswith("MIG-")]
    if not slices or len(chosen) == 1:
        return tuple(chosen)
    notices.append(
        Notice(
            "visible.mig",
            f"CUDA shows a process one MIG slice, and {len(chosen)} devices are visible",
            (f"it takes the first, `{slices[0].name}`, and no GPU that is not sliced",),
            _ONE_SLICE,
            f"name one slice in `{VISIBLE}`, or switch MIG off with `nvidia-smi -mig 0`",
        )
    )
    return (slices[0],)


def _chosen(text: str, ordered: list[Device], notices: list[Notice]) -> list[Device]:
    """The devices `text` names, up to the first entry that names none."""
    entries = text.split(",")
    by_uuid = text.startswith(("GPU-", "MIG-"))
    chosen: list[Device] = []
    for entry in entries:
        found = _by_uuid(entry, ordered) if by_uuid else _by_number(entry, ordered)
        if found is None:
            _say_where_it_ends(text, entry, len(chosen), len(ordered), notices)
            break
        if any(found is one for one in chosen):
            raise _NoDevicesError(f"`{VISIBLE}={text}` names one GPU twice")
        chosen.append(found)
    return chosen


def _say_where_it_ends(text: str, entry: str, taken: int, there: int, notices: list[Notice]) -> None:
    """A notice, unless hiding every GPU is plainly what was meant."""
    if taken == 0 and text.strip() in ("", "-1", "NoDevFiles", "none", "void"):
        return
    if taken and not entry and text.endswith(",") and text.count(",") == taken:
        return  # a comma at the end, after which nothing was meant
    notices.append(
        Notice(
            "visible.ends",
            f"`{VISIBLE}={text}` shows {taken} GPU{'' if taken == 1 else 's'}",
            (f"CUDA stops reading at `{entry}`, which names none of the {there} GPUs here",),
            _ENUMERATION,
            f"correct `{VISIBLE}`",
        )
    )


def _by_number(entry: str, ordered: list[Device]) -> Device | None:
    """The device an entry names by its ordinal, read as C's atoi reads: `1x` is 1, `0x1` is 0."""
    read = _NUMBER.match(entry)
    if read is None or not read[0].strip(" \t\n\v\f\r+-"):
        return None
    number = int(read[1] + (read[2][:25] or "0"))
    number = max(-(1 << 63), min(number, (1 << 63) - 1))
    number = (number + (1 << 31)) % (1 << 32) - (1 << 31)  # `long` cut to `int`: 4294967296 is 0
    if not 0 <= number < len(ordered):
        return None
    one = ordered[number]
    return (one.slices[0] if one.slices else None) if one.mig_enabled else one


def _by_uuid(entry: str, ordered: list[Device]) -> Device | None:
    """The one device whose UUID begins as `entry` does.

    Dashes count for nothing and case neither; what follows a whole UUID is not looked at, anything else
    that is no hexadecimal digit makes it name nothing.
    """
    legacy = _LEGACY_SLICE.match(entry)
    if legacy is not None:
        instance = int(legacy[2]), int(legacy[3])
        for one in ordered:
            if (one.uuid or "").lower() == legacy[1].lower():
                return next((part for part in one.slices if part.instance == instance), None)
        return None
    kind, digits = entry[:4], ""
    if kind not in ("GPU-", "MIG-"):
        return None
    for letter in entry[4:]:
        if len(digits) == _UUID_DIGITS:
            break
        if letter in "0123456789abcdefABCDEF":
            digits += letter.lower()
        elif letter != "-":
            return None
    pool = ordered if kind == "GPU-" else [part for one in ordered for part in one.slices]
    found = [one for one in pool if _digits(one).startswith(digits)]
    if len(found) != 1:
        return None  # none, or not unique
    one = found[0]
    return (one.slices[0] if one.slices else None) if one.mig_enabled else one


def _digits(device: Device) -> str:
    """The hexadecimal digits of a UUID."""
    return (device.uuid or "")[4:].replace("-", "").lower()
