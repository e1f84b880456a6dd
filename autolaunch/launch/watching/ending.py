"""How a server ended, asked of the kernel by somebody who is not its parent.

SGLang kills all of its descendants before it ends, the watcher first.  So the watcher calls a *witness*: a
process that is no descendant of the server, holds nothing but two descriptors, and writes down the end where
the watcher cannot any more.  That the watcher was killed first is itself a finding: then the server ended
itself.  Python exits with 1 after a Ctrl-C, as after any error; so the witness is in the server's process
group, where a signal that is sent to the whole group, by a terminal or a supervisor, reaches it too; the
watcher asks it for that before it writes the end down.

NOTE: belongs to `watch.py`: the standard library only; nothing here may import autolaunch.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

UNKNOWN = "unknown"
REAPED_LIMIT_S = 2.0
"""What the server's parent gets to reap it, where the kernel tells nothing of zombies."""
WATCHER_LIMIT_S = 60.0
"""What a watcher that lives gets after the server's end, to clear up and to write."""
GAVE_UP_WITHIN_S = 65.0
"""From the watcher's end to the server's: SGLang waits as long as a minute for those that it has killed."""
TOLD_TO_END_WITHIN_S = 120.0
"""From a signal to the end that it led to: a server may first finish what it has begun."""
_PIDFD_GET_INFO = 3 << 30 | 64 << 16 | 0xFF << 8 | 11  # _IOWR(0xFF, 11, 64 bytes), linux/pidfd.h
_PIDFD_INFO_EXIT = 1 << 3  # since Linux 6.15, of processes that were reaped
_PROC = Path("/proc")
ANSWER_LIMIT_S = 5.0
"""What the witness gets to answer the watcher, on a machine that stalls."""
_LISTENS, _DONE, _ASKED = b"L", b"D", b"?"

Note = Callable[[dict[str, object]], None]
"""Sets fields of the attempt in its record; one of `UNNOTED` where that is not possible."""
UNNOTED = (OSError, ValueError, KeyError, TypeError, RecursionError, MemoryError)
"""What noting raises in a file that somebody else has written."""


def how_it_ended(pid: int, pid_fd: int, limit_s: float = REAPED_LIMIT_S) -> str:
    """`exit 1`, `SIGKILL` or `unknown`, of process `pid`, which is over; `pid_fd` is its pidfd, or -1."""
    deadline = time.monotonic() + limit_s
    while True:
        status = _status_of_zombie(pid)
        if status is None:
            status = _status_of_reaped(pid_fd)
        if status is not None:
            return in_words(status)
        nobody_knows = pid_fd < 0 and not (_PROC / str(pid)).exists()
        if nobody_knows or time.monotonic() > deadline:
            return UNKNOWN
        time.sleep(0.01)


def in_words(status: int) -> str:
    """A wait status as `exit 1` or `SIGKILL`."""
    if not os.WIFSIGNALED(status):
        return f"exit {os.WEXITSTATUS(status)}"
    number = os.WTERMSIG(status)
    try:
        return signal.Signals(number).name
    except ValueError:  # one of the real-time signals, which have no names
        return f"signal {number}"


def _status_of_zombie(pid: int) -> int | None:
    """The wait status of a process that nobody has waited for yet."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[49]) if fields[0] in "ZX" and len(fields) > 49 else None


def _status_of_reaped(pid_fd: int) -> int | None:
    """The wait status that a pidfd keeps after the process was waited for."""
    if pid_fd < 0:
        return None
    info = bytearray(64)
    struct.pack_into("=Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pid_fd, _PIDFD_GET_INFO, info)
    except OSError:  # an older kernel, or a sandbox
        return None
    if not struct.unpack_from("=Q", info, 0)[0] & _PIDFD_INFO_EXIT:
        return None
    return int(struct.unpack_from("=i", info, 60)[0])


class Witness:
    """The watcher's end of the line to the witness; every call is safe where there is none."""

    def __init__(self, line: socket.socket | None = None) -> None:
        self._line = line

    @property
    def fd(self) -> int:
        """The descriptor that must stay open; -1 where there is no witness."""
        return -1 if self._line is None else self._line.fileno()

    def server_listens(self) -> None:
        """Tell that the server's socket is open."""
        self._tell(_LISTENS)

    def excuse(self) -> str | None:
        """Why the end that the server has come to is somebody's wish, in words."""
        if self._line is None or not self._tell(_ASKED):
            return None
        try:
            self._line.settimeout(ANSWER_LIMIT_S)
            return self._line.recv(256).rstrip(b"\n").decode() or None
        except OSError:  # it is killed, or gets no time; without it nobody knows
            return None

    def dismiss(self) -> None:
        """Tell that nothing is left to be witnessed: the witness ends."""
        self._tell(_DONE)
        if self._line is not None:
            self._line.close()
            self._line = None

    def _tell(self, what: bytes) -> bool:
        if self._line is None:
            return False
        try:
            return self._line.send(what) > 0
        except OSError:
            return False


def call_witness(pid: int, pid_fd: int, note: Note) -> Witness:
    """Start the witness of server `pid`; none for PID 1, to whom it would fall, and none without a pidfd.

    For the caller nothing changes but one child that came and went, and one more descriptor.
    """
    if pid == 1 or pid_fd < 0:
        return Witness()
    line, witness_line = socket.socketpair()
    try:
        between = os.fork()
    except OSError:  # no processes left
        line.close()
        witness_line.close()
        return Witness()
    if between == 0:
        try:
            if os.fork() == 0:
                signals = _Signals()
                _be_alone({witness_line.fileno(), pid_fd}, os.getpgid(pid))
                _attend(pid, pid_fd, witness_line, signals, note)
        finally:
            os._exit(0)
    witness_line.close()
    with contextlib.suppress(ChildProcessError):
        os.waitpid(between, 0)
    line.setblocking(False)
    return Witness(line)


def _be_alone(keep: set[int], group: int) -> None:
    """Hold nothing of anybody's, in the process group `group`."""
    with contextlib.suppress(OSError):
        os.setpgid(0, group)
    null = os.open(os.devnull, os.O_RDWR)
    for entry in list((_PROC / "self/fd").iterdir()):
        if int(entry.name) not in keep | {null}:
            with contextlib.suppress(OSError):
                os.close(int(entry.name))
    for fd in (0, 1, 2):
        if fd not in keep:
            os.dup2(null, fd)


class _Signals:
    """What was sent to everybody here, which must not end the witness."""

    def __init__(self) -> None:
        self._last: tuple[int, float] | None = None
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: object) -> None:
        self._last = number, time.monotonic()

    @property
    def excuse(self) -> str | None:
        """Why the end of the server is somebody's wish, in words."""
        if self._last is None or time.monotonic() - self._last[1] > TOLD_TO_END_WITHIN_S:
            return None
        return f"{signal.Signals(self._last[0]).name} was sent to its process group"


def _attend(pid: int, pid_fd: int, line: socket.socket, signals: _Signals, note: Note) -> None:
    """Wait until the watcher is done; note how the server ended where the watcher was killed before that."""
    listened, watcher_lives, server_lives, alone_since = False, True, True, 0.0
    poll = select.poll()
    poll.register(pid_fd, select.POLLIN)
    poll.register(line, select.POLLIN)
    while watcher_lives or server_lives:
        ready = {fd for fd, _ in poll.poll(None if server_lives else int(WATCHER_LIMIT_S * 1000))}
        if not ready:
            return  # a watcher that hangs on a disk, perhaps
        if pid_fd in ready:
            server_lives = False
            poll.unregister(pid_fd)
        if line.fileno() in ready:
            told = _heard(line)
            listened = listened or _LISTENS in told
            if _ASKED in told:
                with contextlib.suppress(OSError):
                    line.send(f"{signals.excuse or ''}\n".encode())
            if _DONE in told:
                return
            if not told:
                watcher_lives, alone_since = False, time.monotonic()
                poll.unregister(line)
    gave_up = time.monotonic() - alone_since < GAVE_UP_WITHIN_S
    fields: dict[str, object] = {
        "ended": how_it_ended(pid, pid_fd),
        "listened": listened,
        "gave_up": gave_up,
    }
    if signals.excuse is not None:
        fields["excuse"] = signals.excuse
    with contextlib.suppress(*UNNOTED):
        note(fields)


def _heard(line: socket.socket) -> bytes:
    """What the watcher said; nothing where it is gone."""
    try:
        return line.recv(64)
    except OSError:  # it was killed before it took an answer in
        return b""
