"""That a race of this user made a profile, kept apart from it: whoever can write a profile can write `tune`.

    STATE/proofs/DIGEST.json    {"schema": …, "choices": {"DIGEST": {…} or null}}

A file is called by all that its profile is valid for, and has the choices that may be launched by it, each
with what a failure of its server is bound to.  Its marks change nothing of that.  A profile without a proof
is as good as one from elsewhere: the table is asked before it is launched.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autolaunch.cached_json import read_object, write_object
from autolaunch.profiles.names import digest_of
from autolaunch.profiles.profile import Chosen, Profile
from autolaunch.profiles.status import written

SCHEMA: Final = "autolaunch.proof/1"
_DIGITS: Final = 64
_Setting = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of a profile that was made here."""

    choices: Mapping[str, _Setting | None]

    def setting_of(self, chosen: Chosen) -> dict[str, Any] | None:
        """What a failure of a server with `chosen` is bound to, as the record of an attempt holds it."""
        setting = self.choices.get(_digest(chosen))
        return None if setting is None else dict(setting)


def prove(folder: Path, profile: Profile, setting_of: Callable[[Chosen], _Setting | None]) -> None:
    """Keep in `folder` that `profile` was made here; OSError where it cannot be written."""
    row = {
        "schema": SCHEMA,
        "choices": {_digest(one): setting_of(one) for one in _choices(profile)},
    }
    write_object(_place(folder, profile), row)


def proof_of(folder: Path, profile: Profile) -> Proof | None:
    """The proof that `profile`, with each choice that may be launched by it, was made here; None if none."""
    row = read_object(_place(folder, profile), SCHEMA)
    choices = None if row is None else row.get("choices")
    if not isinstance(choices, dict) or not all(_digest(one) in choices for one in _choices(profile)):
        return None
    return Proof({name: one if isinstance(one, dict) else None for name, one in choices.items()})


def _place(folder: Path, profile: Profile) -> Path:
    """Where the proof of `profile` lies."""
    return folder / f"{digest_of(profile, _DIGITS)}.json"


def _choices(profile: Profile) -> tuple[Chosen, ...]:
    """All that may be launched by `profile`."""
    return (profile.chosen, *(one.chosen for one in profile.next_best))


def _digest(chosen: Chosen) -> str:
    """What a choice is called: by what a profile holds of it, secrets hidden."""
    return hashlib.sha256(json.dumps(written(chosen)).encode()).hexdigest()
