"""Tensors without data into weight files with random numbers of natural scale, quantized as they should be.

How a tensor is drawn is told by its name, in `data/synthetic.toml`; how it is quantized, by the names,
dtypes and shapes of the tensors that belong together.  `--load-format dummy` is no substitute: it draws
±0.001, of which most FP8 weights become zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from autolaunch.slice.spec import TensorSpec
from autolaunch.slice.weights_child import Made, Setting, run_child
from autolaunch.tables import load_rows

SEED = 20261130
"""The same seed, device and torch give the same weights."""
_ABOUT = frozenset({"id", "reason", "evidence", "architectures"})


def synthesize(
    specs: Sequence[TensorSpec],
    folder: Path,
    setting: Setting,
    *,
    config: Mapping[str, Any],
    seed: int = SEED,
) -> Made:
    """Write the tensors `specs` and their index into `folder`, for the model that `config` describes.

    WeightsError names a tensor of an unknown format, or says what else went wrong.
    """
    job = {
        "folder": str(folder.absolute()),
        "seed": seed,
        "block": declared_block(config),
        "kinds": kinds_for(config),
        "tensors": [[spec.name, spec.dtype, list(spec.shape), spec.file] for spec in specs],
    }
    return run_child("make_weights.py", job, setting, what="make weights for a synthetic slice")


def kinds_for(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of `data/synthetic.toml` for the architectures of `config`, as a child wants them."""
    architectures = config.get("architectures")
    names = [one for one in architectures if isinstance(one, str)] if isinstance(architectures, list) else []
    return [
        {key: value for key, value in row.items() if key not in _ABOUT}
        for row in load_rows("synthetic", "kind")
        if "architectures" not in row
        or any(fnmatchcase(name, one) for name in names for one in row["architectures"])
    ]


def declared_block(config: Mapping[str, Any]) -> list[int] | None:
    """Rows and columns of the blocks that `config` declares for its scales; without, shapes tell."""
    nested = config.get("text_config")
    for place in (config, nested if isinstance(nested, dict) else {}):
        quantization = place.get("quantization_config")
        block = quantization.get("weight_block_size") if isinstance(quantization, dict) else None
        if isinstance(block, list) and len(block) == 2 and all(isinstance(n, int) and n > 0 for n in block):
            return block
    return None
