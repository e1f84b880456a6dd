"""Groups of tensors into weights: which tensors make one matrix, and to which part of the model it belongs.

A quantized matrix is several tensors (`qweight`, `scales`, …) whose names differ in the last word only.
Parts are told by the rows `part` of `data/schemes.toml`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from autolaunch.checkpoint.tensors import Group, Tensors
from autolaunch.tables import load_rows

_SUFFIX = re.compile(
    r"^(?P<module>.+?)(?:[._](?P<suffix>weight_packed|weight_scale_inv|weight_scale_2|weight_scale|weight_shape"
    r"|weight_global_scale|input_global_scale|weight_zero_point|weight_g_idx|weight_offset|input_scale"
    r"|input_offset|input_min|input_max|activation_scale|deq_scale|quant_bias|pre_quant_scale|qweight|qzeros"
    r"|scales|biases|g_idx|blocks|SCB|weight_format|[kvq]_scale|kv_scale|output_scale|prob_output_scale"
    r"|weight\.(?:absmax|quant_map|nested_absmax|nested_quant_map)"
    r"|weight\.quant_state\.bitsandbytes__(?P<state>nf4|fp4)|weight|bias|scale))?$"
)
KV_SCALES = frozenset({"k_scale", "v_scale", "kv_scale", "output_scale"})


@dataclass(frozen=True, slots=True)
class Weight:
    """One matrix, or the same matrix of many experts of a layer."""

    module: str
    """The name without its last word, with every number as `N`."""
    layer: int | None
    part: str
    """A part of `quantization.PARTS`, or `router`, `indexer`, `other`."""
    tensors: Mapping[str, Group]
    """By the last word of the name: `weight`, `weight_scale`, `qweight` …"""


@cache
def scheme_rows(table: str) -> tuple[Mapping[str, Any], ...]:
    """The rows `table` of `data/schemes.toml`."""
    return tuple(load_rows("schemes", table))


@cache
def _part_patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """The rows `part`, compiled."""
    return tuple((row["part"], re.compile(row["pattern"])) for row in scheme_rows("part"))


@cache
def part_of(name: str) -> str:
    """The part that the tensor or module `name` (with every number as `N`) belongs to; `other` if none."""
    return next((part for part, pattern in _part_patterns() if pattern.search(name)), "other")


@cache
def split_name(pattern: str) -> tuple[str, str]:
    """The module and the last word of a tensor's name; a name without a known one is a plain weight."""
    match = _SUFFIX.match(pattern)
    if match is None or match["suffix"] is None:
        return pattern, "weight"
    return match["module"], f"quant_state.{match['state']}" if match["state"] else match["suffix"]


def weights_of(tensors: Tensors, is_head: Callable[[Group], bool]) -> tuple[Weight, ...]:
    """The weights in `tensors`; those for which `is_head` holds are of the part `mtp`."""
    found: dict[tuple[str, int | None, str], dict[str, Group]] = {}
    linear = _modules_with_state(tensors)
    for group in tensors.groups:
        module, suffix = split_name(group.pattern)
        part = "mtp" if is_head(group) else part_of(group.pattern)
        if part == "attention" and (module.rsplit(".", 1)[0], group.layer) in linear:
            part = "linear_attention"
        found.setdefault((module, group.layer, part), {}).setdefault(suffix, group)
    return tuple(Weight(module, layer, part, parts) for (module, layer, part), parts in found.items())


def _modules_with_state(tensors: Tensors) -> frozenset[tuple[str, int | None]]:
    """Modules that hold a decay: linear attention, also where it is called `self_attn`."""
    return frozenset(
        (pattern.rsplit(".", 1)[0], group.layer)
        for pattern, groups in tensors.patterns().items()
        if pattern.endswith((".A_log", ".dt_bias"))
        for group in groups
    )
