"""Starts to explain: public models rebuilt from facts as headers, on machines that are not here."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from autolaunch.assessment import Assessment, Wishes
from autolaunch.detect.plan import Planned
from autolaunch.explain.plan import Question, plan
from autolaunch.explain.screen import Screen
from autolaunch.explain.text import lines_of
from autolaunch.nextn.suggest import NextnPlan
from tests.checkpoint import compact
from tests.checkpoint.make_checkpoint import Tensor, write_checkpoint, write_header

QWEN_397B = "nvidia/Qwen3.5-397B-A17B-NVFP4"
PLAN = NextnPlan(
    usable=True,
    suggested=True,
    reason="its heads are there",
    flags=("--speculative-algorithm", "EAGLE"),
    gain="1.4 to 2.0 times the output of one request",
    cost="4.4 GiB on each GPU",
    cost_bytes=1,
    warnings=("SGLang takes 48 requests at most then",),
)
"""A plan for heads that does not change."""
ROWS = Path(__file__).parent.parent / "checkpoint" / "models.jsonl"


@cache
def rows() -> dict[str, dict[str, Any]]:
    """The known models by name."""
    return {row["id"]: row for row in map(json.loads, ROWS.read_text().splitlines())}


def configuration(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """config.json of the model `name`, and its other JSON files."""
    row = rows()[name]
    sets = row.get("sets")
    other = {}
    if row.get("hf_quant_config"):
        other["hf_quant_config.json"] = compact.unfolded(row["hf_quant_config"], sets)
    return compact.unfolded(row["config"], sets), other


def write_model(name: str, place: Path) -> Path:
    """The model `name` as a folder below `place`, named like the last part of its id."""
    folder = place / name.rpartition("/")[2]
    if folder.exists():
        return folder
    row = rows()[name]
    sets = row.get("sets")
    config, other = configuration(name)
    listed = row["tensors"]
    if listed == "plain":
        listed = list(compact.plain_decoder(config, row.get("layout")))
    placed: dict[str, list[Tensor]] = {}
    for file, tensor in compact.tensors(listed or (), sets):
        placed.setdefault(file or "model.safetensors", []).append(tensor)
    write_checkpoint(folder, placed.pop("model.safetensors", []), config=config, other=other, index=False)
    for file, tensors in placed.items():
        write_header(folder / file, tensors)
    if listed is None:
        (folder / "model.safetensors").unlink()
    return folder


def ask(
    model: Path | str,
    *tokens: str,
    gpu: str | None = None,
    sm: int | None = None,
    gpus: int | None = None,
    sglang: str | None = "0.5.23",
    flashinfer: str | None = None,
    environ: dict[str, str] | None = None,
    cwd: Path | None = None,
    wishes: Wishes | None = None,
) -> Assessment:
    """The assessment of a start; the model is named relative to its folder, so that no path is in the answer."""
    path = Path(model)
    place = cwd or (path.parent if path.is_absolute() else Path("/"))
    name = path.name if path.is_absolute() else str(model)
    return plan(
        Question(
            tokens=(name, *tokens),
            planned=Planned(
                gpu=gpu, sm=None if sm is None else str(sm), gpus=gpus, sglang=sglang, flashinfer=flashinfer
            ),
            wishes=wishes or Wishes(),
            python=None,
            environ=environ or {},
            cwd=place,
            cache=place / "cache",
        )
    )


def text_of(assessment: Assessment, *, brief: bool = False) -> str:
    """What a pipe gets, or a wide terminal."""
    return Screen().render(lines_of(assessment, brief=brief))
