"""Random command lines that SGLang accepts, made from a flag catalogue with every form people type."""

from __future__ import annotations

import json
import random

from autolaunch.request.flags import Flag, FlagCatalogue

_WORDS = (
    "a",
    "/models/x y",
    "",
    "ünïcode",
    "-",
    "x=y",
    "a,b",
    "{}",
    "-0.5",
    "-7",
    "- dashed words",
    "0",
    "~",
    "$HOME",
    "*",
)
# What a converter of SGLang's takes; text for all others.
_TYPED = {
    "int": ("0", "1", "8", "-1", "4096"),
    "float": ("0.5", "1", "-1", "-.5", "1e3"),
    "human_readable_int": ("1", "4096", "-1"),
    "json.loads": ('{"a": 1}', "[1, 2]", "3", '{"deep": {"b": [null, "-x"]}}'),
    "json_list_type": ('["a", "b"]', "[]", '[{"a": 1}]'),
    "nullable_str": ("none", "x", ""),
    "parse_cuda_graph_config_arg": ('{"decode": {"backend": "full"}}', "{}"),
}  # fmt: skip
# Lists made at run time: one value of each that all versions know.
_RUN_TIME_CHOICES = {"reasoning_parser": "qwen3", "tool_call_parser": "qwen25", "kv_canary_real_data": "none"}
# These end the run, or name a file that must exist.
_LEFT_OUT = ("help", "config")


def random_line(rng: random.Random, catalogue: FlagCatalogue, flags: int) -> list[str]:
    """A line with the model first, as `autolaunch serve` takes it, and about `flags` flags, some repeated."""
    usable = [flag for flag in catalogue.flags if flag.dest not in _LEFT_OUT and flag.dest != "model_path"]
    chosen = rng.sample(usable, min(flags, len(usable)))
    chosen += rng.choices(chosen, k=rng.randrange(3)) if chosen else []
    line = [rng.choice(("org/model", "/models/x", "./m", "m with space"))]
    for flag in chosen:
        line += _occurrence(rng, catalogue, flag)
    return line


def abbreviated(rng: random.Random, catalogue: FlagCatalogue, name: str) -> str:
    """`name` cut somewhere, if what is left means it and nothing else; `name` otherwise."""
    short = name[: rng.randint(3, len(name))]
    matching = [other for other in catalogue.names() if other.startswith(short)]
    return short if matching == [name] else name


def _occurrence(rng: random.Random, catalogue: FlagCatalogue, flag: Flag) -> list[str]:
    name = rng.choice(flag.names)
    if rng.random() < 0.3:
        name = abbreviated(rng, catalogue, name)
    if flag.nargs == 0:
        return [name]
    if flag.nargs is None or (flag.nargs == "?" and rng.random() < 0.7):
        value = _value(rng, flag)
        if rng.random() < 0.4:
            return [f"{name}={value}"]
        return [name, value]
    if flag.nargs == "?":
        return [name]
    least = 1 if flag.nargs == "+" else 0
    if rng.random() < 0.2:
        return [f"{name}={_value(rng, flag)}"]
    return [name, *(_value(rng, flag) for _ in range(rng.randint(least, 4)))]


def _value(rng: random.Random, flag: Flag) -> str:
    if flag.dest in _RUN_TIME_CHOICES:
        return _RUN_TIME_CHOICES[flag.dest]
    if flag.choices:
        return rng.choice(flag.choices)
    if flag.action == "other":  # LoRA adapters: a path, a named path, or JSON
        return rng.choice(["/l", "n=/l", json.dumps({"lora_name": "n", "lora_path": "/l"})])
    return rng.choice(_TYPED.get(flag.type or "str", _WORDS))
