"""Waits beside the server until it is healthy, asks it a little, writes down what it sees, and ends with it.

    python -I -S watch.py --pid PID --record FILE --attempt ID --orders FD

A plain child of the server, started before the exec, in a process group of its own.  What else it must know
is read from the descriptor (`watching/orders.py`).  If the server ends before it is healthy, what it had
started and left behind is killed here: a plain SGLang that is stopped while it loads leaves its scheduler,
with the GPU's memory.  A server that is healthy is asked a few prompts, by which its choice is verified or
quarantined in the attempt record and in the profile; it is never stopped.

NOTE: runs by path, in isolation, with the standard library only: of autolaunch nothing is imported but
`launch/watching`, for which the folder of the package is looked through last.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if __name__ == "__main__":
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))  # which -I passes over
    sys.path.append(str(Path(__file__).resolve().parents[2]))

from autolaunch.launch.watching.client import Client
from autolaunch.launch.watching.ending import UNKNOWN, Witness, call_witness, how_it_ended
from autolaunch.launch.watching.health import Health, is_taken, wait_until_healthy
from autolaunch.launch.watching.orders import Orders, take_over
from autolaunch.launch.watching.record import Record, fields_of, mark_profile, now
from autolaunch.launch.watching.server import Server

if TYPE_CHECKING:
    from autolaunch.launch.watching.verifying import Finding

PORT_TAKEN = "another process listened on its port"
_PROC = Path("/proc")


def main(argv: list[str]) -> int:
    """Watch the server of `argv` until it ends; returns 0."""
    # By hand: nobody types this, and the server that starts meanwhile has a better use for the time.
    options = dict(zip(argv[::2], argv[1::2], strict=True))
    pid = int(options["--pid"])
    try:
        orders = take_over(int(options["--orders"]))
    except (OSError, ValueError, TypeError, KeyError) as error:
        say(f"the server is not watched: its watcher's orders are missing ({type(error).__name__}: {error})")
        return 1
    detach()
    server = Server(pid)
    record = Record(Path(options["--record"]), options["--attempt"], say)
    if os.getppid() != pid:  # it ended before this line; only now would its end be noticed
        ended = how_it_ended(server.pid, server.pid_fd)
        told = {} if ended == UNKNOWN else {"ended": ended}
        if is_taken(orders.port):
            told["excuse"] = PORT_TAKEN
        if told:
            record.try_to_note(told)
        return 0
    with record.lifeline():
        witness = call_witness(pid, server.pid_fd, record.note)
        record.settle()
        attend(server, record, orders, witness)
        witness.dismiss()
        redirect_to_null(2)
        server.wait(None)  # with the lifeline: it is all that others see of a server they share no PIDs with
    return 0


def attend(server: Server, record: Record, orders: Orders, witness: Witness) -> None:
    """See the server to its health and through its first answers, or to its end."""
    client = Client(orders.host, orders.port, tls=orders.tls, api_key=orders.api_key)
    health = wait_until_healthy(server, client, orders, witness.server_listens)
    if health.after_s is None:
        note_end(server, record, health, witness)
        return
    record.keep_noting({"healthy": now()}, server.wait)
    healthy = f"the server is healthy, {health.after_s:.0f} s after its start"
    if orders.verify == "off":
        say(healthy)
        return
    # Loaded before (`health.bring_in`), but not at this process's start.
    from autolaunch.launch.watching.asking import ServerEndedError
    from autolaunch.launch.watching.verifying import Verifier

    try:
        finding = Verifier(orders, server, client).find()
    except ServerEndedError:  # how it ended is told, and what follows is for the next start to judge
        ended = how_it_ended(server.pid, server.pid_fd)
        record.try_to_note({"ended": ended, "listened": True, "excuse": witness.excuse()})
        return
    record.keep_noting(fields_of(finding), server.wait)
    problem = mark_profile(orders, finding, server.wait)
    say("; ".join([words_for(healthy, orders, finding), *([problem] if problem else [])]))


def note_end(server: Server, record: Record, health: Health, witness: Witness) -> None:
    """Write down the end of a server that was never healthy, and clear away what it left."""
    ended = how_it_ended(server.pid, server.pid_fd)
    excuse = PORT_TAKEN if health.occupied else witness.excuse()
    record.try_to_note({"ended": ended, "listened": health.listened, "excuse": excuse})
    server.clear_up()


def words_for(healthy: str, orders: Orders, finding: Finding) -> str:
    """The one line about a finding."""
    if finding.status == "verified":
        length = finding.acceptance_length
        accepted = f"; {length:.2f} tokens a decode step" if length else ""
        asked = f"{finding.requests} requests, {finding.seconds:.1f} s"
        return f"{healthy}; its answers are sound ({asked}){accepted}"
    if finding.status == "unasked":
        return f"{healthy}; its answers are not verified: {finding.reason}"
    what = f"warning: this server is not to be trusted: {finding.reason}"
    if finding.status == "quarantined":
        return f"{what}; `{orders.label}` is quarantined, and the next start takes something else"
    return f"{what}; {'it is the original command' if orders.is_original else 'nothing is changed by that'}"


def detach() -> None:
    """Hold nothing of the server's but its stderr, and outlive what is meant for the server's terminal."""
    os.chdir("/")
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)
    for entry in (_PROC / "self/fd").iterdir():
        if int(entry.name) > 2:
            with contextlib.suppress(OSError):  # the one that listed them is closed by now
                os.close(int(entry.name))
    for fd in (0, 1):
        redirect_to_null(fd)


def redirect_to_null(fd: int) -> None:
    """Let `fd` be a sink, so that whoever reads its other end is not kept waiting for this process."""
    null = os.open(os.devnull, os.O_RDWR)
    if null != fd:
        os.dup2(null, fd, inheritable=False)
        os.close(null)


def say(message: str) -> None:
    """One line to the server's stderr, unless that would block or is closed."""
    line = " ".join(message.split())
    with contextlib.suppress(OSError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, f"autolaunch: {line}\n".encode(errors="replace"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
