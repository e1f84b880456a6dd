"""The table of raced choices."""

from __future__ import annotations

import re

import pytest

from autolaunch.candidates import dimensions
from autolaunch.candidates.dimensions import load_choices, renamed, shown_as
from autolaunch.request.catalogue import bundled_catalogue


def test_rows_are_whole() -> None:
    rows = load_choices()
    assert len({row.id for row in rows}) == len(rows) > 0
    for row in rows:
        assert re.fullmatch(r"[a-z0-9]+(\.[a-z0-9_-]+)+", row.id), row.id
        assert row.id.startswith(row.platform + ".")
        assert row.flag.startswith("--")
        assert row.reason and not row.reason.endswith(".")
        assert row.evidence
    assert [row.rank for row in rows] == sorted(row.rank for row in rows)


GOOD = {
    "id": "cpu.x.y",
    "platform": "cpu",
    "flag": "--x",
    "rank": 1,
    "reason": "r",
    "evidence": [{"kind": "source", "ref": "f"}],
}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"colour": "red"}, "unknown keys"),
        ({"reason": None}, "lacks 'reason'"),
        ({"evidence": []}, "needs evidence"),
        ({"evidence": [{"kind": "hearsay", "ref": "f"}]}, "known kind"),
        ({"evidence": [{"kind": "source"}]}, "lacks 'ref'"),
    ],
)
def test_a_malformed_row_is_named(change: dict[str, object], complaint: str) -> None:
    row = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(ValueError, match=f"cpu.x.y.*{complaint}"):
        dimensions._choice(row)


def test_the_field_that_shows_a_choice_is_none_where_sglang_renames_it() -> None:
    catalogue = bundled_catalogue("0.5.21")
    assert shown_as(catalogue, "--fp4-gemm-backend") == "fp4_gemm_runner_backend"
    assert shown_as(catalogue, "--no-such-flag") is None
    assert shown_as(catalogue, "--mem-fraction-static") is None, "`0.90` is shown as 0.9"
    assert renamed()
    for name in renamed():
        assert catalogue.resolve(name) is not None
        assert shown_as(catalogue, name) is None
