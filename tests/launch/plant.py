"""Plants profiles for a start: what a race would have left, with choices that a race would not have made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autolaunch.command import Command
from autolaunch.folders import user_folders
from autolaunch.invocation import Invocation
from autolaunch.options.options import ServeOptions
from autolaunch.profiles.kept import Kept
from autolaunch.profiles.parts import objective_json
from autolaunch.profiles.profile import Chosen, Entrant, Measured, Profile
from autolaunch.profiles.proofs import prove
from autolaunch.profiles.store import Store
from autolaunch.race.progress import Progress
from autolaunch.request.interpreter import find_interpreter
from autolaunch.serve import lookup, stages
from autolaunch.serve.asked import Start

WHEN = "2026-11-30T12:00:00+00:00"


class Nobody:
    """A reporter nobody listens to."""

    def stage(self, name: str, limit_s: float) -> None:
        """Nothing."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A profile that was put into the user's store, which `AUTOLAUNCH_HOME` names."""

    store: Store
    name: str

    @property
    def now(self) -> Kept:
        """What the store has of it at present."""
        found = self.store.find(self.name)
        assert found is not None
        return found


def start_of(tokens: Sequence[str], python: str, environ: Mapping[str, str], cwd: Path) -> Start:
    """`autolaunch serve` with `tokens`, read as the stages read it."""
    interpreter = find_interpreter(python, environ, cwd)
    invocation = Invocation(
        "serve", tuple(tokens), ServeOptions(), interpreter, Command((python,)), environ, cwd, user_folders()
    )
    return stages.begin(invocation, Nobody(), Progress())  # type: ignore[arg-type]


def plant(start: Start, *ranked: Chosen) -> Planted:
    """Keep that a race for `start` chose the first of `ranked`, and that the others came after it."""
    now = lookup.fingerprint(start)
    assert now is not None, "the weights are not here"
    entrants = (Entrant(Chosen()), *(Entrant(one, rank=place) for place, one in enumerate(ranked, 1)))
    profile = Profile(
        model=str(now["model.name"]),
        chosen=ranked[0],
        reason="planted",
        origin="tune",
        created=WHEN,
        fingerprint=now,
        workload=start.workload.to_json() | {"words": start.workload.words},
        objective=objective_json(start.objective),
        measured=Measured("whole"),
        entrants=entrants,
    )
    store = lookup.store_of(start)
    path = store.save(profile)
    prove(start.invocation.folders.proofs, profile, lambda chosen: None)
    return Planted(store, str(path.relative_to(store.folders[0]).with_suffix("")))


def choice(*flags: str, id: str = "c1", **env: str) -> Chosen:  # noqa: A002 - its name
    """A choice of one dimension."""
    return Chosen(flags, tuple(sorted(env.items())), id, "table", flags[0], " ".join(flags[1:]) or "on")
