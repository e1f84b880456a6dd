"""Where a store outlives its container, and where it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from autolaunch.profiles.mounts import container_layer

OVERLAY = "512 400 0:57 / / rw,relatime master:199 - overlay overlay rw,lowerdir=/a:/b,upperdir=/c,workdir=/d"
PROC = "513 512 0:60 / /proc rw,nosuid - proc proc rw"
VOLUME = "600 512 8:1 /volumes/p /home/somebody/.local/share/autolaunch rw,relatime - ext4 /dev/sda1 rw"
SPACED = r"601 512 8:1 /v /data/my\040profiles rw,relatime - xfs /dev/sdb rw"
POD = "/var/lib/kubelet/pods/1a2b/volumes/"
EMPTY_DIR = f"602 512 8:1 {POD}kubernetes.io~empty-dir/cache /cache rw - ext4 /dev/sda1 rw"
CLAIM = f"603 512 0:90 {POD}kubernetes.io~csi/pvc-1/mount /claim rw - nfs4 server:/x rw"
HOST = "26 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw"
LOWER = "27 1 0:99 / / rw - overlay overlay rw"


def told(tmp_path: Path, path: str, *lines: str) -> str | None:
    """What the table of these lines says of `path`, outside of any container that tests run in."""
    table = tmp_path / "mountinfo"
    table.write_text("\n".join(lines) + "\n")
    return container_layer(Path(path), mounts=table, root=tmp_path)


@pytest.mark.parametrize("path", ["/", "/nowhere/yet", "/data/my profile", "/cachex"])
def test_a_containers_own_layer(tmp_path: Path, path: str) -> None:
    found = told(tmp_path, path, OVERLAY, PROC, VOLUME, SPACED, EMPTY_DIR)
    assert found is not None
    assert "container's own layer (overlay)" in found and f"`{path}`" in found


@pytest.mark.parametrize(
    "path",
    [
        "/home/somebody/.local/share/autolaunch",
        "/home/somebody/.local/share/autolaunch/profiles/h200",
        "/data/my profiles/x",
        "/claim/x",
    ],
)
def test_a_volume_outlives_the_container(tmp_path: Path, path: str) -> None:
    assert told(tmp_path, path, OVERLAY, PROC, VOLUME, SPACED, EMPTY_DIR, CLAIM) is None


def test_an_empty_dir_does_not(tmp_path: Path) -> None:
    assert "emptyDir" in (told(tmp_path, "/cache/profiles", OVERLAY, EMPTY_DIR) or "")


def test_a_machine_is_no_container(tmp_path: Path) -> None:
    assert told(tmp_path, "/home/somebody/x", HOST) is None
    assert told(tmp_path, "/home/somebody/x", LOWER, HOST) is None  # the later hides the earlier


def test_a_container_whose_root_is_a_plain_file_system(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.containerenv").touch()
    assert "looks like a container (ext4)" in (told(tmp_path, "/home/somebody/x", HOST) or "")


@pytest.mark.parametrize("text", ["", "\n", "garbage", "1 2 3 - ", "1 2 3 / / rw - ", " - overlay"])
def test_a_table_that_says_nothing(tmp_path: Path, text: str) -> None:
    assert told(tmp_path, "/x", text) is None


def test_no_table(tmp_path: Path) -> None:
    assert container_layer(tmp_path, mounts=tmp_path / "none") is None


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/claim")
    assert told(tmp_path, str(tmp_path / "link"), OVERLAY, CLAIM) is None
