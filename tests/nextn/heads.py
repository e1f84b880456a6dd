"""Checkpoints with heads, said in values, for tests of what can be done with them."""

from __future__ import annotations

from typing import Any

from autolaunch.capability.evaluate import evaluate
from autolaunch.capability.table import bundled_table
from autolaunch.checkpoint.attention import Attention
from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.checkpoint.mtp import Mtp
from autolaunch.checkpoint.quantization import Quantization
from autolaunch.nextn.suggest import NextnPlan, suggest
from autolaunch.request.catalogue import bundled_catalogue
from tests.capability.models import facts as facts_of

GIB = 1 << 30


def mtp(**changes: Any) -> Mtp:
    """One head that is there, announced and in bf16."""
    told: dict[str, Any] = {
        "announced": True, "announced_layers": 1, "present": True, "tensors": 20, "experts": 0, "prefix": "mtp.",
        "layers": 1, "dtype": "bf16", "files": ("model.safetensors",), "weight_bytes": 8 * GIB, "usable": True,
        "reason": "20 tensors `mtp.*` are there", "family": "mtp", "keys": ("num_nextn_predict_layers",),
    }  # fmt: skip
    return Mtp(**(told | changes))


ABSENT = mtp(
    present=False, tensors=0, experts=None, prefix=None, layers=0, dtype=None, files=(), weight_bytes=0, usable=False,
    reason="`num_nextn_predict_layers` announces 1, but none of 300 tensors belongs to a head", family=None,
)  # fmt: skip


def checkpoint(architecture: str, heads: Mtp | None = None, **changes: Any) -> Checkpoint:
    """A model of `architecture` with `heads`."""
    told: dict[str, Any] = {
        "path": "/m", "source": "folder", "architecture": architecture, "model_type": "", "config": {},
        "attention": Attention("gqa", "gqa", 32, 8, 128), "moe": None,
        "quantization": Quantization("bf16", None, {"mtp": "bf16"}), "mtp": heads or mtp(), "num_layers": 61,
        "hidden_size": 4096, "vocab_size": 150000, "context_length": 32768, "dtype": "bfloat16", "weight_bytes": None,
    }  # fmt: skip
    return Checkpoint(**(told | changes))


def planned(
    model: Checkpoint, version: str = "0.5.23", sm: int = 120, mode: Any = "auto", **facts: Any
) -> NextnPlan:
    """The plan for `model` under SGLang `version`; `flag_x` is the flag `x`."""
    sheet = facts_of({"arch": model.architecture, "heads": 32, "kv_heads": 8}, sm, version, **facts)
    sheet.update(mtp_present=bool(model.mtp.present), mtp_family=model.mtp.family or "none")
    sheet.update(
        (name, sheet.get(f"flag.{dest}"))
        for name, dest in (
            ("spec_steps", "speculative_num_steps"),
            ("spec_topk", "speculative_eagle_topk"),
            ("draft_tokens", "speculative_num_draft_tokens"),
        )
    )
    sheet["scheme_mtp"] = model.quantization.parts.get("mtp", "none")
    sheet["method"] = model.quantization.method or "none"
    table, catalogue = bundled_table(), bundled_catalogue(version)
    return suggest(model, evaluate(sheet, table, catalogue), table, catalogue, mode=mode)
