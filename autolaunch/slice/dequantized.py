"""A folder with quantized weights into one with the same weights in BF16: a reference for a gate.

What is compared with it computes the same matrices by other kernels, so that distances to it tell healthy
candidates from broken ones.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autolaunch.checkpoint.file_names import CONFIG, HF_QUANT_CONFIG
from autolaunch.checkpoint.read import read_object
from autolaunch.slice.synthesize import declared_block
from autolaunch.slice.weights_child import Made, Setting, WeightsError, run_child

QUANTIZATION_KEYS = ("quantization_config", "compression_config")
QUANTIZATION_FILES = (
    HF_QUANT_CONFIG,
    "quant_config.json",
    "quant_model_description.json",
    "quantize_config.json",
)
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".index.json")


def dequantize(source: Path, folder: Path, setting: Setting) -> Made:
    """Write the checkpoint in `source` to the new `folder` without quantization; WeightsError says why not.

    Small files are linked, those about quantization left out.  The caller removes `folder`, whatever happens.
    """
    config = read_object(source / CONFIG)
    try:
        folder.mkdir(mode=0o700)
        link_small_files(source, folder)
        (folder / CONFIG).write_text(json.dumps(without_quantization(config), indent=2))
    except OSError as error:
        raise WeightsError(
            f"cannot write to `{folder}`", because=(f"the system says: {error.strerror}",)
        ) from error
    job = {
        "source": str(source.absolute()),
        "folder": str(folder.absolute()),
        "block": declared_block(config),
    }
    return run_child("dequantize.py", job, setting, what="write the weights in BF16")


def without_quantization(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` for weights in BF16; what is nested in it likewise."""
    return {
        key: without_quantization(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if key not in QUANTIZATION_KEYS
    }


def link_small_files(source: Path, folder: Path) -> None:
    """Link what `source` holds beside weights, config.json and files about quantization."""
    for entry in sorted(source.iterdir()):
        left_out = entry.name in (CONFIG, *QUANTIZATION_FILES) or entry.name.endswith(WEIGHTS)
        if not left_out and entry.is_file():
            (folder / entry.name).symlink_to(os.path.realpath(entry))
