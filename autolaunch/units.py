"""Durations, sizes and the time, to and from what people type; nothing else parses or prints them.

Seconds are floats, bytes are integers.  Binary sizes print as GiB, MiB, KiB.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

LONGEST_S = 1e9
"""A third of a century; more overflows what clocks and waits take."""

_SECONDS_PER = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|)")


def parse_duration(text: str) -> float:
    """Seconds in `text`: `90`, `90s`, `3m`, `1m30s`, `0.5h`; ValueError says what was wrong."""
    position, seconds = 0, 0.0
    stripped = text.strip().lower()
    for part in _DURATION_PART.finditer(stripped):
        if part.start() != position:
            break
        seconds += float(part[1]) * _SECONDS_PER[part[2]]
        position = part.end()
    if not stripped or position != len(stripped):
        raise ValueError(f"`{text}` is not a duration such as 90s, 3m or 1m30s")
    if seconds > LONGEST_S:
        raise ValueError(f"`{text}` is longer than can be counted")
    return seconds


def format_duration(seconds: float) -> str:
    """`seconds` as a person says it: `0.4 s`, `42 s`, `3 min 05 s`, `1 h 02 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 90:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def format_ms(milliseconds: float) -> str:
    """`milliseconds` with three digits that count: `25 ms`, `6.41 ms`, `0.894 ms`, `1240 ms`."""
    digits = 0 if milliseconds >= 100 else 1 if milliseconds >= 10 else 2 if milliseconds >= 1 else 3
    text = f"{milliseconds:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text} ms"


def format_bytes(count: int) -> str:
    """`count` bytes in the largest binary unit that leaves at least one whole."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable: GiB is the last unit")


def now_utc() -> str:
    """The time to the second, as files and people get it: UTC, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
