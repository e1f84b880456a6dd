"""What a failure of a start would be bound to: its model, GPU, versions, and what the user set."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from autolaunch.capability.dimensions import Dimension
from autolaunch.capability.fact_names import ENV, FLAG, UNKNOWN, Facts
from autolaunch.capability.flag_facts import FactSheet
from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.profiles.failed import Setting, plain
from autolaunch.redact import redact

VERSIONS: Final = ("sglang", "sgl_kernel", "flashinfer", "torch", "cuda", "cudnn", "driver")
"""The facts that are versions of what computes."""
_FEATURES: Final = (
    *("dp", "ep", "pp", "nodes", "dp_attention", "lora", "disaggregation", "deterministic"),
    *("flag.dtype", "flag.kv_cache_dtype", "flag.quantization"),
)
_VARIABLES: Final = ("SGLANG_", "SGL_", "FLASHINFER_", "TRITON_", "TRTLLM_", "DG_")
_PLACES: Final = ("_DIR", "_HOME", "_PATH", "_FILE", "_PORT", "_HOST", "_KEY", "_TOKEN")
"""How variables end that say where something is, which no kernel asks."""


def setting_of(
    facts: Facts, dimensions: Iterable[Dimension], config: str | None, *, checkpoint: Checkpoint | None = None
) -> Setting | None:
    """What a failure of this start is bound to; None where the model's configuration is not known.

    `facts` hold what the user pinned only (`facts_of`), `config` is `config_digest` of the model.
    """
    if config is None:
        return None
    sheet = FactSheet(facts)
    sm, gpu, tp = (sheet.get(name) for name in ("sm", "gpu_name", "tp"))
    known = {name: sheet.get(name, UNKNOWN) for name in VERSIONS}
    return Setting(
        platform=str(sheet.get("platform", "other")),
        config=config,
        sm=sm if isinstance(sm, int) else None,
        gpu=gpu if isinstance(gpu, str) else "",
        versions=tuple(sorted((name, value) for name, value in known.items() if isinstance(value, str))),
        architecture=checkpoint.architecture if checkpoint is not None else "",
        scheme=checkpoint.quantization.scheme if checkpoint is not None else "",
        tp=tp if isinstance(tp, int) else 1,
        given=tuple(sorted(_given(sheet, dimensions))),
    )


def config_digest(config: Mapping[str, Any]) -> str:
    """A digest of the language part of a config.json."""
    text = json.dumps(config, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:32]


def _given(sheet: FactSheet, dimensions: Iterable[Dimension]) -> Iterator[str]:
    """What the user set that computing depends on."""
    usual: Mapping[str, object] = {"disaggregation": "off", "nodes": 1, "dp": 1, "ep": 1, "pp": 1}
    for name in dict.fromkeys((*_FEATURES, *(f"{FLAG}{one.dest}" for one in dimensions))):
        value = sheet.get(name)
        if name in sheet and value is not False and value != usual.get(name, ""):
            shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            yield plain(redact(f"{name}={shown}"))
    for name, value in sheet.items():
        variable = name.removeprefix(ENV)
        if name.startswith(ENV) and variable.startswith(_VARIABLES) and not variable.endswith(_PLACES):
            yield plain(redact(f"{name}={value}"))
