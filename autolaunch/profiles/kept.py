"""Files of a store into profiles, within a limit of time: what cannot be read is passed over with a doubt."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autolaunch.profiles import files
from autolaunch.profiles.document import SIZE_LIMIT, ProfileError, from_toml
from autolaunch.profiles.names import SUFFIX, is_name
from autolaunch.profiles.profile import Profile
from autolaunch.profiles.status import moment, written


@dataclass(frozen=True, slots=True)
class Kept:
    """A profile that lies in a file."""

    profile: Profile
    path: Path
    name: str
    writable: bool
    """Whether it lies in the folder that is written."""


@dataclass(slots=True)
class Reader:
    """Reads profiles until that has taken `limit_s`: files of strangers may be made to cost time."""

    limit_s: float
    most_files: int
    """Of the newest, that are looked into."""
    doubts: dict[Path, str] = field(default_factory=dict)
    """Why a file was passed over, in a sentence without a full stop."""
    _spent_s: float = 0.0

    def foremost(
        self, paths: Iterable[Path], is_wanted: Callable[[bytes], bool] | None = None
    ) -> tuple[Profile, Path] | None:
        """Which profile of one name counts, and where it lies: `paths` are its places, the first first.

        A later one counts where those before it cannot be read, or are marked copies of an earlier state of
        it: older, and with another choice.
        """
        found: tuple[Profile, Path] | None = None
        for path in paths:
            profile = self.read(path, is_wanted)
            if profile is not None and (found is None or _supersedes(profile, found[0])):
                found = profile, path
        return found

    def read(self, path: Path, is_wanted: Callable[[bytes], bool] | None = None) -> Profile | None:
        """The profile at `path`; None where its bytes are not wanted, or there is none, which is a doubt."""
        if self._spent_s > self.limit_s:
            self._doubt(path, "those before it took too long to read")
            return None
        # NOTE: the thread's own time, for a slow disk is no reason to pass over a sound profile.
        started = time.thread_time()
        try:
            data = files.read_bytes(path, SIZE_LIMIT)
            return from_toml(data, where=str(path)) if is_wanted is None or is_wanted(data) else None
        except ProfileError as error:
            because = f": {'; '.join(error.because)}" if error.because else ""
            self.doubts.setdefault(path, f"{error.what}, and was passed over{because}")
        except OSError as error:
            self._doubt(path, error.strerror or str(error))
        except ValueError as error:  # one file of a stranger must not take all others along
            self._doubt(path, str(error))
        finally:
            self._spent_s += time.thread_time() - started
        return None

    def _doubt(self, path: Path, words: str) -> None:
        self.doubts.setdefault(path, f"the profile `{path}` was passed over: {words}")


def _supersedes(later: Profile, first: Profile) -> bool:
    """Whether `later` was made after `first`, and chose something else."""
    return moment(later.created) > moment(first.created) and written(later.chosen) != written(first.chosen)


def path_of(folder: Path, name: str) -> Path:
    """Where the profile `name` lies in the store `folder`."""
    return folder / f"{name}{SUFFIX}"


def name_in(folder: Path, path: Path) -> str | None:
    """The name of what lies at `path` in the store `folder`; None where no name finds it there."""
    if not path.is_relative_to(folder) or path.suffix != SUFFIX:
        return None
    name = path.relative_to(folder).as_posix().removesuffix(SUFFIX)
    return name if is_name(name) else None


def places(folders: Sequence[Path], gpus: Iterable[str]) -> dict[str, list[Path]]:
    """Where each profile for one of `gpus` lies in `folders`, by name; whichever hides the others first."""
    found: dict[str, list[Path]] = {}
    for gpu in gpus:
        for folder in folders:
            for entry in files.listed(folder / gpu, SUFFIX):
                name = f"{gpu}/{entry.name.removesuffix(SUFFIX)}"
                if is_name(name):
                    found.setdefault(name, []).append(Path(entry.path))
    return found


def newest(paths: Mapping[str, Sequence[Path]], most: int) -> list[str]:
    """The names whose files were written last, newest first, at most `most`."""

    def changed_ns(name: str) -> int:
        try:
            return paths[name][0].stat().st_mtime_ns
        except OSError:
            return 0

    return sorted(paths, key=lambda name: (-changed_ns(name), name))[:most]


def in_order(kept: Iterable[Kept]) -> list[Kept]:
    """`kept`, what was made last first."""
    return sorted(kept, key=lambda one: (moment(one.profile.created), one.name), reverse=True)
