"""The command line as facts: each flag by the attribute it sets, and what follows from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from autolaunch.capability.dimensions import Dimension
from autolaunch.capability.fact_names import ENV, FLAG, NONE, UNKNOWN, UNSET, Fact
from autolaunch.request.catalogue import bundled_catalogue, bundled_versions
from autolaunch.request.command_line import SWITCHED_OFF, Request
from autolaunch.request.flags import Flag, FlagCatalogue

_SUFFIXES: Final = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
}
_NUMBER = re.compile(rf"([+-]?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|[+-]?\.\d+)({'|'.join(_SUFFIXES)})?")


class FactSheet(dict[str, Fact]):
    """Facts by name: a flag or variable that is absent is `unset`, any other fact is unknown."""

    def get(self, key: str, default: Any = None, /) -> Any:
        """The fact `key`; `unset` for a flag or variable that is not set."""
        if key in self:
            return self[key]
        return UNSET if key.startswith((FLAG, ENV)) else default

    def pinned(self) -> Mapping[str, Fact]:
        """The flags that are set, by the attribute they set."""
        return {name.removeprefix(FLAG): fact for name, fact in self.items() if name.startswith(FLAG)}


def facts_of_flags(
    request: Request | None, catalogue: FlagCatalogue, dimensions: tuple[Dimension, ...]
) -> Iterator[tuple[str, Fact]]:
    """`flag.<dest>` of every pin, a renamed one under its newest name."""
    if request is None or not request.pins:
        return
    renamed = {name: dimension.dest for dimension in dimensions for name in dimension.also}
    newest = bundled_catalogue(bundled_versions()[-1])
    for dest, pin in request.pins.items():
        same = newest.resolve(pin.flag)
        name = renamed.get(pin.flag) or (same.dest if same and pin.flag in same.names else dest)
        yield f"{FLAG}{name}", flag_value(catalogue.flag(dest), pin.values)


def flag_value(flag: Flag | None, values: tuple[str, ...]) -> Fact:
    """What a flag with `values` is as a fact: true or false, a number, a word, or several words."""
    if flag is not None and (not flag.takes_value or flag.action == "boolean_optional"):
        off = values == SWITCHED_OFF or values == ("off",)
        return off if flag.action == "store_false" and not values else not off
    if len(values) != 1:
        return values
    return parsed(values[0])


def parsed(text: str) -> Fact:
    """A number where `text` is one, also as SGLang reads `8k` and `128Ki`; else `text`."""
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        return text
    number, suffix = found[1], found[2]
    if not suffix:
        return float(number) if set(".eE") & set(number) else int(number)
    return int(float(number) * _SUFFIXES[suffix])


def facts_of_features(facts: FactSheet) -> Iterator[tuple[str, Fact]]:
    """What is in use by the flags alone."""
    tp = _size(facts, "tp_size")
    dp = _size(facts, "dp_size")
    attention_dp = _size(facts, "attn_dp_size")
    yield "tp", tp
    yield "dp", max(dp, attention_dp)
    all_to_all = facts.get(f"{FLAG}moe_a2a_backend", UNSET)
    # with an all-to-all backend SGLang spreads the experts over all ranks
    yield "ep", _size(facts, "ep_size") if all_to_all in (UNSET, NONE) else tp
    yield "pp", _size(facts, "pp_size")
    yield "nodes", _size(facts, "nnodes")
    yield "dp_attention", facts.get(f"{FLAG}enable_dp_attention") is True or attention_dp > 1
    yield "lora", facts.get(f"{FLAG}enable_lora") is True or f"{FLAG}lora_paths" in facts
    yield "deterministic", facts.get(f"{FLAG}enable_deterministic_inference") is True
    mode = facts.get(f"{FLAG}disaggregation_mode")
    yield "disaggregation", mode if mode in ("prefill", "decode") else "off"
    yield "spec_topk", facts.get(f"{FLAG}speculative_eagle_topk", UNSET)
    yield "spec_steps", facts.get(f"{FLAG}speculative_num_steps", UNSET)
    yield "draft_tokens", facts.get(f"{FLAG}speculative_num_draft_tokens", UNSET)
    for dest in DERIVED:
        yield from derived(dest, facts.get(f"{FLAG}{dest}", UNSET))


def _size(facts: FactSheet, dest: str) -> int:
    """A parallel size, 1 when no flag sets it."""
    value = facts.get(f"{FLAG}{dest}")
    return value if isinstance(value, int) and not isinstance(value, bool) else 1


DERIVED: Final[Mapping[str, tuple[str, Callable[[Fact], Fact]]]] = {
    "speculative_algorithm": ("spec", lambda value: str(value).upper() if _is_set(value) else "off"),
    "disable_radix_cache": ("radix_cache", lambda value: value is not True),
    "disable_cuda_graph": ("cuda_graph", lambda value: value is not True),
    "disable_overlap_schedule": ("overlap", lambda value: value is not True),
    "quantization": ("quantization_flag", lambda value: str(value) if _is_set(value) else NONE),
    "grammar_backend": ("grammar", lambda value: value != NONE),
}
"""Facts that are a flag in other words."""


def derived(dest: str, value: Fact) -> Iterator[tuple[str, Fact]]:
    """The facts that follow from flag `dest` being `value`."""
    if dest in DERIVED:
        name, meaning = DERIVED[dest]
        yield name, UNKNOWN if value is UNKNOWN else meaning(value)


def _is_set(value: Fact) -> bool:
    """Whether a flag has a value that means something."""
    return value not in (UNSET, NONE, "None", "")
