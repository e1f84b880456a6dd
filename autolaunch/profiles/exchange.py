"""What people do with profiles by hand: name one, bring one in, remove one; each mistake gets its answer."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Final

from autolaunch.errors import AutolaunchError, UsageError
from autolaunch.profiles.document import ProfileError
from autolaunch.profiles.kept import Kept, path_of
from autolaunch.profiles.names import SUFFIX, is_name, name_of
from autolaunch.profiles.profile import Profile
from autolaunch.profiles.store import Store

_SHOWN_NAMES: Final = 8


def named(store: Store, text: str) -> Kept:
    """The profile that `text` means, a name in `store` or a file; UsageError where there is none."""
    is_path = text.endswith(SUFFIX) or text.startswith(("/", "./", "../", "~"))
    if not is_path:
        kept = store.find(text)
        if kept is not None:
            return kept
        if not os.path.lexists(text):
            doubts = [one for one in store.doubts if f"/{text}{SUFFIX}`" in one]
            raise UsageError(f"there is no profile `{text}`", because=tuple(doubts[:2]), hint=hint(store))
    return from_file(store, text)


def from_file(store: Store, text: str) -> Kept:
    """The profile in the file that a user means by `text`; UsageError where it cannot be read."""
    try:
        return store.read_file(Path(os.path.expanduser(text)))  # noqa: PTH111 - Path's raises for an unknown user
    except ProfileError as error:
        raise UsageError(error.what, because=error.because, hint=error.hint) from error
    except OSError as error:
        reason = (error.strerror or str(error),)
        raise UsageError(f"the profile `{text}` cannot be read", because=reason, hint=hint(store)) from error
    except ValueError as error:  # a name that holds a null
        raise UsageError(f"the profile `{text}` cannot be read", because=(str(error),)) from error


def bring_in(store: Store, text: str) -> tuple[Kept, bool]:
    """Keep the profile in the file `text` as a fresh one from elsewhere, and whether it is new here.

    AutolaunchError where a different one of that name is here, which is not lost for that.
    """
    profile = from_file(store, text).profile
    notes = profile.notes
    if profile.status in ("suspect", "quarantined"):
        notes = (*notes, f"it was {profile.status} where it came from: {profile.status_reason}")
    fresh = replace(_bare(profile), notes=notes, extra=profile.extra)
    name = name_of(fresh)
    here = store.find(name)
    if here is not None and here.writable:
        if _bare(here.profile) == _bare(fresh):
            return here, False
        raise AutolaunchError(
            f"a profile `{name}` is here already",
            because=(f"it was made {here.profile.created}, the other {fresh.created}",),
            hint=f"`autolaunch profile remove {name}` makes room for it",
        )
    return Kept(fresh, store.save(fresh), name, writable=True), True


def remove(store: Store, name: str) -> Kept | None:
    """Remove the profile `name`; what is found under that name from now on, in a folder that is only read.

    UsageError where there is none, AutolaunchError where it may not be removed.
    """
    if not is_name(name) or not os.path.lexists(path_of(store.written, name)):
        kept = store.find(name)
        if kept is None:
            raise UsageError(f"there is no profile `{name}`", hint=hint(store))
        raise AutolaunchError(
            f"the profile `{name}` cannot be removed",
            because=(f"it lies in `{kept.path}`, which is only read",),
        )
    store.remove(name)
    return store.find(name)


def hint(store: Store) -> str:
    """Which profiles there are."""
    names = [one.name for one in store.all()]
    if not names:
        return f"no profile is in {' or '.join(f'`{one}`' for one in store.folders)}"
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return f"there are {', '.join(f'`{one}`' for one in names[:_SHOWN_NAMES])}{more}"


def _bare(profile: Profile) -> Profile:
    """`profile` without what came after it was made."""
    return replace(
        profile, origin="imported", status="fresh", status_reason="", status_since="", notes=(), extra={}
    )
