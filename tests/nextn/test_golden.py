"""What is typed for every family in every version, compared with what was read in SGLang's sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autolaunch.nextn.families import Family, bundled_families
from autolaunch.nextn.plan import NextnPlan
from autolaunch.request.catalogue import bundled_catalogue
from tests.capability.models import VERSIONS
from tests.nextn.heads import checkpoint, mtp, planned

GOLDEN: dict[str, dict[str, dict[str, dict[str, str] | None]]] = json.loads(
    (Path(__file__).parent.parent / "golden" / "nextn.json").read_text()
)
FAMILIES = {family.id: family for family in bundled_families().families}
CASES = [(family, version) for family in GOLDEN for version in VERSIONS]


def plan_for(family: Family, architecture: str, version: str) -> NextnPlan:
    """The plan for a model with the usual heads of `family`."""
    heads = mtp(layers=3, announced_layers=3) if family.one_head_each else mtp()
    if family.form == "dspark":
        heads = mtp(family="dspark", usable=False)
    facts: dict[str, Any] = {"linear_attention": "gdn" if family.id in ("qwen3_next", "qwen3_5") else "none"}
    if family.form == "separate":
        facts["flag_speculative_draft_model_path"] = "draft"
    return planned(checkpoint(architecture, heads), version, **facts)


def test_every_family_is_in_the_golden_file() -> None:
    assert list(GOLDEN) == list(FAMILIES)
    assert len(GOLDEN) == 27
    for family in FAMILIES.values():
        named = {one for draft in family.drafts for one in draft.architectures if "*" not in one}
        assert set(GOLDEN[family.id]) == named


@pytest.mark.parametrize(("family", "version"), CASES)
def test_what_is_typed(family: str, version: str) -> None:
    for architecture, rows in GOLDEN[family].items():
        plan, wanted = plan_for(FAMILIES[family], architecture, version), rows[version]
        if wanted is None:
            assert (plan.in_version, plan.usable, plan.flags) == (False, False, ()), plan.reason
            continue
        assert plan.usable, plan.reason
        assert plan.suggested
        assert plan.draft_class == wanted["draft"]
        typed = [*(f"{name}={value}" for name, value in plan.env), *plan.flags]
        assert " ".join(typed) == wanted["typed"]
        known = bundled_catalogue(version)
        assert [one for one in plan.flags if one.startswith("--") and known.resolve(one) is None] == []
