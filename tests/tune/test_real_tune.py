"""`autolaunch tune` on a real SGLang: a race, its report, and the second time nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import SmallModel
from tests.explain.schema import check_document
from tests.real_server import SMALL_SERVER_FLAGS, server_environment
from tests.tune.schema import check_trials

pytestmark = [pytest.mark.sglang, pytest.mark.slow]


@pytest.mark.timeout(700)
def test_a_real_race_is_reported_and_kept(sglang_python: str, small_model: SmallModel) -> None:
    pins = ["--attention-backend", "torch_native", "--disable-radix-cache"]
    own = ["--python", sglang_python, "--budget", "8m", "--format", "json", "--if-missing"]
    argv = [sys.executable, "-m", "autolaunch", "tune", str(small_model), *SMALL_SERVER_FLAGS, *pins, *own]
    done = subprocess.run(argv, env=server_environment(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    check_document(value)
    check_trials(value["trials"])
    assert [one["id"] for one in value["trials"]] == ["c0", "c1"]
    for one in value["trials"]:
        assert one["failure"] is None
        assert one["summary"]["value"] > 100
        assert one["resolved"]["attention_backend"] == "torch_native"
    assert value["trials"][1]["gate"]["passed"]
    assert value["chosen"]["id"] in ("c0", "c1")
    again = subprocess.run(argv, env=server_environment(), capture_output=True, text=True, timeout=60)
    assert again.returncode == 0, again.stderr
    stored = json.loads(again.stdout)
    assert stored["chosen"]["id"] == value["chosen"]["id"]
    assert stored["trials"] == []
