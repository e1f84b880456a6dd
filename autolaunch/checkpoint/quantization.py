"""How the weights are stored, part by part: declarations and tensors into a `Quantization`.

A declaration says what a quantiser meant to do, tensors say what it did; where they disagree the tensors are
right and a note says so.  Without tensors the ignore lists decide which parts were left alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from autolaunch.checkpoint.declared import Declared
from autolaunch.checkpoint.spared import listed_parts, spared_parts
from autolaunch.checkpoint.stored import PLAIN, PLAIN_BY_NAME, Stored, dominant, is_matrix, stored_scheme
from autolaunch.checkpoint.weights import KV_SCALES, Weight, scheme_rows

PARTS = (
    "experts",
    "shared_experts",
    "dense",
    "attention",
    "linear_attention",
    "embedding",
    "lm_head",
    "mtp",
    "vision",
    "kv_cache",
)
# Whose scheme is that of the checkpoint, the first that has one.
_LEADING = ("experts", "dense", "attention", "linear_attention", "shared_experts", "lm_head")
# What quantisers leave alone unless told otherwise.
_SPARED = frozenset({"embedding", "lm_head", "vision"})
_PLAIN = frozenset(PLAIN.values())
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "float": "fp32"}


@dataclass(frozen=True, slots=True)
class Quantization:
    """Scheme of the checkpoint as a whole and of its parts."""

    scheme: str
    """`bf16` `fp16` `fp32` `fp8_block` `fp8_tensor` `fp8_channel` `nvfp4` `nvfp4_w4a16` `mxfp4` `mxfp8`
    `int8_w8a8` `int8_block` `awq_int4` `gptq_int4` `int4_ct` `w4afp8` `bnb_nf4` `mlx_int4` `gguf`, `mixed`
    where the files themselves say so, or `unknown`."""
    method: str | None
    """What SGLang calls it (`--quantization`), None for unquantized weights."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """Scheme of each of `PARTS` that the checkpoint has; `kv_cache` only where the checkpoint says one."""
    where: tuple[str, ...] = ()
    """What told it: `config.json:quantization_config`, `hf_quant_config.json`, `tensors` …"""
    block: tuple[int, int] | None = None
    """Rows and columns of a block that share a scale."""
    group: int | None = None
    """Inputs of a row that share a scale."""
    activation: str | None = None
    """`dynamic`, `static`, or None where activations stay as they are or nothing tells."""
    algo: str | None = None
    """ModelOpt's `quant_algo`."""
    notes: tuple[str, ...] = ()
    """Where declaration, name and tensors disagree."""


def quantization_of(
    declared: Declared,
    weights: Sequence[Weight],
    *,
    dtype: str | None,
    expected: Mapping[str, int],
    layers: int | None,
    one_name: bool = False,
) -> Quantization:
    """The quantization of a checkpoint with `weights`.

    `expected` are the parts that the configuration implies, each with the number of layers that have it;
    `one_name` says that linear attention goes by the name of the other kind.
    """
    plain = _DTYPES.get(dtype or "", "bf16")
    found = _stored_parts(weights, plain)
    if weights:
        there = {weight.part for weight in weights}
        expected = {part: expected.get(part, 0) for part in PARTS if part in there}
    told = _declared_parts(declared, plain, expected, layers, one_name)
    for part, seen in found.items():
        if told.get(part) in seen.also:
            found[part] = replace(seen, scheme=told[part])
    parts = {**told, **{part: one.scheme for part, one in found.items()}}
    notes = list(declared.notes)
    notes += _disagreements(declared, told, {part: one.scheme for part, one in found.items()})
    kv_cache = declared.kv_cache or ("fp8" if _has_kv_scales(weights) else None)
    if kv_cache:
        parts["kv_cache"] = kv_cache
    scheme = _scheme(declared, parts, plain, bool(found))
    main = next((one for part in _LEADING if (one := found.get(part)) and one.scheme == scheme), None)
    return Quantization(
        scheme=scheme,
        method=declared.method or _method(scheme),
        parts={part: parts[part] for part in PARTS if part in parts},
        where=(*declared.where, *(("tensors",) if found else ())),
        block=declared.block or (main.block if main else None),
        group=declared.group or (main.group if main else None),
        activation=declared.activation,
        algo=declared.algo,
        notes=tuple(notes),
    )


def method_in(quantization: Quantization, sglang: str, architectures: Sequence[str] = ()) -> str | None:
    """What the SGLang of version `sglang` calls the method, by the rows `rename` of `data/schemes.toml`."""
    for row in scheme_rows("rename"):
        if row["method"] != quantization.method or not _in_range(sglang, row["sglang"]):
            continue
        if "algo" in row and row["algo"] != quantization.algo:
            continue
        spared = row.get("unless_architectures", ())
        if not any(fnmatchcase(name, like) for name in architectures for like in spared):
            return str(row["called"])
    return quantization.method


def _in_range(version: str, wanted: str) -> bool:
    """Whether `version` is in a range of one comparison, such as `<0.5.17`."""
    operator, limit = ("<", wanted[1:]) if wanted.startswith("<") else (">=", wanted[2:])

    def key(text: str) -> tuple[int, ...]:
        return tuple(int(one) for one in re.findall(r"\d+", text)[:3])

    return key(version) < key(limit) if operator == "<" else key(version) >= key(limit)


def _stored_parts(weights: Sequence[Weight], plain: str) -> dict[str, Stored]:
    """What most of each part is stored in, by the tensors.

    Without headers a weight that has no scales is `plain` only where others have some.
    """
    named = any(not weight.tensors.keys() <= {"weight", "bias"} for weight in weights)
    by_part: dict[str, list[Stored]] = {}
    for weight in weights:
        if weight.part in PARTS and is_matrix(weight):
            one = stored_scheme(weight)
            if one is not None and one.scheme == PLAIN_BY_NAME:
                one = Stored(plain, 0) if named else None
            if one is not None:
                by_part.setdefault(weight.part, []).append(one)
    return {part: main for part, found in by_part.items() if (main := dominant(found)) is not None}


def _declared_parts(
    declared: Declared, plain: str, expected: Mapping[str, int], layers: int | None, one_name: bool
) -> dict[str, str]:
    """What each part is stored in as far as the files alone tell."""
    if declared.scheme is None:
        return dict.fromkeys(expected, plain)
    listed = listed_parts(declared.layers)
    spared = spared_parts(declared.ignore, expected, layers or 0)
    if one_name and "attention" in spared:
        spared |= {"linear_attention"}
    whole = declared.rest or ("unknown" if declared.scheme == "mixed" else declared.scheme)
    parts: dict[str, str] = {}
    for part in expected:
        if part in listed:
            parts[part] = listed[part]
        elif part in _SPARED or (part in spared and not declared.rest):
            parts[part] = plain
        elif part == "mtp" and "experts" in listed:
            continue  # heads may keep the scheme of the model they were taken from; only tensors tell
        elif declared.scheme == "mixed" and not declared.rest:
            parts[part] = plain
        elif declared.only:
            parts[part] = declared.scheme if part in declared.only else declared.rest or plain
        else:
            parts[part] = whole
    return parts


def _disagreements(declared: Declared, told: Mapping[str, str], stored: Mapping[str, str]) -> list[str]:
    """Sentences on parts of which files and tensors say different things."""
    notes = []
    if declared.scheme not in {None, "mixed", "unknown"} and stored:
        quantized = {scheme for part, scheme in stored.items() if part not in _SPARED} - _PLAIN
        if not quantized:
            notes.append(f"the files declare {declared.scheme}, but no tensor is quantized")
        elif declared.scheme not in quantized and not _alike(declared.scheme, quantized):
            notes.append(
                f"the files declare {declared.scheme}, the tensors are {', '.join(sorted(quantized))}"
            )
    if declared.scheme is None and (quantized := set(stored.values()) - _PLAIN):
        notes.append(f"no file declares a quantization, but tensors are {', '.join(sorted(quantized))}")
    if declared.scheme and stored.get("mtp") in _PLAIN and told.get("mtp") not in {*_PLAIN, None}:
        notes.append(f"the ignore list does not spare the heads (mtp), but they are {stored['mtp']}")
    return notes


def _alike(scheme: str | None, found: set[str]) -> bool:
    """Whether `scheme` differs from one of `found` only in what activations do."""
    return any(str(scheme).split("_")[0] == one.split("_")[0] and "fp8" not in one for one in found)


def _scheme(declared: Declared, parts: Mapping[str, str], plain: str, seen: bool) -> str:
    """The scheme of the whole: as declared unless tensors are quantized otherwise, else the leading part's.

    A declaration that no tensor bears out still decides: SGLang takes the kernels that it asks for.  `seen`
    says whether `parts` come from tensors.
    """
    leading = [parts[part] for part in _LEADING if part in parts]
    quantized = [scheme for scheme in leading if scheme not in _PLAIN]
    told = declared.scheme
    if told is None:
        return quantized[0] if quantized else next(iter(leading), plain)
    if told in {"mixed", *quantized} or not quantized or not seen:
        return told
    return quantized[0]


def _method(scheme: str) -> str | None:
    """SGLang's name for weights that no file declares: none, it would load them as they are."""
    return "gguf" if scheme == "gguf" else None


def _has_kv_scales(weights: Sequence[Weight]) -> bool:
    """Whether scales of keys and values are stored."""
    return any(suffix in KV_SCALES for weight in weights for suffix in weight.tensors)
