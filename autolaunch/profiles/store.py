"""Folders of profiles, laid over each other: found for a start, kept after a race, marked as servers fare.

`STORE/GPU/….toml`.  The first folder is written, the others are only read: a profile of theirs is marked by a
copy in the first, which then stands before it.  Whatever cannot be read is passed over with a doubt.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from autolaunch.errors import AutolaunchError
from autolaunch.folders import Folders, typed_path
from autolaunch.profiles import files
from autolaunch.profiles.document import SIZE_LIMIT, ProfileError, from_toml, to_toml
from autolaunch.profiles.kept import Kept, Reader, in_order, name_in, newest, path_of, places
from autolaunch.profiles.names import is_name, model_slug, name_of
from autolaunch.profiles.profile import Chosen, Profile, Status
from autolaunch.profiles.status import Outcome, Written, after, written

SHIPPED: Final = Path(__file__).parents[1] / "data" / "profiles"
"""The profiles that come with autolaunch."""
CONFIG_FIELD: Final = "checkpoint.config"
_SAME_NAME_LIMIT = 16
_OTHER_NAMES_LIMIT = 4
_MOST_FILES = 256
"""Looked into for one start, of a name and of others: what is not parsed costs little, but not nothing."""
_LISTED_LIMIT = 2000
_PARSING_LIMIT_S = 0.4
_LISTING_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Store:
    """Folders of profiles; the first is written."""

    folders: tuple[Path, ...]
    _doubts: dict[Path, str] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, profile_dirs: Sequence[str], folders: Folders, *, shipped: bool = True) -> Store:
        """The store of a user who named `profile_dirs`, or none, which means the user's own folder.

        Written is the first named one that can be.  Where none can, the user's own lies before them: what
        is learned of a server must be kept somewhere.
        """
        named = list(map(typed_path, profile_dirs))
        first = next((one for one in named if files.can_be_written(one)), folders.profiles)
        bases = [one for one in [*named, *([SHIPPED] if shipped else [])] if one != first]
        return cls((first, *dict.fromkeys(bases)))

    @property
    def written(self) -> Path:
        """The folder that is written."""
        return self.folders[0]

    @property
    def doubts(self) -> tuple[str, ...]:
        """What was passed over so far and why, each named once; sentences without a full stop."""
        return tuple(self._doubts.values())

    def candidates_for(self, gpu: str, model: str, *, config_digest: str | None = None) -> list[Kept]:
        """Profiles for the GPU `gpu` (a `gpu_slug`) that may be of `model`, newest first.

        Of the same model is what has its name, or the digest of its configuration.
        """
        wanted = model_slug(model)
        same: dict[str, list[Path]] = {}
        others: dict[str, list[Path]] = {}
        for name, paths in places(self.folders, [gpu]).items():
            (same if name.startswith(f"{gpu}/{wanted}.tp") else others)[name] = paths
        reader = Reader(_PARSING_LIMIT_S, _MOST_FILES, self._doubts)
        found = self._read(same, _SAME_NAME_LIMIT, reader)
        if config_digest:
            inside = config_digest.encode()
            found += self._read(others, _OTHER_NAMES_LIMIT, reader, lambda data: inside in data)
        return in_order(one for one in found if _is_of(one.profile, wanted, config_digest))

    def all(self) -> list[Kept]:
        """Every profile that can be read, newest first."""
        gpus = {entry.name: None for folder in self.folders for entry in files.listed(folder, "")}
        reader = Reader(_LISTING_LIMIT_S, _LISTED_LIMIT, self._doubts)
        return in_order(self._read(places(self.folders, gpus), _LISTED_LIMIT, reader))

    def find(self, name: str) -> Kept | None:
        """The profile of this name; None where there is none that can be read."""
        if not is_name(name):
            return None
        paths = [path for folder in self.folders if os.path.lexists(path := path_of(folder, name))]
        found = self._read(
            {name: paths} if paths else {}, 1, Reader(_LISTING_LIMIT_S, _LISTED_LIMIT, self._doubts)
        )
        return found[0] if found else None

    def read_file(self, path: Path) -> Kept:
        """The profile in any file; ProfileError where it holds none, OSError where it cannot be read.

        One outside of the store has the status that the store remembers of the same choice.
        """
        path = Path(os.path.abspath(path))  # noqa: PTH100 - what is linked keeps its name
        profile = from_toml(files.read_bytes(path, SIZE_LIMIT), where=str(path))
        for folder in self.folders:
            name = name_in(folder, path)
            if name is not None:
                profile = _believed(profile, path, name)
                return Kept(profile, path, name, writable=folder == self.written)
        name = name_of(profile)
        profile = _believed(profile, path, name)
        here = self.find(name)
        if here is not None and written(here.profile.chosen) == written(profile.chosen):
            known = here.profile
            profile = replace(
                profile,
                status=known.status,
                status_reason=known.status_reason,
                status_since=known.status_since,
                entrants=known.entrants,
            )
        return Kept(profile, path, name, writable=False)

    def save(self, profile: Profile) -> Path:
        """Keep `profile`, on disk before this returns; OSError, in words, leaves all as it was."""
        name = name_of(profile)
        with _telling(self.written):
            new = self._prepare(name, profile)
            try:
                with files.locked(self.written):
                    path = self._put(new, name)
            finally:
                new.unlink(missing_ok=True)
            files.sync_folder(path.parent)
        return path

    def mark(
        self,
        name: str | Path,
        status: Status,
        reason: str,
        *,
        launched: Chosen | None = None,
        acceptance: float | None = None,
        resolved: Iterable[tuple[str, str]] = (),
    ) -> Path | None:
        """Keep what has just become of a server with the profile `name`, as `learn` does.

        `launched` is what it was started with, where that may not be the profile's choice.
        """
        when = datetime.now(UTC).isoformat()
        return self.learn(name, Outcome(status, reason, when, launched, acceptance, tuple(resolved)))

    def learn(self, name: str | Path, outcome: Outcome) -> Path | None:
        """Keep what became of a server with the profile `name`, or with that in the file `name`.

        Returns the file that says so, or None where there was nothing new to say.  AutolaunchError where
        there is no such profile, OSError where it cannot be written.
        """
        with _telling(self.written):
            files.make_private(self.written)
            with files.locked(self.written):
                kept = self._present(name)
                marked = after(kept.profile, outcome)
                if marked == kept.profile:
                    return None
                path = self._put(self._prepare(kept.name, marked), kept.name)
            files.sync_folder(path.parent)
        return path

    def remove(self, name: str) -> None:
        """Remove the profile `name` from the folder that is written; OSError where that fails."""
        path = path_of(self.written, name)
        with _telling(self.written), files.locked(self.written):
            path.unlink(missing_ok=True)
            files.sync_folder(path.parent)
        self._doubts.pop(path, None)

    def _present(self, name: str | Path) -> Kept:
        """The profile `name`, or that in a file, as it is now."""
        if isinstance(name, Path):
            kept = self.read_file(name)
            if any(name_in(folder, name) is not None for folder in self.folders):
                return kept
            return replace(kept, profile=replace(kept.profile, origin="imported"))
        found = self.find(name)
        if found is None:
            raise AutolaunchError(f"there is no profile `{name}`", because=self.doubts[:2])
        return found

    def _prepare(self, name: str, profile: Profile) -> Path:
        """Write `profile` beside its place."""
        path = path_of(self.written, name)
        data = _readable(profile, name)
        files.make_private(self.written)
        files.make_private(path.parent)
        files.sweep(path.parent)
        return files.write_new(path, data)

    def _put(self, new: Path, name: str) -> Path:
        """Move what was prepared to its place; the store is locked."""
        path = path_of(self.written, name)
        files.put(new, path)
        self._doubts.pop(path, None)
        return path

    def _read(
        self,
        paths: dict[str, list[Path]],
        limit: int,
        reader: Reader,
        is_wanted: Callable[[bytes], bool] | None = None,
    ) -> list[Kept]:
        """The newest of `paths` that can be read and are wanted, at most `limit`."""
        found: list[Kept] = []
        for name in newest(paths, reader.most_files):
            if len(found) == limit:
                break
            read = reader.foremost(paths[name], is_wanted)
            if read is not None:
                profile, path = read
                profile = _believed(profile, path, name)
                found.append(Kept(profile, path, name, writable=path == path_of(self.written, name)))
        return found


def _readable(profile: Profile, name: str) -> bytes:
    """`profile` as it is written; OSError where it could not be read again, since then it would be lost."""
    data = to_toml(profile).encode()
    try:
        from_toml(data, where=name)
    except ProfileError as error:
        raise OSError(errno.EINVAL, "; ".join((error.what, *error.because))) from error
    return data


def _believed(profile: Profile, path: Path, name: str) -> Profile:
    """`profile`, which lies at `path`, with the origin that can be true: anybody may write `shipped`.

    What came with autolaunch lies with it, or is a marked copy of what does, and is of the same name.
    """
    if profile.origin != "shipped" or Path(os.path.realpath(path)).is_relative_to(os.path.realpath(SHIPPED)):
        return profile
    with contextlib.suppress(OSError, ProfileError):
        place = path_of(SHIPPED, name)
        original = from_toml(files.read_bytes(place, SIZE_LIMIT), where=str(place))
        if original.fingerprint == profile.fingerprint and _choices(profile) <= _choices(original):
            return profile
    return replace(profile, origin="imported")


def _choices(profile: Profile) -> set[Written]:
    """All that may be launched by `profile`."""
    return {written(one) for one in (profile.chosen, *(each.chosen for each in profile.next_best))}


def _is_of(profile: Profile, model: str, config_digest: str | None) -> bool:
    """Whether `profile` is of the model with this slug or configuration."""
    if model_slug(profile.model) == model:
        return True
    return config_digest is not None and profile.fingerprint.get(CONFIG_FIELD) == config_digest


@contextlib.contextmanager
def _telling(store: Path) -> Iterator[None]:
    """Let an OSError say in words which store cannot be written."""
    try:
        yield
    except OSError as error:
        words = error.strerror or str(error)
        raise OSError(error.errno or errno.EIO, f"no profile can be kept in `{store}`: {words}") from error
