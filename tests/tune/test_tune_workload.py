"""A workload that does not fit the model is told before anything starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tune.harness import Tune

CONTEXT = 2048


@pytest.fixture
def tune(tmp_path: Path) -> Tune:
    """Tunes a model that takes few tokens."""
    tune = Tune(tmp_path)
    config = tune.model / "config.json"
    value = json.loads(config.read_text()) | {"max_position_embeddings": CONTEXT}
    config.write_text(json.dumps(value))
    return tune


def test_a_workload_that_no_request_of_fits_is_an_error(tune: Tune) -> None:
    done = tune.run("--workload", "in=4000,out=100,concurrency=2", how="raises")
    assert done.returncode == 1
    assert "has 4100 tokens, and the model takes 2048" in done.stderr
    assert tune.run("--workload", "in=1948,out=100,concurrency=2").returncode == 0
