"""Ceilings, as people type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolaunch.race.slo import Slo, parse_slo


@pytest.mark.parametrize(
    ("text", "slo"),
    [
        ("ttft=200ms,tpot=25ms", Slo(200, 25)),
        (" tpot = 0.5s ", Slo(None, 500)),
        ("tpot=25ms,ttft=1m", Slo(60_000, 25)),
    ],
)
def test_ceilings(text: str, slo: Slo) -> None:
    assert parse_slo(text) == slo
    assert parse_slo(slo.words) == slo


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no ceiling"),
        ("itl=3ms", "`itl=3ms` is no ceiling"),
        ("ttft", "`ttft` has no time; write it like `ttft=200ms`"),
        ("tpot=", "`tpot` has no time"),
        (f"ttft={'9' * 308}s", "longer than can be counted"),
        ("ttft=200", "`ttft=200` has no unit; write `ttft=200ms`"),
        ("ttft=1.5", "no unit"),
        ("ttft=soon", "`soon` is not a duration"),
        ("ttft=0ms", "kept by no server"),
        ("ttft=1s,ttft=2s", "`ttft` is given twice"),
        ("ttft=1s,", "no ceiling"),
    ],
)
def test_what_is_no_ceiling(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_slo(text)


@given(st.text(max_size=20) | st.from_regex(r"(ttft|tpot)=\d{1,9}(\.\d+)?(ms|s|m|h)?", fullmatch=True))
def test_any_text_is_ceilings_or_an_error(text: str) -> None:
    try:
        slo = parse_slo(text)
    except ValueError:
        return
    assert (slo.ttft_ms or 0) > 0 or (slo.tpot_ms or 0) > 0
