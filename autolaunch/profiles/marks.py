"""Says in a profile what became of its server: run by path, by the process that watches the server.

    python -I marks.py < JSON

    {"folders": ["…"], "name": "GPU/NAME" or "/…/FILE", "status": "verified", "reason": "…",
     "acceptance_length": 2.7, "resolved": {"--moe-runner-backend": "…"}, "chosen": {"flags": [], "env": {}}}

`folders` are those of the store, the written one first.  The last three may be left out or null; `chosen` is
what the server was started with, where that is not the profile's choice.  Exit code 0: it is kept, or it
taught nothing; 1: it could not be, with one line on stderr.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import IO, Any, Final, get_args

_LIMIT_BYTES: Final = 4 << 20
_PACKAGE_ROOT: Final = Path(__file__).resolve().parents[2]


def main(stream: IO[bytes]) -> int:
    """Do what the JSON object in `stream` asks for; returns the exit code."""
    if str(_PACKAGE_ROOT) not in sys.path:
        sys.path.insert(0, str(_PACKAGE_ROOT))
    from autolaunch.errors import AutolaunchError

    try:
        mark(json.loads(stream.read(_LIMIT_BYTES)))
    except AutolaunchError as error:
        return _fail(error.what)
    except OSError as error:
        return _fail(error.strerror or str(error))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        return _fail(f"what to mark cannot be understood: {type(error).__name__}: {error}")
    return 0


def mark(asked: dict[str, Any]) -> None:
    """Mark the profile that `asked` names; ValueError and the like where it is not as it should be."""
    from autolaunch.profiles.names import place_of
    from autolaunch.profiles.profile import Chosen, Status
    from autolaunch.profiles.store import Store

    status = asked["status"]
    if status not in get_args(Status):
        raise ValueError(f"`{status}` is no status")
    name, reason = asked["name"], asked.get("reason") or ""
    if not isinstance(name, str) or not isinstance(reason, str):
        raise TypeError("name and reason are texts")
    chosen = asked.get("chosen")
    launched = None
    if chosen is not None:
        env = tuple((str(key), str(value)) for key, value in chosen["env"].items())
        launched = Chosen(tuple(str(word) for word in chosen["flags"]), env)
    length = asked.get("acceptance_length")
    Store(tuple(Path(one) for one in asked["folders"])).mark(
        place_of(name),
        status,
        reason,
        launched=launched,
        acceptance=float(length) if length is not None and math.isfinite(length) else None,
        resolved=tuple((str(key), str(value)) for key, value in (asked.get("resolved") or {}).items()),
    )


def _fail(words: str) -> int:
    """Say why in one line; the exit code of a failure."""
    sys.stderr.write(f"autolaunch: the profile could not be marked: {' '.join(words.split())}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.stdin.buffer))
