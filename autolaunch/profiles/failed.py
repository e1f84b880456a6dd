"""What a failure that was seen here is: what was tried, how it ended, and the setting that it is bound to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeVar

from autolaunch.candidates.candidate import FailureKind, Stage

LEARNED: Final[frozenset[FailureKind]] = frozenset(
    {"rejected", "crash", "oom", "hang", "garbage", "silent_fallback"}
)
"""Kinds that tell of a choice; the others tell of the machine, the memory or the speed of the day."""
HANGS_THAT_TELL: Final = 2
"""One start that took too long may have compiled kernels, which the next one finds in a cache."""

Where = Literal["race", "start", "verify"]
Key = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""Flags and variables of a candidate, as a file holds them: secrets hidden."""

_TEXT_LIMIT = 200
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Setting:
    """What a failure is bound to: in another setting nothing is known of it."""

    platform: str
    config: str
    """Digest of the model's configuration."""
    sm: int | None = None
    gpu: str = ""
    """The product; matters for memory, and for people."""
    versions: tuple[tuple[str, str], ...] = ()
    """Of what computes: `sglang`, `flashinfer`, `torch`, `driver` …, each where it was known."""
    architecture: str = ""
    scheme: str = ""
    """Quantization of the checkpoint; empty where it was not looked into."""
    tp: int = 1
    given: tuple[str, ...] = ()
    """What else the user set that computing depends on, as `name=value`."""

    def to_json(self) -> dict[str, Any]:
        """As the record of an attempt holds it."""
        return asdict(self) | {"versions": dict(self.versions), "given": list(self.given)}

    @classmethod
    def from_json(cls, row: Any) -> Setting:
        """The setting that `row` says; ValueError where it says none."""
        versions = row.get("versions", {}) if isinstance(row, Mapping) else None
        if not isinstance(versions, Mapping):
            raise ValueError("a setting's `versions` are no table")
        return convert({**row, "versions": tuple(sorted(versions.items()))}, Setting, "a setting")


@dataclass(frozen=True, slots=True)
class Failed:
    """One way to fail that was seen."""

    flags: tuple[str, ...]
    kind: FailureKind
    stage: Stage
    reason: str
    """One sentence without a full stop."""
    where: Where
    date: str
    """UTC, ISO 8601."""
    setting: Setting
    env: tuple[tuple[str, str], ...] = ()
    dimension: str = ""
    """The flag that was changed, where it was one."""
    choice: str = ""
    beside: tuple[tuple[str, str], ...] = ()
    """Choices of other flags that were changed with it."""
    depth: str = ""
    """What of the model was loaded, where that was not all of it: `the first 4 of 60 layers`."""
    times: int = 1

    @property
    def key(self) -> Key:
        """What was tried."""
        return self.flags, self.env

    @property
    def tells(self) -> bool:
        """Whether it was seen often enough to be believed."""
        return self.kind in LEARNED and (self.kind != "hang" or self.times >= HANGS_THAT_TELL)

    @property
    def label(self) -> str:
        """The candidate as it is typed."""
        return " ".join([*(f"{name}={value}" for name, value in self.env), *self.flags])


@dataclass(frozen=True, slots=True)
class Recalled:
    """What the folders of a store remember."""

    failures: tuple[Failed, ...] = ()
    """Newest first."""
    doubts: tuple[str, ...] = ()
    """Files that could not be understood, and why; sentences without a full stop."""


def applies(one: Failed, setting: Setting) -> bool:
    """Whether `one` may speak of a start with `setting`: nothing that it is bound to is known to differ."""
    then = one.setting
    if (then.platform, then.config, then.tp, then.given) != (
        setting.platform,
        setting.config,
        setting.tp,
        setting.given,
    ):
        return False
    pairs: list[tuple[object, object]] = [(then.sm, setting.sm)]
    pairs.append((then.scheme or None, setting.scheme or None))
    if one.kind == "oom":
        pairs.append((then.gpu or None, setting.gpu or None))
    now = dict(setting.versions)
    pairs += [(version, now.get(name)) for name, version in then.versions]
    return all(before is None or after is None or before == after for before, after in pairs)


def convert(row: Any, kind: type[_T], what: str) -> _T:
    """`row` as a value of `kind`; ValueError where it is none, or holds what a terminal would obey."""
    import msgspec  # here, because a start that remembers nothing needs none

    try:
        found = msgspec.convert(row, kind, strict=True)
    except (msgspec.ValidationError, TypeError, RecursionError) as error:
        raise ValueError(f"{what} cannot be understood: {error}") from error
    if not all(map(str.isprintable, _texts(asdict(found)))):  # type: ignore[call-overload]
        raise ValueError(f"{what} holds control characters")
    return found


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def plain(text: str, limit: int = _TEXT_LIMIT) -> str:
    """`text` on one line, at most `limit` characters of it, without what a terminal would obey."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
