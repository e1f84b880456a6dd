"""Files of a store: read within limits, since anybody may have put them there, and written all or not at all.

A file is written beside its place and renamed into it: no reader sees half of one, and what was there stays
until the new one is on disk.  One writer of a store renames at a time, behind a lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from autolaunch.cached_json import make_folder

LOCK_LIMIT_S: Final = 30.0
"""Two hundred servers that start at once each hold it for some hundredths of a second."""
_patient_until: ContextVar[float] = ContextVar("_patient_until")
_LOCK: Final = ".lock"
_LOOK_AGAIN_S = (0.005, 0.03)
_NEW: Final = ".new"
_LEFT_BEHIND_S = 3600.0
"""What is half written for longer belongs to nobody."""
_ENTRIES_LIMIT = 4096
"""Of one folder; a GPU's profiles are some dozens."""
_NO_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL})


def read_bytes(path: Path, limit: int) -> bytes:
    """What the file `path` holds; OSError where it is none, or more than `limit` bytes, in words of one line.

    A link is followed, since volumes of Kubernetes are made of them; a pipe or device is not waited for.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(handle, "rb", buffering=0) as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        data = b""
        while len(data) <= limit and (more := file.read(limit + 1 - len(data))):
            data += more
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit} bytes", str(path))
    return data


def listed(folder: Path, suffix: str) -> list[os.DirEntry[str]]:
    """What lies in `folder`, named with `suffix` and not hidden; nothing where it cannot be looked into."""
    found: list[os.DirEntry[str]] = []
    try:
        with os.scandir(folder) as entries:
            for number, entry in enumerate(entries):
                if number >= _ENTRIES_LIMIT:
                    break
                if entry.name.endswith(suffix) and not entry.name.startswith("."):
                    found.append(entry)
    except OSError:
        return found
    return found


def write_new(path: Path, data: bytes) -> Path:
    """Write `data` beside `path` for its owner alone, on disk before this returns: the file to rename."""
    new = path.with_name(f".{path.stem[:150]}.{os.getpid()}.{os.urandom(4).hex()}{_NEW}")
    try:
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        new.unlink(missing_ok=True)
        raise
    return new


def put(new: Path, path: Path) -> None:
    """Put `new` in the place of `path`, whose store is locked."""
    try:
        new.replace(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Have the names in `folder` on disk, where its file system can."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(handle)


def can_be_written(folder: Path) -> bool:
    """Whether `folder`, or the nearest that is there of those it lies in, may be written."""
    for one in (folder, *folder.parents):
        if os.path.lexists(one):
            return os.path.isdir(one) and os.access(one, os.W_OK | os.X_OK)  # noqa: PTH112 - no rights, no error
    return False


def make_private(folder: Path) -> None:
    """Make `folder` for its owner alone, where it is not there; OSError when that fails."""
    make_folder(folder, 0o700)


@contextlib.contextmanager
def patience(limit_s: float) -> Iterator[None]:
    """Within, locks are waited for no longer than `limit_s` in all: a server starts whoever holds one."""
    token = _patient_until.set(time.monotonic() + limit_s)
    try:
        yield
    finally:
        _patient_until.reset(token)


@contextlib.contextmanager
def locked(store: Path) -> Iterator[None]:
    """Hold the lock of `store`; TimeoutError, an OSError, if somebody else does for too long (`patience`).

    A file system without locks goes without: a profile that is kept beats one that is not.
    """
    import random  # here, because reading needs no lock

    deadline = time.monotonic() + LOCK_LIMIT_S
    deadline = min(deadline, _patient_until.get(deadline))
    handle = os.open(store / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while not _is_locked(handle):
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds its lock")
            time.sleep(random.uniform(*_LOOK_AGAIN_S))  # noqa: S311 - so that many do not look at once
        yield
    finally:
        os.close(handle)  # NOTE: the file stays; removing it would let two processes lock two files


def _is_locked(handle: int) -> bool:
    """Lock `handle`, where nobody else has."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
    return True


def sweep(folder: Path) -> None:
    """Remove what writers that were killed have left in `folder`."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") and entry.name.endswith(_NEW):
                with contextlib.suppress(OSError):  # somebody else's, or gone already
                    if time.time() - entry.stat(follow_symlinks=False).st_mtime > _LEFT_BEHIND_S:
                        Path(entry.path).unlink()
