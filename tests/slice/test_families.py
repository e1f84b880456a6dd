"""The table of families: whole, readable, and of keys that have a row."""

from __future__ import annotations

import re

import pytest

from autolaunch.slice.families import family_of, key_forms, slice_families
from autolaunch.tables import load_rows

ROWS = load_rows("slices", "family")


def test_ids_and_classes_are_unique() -> None:
    ids = [row["id"] for row in ROWS]
    classes = [name for row in ROWS for name in row["architectures"]]
    assert len(set(ids)) == len(ids)
    assert len(set(classes)) == len(classes)


@pytest.mark.parametrize(
    "row", [*ROWS, *load_rows("slices", "key")], ids=lambda row: row.get("id") or row["key"]
)
def test_a_row_has_reason_and_evidence(row: dict[str, object]) -> None:
    assert row["reason"]
    assert not str(row["reason"]).endswith(".")
    assert isinstance(row["evidence"], list)
    for one in row["evidence"]:
        assert one.keys() >= {"kind", "ref"}
        assert one["kind"] in {"source", "measured"}


@pytest.mark.parametrize("family", slice_families(), ids=lambda family: family.id)
def test_a_family_is_of_known_keys(family: object) -> None:
    assert set(family.keys) <= key_forms().keys()  # type: ignore[attr-defined]
    assert "num_hidden_layers" in family.keys  # type: ignore[attr-defined]
    assert family.layers >= 4  # type: ignore[attr-defined]


def test_what_versions_skip() -> None:
    qwen3, qwen3_5, gpt_oss = (
        family_of(name)
        for name in ("Qwen3ForCausalLM", "Qwen3_5MoeForConditionalGeneration", "GptOssForCausalLM")
    )
    assert qwen3 is not None
    assert qwen3_5 is not None
    assert gpt_oss is not None
    assert qwen3.skips_deeper("0.5.9")
    assert not qwen3.skips_deeper("0.4.6")
    assert not qwen3.skips_deeper("main")
    assert not qwen3_5.skips_deeper("0.5.9")
    assert qwen3_5.skips_deeper("0.5.23")
    assert not gpt_oss.skips_deeper("0.5.23")


def test_every_version_named_is_one_that_was_read() -> None:
    named = {
        version
        for row in ROWS
        for one in row["evidence"]
        for version in re.findall(r"\b0\.5\.\d+\b", one["ref"])
    }
    assert named <= {"0.5.9", "0.5.14", "0.5.17", "0.5.21", "0.5.23"}


def test_a_class_nobody_read_has_no_family() -> None:
    assert family_of("LlamaForCausalLMEagle3") is None
    assert family_of("") is None
