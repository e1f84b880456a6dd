"""What the files of a checkpoint are called."""

from __future__ import annotations

from typing import Final

CONFIG: Final = "config.json"
HF_QUANT_CONFIG: Final = "hf_quant_config.json"
INDEX: Final = "model.safetensors.index.json"
PICKLED_INDEX: Final = "pytorch_model.bin.index.json"
OTHER_FILES: Final = (
    "generation_config.json",
    "params.json",
    "quant_config.json",
    "quant_model_description.json",
    "quantize_config.json",
)
"""Small files that say more about a model; a broken one of these is a note, not an error."""
PIPELINE_FILES: Final = ("model_index.json", "modular_model_index.json")
SAFETENSORS: Final = ".safetensors"
PICKLED: Final = (".bin", ".pt", ".pth")
