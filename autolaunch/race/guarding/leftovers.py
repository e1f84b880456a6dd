"""What ended processes leave behind: shared memory that nobody uses any more, and scratch folders."""

# ruff: noqa: PTH102, PTH108, PTH119, PTH208 - no pathlib, as in `race/guard.py`

from __future__ import annotations

import os

from autolaunch.race.guarding.processes import every_pid, read

SCRATCH_PREFIX = "autolaunch-"
"""Only folders with this prefix are ever removed."""
SHARED_MEMORY = "/dev/shm/"  # noqa: S108 - where Linux keeps it


class SharedMemory:
    """What a tree of processes has mapped of it, but for what was there before the tree."""

    def __init__(self) -> None:
        self._before = frozenset(_listed(SHARED_MEMORY))
        self._mapped: set[str] = set()

    def note(self, pids: list[int]) -> None:
        """Remember what `pids` have mapped by now; of a killed process nobody can say."""
        for pid in pids:
            self._mapped |= _mapped_by(pid)

    def unlink(self) -> None:
        """Remove what only the ended tree had mapped; SGLang's processes leave it behind when killed."""
        paths = self._mapped - self._before
        if not paths:
            return
        for pid in every_pid():
            paths -= _mapped_by(pid)
        for path in paths:
            try:
                os.unlink(path)
            except OSError:
                continue  # its owner was faster


def _mapped_by(pid: int) -> set[str]:
    """Files of shared memory that `pid` has mapped, as their paths."""
    found = set()
    for line in read(f"/proc/{pid}/maps").splitlines():
        path = line.split(None, 5)[-1].decode("utf-8", "replace")
        if path.startswith(SHARED_MEMORY) and not path.endswith(" (deleted)"):
            found.add(path)
    return found


def _listed(folder: str) -> list[str]:
    try:
        return [folder + name for name in os.listdir(folder)]
    except OSError:
        return []


def make_folders(folders: list[str]) -> None:
    """Make private folders.

    Where there is no room for one the command says so itself, for then it has no temporary folder.
    """
    for folder in folders:
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            continue  # the caller's own
        except OSError as error:
            os.write(2, f"autolaunch guard: cannot make {folder}: {error}\n".encode())


def remove_folders(folders: list[str]) -> None:
    """Remove scratch folders, and no others, with all that is in them."""
    import shutil  # here, since it costs as much as all other imports of a guard together

    for folder in folders:
        if os.path.basename(folder).startswith(SCRATCH_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)
