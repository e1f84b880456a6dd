"""Where autolaunch keeps what it makes: caches, records of attempts, logs of races, profiles.

`AUTOLAUNCH_HOME` puts all of it under one folder; otherwise the platform's own folders are used.
Nothing here creates a folder: whoever writes does, and must cope when that fails.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

HOME_VARIABLE = "AUTOLAUNCH_HOME"
FAILURES = "failures.toml"
"""What failed here, in a store of profiles."""


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders of one user."""

    cache: Path
    """Things that can be made again: flag catalogues, FlashInfer's declarations, parsed rules."""
    state: Path
    """Things that cannot: attempt records, race journals, engine logs, proofs of profiles."""
    data: Path
    """Things worth keeping and carrying to another machine: profiles."""

    @property
    def runs(self) -> Path:
        """One folder a race, with its journal and engine logs."""
        return self.state / "runs"

    @property
    def profiles(self) -> Path:
        """One folder a GPU, with its profiles."""
        return self.data / "profiles"

    @property
    def attempts(self) -> Path:
        """One file a command line, with its latest launches."""
        return self.state / "attempts"

    @property
    def proofs(self) -> Path:
        """One file a profile that a race of this user made."""
        return self.state / "proofs"


def user_folders(environ: Mapping[str, str] = os.environ) -> Folders:
    """The folders of the user whose environment is `environ`."""
    home = environ.get(HOME_VARIABLE)
    if home:
        root = Path(os.path.expanduser(home)).absolute()  # noqa: PTH111 - Path's raises for an unknown user
        return Folders(cache=root / "cache", state=root / "state", data=root / "data")
    import platformdirs  # here, because the fast paths never need it

    return Folders(
        cache=Path(platformdirs.user_cache_dir("autolaunch", appauthor=False)),
        state=Path(platformdirs.user_state_dir("autolaunch", appauthor=False)),
        data=Path(platformdirs.user_data_dir("autolaunch", appauthor=False)),
    )


def typed_path(text: str) -> Path:
    """The absolute path that a user means by `text`, `~` included."""
    return Path(os.path.abspath(os.path.expanduser(text)))  # noqa: PTH100, PTH111 - links stay; no errors


def is_file(path: Path) -> bool:
    """Whether `path` is a file; no where rights, or a name that is too long, hide it, as pathlib does not."""
    return os.path.isfile(path)  # noqa: PTH113 - Path's raises PermissionError


def is_folder(path: Path) -> bool:
    """Whether `path` is a folder; no where rights, or a name that is too long, hide it."""
    return os.path.isdir(path)  # noqa: PTH112 - Path's raises PermissionError


def is_there(path: Path) -> bool:
    """Whether there is anything at `path`; no where rights, or a name that is too long, hide it."""
    return os.path.exists(path)  # noqa: PTH110 - Path's raises PermissionError
