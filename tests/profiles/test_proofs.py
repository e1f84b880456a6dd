"""That a profile was made here is not for the profile to say."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autolaunch.profiles.document import from_toml, to_toml
from autolaunch.profiles.profile import Chosen, Entrant
from autolaunch.profiles.proofs import proof_of, prove
from autolaunch.profiles.store import Store
from tests.profiles.made import FA3, TRITON, made

EXCLUDED = Chosen(("--attention-backend", "trtllm_mha"), (), "c1", "table")
SETTING = {"setting": {"platform": "cuda"}, "dimension": "--attention-backend", "choice": "triton"}


@pytest.fixture
def proofs(tmp_path: Path) -> Path:
    """A folder with the proof of one profile."""
    prove(tmp_path / "proofs", made(), lambda chosen: SETTING if chosen == TRITON else None)
    return tmp_path / "proofs"


def test_what_a_race_made_is_proven_with_what_its_failures_are_bound_to(proofs: Path) -> None:
    proof = proof_of(proofs, from_toml(to_toml(made()).encode(), where="x"))
    assert proof is not None
    assert proof.setting_of(TRITON) == SETTING
    assert proof.setting_of(FA3) is None and proof.setting_of(EXCLUDED) is None
    assert proof_of(proofs / "none", made()) is None


def test_a_marked_profile_is_still_the_same(proofs: Path, tmp_path: Path) -> None:
    store = Store((tmp_path / "store",))
    path = store.save(made())
    store.mark(store.all()[0].name, "verified", "sound", acceptance=2.5)
    store.mark(store.all()[0].name, "quarantined", "garbage", launched=FA3)
    marked = store.read_file(path).profile
    assert marked.status == "verified" and marked != made()
    assert proof_of(proofs, marked) is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"chosen": EXCLUDED},
        {"chosen": Chosen((*TRITON.flags, "--page-size", "1"))},
        {"chosen": replace(TRITON, env=(("SGLANG_X", "1"),))},
        {"entrants": (*made().entrants, Entrant(EXCLUDED, rank=2))},
        {"fingerprint": {"version.sglang": "0.5.22"}},
        {"fingerprint": {"flag.context_length": 8192}},
        {"workload": {"input_tokens": 1}},
        {"objective": {"name": "latency"}},
    ],
)
def test_what_was_changed_by_hand_is_not_proven(proofs: Path, changes: dict[str, Any]) -> None:
    assert proof_of(proofs, made(**changes)) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"choices": {}}', '{"choices": [1]}'])
def test_a_broken_proof_is_none(proofs: Path, content: str) -> None:
    (path,) = proofs.iterdir()
    path.write_text(content)
    assert proof_of(proofs, made()) is None
    path.write_text(json.dumps({"schema": "autolaunch.proof/1", "choices": content}))
    assert proof_of(proofs, made()) is None
