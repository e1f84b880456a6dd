"""Checkpoints to cut: the public models of `tests/checkpoint/models.jsonl` as headers, and small ones with data."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from autolaunch.checkpoint.checkpoint import inspect
from autolaunch.checkpoint.headers import tensor_bytes
from autolaunch.checkpoint.source import RawCheckpoint
from autolaunch.slice.plan import NoSlice, SlicePlan, plan_slice
from tests.checkpoint import compact
from tests.checkpoint.make_checkpoint import Tensor, write_checkpoint, write_header, write_index
from tests.checkpoint.test_models import ROWS

SGLANG = "0.5.21"


def public_model(model: str, folder: Path, *, shards: int = 0) -> RawCheckpoint:
    """The headers of a public model, its tensors in the order of layers over `shards` files (0: one a layer)."""
    row = next(row for row in ROWS if row["id"] == model)
    sets = row.get("sets")
    config = compact.unfolded(row["config"], sets)
    rows = row["tensors"]
    if rows == "plain":
        rows = list(compact.plain_decoder(config, row.get("layout")))
    placed = [tensor for _, tensor in compact.tensors(rows, sets)]
    other = {}
    if row.get("hf_quant_config"):
        other["hf_quant_config.json"] = compact.unfolded(row["hf_quant_config"], sets)
    return write_sharded(folder, placed, config, shards=shards, other=other)


def write_sharded(
    folder: Path,
    tensors: Iterable[Tensor],
    config: Mapping[str, Any],
    *,
    shards: int = 0,
    other: Mapping[str, Any] | None = None,
) -> RawCheckpoint:
    """A folder of headers, `tensors` by layer over `shards` files (0: one a layer; one for what is in none, one for heads)."""
    by_layer: dict[int, list[Tensor]] = {}
    for tensor in tensors:
        layer = 10_000 if "mtp" in tensor[0] else layer_of(tensor[0])
        by_layer.setdefault(layer, []).append(tensor)
    write_checkpoint(folder, (), config=config, other=other, index=False)
    (folder / "model.safetensors").unlink()
    numbers = sorted(by_layer)
    many = min(shards or len(numbers), len(numbers))
    size = -(-len(numbers) // many)
    weight_map = {}
    for number in range(0, len(numbers), size):
        file = f"model-{number // size + 1:05d}-of-{-(-len(numbers) // size):05d}.safetensors"
        inside = [tensor for layer in numbers[number : number + size] for tensor in by_layer[layer]]
        write_header(folder / file, inside)
        weight_map.update({name: file for name, _, _ in inside})
    write_index(folder, weight_map)
    (folder / "tokenizer.json").write_text("{}")
    return compact.read(folder)


def layer_of(name: str) -> int:
    """The decoder layer in a name, -1 for none."""
    words = name.split(".")
    if words[0] in {"visual", "vision_tower", "audio_encoder", "mtp"} or "layers" not in words:
        return -1
    return int(words[words.index("layers") + 1])


def plan_of(raw: RawCheckpoint, *, mtp: bool = False, sglang: str = SGLANG, **given: Any) -> SlicePlan:
    """The plan of a checkpoint that can be cut."""
    found = plan_slice(raw, inspect(raw), mtp=mtp, sglang=sglang, **given)
    assert isinstance(found, SlicePlan), found
    return found


def refusal_of(raw: RawCheckpoint, *, mtp: bool = False, sglang: str = SGLANG, **given: Any) -> NoSlice:
    """Why a checkpoint cannot be cut."""
    found = plan_slice(raw, inspect(raw), mtp=mtp, sglang=sglang, **given)
    assert isinstance(found, NoSlice), found
    return found


def dense(layers: int = 6, *, hidden: int = 32, tied: bool = False) -> tuple[dict[str, Any], list[Tensor]]:
    """Configuration and tensors of a small Qwen3."""
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": hidden // 2,
        "vocab_size": 64,
        "tie_word_embeddings": tied,
        "layer_types": ["full_attention"] * layers,
    }
    tensors: list[Tensor] = [("model.embed_tokens.weight", "BF16", (64, hidden))]
    for layer in range(layers):
        tensors += [
            (f"model.layers.{layer}.input_layernorm.weight", "BF16", (hidden,)),
            (f"model.layers.{layer}.mlp.down_proj.weight", "F8_E4M3", (hidden, 2 * hidden)),
            (f"model.layers.{layer}.mlp.down_proj.weight_scale_inv", "F32", (1, 1)),
        ]
    tensors.append(("model.norm.weight", "BF16", (hidden,)))
    if not tied:
        tensors.append(("lm_head.weight", "BF16", (64, hidden)))
    return config, tensors


def fill(folder: Path, seed: int = 0) -> None:
    """Put random bytes behind the headers of all weight files in `folder`."""
    chance = random.Random(seed)
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("r+b") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            size = path.stat().st_size - 8 - length
            stream.seek(8 + length)
            stream.write(chance.randbytes(size))


def contents(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Every tensor that the index of `folder` names: dtype, shape, bytes."""
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    found = {}
    for name, file in index.items():
        with (folder / file).open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            entry = json.loads(stream.read(length))[name]
            start, end = entry["data_offsets"]
            assert end - start == tensor_bytes(entry["dtype"], tuple(entry["shape"]))
            stream.seek(8 + length + start)
            found[name] = (entry["dtype"], tuple(entry["shape"]), stream.read(end - start))
    return found
