"""Checkpoints in short: tensors as patterns with layouts, configurations with folded lists.

A pattern holds groups in braces, `{0-61}`, `{0,5,11-17}`, `{gate_proj,up_proj}`, and `{=a}` for the set `a` of its
row.  A tensor is `[name, dtype, shape]`, or `[matrix, layout, [outputs, inputs]]` for all tensors of a quantized
matrix; a fourth entry names the file it lies in.  A folded list is `{"cycle": […], "length": n}` or
`{"runs": [[n, value], …]}`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autolaunch.checkpoint.checkpoint import Checkpoint, inspect
from autolaunch.checkpoint.headers import BITS
from autolaunch.checkpoint.source import RawCheckpoint, read_checkpoint
from tests.checkpoint.make_checkpoint import Tensor, write_checkpoint, write_header

_GROUP = re.compile(r"\{([^{}]+)\}")
_KEYS_WITH_PATTERNS = frozenset(
    {"ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "llm_int8_skip_modules"}
)


def layout(name: str, outputs: int, inputs: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors of one matrix in a quantization layout, by the end of their names."""
    o, i, blocks = outputs, inputs, (-(-outputs // 128), -(-inputs // 128))
    layouts: dict[str, dict[str, tuple[str, tuple[int, ...]]]] = {
        "nvfp4": {
            ".weight": ("U8", (o, i // 2)), ".weight_scale": ("F8_E4M3", (o, i // 16)),
            ".weight_scale_2": ("F32", ()), ".input_scale": ("F32", ()),
        },
        "nvfp4_w4a16": {
            ".weight": ("U8", (o, i // 2)), ".weight_scale": ("F8_E4M3", (o, i // 16)),
            ".weight_scale_2": ("F32", ()),
        },
        "nvfp4_ct": {
            ".weight_packed": ("U8", (o, i // 2)), ".weight_scale": ("F8_E4M3", (o, i // 16)),
            ".weight_global_scale": ("F32", (1,)), ".input_global_scale": ("F32", (1,)),
        },
        "nvfp4_ct_w4a16": {
            ".weight_packed": ("U8", (o, i // 2)), ".weight_scale": ("F8_E4M3", (o, i // 16)),
            ".weight_global_scale": ("F32", (1,)),
        },
        "fp8_block": {".weight": ("F8_E4M3", (o, i)), ".weight_scale_inv": ("F32", blocks)},
        "fp8_tensor": {
            ".weight": ("F8_E4M3", (o, i)), ".weight_scale": ("F32", ()), ".input_scale": ("F32", ()),
        },
        "fp8_channel": {".weight": ("F8_E4M3", (o, i)), ".weight_scale": ("F32", (o, 1))},
        "fp8_tensor_inv": {
            ".weight": ("F8_E4M3", (o, i)), ".weight_scale_inv": ("BF16", ()), ".activation_scale": ("BF16", ()),
        },
        "fp8_block_ct": {".weight": ("F8_E4M3", (o, i)), ".weight_scale": ("BF16", blocks)},
        "int8_ct": {
            ".weight_packed": ("I32", (o, i // 4)), ".weight_scale": ("BF16", (o, 1)),
            ".weight_shape": ("I64", (2,)),
        },
        "mxfp8": {".weight": ("F8_E4M3", (o, i)), ".weight_scale_inv": ("U8", (o, i // 32))},
        "mxfp4_ct": {".weight_packed": ("U8", (o, i // 2)), ".weight_scale": ("U8", (o, i // 32))},
        "mxfp4": {".weight": ("U8", (o, i // 2)), ".weight_scale": ("U8", (o, i // 32))},
        "int4_ct": {
            ".weight_packed": ("I32", (o, i // 8)), ".weight_scale": ("BF16", (o, i // 32)),
            ".weight_shape": ("I32", (2,)),
        },
        "awq": {
            ".qweight": ("I32", (i, o // 8)), ".qzeros": ("I32", (i // 128, o // 8)),
            ".scales": ("BF16", (i // 128, o)),
        },
        "gptq": {
            ".qweight": ("I32", (i // 8, o)), ".qzeros": ("I32", (i // 128, o // 8)),
            ".scales": ("F16", (i // 128, o)), ".g_idx": ("I32", (i,)),
        },
        "int8": {".weight": ("I8", (o, i)), ".weight_scale": ("BF16", (o, 1))},
        "int8_block": {".weight": ("I8", (o, i)), ".weight_scale_inv": ("F32", blocks)},
        "modelslim": {
            ".weight": ("I8", (o, i)), ".weight_scale": ("F32", (o, 1)), ".weight_offset": ("F32", (o, 1)),
        },
        "w4afp8": {
            ".weight": ("I8", (o, i // 2)), ".weight_scale_inv": ("F32", (o, i // 128)),
            ".input_scale": ("F32", (1,)),
        },
        "dsv4_fp8": {".weight": ("F8_E4M3", (o, i)), ".scale": ("F8_E8M0", blocks)},
        "dsv4_fp4": {".weight": ("I8", (o, i // 2)), ".scale": ("F8_E8M0", (o, i // 32))},
        "bnb_nf4": {
            ".weight": ("U8", (o * i // 2, 1)), ".weight.absmax": ("F32", (o * i // 64,)),
            ".weight.quant_map": ("F32", (16,)), ".weight.quant_state.bitsandbytes__nf4": ("U8", (80,)),
        },
    }  # fmt: skip
    return layouts[name]


def expand(pattern: str, sets: Mapping[str, str] | None = None) -> Iterator[str]:
    """The texts that `pattern` stands for."""
    pieces = _GROUP.split(pattern)
    choices = [list(_members(piece, sets or {})) if n % 2 else [piece] for n, piece in enumerate(pieces)]
    return map("".join, itertools.product(*choices))


def _members(group: str, sets: Mapping[str, str]) -> Iterator[str]:
    """The members of the group in one pair of braces."""
    for part in sets[group[1:]].split(",") if group.startswith("=") else group.split(","):
        ends = re.fullmatch(r"(\d+)-(\d+)", part)
        yield from map(str, range(int(ends[1]), int(ends[2]) + 1)) if ends else (part,)


def tensors(
    rows: Iterable[Sequence[Any]], sets: Mapping[str, str] | None = None
) -> Iterator[tuple[str, Tensor]]:
    """The tensors of `rows`, each with the file it lies in (empty: wherever the others are)."""
    for name, kind, shape, *file in rows:
        for one in expand(name, sets):
            if kind in BITS:
                yield "".join(file), (one, kind, tuple(shape))
            else:
                for suffix, (dtype, size) in layout(kind, *shape).items():
                    yield "".join(file), (one + suffix, dtype, size)


def unfolded(value: Any, sets: Mapping[str, str] | None = None, key: str = "") -> Any:
    """A configuration with its lists in full and the patterns of ignore lists expanded."""
    if isinstance(value, dict):
        if value.keys() == {"cycle", "length"}:
            return [value["cycle"][n % len(value["cycle"])] for n in range(value["length"])]
        if value.keys() == {"runs"}:
            return [one for times, one in value["runs"] for _ in range(times)]
        if key == "quantized_layers":
            return {name: entry for pattern, entry in value.items() for name in expand(pattern, sets)}
        return {name: unfolded(entry, sets, name) for name, entry in value.items()}
    if isinstance(value, list) and key in _KEYS_WITH_PATTERNS:
        return [
            name
            for one in value
            for name in (expand(one, sets) if "{" in one and "re:" not in one else (one,))
        ]
    return value


def plain_decoder(config: Mapping[str, Any], kind: str | None = None) -> Iterator[list[Any]]:
    """Rows of an ordinary decoder of `config`; `kind` is the layout of its matrices. Two layers have experts."""
    part = next((config[key] for key in ("text_config", "llm_config") if key in config), config)
    layers = part.get("num_hidden_layers") or part.get("num_layers") or 118
    told = part.get("dtype") or part.get("torch_dtype") or config.get("dtype") or config.get("torch_dtype")
    dtype = {"float16": "F16", "float32": "F32"}.get(str(told), "BF16")
    hidden, heads = part["hidden_size"], part.get("num_attention_heads") or 8
    wide = part.get("head_dim") or hidden // heads
    kv_heads = part.get("num_key_value_heads") or heads
    yield ["{model.embed_tokens,lm_head}.weight", dtype, [part.get("vocab_size", 32000), hidden]]
    yield [f"model.layers.{{0-{layers - 1}}}.input_layernorm.weight", dtype, [hidden]]

    def matrix(name: str, outputs: int, inputs: int, where: str = f"{{0-{layers - 1}}}") -> list[Any]:
        name = f"model.layers.{where}.{name}"
        return [name, kind, [outputs, inputs]] if kind else [f"{name}.weight", dtype, [outputs, inputs]]

    yield matrix("self_attn.q_proj", heads * wide, hidden)
    yield matrix("self_attn.{k_proj,v_proj}", kv_heads * wide, hidden)
    yield matrix("self_attn.o_proj", hidden, heads * wide)
    keys = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
    count = next((part[key] for key in keys if part.get(key)), 0)
    width = part.get("moe_intermediate_size") if count else None
    width = width or part.get("intermediate_size") or part.get("ffn_hidden_size") or 4 * hidden
    if isinstance(width, list):
        width = width[0]
    stem = f"mlp.experts.{{0-{count - 1}}}." if count else "mlp."
    where = f"{{0,{layers - 1}}}" if count else f"{{0-{layers - 1}}}"
    yield matrix(stem + "{gate_proj,up_proj}", width, hidden, where)
    yield matrix(stem + "down_proj", hidden, width, where)


def write(
    folder: Path, config: Mapping[str, Any], rows: Iterable[Sequence[Any]] | None, **other: Mapping[str, Any]
) -> Path:
    """Write a checkpoint of `rows` (None: without any weight file); `other` are JSON files by name without `.json`."""
    main: list[Tensor] = []
    apart: dict[str, list[Tensor]] = {}
    for file, tensor in tensors(rows or ()):
        (apart.setdefault(file, []) if file else main).append(tensor)
    files = {f"{name}.json": value for name, value in other.items()}
    write_checkpoint(folder, main, config=config, other=files, index=False)
    if rows is None:
        (folder / "model.safetensors").unlink()
    for file, listed in apart.items():
        write_header(folder / file, listed)
    return folder


def read(folder: Path) -> RawCheckpoint:
    """The raw checkpoint in `folder`."""
    raw = read_checkpoint(str(folder), cwd=folder)
    assert isinstance(raw, RawCheckpoint), raw
    return raw


def checkpoint(
    folder: Path, config: Mapping[str, Any], rows: Iterable[Sequence[Any]] | None, **other: Mapping[str, Any]
) -> Checkpoint:
    """Write a checkpoint and say what it is."""
    return inspect(read(write(folder, config, rows, **other)))
