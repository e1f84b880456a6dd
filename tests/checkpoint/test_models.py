"""123 public models, rebuilt from facts as headers, against what is known of them.

`models.jsonl` has the keys of each configuration that matter, its tensors in short and the right answers, typed
from public configurations, tensor lists and SGLang's loaders.  Experts are in the first and last such layer only.
`tensors` is `plain` for ordinary decoders, null where nobody has seen a list.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from autolaunch.checkpoint.checkpoint import Checkpoint, inspect
from tests.checkpoint import compact
from tests.checkpoint.make_checkpoint import write_checkpoint, write_header

ROWS = [json.loads(line) for line in (Path(__file__).parent / "models.jsonl").read_text().splitlines()]


def build(row: dict[str, Any], folder: Path) -> tuple[Checkpoint, list[str]]:
    """The checkpoint of `row`, and the names of its tensors."""
    sets = row.get("sets")
    config = compact.unfolded(row["config"], sets)
    other = {}
    if row.get("hf_quant_config"):
        other["hf_quant_config.json"] = compact.unfolded(row["hf_quant_config"], sets)
    rows = row["tensors"]
    if rows == "plain":
        rows = list(compact.plain_decoder(config, row.get("layout")))
    placed = list(compact.tensors(rows or (), sets))
    main = [tensor for file, tensor in placed if not file]
    write_checkpoint(folder, main, config=config, other=other, index=False)
    if rows is None:
        (folder / "model.safetensors").unlink()
    for apart in {file for file, _ in placed if file}:
        write_header(folder / apart, [tensor for file, tensor in placed if file == apart])
    return inspect(compact.read(folder)), [tensor[0] for _, tensor in placed]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"].replace("/", "__"))
def test_model(row: dict[str, Any], tmp_path: Path) -> None:
    found, names = build(row, tmp_path / "model")
    expect = dict(row["expect"])
    said: dict[str, Any] = {
        "attention": found.attention.kind,
        "linear": found.attention.linear,
        "n_linear": found.attention.n_linear,
        "n_full": found.attention.n_full,
        "n_sliding": found.attention.n_sliding,
        "scheme": found.quantization.scheme,
        "method": found.quantization.method,
        "kv_cache": found.quantization.parts.get("kv_cache"),
        "moe": found.moe and [found.moe.experts, found.moe.top_k, found.moe.expert_width, found.moe.shared],
        "announced": found.mtp.announced_layers,
        "present": found.mtp.present,
        "tensors": found.mtp.tensors,
        "layers": found.mtp.layers,
    }
    pattern = expect.pop("pattern", None)
    assert {key: said[key] for key in expect} == expect
    assert (found.moe is not None) == ("moe" in expect)
    if found.mtp.present:
        assert found.mtp.usable, found.mtp.reason
        assert found.mtp.prefix is not None
        assert sum(bool(re.search(pattern, name)) for name in names) == found.mtp.tensors
        if expect.get("layers") == 1:
            assert sum(name.startswith(found.mtp.prefix) for name in names) == found.mtp.tensors
    else:
        assert not found.mtp.usable


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"].replace("/", "__"))
def test_model_without_tensors(row: dict[str, Any], tmp_path: Path) -> None:
    """What configuration files alone tell: all but the heads."""
    found, _ = build({**row, "tensors": None}, tmp_path / "model")
    expect = row["expect"]
    assert (found.attention.kind, found.quantization.scheme, found.quantization.method) == (
        expect["attention"],
        expect["scheme"],
        expect["method"],
    )
    assert (found.moe and found.moe.experts) == (expect["moe"][0] if "moe" in expect else None)
    assert (found.mtp.present, found.mtp.usable) == (None, False)


def test_the_seed_case(tmp_path: Path) -> None:
    """NVFP4 experts, everything else in BF16, heads of 512 experts, FP8 scales for the KV cache."""
    row = next(row for row in ROWS if row["id"] == "nvidia/Qwen3.5-397B-A17B-NVFP4")
    found, _ = build(row, tmp_path / "model")
    assert (found.mtp.tensors, found.mtp.experts, found.mtp.prefix) == (1553, 512, "mtp.")
    parts = dict(found.quantization.parts)
    assert parts.pop("experts") == "nvfp4"
    assert parts.pop("kv_cache") == "fp8"
    assert set(parts.values()) == {"bf16"}
    assert found.quantization.group == 16
    assert found.multimodal
    assert found.attention.head_dim == 256
