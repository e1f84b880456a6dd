"""Temporary folders that slices live in: private, removed at the end, and swept when their owner was killed.

The owner stands in the folder's own name, so that there is no moment without it: boot, PID namespace, PID and
start time, none of which another process shares.  What belongs to another user, has another name or is a link
is never touched.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from autolaunch.launch.processes import boot_id, pid_namespace, start_ticks_of
from autolaunch.slice.problems import SliceError

PREFIX = "autolaunch-slice-"
ELSEWHERE_S = 24 * 3600.0
"""After this, a folder of another boot or PID namespace is taken for a leftover; no race lasts so long."""

_NAME = re.compile(
    re.escape(PREFIX)
    + r"(?P<boot>[0-9a-f]{0,32})-(?P<space>\d*)-(?P<pid>[1-9]\d{0,9})-(?P<ticks>\d{1,19})-\w{8}",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, told from every other."""

    boot: str
    """Hexadecimal digits of the kernel's boot id; empty where it is hidden."""
    space: str
    """Number of the PID namespace; empty where it is hidden."""
    pid: int
    ticks: int

    def is_gone(self) -> bool | None:
        """Whether the process is over; None where that cannot be seen from here."""
        here = this_process()
        if (self.boot, self.space) != (here.boot, here.space):
            return None
        return start_ticks_of(self.pid) != self.ticks


def this_process() -> Owner:
    """The process that asks."""
    pid = os.getpid()
    space = re.sub(r"\D", "", pid_namespace())
    return Owner(boot_id().replace("-", ""), space, pid, start_ticks_of(pid) or 0)


def default_base() -> Path:
    """Where slices go: TMPDIR, as of every other temporary file."""
    return Path(tempfile.gettempdir())


class SliceHome:
    """A private folder below `base` for the slices of one race; gone when the context ends.

    Entering sweeps what killed launchers left there; SliceError where no folder can be made.
    """

    def __init__(self, base: Path | None = None) -> None:
        try:
            self.base = (base or default_base()).absolute()
        except OSError as error:  # tempfile has tried every place that it knows
            raise SliceError(
                "cannot make a folder for slices",
                because=(f"the system says: {error.strerror}",),
                hint="set TMPDIR to a folder that can be written",
            ) from error
        self.folder = self.base
        self._owner: Owner | None = None

    def __enter__(self) -> SliceHome:
        sweep_leftovers(self.base)
        owner = this_process()
        prefix = f"{PREFIX}{owner.boot}-{owner.space}-{owner.pid}-{owner.ticks}-"
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=prefix, dir=self.base))
        except OSError as error:
            raise SliceError(
                f"cannot make a folder for slices in `{self.base}`",
                because=(f"the system says: {error.strerror}",),
                hint="set TMPDIR to a folder that can be written",
            ) from error
        self._owner = owner
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the folder; in a fork, leave it to the process that made it."""
        if self._owner is not None and self._owner.pid == os.getpid():
            _remove(self.folder)
            self._owner = None

    def new(self, name: str) -> Path:
        """The place of a slice called `name`, which is still to be made."""
        if self._owner is None or not re.fullmatch(r"[\w.-]+", name) or name in {".", ".."}:
            raise SliceError(f"there is no place for a slice called `{name}`")
        return self.folder / name


def sweep_leftovers(base: Path | None = None) -> tuple[Path, ...]:
    """Remove the folders below `base` whose owner is gone, and say which.

    Links are not followed, and a folder that is not this user's alone stays.
    """
    removed = []
    try:
        entries = sorted((base or default_base()).iterdir())
    except OSError:
        return ()
    for path in entries:
        match = _NAME.fullmatch(path.name)
        if match is None or not _is_ours(path):
            continue
        owner = Owner(match["boot"], match["space"], int(match["pid"]), int(match["ticks"]))
        gone = owner.is_gone()
        if gone or (gone is None and _age_s(path) > ELSEWHERE_S):
            _remove(path)
            if not os.path.lexists(path):
                removed.append(path)
    return tuple(removed)


def _remove(folder: Path) -> None:
    """Remove `folder` as far as that goes."""
    with contextlib.suppress(RecursionError):  # folders in folders, deeper than Python calls
        shutil.rmtree(folder, ignore_errors=True)  # works by descriptors: a link in the way is not followed


def _is_ours(path: Path) -> bool:
    """Whether `path` is a folder of this user that nobody else can enter."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and stat.S_IMODE(status.st_mode) & 0o077 == 0
    )


def _age_s(path: Path) -> float:
    """Seconds since something in `path` itself changed."""
    try:
        return time.time() - path.lstat().st_mtime
    except OSError:
        return 0.0
