"""Public models beyond those of `models.jsonl`, mostly by their configurations, and configurations gone wrong.

`more_models.jsonl` names the source of each row: a repository that carries the file, or nothing but memory; the
answers of the former were read through, not derived anew.  `more` are tensors on top of a plain decoder's.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autolaunch.checkpoint.checkpoint import Checkpoint, inspect
from autolaunch.checkpoint.problems import CheckpointError
from autolaunch.checkpoint.source import RawCheckpoint
from tests.checkpoint import compact

ROWS = [json.loads(line) for line in (Path(__file__).parent / "more_models.jsonl").read_text().splitlines()]
# One of each kind: latent and linear layers, indices of layers, experts in an object, groups, layers searched.
FUZZED = (
    "moonshotai/Kimi-K3",
    "LiquidAI/LFM2-1.2B",
    "databricks/dbrx-instruct",
    "nvidia/Llama-4-Scout-17B-16E-Instruct-NVFP4",
    "stepfun-ai/step3",
)
WRONG = (
    None, True, False, 0, 1, -1, 3.5, float("inf"), float("nan"), 10**30, 10**9, "", "x", "8", "re:(", "\x1b[31m",
    [], [None], [0], ["x"], [[]], [{}], [True, "x", None, 3], {}, {"x": 1}, {"a": {"b": []}},
)  # fmt: skip


def build(row: dict[str, Any], folder: Path, *, tensors: bool) -> Checkpoint:
    """The checkpoint of `row`, with its tensors or by its configuration alone."""
    config = compact.unfolded(row["config"])
    rows = None
    if tensors:
        rows = [*compact.plain_decoder(config, row.get("layout")), *row.get("more", ())]
    other = {"hf_quant_config": row["hf_quant_config"]} if "hf_quant_config" in row else {}
    return compact.checkpoint(folder, config, rows, **other)


def said(found: Checkpoint) -> dict[str, Any]:
    """What rows ask of."""
    attention, moe, quantization, mtp = found.attention, found.moe, found.quantization, found.mtp
    return {
        "attention": attention.kind,
        "linear": attention.linear,
        "n_linear": attention.n_linear,
        "n_full": attention.n_full,
        "n_sliding": attention.n_sliding,
        "heads": attention.heads,
        "kv_heads": attention.kv_heads,
        "head_dim": attention.head_dim,
        "v_head_dim": attention.v_head_dim,
        "scheme": quantization.scheme,
        "method": quantization.method,
        "block": list(quantization.block) if quantization.block else None,
        "moe": [moe.experts, moe.top_k, moe.expert_width, moe.shared] if moe else None,
        "first_dense": moe.first_dense if moe else None,
        "moe_layers": moe.layers if moe else None,
        "announced": mtp.announced_layers,
        "present": mtp.present,
        "tensors": mtp.tensors,
        "layers": mtp.layers,
        "context": found.context_length,
        "multimodal": found.multimodal,
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"].replace("/", "__"))
def test_configuration(row: dict[str, Any], tmp_path: Path) -> None:
    found = build(row, tmp_path / "model", tensors=False)
    expect = {"moe": None} | row["expect"] | {"present": None, "tensors": None, "layers": None}
    parts = expect.pop("parts", {})
    answers = said(found)
    assert {key: answers[key] for key in expect} == expect
    assert {part: found.quantization.parts.get(part) for part in parts} == parts


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row["tensors"]], ids=lambda row: row["id"].replace("/", "__")
)
def test_tensors(row: dict[str, Any], tmp_path: Path) -> None:
    found = build(row, tmp_path / "model", tensors=True)
    expect = {"moe": None} | row["expect"]
    expect.pop("moe_layers", None)
    answers = said(found)
    assert {key: answers[key] for key in expect} == expect
    assert not found.quantization.notes


@pytest.mark.parametrize("name", FUZZED)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_wrong_value_is_read_or_refused(
    name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    row = next(row for row in ROWS if row["id"] == name)
    raw = _raw(row, tmp_path_factory)
    whole = {"config": dict(raw.config), "hf": raw.hf_quant_config}
    for _ in range(data.draw(st.integers(1, 2))):
        whole = copy.deepcopy(whole)
        place = data.draw(st.sampled_from([path for path in _places(whole) if len(path) > 1]))
        inside: Any = whole
        for key in place[:-1]:
            inside = inside[key]
        inside[place[-1]] = data.draw(st.sampled_from(WRONG))
    with suppress(CheckpointError):
        inspect(replace(raw, config=whole["config"], hf_quant_config=whole["hf"])).widths(8)


_READ: dict[str, RawCheckpoint] = {}


def _raw(row: dict[str, Any], factory: pytest.TempPathFactory) -> RawCheckpoint:
    """The raw checkpoint of `row`, written once."""
    if row["id"] not in _READ:
        other = {"hf_quant_config": row["hf_quant_config"]} if "hf_quant_config" in row else {}
        folder = factory.mktemp("model") / "it"
        _READ[row["id"]] = compact.read(compact.write(folder, compact.unfolded(row["config"]), None, **other))
    return _READ[row["id"]]


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands inside `value`, of long lists only the first."""
    listed = (
        value.items() if isinstance(value, dict) else enumerate(value[:3] if isinstance(value, list) else ())
    )
    for key, one in listed:
        yield (*path, key)
        yield from _places(one, (*path, key))


def test_a_number_of_layers_that_no_model_has(tmp_path: Path) -> None:
    config = {"model_type": "llama", "num_attention_heads": 8, "hidden_size": 64, "num_hidden_layers": 10**9}
    with pytest.raises(CheckpointError, match="num_hidden_layers"):
        compact.checkpoint(tmp_path / "model", config, None)
