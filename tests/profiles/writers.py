"""Writers of one store, run as a program: many at once, or one that is killed.

python writers.py many STORE COUNT     COUNT processes save and mark at once, while this one reads
python writers.py endless STORE        one process saves and marks until it is killed
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from autolaunch.profiles.names import name_of
from autolaunch.profiles.store import Store
from tests.profiles.made import made

SHARED = made(fingerprint={"shared": True})


def write(store: Store, number: int) -> None:
    """Save a profile of one's own, save the shared one anew, and mark it."""
    store.save(made(fingerprint={"writer": number}))
    store.save(made(fingerprint={"shared": True}, reason=f"measured by {number}"))
    store.mark(name_of(SHARED), "verified", f"marked by {number}", acceptance=float(number))


def many(store: Store, count: int) -> None:
    """Fork `count` writers that begin at once; print what was seen meanwhile and after."""
    store.save(SHARED)
    gate_out, gate_in = os.pipe()
    pids = []
    for number in range(count):
        pid = os.fork()
        if pid == 0:
            os.close(gate_in)
            os.read(gate_out, 1)  # ends when the parent closes its end
            try:
                write(Store(store.folders), number)
            except BaseException as error:  # whatever it is, the parent has to know
                os.write(2, f"{number}: {error}\n".encode())
                os._exit(1)
            os._exit(0)
        pids.append(pid)
    started = time.monotonic()
    os.close(gate_in)
    looks, losses, codes = 0, 0, []
    while pids:
        looks += 1
        found = Store(store.folders)
        losses += found.find(name_of(SHARED)) is None or bool(found.doubts)
        for pid in list(pids):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                pids.remove(pid)
                codes.append(os.waitstatus_to_exitcode(status))
    every = Store(store.folders)
    kept = every.all()
    shared = every.find(name_of(SHARED))
    print(
        json.dumps(
            {
                "seconds": time.monotonic() - started,
                "looks": looks,
                "losses": losses,
                "failed": sum(code != 0 for code in codes),
                "kept": len(kept),
                "doubts": every.doubts,
                "shared": shared.profile.status if shared else None,
                "leftovers": [path.name for path in store.written.rglob("*.new")],
            }
        )
    )


def endless(store: Store) -> None:
    """Write until killed; one line says that it has begun."""
    write(store, 0)
    print("begun", flush=True)
    number = 0
    while True:
        number += 1
        write(store, number % 8)


if __name__ == "__main__":
    if sys.argv[1] == "many":
        many(Store((Path(sys.argv[2]),)), int(sys.argv[3]))
    else:
        endless(Store((Path(sys.argv[2]),)))
