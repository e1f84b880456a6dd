"""quantization_config, hf_quant_config.json and their relatives into what a quantiser says it did.

Every method has its own shape: ModelOpt names an algorithm (also one for each layer), compressed-tensors
names groups of numbers and targets, GPTQ and AWQ name bits.  Where SGLang's name for a method differs from
the file's, the rows `algo` and `method` of `data/schemes.toml` have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autolaunch.checkpoint.config import Config
from autolaunch.checkpoint.declared_groups import compressed, group_size, pair, quark, text, whole
from autolaunch.checkpoint.problems import CheckpointError, shown
from autolaunch.checkpoint.weights import scheme_rows

IGNORE_KEYS = (
    "ignore",
    "ignored_layers",
    "modules_to_not_convert",
    "exclude_modules",
    "exclude_layers",
    "exclude",
    "llm_int8_skip_modules",
    "modules_to_not_quantize",
)


@dataclass(frozen=True, slots=True)
class Declared:
    """What configuration files say about quantization."""

    scheme: str | None
    """None where they say nothing."""
    method: str | None
    where: tuple[str, ...] = ()
    block: tuple[int, int] | None = None
    group: int | None = None
    activation: str | None = None
    kv_cache: str | None = None
    ignore: tuple[str, ...] = ()
    layers: Mapping[str, str] = field(default_factory=dict)
    """Schemes of single modules, where the file lists them."""
    only: tuple[str, ...] = ()
    """Parts that are quantized where the method leaves all others alone."""
    rest: str | None = None
    """Scheme of the other parts where `only` is set, None for plain weights."""
    algo: str | None = None
    notes: tuple[str, ...] = ()


def declared_quantization(
    config: Config, hf_quant_config: Mapping[str, Any] | None, other: Mapping[str, Mapping[str, Any]]
) -> Declared:
    """What the files of a checkpoint declare; CheckpointError where a declaration has the wrong type."""
    sources = _sources(config, hf_quant_config, other)
    if not sources:
        return Declared(None, None)
    (where, told), where_all = sources[0], tuple(name for name, _ in sources)
    kv_cache = next((kind for _, one in sources if (kind := _kv_cache(one))), None)
    if where == "quant_model_description.json":
        return Declared("int8_w8a8", "modelslim", where_all, activation="static", kv_cache=kv_cache)
    # ModelOpt writes the algorithm into both files, and sometimes the details into one of them only.
    extra = next((one for name, one in sources[1:] if name == "hf_quant_config.json"), {})
    if "quant_algo" in told or "quant_algo" in extra:
        told = {**extra, **{key: value for key, value in told.items() if value is not None}}
    common: dict[str, Any] = {
        "where": where_all,
        "kv_cache": kv_cache,
        "ignore": _ignored(told),
        "group": group_size(told),
    }
    method = text(told, "quant_method").lower() or None
    algo = text(told, "quant_algo").upper() or None
    if (
        method in {None, "modelopt", "modelopt_fp4", "modelopt_fp8", "modelopt_mixed"}
        or where == "hf_quant_config.json"
    ):
        if algo is not None:
            return _modelopt(told, algo, common)
        if method is None and "bits" in told and "quant_method" not in told:
            return _mlx_or_gptq(where, told, common)
    if method in {"compressed-tensors", "compressed_tensors"} or (method is None and "config_groups" in told):
        groups = compressed(told)
        return Declared(
            groups.scheme, "compressed-tensors", block=groups.block, activation=groups.activation,
            layers=groups.layers, **common,
        )  # fmt: skip
    if method == "fp8":
        return _fp8(config, told, algo, common)
    if method == "quark":
        groups = quark(told)
        return Declared(groups.scheme, "quark", layers=groups.layers, **common)
    return _by_method(method or "unknown", told, common)


def _sources(
    config: Config, hf_quant_config: Mapping[str, Any] | None, other: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, Mapping[str, Any]]]:
    """The declarations there are, in SGLang's order (0.5.23 configs/model_config.py:1727-1836)."""
    found: list[tuple[str, Mapping[str, Any]]] = []
    if "quant_model_description.json" in other:
        found.append(("quant_model_description.json", other["quant_model_description.json"]))
    places = [("config.json", config.outer)]
    if config.data is not config.outer:
        places.append((f"config.json:{'.'.join(config.path)}", config.data))
    for place, part in places:
        for key in ("quantization_config", "compression_config"):
            told = part.get(key)
            if told is None:
                continue
            if not isinstance(told, Mapping):
                raise CheckpointError(
                    f"config.json is wrong: `{key}` is not an object",
                    because=(f"it holds {shown(repr(told), 60)}",),
                )
            if told and not any(one == told for _, one in found):
                found.append((f"{place}.{key}" if ":" in place else f"{place}:{key}", told))
    if hf_quant_config:
        inner = hf_quant_config.get("quantization", hf_quant_config)
        inner = inner.get("quantization", inner) if isinstance(inner, Mapping) else hf_quant_config
        if isinstance(inner, Mapping) and inner:
            found.append(("hf_quant_config.json", inner))
    if not found and "quantize_config.json" in other:
        found.append(("quantize_config.json", {"quant_method": "gptq", **other["quantize_config.json"]}))
    return found


def _modelopt(told: Mapping[str, Any], algo: str, common: Mapping[str, Any]) -> Declared:
    """ModelOpt's algorithms; MIXED_PRECISION means W4AFP8 unless its layers say NVFP4."""
    if algo == "MIXED_PRECISION":
        layers = _layer_schemes(told)
        four = any(scheme.startswith(("nvfp4", "mxfp4")) for scheme in layers.values())
        if not layers or not four:
            return Declared("w4afp8", "w4afp8", only=("experts",), rest="fp8_block", algo=algo, **common)
        return Declared("mixed", "modelopt_mixed", layers=layers, algo=algo, **common)
    for row in scheme_rows("algo"):
        if row["algo"] == algo:
            return Declared(
                row["scheme"],
                row["method"],
                algo=algo,
                activation=row.get("activation"),
                **{**common, "group": common["group"] or row.get("group")},
            )
    scheme = "nvfp4" if "FP4" in algo else "fp8_tensor" if "FP8" in algo else "unknown"
    return Declared(scheme, "modelopt_fp4" if "FP4" in algo else "modelopt_fp8", algo=algo, **common)


def _layer_schemes(told: Mapping[str, Any]) -> dict[str, str]:
    """Schemes of the modules under `quantized_layers`."""
    known = {row["algo"]: row["scheme"] for row in scheme_rows("algo")}
    listed = told.get("quantized_layers")
    if not isinstance(listed, Mapping):
        return {}
    return {
        name: known.get(str(entry.get("quant_algo")).upper(), "unknown")
        for name, entry in listed.items()
        if isinstance(entry, Mapping)
    }


def _fp8(config: Config, told: Mapping[str, Any], algo: str | None, common: Mapping[str, Any]) -> Declared:
    """FP8 by block or by tensor; some checkpoints keep their experts in four bits under this name."""
    block = _block(told)
    scheme = "fp8_block" if block else "fp8_tensor"
    if block and block[0] == 1:
        scheme = "mxfp8"
    activation = text(told, "activation_scheme") or None
    # The block is that of FP8; a group in the same file is that of the experts.
    layers = _layer_schemes(told)
    if algo == "MIXED_PRECISION" and text(told, "moe_quant_algo"):
        experts = text(told, "moe_quant_algo").lower()
        notes = (f"`quant_method` says fp8, `moe_quant_algo` says {experts} for the experts",)
        return Declared(
            "mixed", "fp8", block=block, activation=activation, algo=algo, notes=notes,
            layers=layers or {"experts": experts}, rest=scheme, **common,
        )  # fmt: skip
    four = "mxfp4" in {
        text(told, "routed_experts_quant_method").lower(),
        text(told, "store_dtype").lower(),
    } or config.data.get("expert_dtype") in ("fp4", "mxfp4")
    layers = {"experts": "mxfp4"} if four else {}
    return Declared(scheme, "fp8", block=block, activation=activation, layers=layers, **common)


def _mlx_or_gptq(where: str, told: Mapping[str, Any], common: Mapping[str, Any]) -> Declared:
    """Bits without a method: MLX in config.json, old GPTQ in a file of its own."""
    if where.startswith("config.json") and "desc_act" not in told:
        return _by_method("mlx", told, common)
    return _by_method("gptq", told, common)


def _by_method(method: str, told: Mapping[str, Any], common: Mapping[str, Any]) -> Declared:
    """The methods that need no more than their row."""
    for row in scheme_rows("method"):
        if row["method"] == method:
            bits = whole(told.get("bits", told.get("w_bit", told.get("weight_bits")))) or 4
            scheme = row["scheme"].replace("{bits}", str(bits))
            if method == "bitsandbytes" and told.get("load_in_4bit", told.get("_load_in_4bit")):
                scheme = f"bnb_{text(told, 'bnb_4bit_quant_type') or 'fp4'}"
            if method == "auto-round" and "awq" in text(told, "packing_format"):
                scheme = f"awq_int{bits}"
            return Declared(
                scheme, method, block=_block(told), activation=text(told, "activation_scheme") or None,
                only=tuple(row.get("only", ())), rest=row.get("rest"),
                **{**common, "group": common["group"] or row.get("group")},
            )  # fmt: skip
    return Declared("unknown", method, notes=(f"`quant_method` {shown(method)} is not known here",), **common)


def _kv_cache(told: Mapping[str, Any]) -> str | None:
    """The scheme of the KV cache, in any of the places where it may stand."""
    for key in ("kv_cache_quant_algo", "kv_cache_scheme", "kv_cache_quant_config", "kv_cache_quant_method"):
        value = told.get(key)
        if isinstance(value, str) and value.lower() not in {"", "none"}:
            return value.lower()
        if isinstance(value, Mapping) and value:
            return "fp4" if value.get("num_bits") == 4 else "fp8"
    return None


def _ignored(told: Mapping[str, Any]) -> tuple[str, ...]:
    """Modules that are left alone, under any of the keys; anything but texts is passed over."""
    lists = [told.get(key) for key in IGNORE_KEYS]
    return tuple(
        one for listed in lists if isinstance(listed, list) for one in listed if isinstance(one, str)
    )


def _block(told: Mapping[str, Any]) -> tuple[int, int] | None:
    """`weight_block_size` as rows and columns."""
    return pair(told.get("weight_block_size"))
