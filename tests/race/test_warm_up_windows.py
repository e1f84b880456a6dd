"""What is sent to let an engine compile."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autolaunch.race.engine import Engine
from autolaunch.race.outcomes import EngineFailed
from autolaunch.race.warm_up_windows import WarmUp, warm_up, warm_up_traced
from autolaunch.race.workload import Workload


@pytest.mark.parametrize("warm", [warm_up, warm_up_traced])
def test_a_workload_too_long_for_the_model_is_no_fault_of_an_engine(
    warm: Callable[..., WarmUp], fake_engine: Callable[..., Engine]
) -> None:
    with fake_engine() as engine:
        engine.wait_ready(20)
        with pytest.raises(EngineFailed) as caught:
            warm(engine, Workload(input_tokens=4000, output_tokens=97, concurrency=1))
    assert caught.value.failure.kind == "environment"
    assert "has 4097 tokens, and the model takes 4096" in caught.value.failure.reason
