"""Quantization declared as groups of numbers of bits (compressed-tensors, Quark) into schemes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_PAIR = re.compile(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})")


@dataclass(frozen=True, slots=True)
class Grouped:
    """What groups of numbers come to."""

    scheme: str
    """`mixed` where groups differ."""
    layers: Mapping[str, str] = field(default_factory=dict)
    """Schemes by target, where they differ."""
    block: tuple[int, int] | None = None
    activation: str | None = None


def compressed(told: Mapping[str, Any]) -> Grouped:
    """compressed-tensors: one or more groups of targets with numbers of bits."""
    groups = told.get("config_groups")
    found: dict[str, str] = {}
    block: tuple[int, int] | None = None
    activation: str | None = None
    for name, one in groups.items() if isinstance(groups, Mapping) else ():
        if not isinstance(one, Mapping):
            continue
        scheme = _group_scheme(text(one, "format") or text(told, "format"), one)
        targets = one.get("targets")
        for target in targets if isinstance(targets, list) and targets else [name]:
            found[str(target)] = scheme
        inputs, weights = one.get("input_activations"), one.get("weights")
        if isinstance(inputs, Mapping):
            activation = "dynamic" if inputs.get("dynamic") else "static"
        if isinstance(weights, Mapping):
            block = pair(weights.get("block_structure")) or block
    schemes = set(found.values()) or {_group_scheme(text(told, "format"), {})}
    if len(schemes) == 1:
        return Grouped(schemes.pop(), block=block, activation=activation)
    return Grouped("mixed", found, block, activation)


def _group_scheme(form: str, group: Mapping[str, Any]) -> str:
    """The scheme of one group of compressed-tensors."""
    weights, inputs = group.get("weights"), group.get("input_activations")
    weights = weights if isinstance(weights, Mapping) else {}
    bits, kind, strategy = weights.get("num_bits"), weights.get("type"), weights.get("strategy")
    if form == "nvfp4-pack-quantized" or (
        bits == 4 and kind == "float" and weights.get("group_size") in (None, 16)
    ):
        return "nvfp4" if isinstance(inputs, Mapping) or not group else "nvfp4_w4a16"
    if form == "mxfp4-pack-quantized" or (bits == 4 and kind == "float"):
        return "mxfp4"
    if form.startswith("mxfp8") or (bits == 8 and kind == "float" and weights.get("group_size") == 32):
        return "mxfp8"
    if form == "float-quantized" or kind == "float":
        return {"channel": "fp8_channel", "block": "fp8_block"}.get(str(strategy), "fp8_tensor")
    if form == "int-quantized" or (bits == 8 and isinstance(inputs, Mapping)):
        return "int8_w8a8"
    if form in {"pack-quantized", "marlin-24"} or kind == "int":
        quantized = isinstance(inputs, Mapping)
        return "w4afp8" if bits == 4 and quantized else f"int{bits or 4}_ct"
    return "unknown"


def quark(told: Mapping[str, Any]) -> Grouped:
    """AMD's Quark: one global configuration of the weights, and others for single layers."""
    whole_model, listed = told.get("global_quant_config"), told.get("layer_quant_config")
    layers = {
        str(name): _quark_scheme(entry.get("weight"))
        for name, entry in (listed.items() if isinstance(listed, Mapping) else ())
        if isinstance(entry, Mapping)
    }
    weight = whole_model.get("weight") if isinstance(whole_model, Mapping) else None
    return Grouped(_quark_scheme(weight), layers)


def _quark_scheme(weight: Any) -> str:
    """The scheme of one of Quark's weight configurations."""
    if isinstance(weight, list) and weight:
        weight = weight[0]
    if not isinstance(weight, Mapping):
        return "unknown"
    kind, over = str(weight.get("dtype")), str(weight.get("qscheme"))
    if kind == "fp4":
        return "mxfp4"
    if kind.startswith("fp8"):
        return {"per_channel": "fp8_channel", "per_block": "fp8_block"}.get(over, "fp8_tensor")
    return {"int8": "int8_w8a8", "int4": "int4"}.get(kind, "unknown")


def group_size(told: Mapping[str, Any]) -> int | None:
    """The group size of the weights, of the first group that has one."""
    if size := whole(told.get("group_size")):
        return size
    groups = told.get("config_groups")
    for one in groups.values() if isinstance(groups, Mapping) else ():
        weights = one.get("weights") if isinstance(one, Mapping) else None
        size = whole(weights.get("group_size")) if isinstance(weights, Mapping) else None
        if size:
            return size
    return None


def pair(value: Any) -> tuple[int, int] | None:
    """A list of two whole numbers, or `128x128`, None for anything else."""
    if isinstance(value, str) and (match := _PAIR.fullmatch(value)):
        return int(match[1]), int(match[2])
    if isinstance(value, list | tuple) and len(value) == 2 and all(isinstance(one, int) for one in value):
        return int(value[0]), int(value[1])
    return None


def whole(value: Any) -> int | None:
    """A whole number, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text(told: Mapping[str, Any], key: str) -> str:
    """A text, empty for anything else."""
    value = told.get(key)
    return value if isinstance(value, str) else ""
