"""Remembers the launches of a command line, so that what failed once at full depth is not chosen again.

One JSON file a command line.  An attempt begins before the race, is told its choice before the exec, and
is marked healthy by the watcher; one that is neither healthy nor alive ended too early, by whatever.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autolaunch.cached_json import make_folder
from autolaunch.candidates.candidate import Candidate
from autolaunch.command import Command
from autolaunch.launch.attempt_record import (
    Attempt,
    locked,
    put_aside,
    put_on_disk,
    read_record,
    sweep,
    write_record,
)
from autolaunch.launch.mistrust import Fallback, choice_of, verdict, was_bad, written
from autolaunch.launch.processes import boot_id, pid_namespace, start_ticks_of
from autolaunch.units import now_utc

__all__ = [
    "Attempt",
    "Fallback",
    "Ticket",
    "begin",
    "forgive",
    "history",
    "key_of",
    "record_choice",
    "settle",
    "verdict",
]

KEPT = 20


@dataclass(frozen=True, slots=True)
class Ticket:
    """An attempt under way: where it is recorded, and under which name."""

    record: Path
    attempt: str
    pid: int


def key_of(original: Command) -> str:
    """The name under which launches of exactly this command line are remembered.

    Words that name something in the current folder belong to that folder, which is then part of the name.
    """
    relative = any(not word.startswith(("-", "/")) and os.path.lexists(word) for word in original.argv[1:])
    folder = str(Path.cwd()) if relative else ""
    text = json.dumps([original.argv, original.env, folder])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def history(folder: Path, original: Command) -> list[Attempt]:
    """The attempts at `original` recorded under `folder` (`Folders.attempts`), oldest first.

    A record that cannot be understood counts as none; one that cannot be read raises OSError.
    """
    return read_record(folder / f"{key_of(original)}.json") or []


def begin(
    folder: Path,
    original: Command,
    *,
    pid: int,
    host: str = "",
    port: int | None = None,
    verify: str = "off",
) -> Ticket:
    """Record that process `pid` begins to launch `original`: one that is ended in a race counts too.

    OSError when the record cannot be written: then nothing but the original may be launched.  A race is
    preceded by `settle`, too; for a server its watcher does the same, beside it.
    """
    record = folder.absolute() / f"{key_of(original)}.json"
    make_folder(folder, 0o700)
    attempt = Attempt(
        id=os.urandom(8).hex(),
        started=now_utc(),
        pid=pid,
        start_ticks=start_ticks_of(pid) or 0,
        boot_id=boot_id(),
        pid_namespace=pid_namespace(),
        phase="race",
        host=host,
        port=port,
        verify=verify,
    )
    with locked(record):
        earlier = read_record(record)
        if earlier is None and os.path.lexists(record):
            put_aside(record)
        write_record(record, original, [*_kept(earlier or []), attempt])
        sweep(record)
    return Ticket(record, attempt.id, pid)


def settle(ticket: Ticket) -> None:
    """Have what is recorded on disk before engines run: some crash machines.  OSError as for `begin`."""
    put_on_disk(ticket.record)


def record_choice(
    ticket: Ticket,
    original: Command,
    candidate: Candidate,
    *,
    profile: str | None = None,
    setting: Mapping[str, Any] | None = None,
) -> None:
    """Record what is about to be exec'ed; OSError as for `begin`: then `candidate` must not be launched.

    `profile` is the name of the profile that it came from or was kept as; `setting` is what a failure of it
    would be bound to.
    """
    with locked(ticket.record):
        attempts = read_record(ticket.record) or []
        if not any(attempt.id == ticket.attempt for attempt in attempts):
            raise FileNotFoundError(f"attempt {ticket.attempt} is no longer in {ticket.record}")
        chosen = [
            replace(
                attempt,
                phase="launch",
                candidate_flags=written(candidate)[0],
                candidate_env=written(candidate)[1],
                origin=candidate.origin,
                profile=profile,
                setting=None if setting is None else dict(setting),
            )
            if attempt.id == ticket.attempt
            else attempt
            for attempt in attempts
        ]
        write_record(ticket.record, original, chosen)


def forgive(folder: Path, original: Command, candidate: Candidate) -> None:
    """Forget what servers with `candidate` did, since somebody asked for it to be measured again."""
    record = folder.absolute() / f"{key_of(original)}.json"
    if not record.exists():
        return
    with locked(record):
        attempts = read_record(record) or []
        choice = written(candidate)
        told = [replace(one, forgiven=True) if choice_of(one) == choice else one for one in attempts]
        if told != attempts:
            write_record(record, original, told)
            put_on_disk(record)


def _kept(attempts: list[Attempt]) -> list[Attempt]:
    """The latest attempts, and of earlier ones what speaks against choices: forgetting it would repeat it.

    With each of those goes the one after it, by which it is judged.
    """
    recent = attempts[-(KEPT - 1) :]
    older = attempts[: -len(recent)]
    mistrusted = {one.choice for one in verdict(attempts).mistrusted}
    telling = [place for place, one in enumerate(older) if choice_of(one) in mistrusted and was_bad(one)]
    places = sorted({*telling, *(place + 1 for place in telling if place + 1 < len(older))})
    return [*[older[place] for place in places][-KEPT:], *recent]
