"""config.json into the language part of it, read with types: the same fact hides under many keys and levels.

A key that is null counts as absent.  A key that holds the wrong type is an error, because SGLang would stop
there too; `NaN`, `Infinity` and numbers that are whole in all but spelling (`8.0`) are taken as they come.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autolaunch.checkpoint.problems import CheckpointError, shown

# In SGLang's order of preference (0.5.23 utils/hf_transformers/common.py:582-606), then names seen elsewhere.
NESTED = (
    "thinker_config",
    "llm_config",
    "language_config",
    "text_config",
    "llm_cfg",
    "language_model_config",
)
# What only a language model's part has; an empty `text_config` beside a flat configuration is none.
LANGUAGE_KEYS = frozenset(
    {
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "n_layer",
        "d_model",
        "num_layers",
    }
)
CONTEXT_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
    "n_positions",  # what GPT-2's class calls max_position_embeddings
)
LAYER_KEYS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_decoder_layers")
MOST_LAYERS = 10_000
"""More than any model has; lists of one word a layer are made of this length."""
# Lists with one entry a layer, for configurations that leave the number out.
LAYER_LISTS = (
    "layers_block_type",
    "layer_types",
    "hybrid_override_pattern",
    "block_configs",
    "attn_type_list",
)


_LARGEST = 10**15
"""No count or width is larger; sums of larger ones would not fit into a float."""


@dataclass(frozen=True, slots=True)
class Config:
    """The language part of a configuration, with what stands around it."""

    data: Mapping[str, Any]
    outer: Mapping[str, Any]
    """The whole of config.json; the same mapping where nothing is nested."""
    path: tuple[str, ...] = ()
    """Keys that lead from the whole to the language part."""

    def get(self, key: str) -> Any:
        """The value of `key` in the language part, else outside it, else None."""
        value = self.data.get(key)
        return self.outer.get(key) if value is None and self.data is not self.outer else value

    def integer(self, *keys: str, least: int = 0) -> int | None:
        """The whole number under the first of `keys` that is there; of a list (one a layer) the largest."""
        for key in keys:
            value = self.data.get(key)
            if isinstance(value, list | tuple) and value:
                numbers = [self._whole(key, one, least) for one in value if one is not None]
                return max(numbers, default=None)
            if value is not None:
                return self._whole(key, value, least)
        return None

    def number(self, *keys: str) -> float | None:
        """The number under the first of `keys` that is there."""
        for key in keys:
            value = self.data.get(key)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value) if abs(value) <= _LARGEST or isinstance(value, float) else math.inf
            if value is not None:
                raise self._wrong(key, value, "a number")
        return None

    def flag(self, key: str) -> bool | None:
        """The switch `key`, None where it is absent."""
        value = self.data.get(key)
        if value is None or isinstance(value, bool):
            return value
        if value in (0, 1):
            return bool(value)
        raise self._wrong(key, value, "true or false")

    def text(self, key: str) -> str | None:
        """The text under `key`."""
        value = self.data.get(key)
        if value is None or isinstance(value, str):
            return value
        raise self._wrong(key, value, "a text")

    def sequence(self, key: str) -> Sequence[Any] | None:
        """The list under `key`; a text counts as the list of its letters."""
        value = self.data.get(key)
        if value is None or isinstance(value, list | tuple | str):
            return value
        raise self._wrong(key, value, "a list")

    def mapping(self, key: str, *, outside: bool = False) -> Mapping[str, Any] | None:
        """The object under `key`; `outside` looks around the language part too."""
        value = self.get(key) if outside else self.data.get(key)
        if value is None or isinstance(value, Mapping):
            return value
        raise self._wrong(key, value, "an object")

    def has(self, *keys: str) -> bool:
        """Whether any of `keys` has a value."""
        return any(self.data.get(key) is not None for key in keys)

    def name(self, key: str) -> str:
        """`key` as a message shows it, with the path to it."""
        return ".".join((*self.path, key)) if key in self.data else key

    def _whole(self, key: str, value: Any, least: int) -> int:
        """`value` as a whole number of at least `least`."""
        if isinstance(value, float) and math.isfinite(value) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(key, value, "a whole number")
        if value < least:
            raise self._wrong(key, value, f"at least {least}")
        if value > _LARGEST:
            raise self._wrong(key, value, f"at most {_LARGEST}")
        return value

    def _wrong(self, key: str, value: Any, wanted: str) -> CheckpointError:
        """The error for a value of the wrong type or range."""
        return CheckpointError(
            f"config.json is wrong: `{shown(self.name(key))}` is not {wanted}",
            because=(f"it holds {shown(repr(value), 60)}",),
        )


def language_config(config: Mapping[str, Any]) -> Config:
    """The part of `config` that describes the language model, at whatever level it stands."""
    for path, part in _nested(config, ()):
        if LANGUAGE_KEYS & {key for key, value in part.items() if value is not None}:
            return Config(part, config, path)
    return Config(config, config)


def _nested(
    config: Mapping[str, Any], path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Parts below `config` that may be the language model, the deepest of each first."""
    for key in NESTED:
        part = config.get(key)
        if isinstance(part, Mapping):
            if len(path) < 2:
                yield from _nested(part, (*path, key))
            yield (*path, key), part
        elif part is not None and not isinstance(part, str | bool):
            raise CheckpointError(
                f"config.json is wrong: `{'.'.join((*path, key))}` is not an object",
                because=(f"it holds {shown(repr(part), 60)}",),
            )


def architectures(config: Config) -> tuple[str, ...]:
    """The class names of the whole model, else of the language part."""
    for part in (config.outer, config.data):
        value = part.get("architectures")
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list) and all(isinstance(one, str) for one in value) and value:
            return tuple(value)
        if value is not None and value != []:
            raise CheckpointError(
                "config.json is wrong: `architectures` is not a list of names",
                because=(f"it holds {shown(repr(value), 60)}",),
            )
    return ()


def num_layers(config: Config) -> int | None:
    """Decoder layers, by their number or by a list that has one entry for each."""
    told = config.integer(*LAYER_KEYS)
    if told is not None and told > MOST_LAYERS:
        key = next(key for key in LAYER_KEYS if config.has(key))
        raise CheckpointError(
            f"config.json is wrong: `{config.name(key)}` is no number of layers",
            because=(f"it holds {shown(repr(told), 60)}, and no model has more than {MOST_LAYERS}",),
        )
    if told is not None:
        return told
    for key in LAYER_LISTS:
        listed = config.sequence(key)
        if listed:
            return len(listed)
    return None


def dtype(config: Config) -> str | None:
    """The data type the configuration gives, under either name, of the language part first."""
    for part in (config.data, config.outer):
        for key in ("dtype", "torch_dtype"):
            value = part.get(key)
            if isinstance(value, str):
                return value.removeprefix("torch.")
    return None


def context_length(config: Config) -> int | None:
    """Positions as SGLang derives them (0.5.23 utils/hf_transformers/common.py:677-694), None without a key.

    A scaling factor multiplies unless the length before scaling is told too, or the scaling is Llama 3's:
    then `max_position_embeddings` already is the long one.  Scaling that differs by kind of layer (Gemma 3)
    is nested since transformers 5 and multiplies nothing either.
    """
    scaling = config.mapping("rope_scaling") or config.mapping("rope_parameters") or {}
    factor = scaling.get("factor", 1)
    kind = scaling.get("rope_type", scaling.get("type"))
    nested = config.has("rope_local_base_freq")
    if "original_max_position_embeddings" in scaling or kind == "llama3" or nested:
        factor = 1
    if not isinstance(factor, int | float) or not math.isfinite(factor) or factor <= 0:
        factor = 1
    for key in CONTEXT_KEYS:
        if config.data.get(key) is not None:
            length = config.number(key)
            if length is None or not math.isfinite(length * factor):
                return None
            return int(length * factor)
    return None
