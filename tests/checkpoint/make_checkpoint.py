"""Writes checkpoints that consist of headers: the data of every safetensors file is a hole of the right length."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from autolaunch.checkpoint.headers import tensor_bytes

Tensor = tuple[str, str, tuple[int, ...]]
"""Name, dtype as headers spell it, shape."""


def write_header(
    path: Path, tensors: Iterable[Tensor], *, metadata: Mapping[str, str] | None = None, data: bool = True
) -> int:
    """Write a safetensors file of `tensors`, one behind the other; returns the bytes of their data."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata is not None else {}
    end = 0
    for name, dtype, shape in tensors:
        start, end = end, end + tensor_bytes(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    write_raw(path, json.dumps(header, separators=(",", ":")), end if data else 0)
    return end


def write_raw(path: Path, header: str | bytes, data_bytes: int, *, length: int | None = None) -> None:
    """Write a safetensors file with any text for a header, a hole for its data and any length before it."""
    content = header.encode() if isinstance(header, str) else header
    content += b" " * (-len(content) % 8)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(content) if length is None else length))
        stream.write(content)
        stream.truncate(8 + len(content) + data_bytes)


def write_checkpoint(
    folder: Path,
    tensors: Iterable[Tensor],
    *,
    config: Mapping[str, Any] | None = None,
    shards: int = 1,
    index: bool | None = None,
    other: Mapping[str, Any] | None = None,
    indent: int | None = 2,
) -> Path:
    """Write a model folder: config.json, `tensors` spread evenly over `shards` files, an index unless one is enough.

    `other` are further JSON files by name; `index` forces an index or forbids it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in {"config.json": config or {"model_type": "test"}, **(other or {})}.items():
        (folder / name).write_text(json.dumps(value, indent=2))
    listed = list(tensors)
    size = -(-len(listed) // shards)
    weight_map, total = {}, 0
    for number in range(shards):
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors" if shards > 1 else "model.safetensors"
        part = listed[number * size : (number + 1) * size]
        total += write_header(folder / name, part, metadata={"format": "pt"})
        weight_map.update({tensor: name for tensor, _, _ in part})
    if index if index is not None else shards > 1:
        write_index(folder, weight_map, total, indent=indent)
    return folder


def write_index(
    folder: Path, weight_map: Mapping[str, str], total_size: int | None = None, *, indent: int | None = 2
) -> None:
    """Write an index as the usual writers do: `metadata` first, names sorted."""
    metadata = {} if total_size is None else {"total_size": total_size}
    value = {"metadata": metadata, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(value, indent=indent))


def nvfp4_moe(layers: int = 60, experts: int = 512, hidden: int = 4096) -> Iterator[Tensor]:
    """The tensors of an NVFP4 mixture of experts with gated linear attention and one MTP layer.

    With the defaults: the 371,111 names of Qwen3.5-397B-A17B-NVFP4 without its vision tower.
    """
    stem = "model.language_model"
    for name in ("embed_tokens", "lm_head", "norm"):
        head = name if name == "lm_head" else f"{stem}.{name}"
        yield f"{head}.weight", "BF16", (hidden,) if name == "norm" else (248320, hidden)
    for layer in range(layers):
        base = f"{stem}.layers.{layer}"
        yield from _dense(base, experts, hidden, linear=layer % 4 != 3)
        for expert in range(experts):
            for name, (rows, columns) in _PROJECTIONS.items():
                module = f"{base}.mlp.experts.{expert}.{name}"
                yield f"{module}.weight", "U8", (rows, columns // 2)
                yield f"{module}.weight_scale", "F8_E4M3", (rows, columns // 16)
                yield f"{module}.weight_scale_2", "F32", ()
                yield f"{module}.input_scale", "F32", ()
    for name, columns in (
        ("fc", 2 * hidden),
        ("norm", 0),
        ("pre_fc_norm_embedding", 0),
        ("pre_fc_norm_hidden", 0),
    ):
        yield f"mtp.{name}.weight", "BF16", (hidden, columns) if columns else (hidden,)
    yield from _dense("mtp.layers.0", experts, hidden, linear=False)
    for expert in range(experts):
        for name, shape in _PROJECTIONS.items():
            yield f"mtp.layers.0.mlp.experts.{expert}.{name}.weight", "BF16", shape


_PROJECTIONS = {"gate_proj": (1024, 4096), "up_proj": (1024, 4096), "down_proj": (4096, 1024)}
_LINEAR = {
    "dt_bias": (64,), "conv1d.weight": (12288, 1, 4), "in_proj_a.weight": (64, 4096),
    "in_proj_b.weight": (64, 4096), "in_proj_qkv.weight": (12288, 4096), "in_proj_z.weight": (8192, 4096),
    "out_proj.weight": (4096, 8192),
}  # fmt: skip
_FULL = {
    "q_norm": (256,), "k_norm": (256,), "q_proj": (16384, 4096), "k_proj": (512, 4096), "v_proj": (512, 4096),
    "o_proj": (4096, 8192),
}  # fmt: skip


def _dense(base: str, experts: int, hidden: int, *, linear: bool) -> Iterator[Tensor]:
    """One layer without its routed experts."""
    yield f"{base}.input_layernorm.weight", "BF16", (hidden,)
    yield f"{base}.post_attention_layernorm.weight", "BF16", (hidden,)
    if linear:
        yield f"{base}.linear_attn.A_log", "F32", (64,)
        yield f"{base}.linear_attn.norm.weight", "F32", (128,)
        for name, shape in _LINEAR.items():
            yield f"{base}.linear_attn.{name}", "BF16", shape
    else:
        for name, shape in _FULL.items():
            yield f"{base}.self_attn.{name}.weight", "BF16", shape
    yield f"{base}.mlp.gate.weight", "BF16", (experts, hidden)
    yield f"{base}.mlp.shared_expert_gate.weight", "BF16", (1, hidden)
    for name, shape in _PROJECTIONS.items():
        yield f"{base}.mlp.shared_expert.{name}.weight", "BF16", shape
