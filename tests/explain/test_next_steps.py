"""What to type next, ready to be pasted."""

from __future__ import annotations

from autolaunch.assessment import Assessment
from autolaunch.explain.next_steps import next_steps


def test_what_to_do_next(seed: Assessment) -> None:
    steps = dict(next_steps(seed))
    assert steps["start it"] == f"autolaunch serve {seed.request.model} --tp 8"
    assert steps["or by hand"] == (
        f"python -m sglang.launch_server --model-path {seed.request.model} --tp 8 "
        "--moe-runner-backend flashinfer_cutlass"
    )
    assert steps["with NEXTN"] == f"autolaunch serve {seed.request.model} --tp 8 --nextn on"
    assert steps["race first"].endswith(" --tune quick")
    assert steps["ask why"].endswith(" --why moe-runner-backend=flashinfer_trtllm")
