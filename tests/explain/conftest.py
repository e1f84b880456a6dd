"""Model folders that all tests here share; writing one takes longer than explaining it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.explain.cases import QWEN_397B, write_model


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for models."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def qwen(models: Path) -> Path:
    """Qwen3.5-397B-A17B-NVFP4, with the experts of its first and last layer and of its heads."""
    return write_model(QWEN_397B, models)
