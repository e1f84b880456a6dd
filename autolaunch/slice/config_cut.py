"""config.json into that of the first layers: the number of layers, and every list that has an entry a layer.

Nothing else changes.  Lists of modules that are not quantized stay as they are, since names of layers that
are gone match nothing; only where heads get new numbers are theirs written anew.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Mapping
from typing import Any

from autolaunch.checkpoint.config import LAYER_KEYS, Config
from autolaunch.slice.families import key_forms

SHORTEST = 6
"""Layers; a list of fewer entries may have as many as there are layers by chance."""

# Where quantization methods keep names of modules, as entries of a list or as keys.
_NAMED = frozenset(
    {
        "ignore", "ignored_layers", "modules_to_not_convert", "exclude_modules", "exclude_layers", "exclude",
        "llm_int8_skip_modules", "quantized_layers", "layer_quant_config",
    }
)  # fmt: skip
_QUANTIZATION = ("quantization_config", "compression_config", "quantization")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)(?=\.|$|\*)")


def unknown_lists(config: Config, known: Collection[str], total: int) -> tuple[str, ...]:
    """Keys of the language part with an entry for each of `total` layers that are not among `known`."""
    forms = key_forms()
    return tuple(
        sorted(
            key
            for key, value in config.data.items()
            if key not in known
            and (
                (isinstance(value, list | tuple) and len(value) == total >= SHORTEST)
                or (key in forms and forms[key] != "count" and isinstance(value, list | str) and len(value))
            )
        )
    )


def cut_config(config: Config, layers: int, total: int, *, renumbered: bool) -> dict[str, Any]:
    """The whole of config.json, as `config.outer` has it, with the first `layers` of `total`.

    `renumbered` says that heads move from behind the last layer of the whole to behind the last one kept.
    """
    whole: dict[str, Any] = copy.deepcopy(dict(config.outer))
    part = whole
    for key in config.path:
        part = part[key]
    _cut_part(part, layers, total)
    if not any(part.get(key) for key in LAYER_KEYS):
        part["num_hidden_layers"] = layers  # the class would fill in the number of the whole
    if part is not whole:
        for key in LAYER_KEYS:
            if whole.get(key) == total:
                whole[key] = layers
    if renumbered:
        for place in [whole] if part is whole else [whole, part]:
            for key in _QUANTIZATION:
                if isinstance(place.get(key), dict):
                    place[key] = renumber(place[key], layers, total)
    return whole


def renumber(quantization: Mapping[str, Any], layers: int, total: int) -> dict[str, Any]:
    """A quantization configuration in which heads after layer `total` come after layer `layers`.

    Names of layers that are gone leave, since their numbers now belong to heads.
    """
    found: dict[str, Any] = {}
    for key, value in quantization.items():
        if key in _NAMED and isinstance(value, list):
            found[key] = [new for one in value if (new := _renamed(one, layers, total)) is not None]
        elif key in _NAMED and isinstance(value, dict):
            found[key] = {
                new: entry
                for one, entry in value.items()
                if (new := _renamed(one, layers, total)) is not None
            }
        elif isinstance(value, dict):
            found[key] = renumber(value, layers, total)
        else:
            found[key] = value
    return found


def _cut_part(part: dict[str, Any], layers: int, total: int) -> None:
    """Cut the keys of one part of a configuration in place."""
    for key in LAYER_KEYS:
        if part.get(key) == total:
            part[key] = layers
    for key, form in key_forms().items():
        value = part.get(key)
        if form == "list" and isinstance(value, list) and len(value) >= total:
            part[key] = [*value[:layers], *value[total:]]  # some lists go on with the heads
        elif form == "list" and isinstance(value, str) and len(value) >= total:
            part[key] = f"{value[:layers]}{value[total:]}"
        elif form == "indices" and isinstance(value, list):
            part[key] = [one for one in value if isinstance(one, int) and one < layers]


def _renamed(name: Any, layers: int, total: int) -> Any:
    """A name with the new number of its head; None for one of a layer that is gone."""
    match = _LAYER.search(name) if isinstance(name, str) and not name.startswith("re:") else None
    if match is None or int(match[1]) < layers:
        return name
    if int(match[1]) < total:
        return None
    return f"{name[: match.start(1)]}{int(match[1]) - total + layers}{name[match.end(1) :]}"
