"""Durations and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolaunch.units import format_bytes, format_duration, format_ms, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("3m", 180),
        ("3min", 180),
        ("1m30s", 90),
        ("0.5h", 1800),
        ("250ms", 0.25),
        (" 2 M ", 120),
    ],
)
def test_parse_duration(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", " ", "m", "-3m", "3x", "3m!", "1e3", "nan", "inf", "3m x"])
def test_not_a_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


def test_a_duration_has_an_end() -> None:
    for text in ("9" * 400, "9" * 308 + "h", "9" * 20, "2000000001"):
        with pytest.raises(ValueError, match="longer than can be counted"):
            parse_duration(text)
    assert parse_duration("200000h") == 7.2e8


@given(st.integers(0, 10**6))
def test_whole_seconds_come_back(seconds: int) -> None:
    assert parse_duration(f"{seconds}s") == seconds


@given(st.text(max_size=20))
def test_any_text_is_a_number_or_a_value_error(text: str) -> None:
    try:
        assert parse_duration(text) >= 0
    except ValueError as error:
        assert "is not a duration" in str(error) or "longer than can be counted" in str(error)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.44, "0.4 s"), (42.3, "42 s"), (185, "3 min 05 s"), (3725, "1 h 02 min"), (89.6, "1 min 30 s")],
)
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0.8944, "0.894 ms"),
        (6.41, "6.41 ms"),
        (25.0, "25 ms"),
        (39.94, "39.9 ms"),
        (200, "200 ms"),
        (1240.4, "1240 ms"),
    ],
)
def test_format_ms(milliseconds: float, text: str) -> None:
    assert format_ms(milliseconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3 * 1024**2, "3.0 MiB"),
        (int(139.8 * 1024**3), "139.8 GiB"),
        (5 * 1024**4, "5120.0 GiB"),
    ],
)
def test_format_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text
