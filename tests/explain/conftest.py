"""Model folders that all tests here share; writing one takes longer than explaining it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autolaunch.assessment import Assessment
from autolaunch.memory.estimate import MemoryEstimate
from tests.explain.cases import PLAN, QWEN_397B, ask, write_model


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for models."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def qwen(models: Path) -> Path:
    """Qwen3.5-397B-A17B-NVFP4, with the experts of its first and last layer and of its heads."""
    return write_model(QWEN_397B, models)


@pytest.fixture(scope="session")
def seed(qwen: Path) -> Assessment:
    """The seed case, with a memory estimate and a plan for its heads that do not change."""
    found = ask(qwen, "--tp", "8", gpu="RTX PRO 6000", gpus=8, sglang="0.5.21")
    memory = MemoryEstimate(fits=True, reason="29 GiB of weights on each GPU leave room for 1,000 tokens")
    return replace(found, memory=memory, nextn=PLAN)
