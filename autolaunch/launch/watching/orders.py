"""What the watcher is told: where the server listens, what was chosen, what to do with what it finds.

It travels through a pipe that the watcher inherits, not in its argv, which every user of the machine can
read: there are keys in it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Literal

Verify = Literal["on", "warn", "off"]

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 30000
"""SGLang's own, in every version read (0.5.9 to 0.5.23); in none of them HTTP is served on a Unix socket."""

_MOST_BYTES = 1 << 20
"""What a pipe may hold for a user without rights (`/proc/sys/fs/pipe-max-size`)."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The profile that gets to know what became of the server."""

    program: str
    """The file that writes into a store, `profiles/marks.py`."""
    folders: tuple[str, ...]
    """The store, absolute."""
    name: str


@dataclass(frozen=True, slots=True)
class Orders:
    """All that the watcher must know besides which process it watches."""

    host: str = DEFAULT_HOST
    """As typed."""
    port: int = DEFAULT_PORT
    tls: bool = False
    http: bool = True
    """False for a server of gRPC, whose open socket is all there is to see of its health."""
    api_key: str | None = None
    verify: Verify = "on"
    """`off`: only health; `warn`: what is wrong is said, and changes nothing."""
    unasked: str = ""
    """Why this server is asked nothing, in words; empty for one that answers prompts."""
    flags: tuple[str, ...] = ()
    """What was chosen on top of the original command; with `env` empty, that is what runs."""
    env: tuple[tuple[str, str], ...] = ()
    expects: Mapping[str, str] = field(default_factory=dict)
    """Fields of SGLang's server info, each with the value that was chosen."""
    profile: Kept | None = None
    request_limit_s: float = 300.0
    """For one answer; the first of a new shape may have kernels compiled."""
    total_limit_s: float = 900.0
    """For all answers."""

    @property
    def is_original(self) -> bool:
        """Whether the original command runs: there is nothing better to start in its place."""
        return not (self.flags or self.env)

    @property
    def label(self) -> str:
        """What a person reads."""
        return " ".join([*(f"{name}={value}" for name, value in self.env), *self.flags])

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(asdict(self))


def from_json(text: str | bytes) -> Orders:
    """The orders in `text`; ValueError, TypeError or KeyError where it holds none."""
    item: dict[str, Any] = json.loads(text)
    known = {one.name for one in fields(Orders)}
    values = {name: value for name, value in item.items() if name in known}
    values["flags"] = tuple(str(word) for word in values.get("flags", ()))
    values["env"] = tuple((str(name), str(value)) for name, value in values.get("env", ()))
    if values.get("profile") is not None:
        kept = values["profile"]
        folders = tuple(str(folder) for folder in kept["folders"])
        values["profile"] = Kept(str(kept["program"]), folders, str(kept["name"]))
    return Orders(**values)


def hand_over(orders: Orders) -> int:
    """A descriptor that `orders` can be read from once, also after an exec; OSError where that cannot be."""
    data = orders.to_json().encode()
    if len(data) > _MOST_BYTES:
        raise OSError(f"the watcher's orders take {len(data)} bytes")
    read_end, write_end = os.pipe()
    try:
        if len(data) > fcntl.fcntl(write_end, fcntl.F_GETPIPE_SZ):
            fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, len(data))
        os.set_blocking(write_end, False)  # one that holds less than it says must not stop the launch
        if os.write(write_end, data) < len(data):
            raise OSError("a pipe did not take the watcher's orders")
    except OSError:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    os.set_inheritable(read_end, True)
    return read_end


def take_over(descriptor: int) -> Orders:
    """The orders behind `descriptor`, which is closed; ValueError and the like where there are none."""
    with os.fdopen(descriptor, "rb") as pipe:
        return from_json(pipe.read(_MOST_BYTES))
