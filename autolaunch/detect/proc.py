"""What the NVIDIA driver's own files under `/proc/driver/nvidia` tell: names of GPUs, the driver's version.

They are there without NVML, as in a container that was started for computing alone.
"""

from __future__ import annotations

from pathlib import Path

from autolaunch.detect.nvml import Device

_FILE_LIMIT = 1 << 14


def devices_in_proc(root: Path) -> tuple[list[Device], str]:
    """The GPUs that the driver's files name, and what was tried in words."""
    folder = root / "proc/driver/nvidia/gpus"
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        return [], f"`/proc/driver/nvidia/gpus` ({error.strerror})"
    devices: list[Device] = []
    for entry in entries:
        told = _told(entry / "information")
        minor = told.get("Device Minor", "")
        # The files of a container's host are all there; the device files are only those it was given.
        if told and (not minor.isdigit() or (root / f"dev/nvidia{minor}").exists()):
            devices.append(
                Device(
                    len(devices), told.get("Model"), told.get("GPU UUID"), told.get("Bus Location"),
                    unread={"sm": "NVML did not answer"},
                )
            )  # fmt: skip
    return devices, f"`/proc/driver/nvidia/gpus` ({len(devices)} GPUs)"


def _told(path: Path) -> dict[str, str]:
    """The `Key: value` lines of one of the driver's files; {} when it cannot be read."""
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_LIMIT).decode("utf-8", "replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): "".join(filter(str.isprintable, value)).strip() for key, _, value in pairs}


def driver_in_proc(root: Path) -> str | None:
    """The version of the loaded kernel module, as `/proc/driver/nvidia/version` writes it."""
    words = _told(root / "proc/driver/nvidia/version").get("NVRM version", "").split()
    return next((word for word in words if word[:1].isdigit() and "." in word), None)
