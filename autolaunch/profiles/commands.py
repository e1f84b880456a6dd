"""What `autolaunch profile …` does, one function a command; each returns its exit code."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from autolaunch.errors import EXIT_DONE, EXIT_FAILED, AutolaunchError, render_message
from autolaunch.explain.screen import Line, emit, screen_of
from autolaunch.folders import user_folders
from autolaunch.profiles import exchange
from autolaunch.profiles.document import to_toml
from autolaunch.profiles.kept import Kept
from autolaunch.profiles.matching import differences
from autolaunch.profiles.mounts import container_layer
from autolaunch.profiles.status import moment
from autolaunch.profiles.store import Store
from autolaunch.profiles.text import changes, lines_of_diff, lines_of_list, lines_of_profile

LIST_SCHEMA: Final = "autolaunch.profiles/1"
SHOW_SCHEMA: Final = "autolaunch.profile/1"
DIFF_SCHEMA: Final = "autolaunch.profile-diff/1"


def store_of(profile_dirs: Sequence[str]) -> Store:
    """The store of this user."""
    return Store.of(profile_dirs, user_folders())


def list_profiles(store: Store, form: str) -> int:
    """Print every profile of `store`."""
    kept = store.all()
    now_s = time.time()
    if form == "json":
        return _print_json(
            {
                "schema": LIST_SCHEMA,
                "folders": [
                    {"path": str(one), "written": one == store.written, "there": one.is_dir()}
                    for one in store.folders
                ],
                "profiles": [_row(one, now_s) for one in kept],
                "doubts": list(store.doubts),
            }
        )
    _warn(store.doubts)
    if not kept:
        _say("no profile is here yet; `autolaunch tune` and `autolaunch serve` make some")
        return EXIT_DONE
    return _print(lines_of_list(kept, now_s))


def show(store: Store, text: str, form: str) -> int:
    """Print one profile in full."""
    kept = exchange.named(store, text)
    if form == "json":
        return _print_json(
            {"schema": SHOW_SCHEMA, "name": kept.name, "path": str(kept.path), **asdict(kept.profile)}
        )
    return _print(lines_of_profile(kept))


def diff(store: Store, first: str, second: str, form: str) -> int:
    """Print what two profiles differ in, and what each difference of what they are valid for means."""
    then, now = exchange.named(store, first), exchange.named(store, second)
    changed = changes(then.profile, now.profile)
    shipped = "shipped" in (then.profile.origin, now.profile.origin)
    found = differences(then.profile.fingerprint, now.profile.fingerprint, shipped=shipped)
    if form == "json":
        return _print_json(
            {
                "schema": DIFF_SCHEMA,
                "names": [then.name, now.name],
                "changes": [{"field": name, "then": a, "now": b} for name, a, b in changed],
                "fingerprint": [asdict(one) for one in found],
            }
        )
    return _print(lines_of_diff(then, now, changed, found))


def export(store: Store, text: str, output: str | None) -> int:
    """Write one profile as TOML to the file `output`, or to stdout."""
    kept = exchange.named(store, text)
    document = to_toml(kept.profile)
    if output is None or output == "-":
        return EXIT_DONE if emit(document, sys.stdout) else EXIT_FAILED
    try:
        Path(output).write_text(document, encoding="utf-8")
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else None
        raise AutolaunchError(
            f"the profile could not be written to `{output}`", because=(words or str(error),)
        ) from error
    _say(f"wrote {kept.name} to {output}")
    return EXIT_DONE


def bring_in(store: Store, text: str) -> int:
    """Keep the profile in a file."""
    from autolaunch.profiles.tuned_flags import check

    with _told():
        kept, is_new = exchange.bring_in(store, text)
    if is_new:
        why = check(kept.profile.chosen, None, model=None, wished=())
        if why is not None:
            _say(render_message("warning", "its choice will not be launched as it is", (why,)))
    layer = container_layer(kept.path)
    if layer is not None:
        _say(render_message("warning", layer))
    return _print([Line(f"{kept.name}{'' if is_new else ' is here already'}")])


def path(store: Store) -> int:
    """Print where profiles are kept: the folder that is written, then those that are only read."""
    return EXIT_DONE if emit("".join(f"{one}\n" for one in store.folders), sys.stdout) else EXIT_FAILED


def remove(store: Store, name: str) -> int:
    """Remove one profile."""
    with _told():
        below = exchange.remove(store, name)
    _say(f"removed {name}")
    if below is not None:
        _say(f"another of that name is at {below.path}, which is only read; it counts from now on")
    return EXIT_DONE


def _row(kept: Kept, now_s: float) -> dict[str, Any]:
    """One profile of the list as JSON."""
    profile = kept.profile
    measured = profile.measured
    return {
        "name": kept.name,
        "path": str(kept.path),
        "written": kept.writable,
        "origin": profile.origin,
        "status": profile.status,
        "status_reason": profile.status_reason,
        "model": profile.model,
        "gpu": profile.fingerprint.get("gpu.name"),
        "tp": profile.fingerprint.get("parallel.tp"),
        "flags": list(profile.chosen.flags),
        "env": dict(profile.chosen.env),
        "workload": dict(profile.workload),
        "objective": dict(profile.objective),
        "depth": measured.depth,
        "unit": measured.unit,
        "value": measured.value,
        "original_value": measured.original_value,
        "gain": None if measured.gain is None else dict(measured.gain),
        "created": profile.created,
        "age_s": round(max(0.0, now_s - moment(profile.created))),
    }


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Let a store that cannot be written end in a message."""
    try:
        yield
    except OSError as error:
        raise AutolaunchError(error.strerror or str(error)) from error


def _print(lines: Iterable[Line]) -> int:
    """Print `lines`; the exit code."""
    text = screen_of(sys.stdout, os.environ).render(lines)
    return EXIT_DONE if emit(text, sys.stdout) else EXIT_FAILED


def _print_json(document: dict[str, Any]) -> int:
    """Print `document`; the exit code."""
    text = json.dumps(document, indent=2, default=str)
    return EXIT_DONE if emit(f"{text}\n", sys.stdout) else EXIT_FAILED


def _warn(doubts: Iterable[str]) -> None:
    """Say what was passed over."""
    for doubt in doubts:
        _say(render_message("warning", doubt))


def _say(text: str) -> None:
    """One message on stderr, where there is one."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(text, file=sys.stderr)  # noqa: T201
