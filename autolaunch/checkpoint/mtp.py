"""Whether a checkpoint holds heads that predict several tokens: names of tensors into an `Mtp`.

Configuration announces, tensors prove: keys stay behind when a converter drops the heads, and are missing
where heads exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from autolaunch.checkpoint.config import Config
from autolaunch.checkpoint.heads import Heads, announced_heads, count_heads, experts_of
from autolaunch.checkpoint.stored import PLAIN_BY_NAME, dominant, is_matrix, stored_scheme
from autolaunch.checkpoint.tensors import Tensors
from autolaunch.checkpoint.weights import Weight

# SGLang loads such a file without the index only for these (0.5.23 model_loader/weight_utils.py:811-860).
_LOADS_UNINDEXED = ("Glm4MoeForCausalLM", "Glm4MoeLiteForCausalLM")
_UNINDEXED_NAME = "mtp.safetensors"


@dataclass(frozen=True, slots=True)
class Mtp:
    """Multi-token prediction heads (NEXTN) inside a checkpoint."""

    announced: bool
    announced_layers: int | None
    """Number in the configuration, 0 where it says so, None without a key."""
    present: bool | None
    """Proven by tensor names; None when no tensor list could be read."""
    tensors: int | None
    experts: int | None
    """Routed experts of one head, 0 for a dense one."""
    prefix: str | None
    """What their names begin with: `mtp.`, `model.layers.61.` …"""
    layers: int | None
    """Heads whose tensors are there."""
    dtype: str | None
    """Scheme in which most of their matrices are stored."""
    files: tuple[str, ...]
    weight_bytes: int | None
    usable: bool
    """Present and whole, of a form that SGLang's NEXTN drafts read."""
    reason: str
    """One sentence."""
    family: str | None
    """Form of the heads: id of a row of `data/mtp_tensors.toml`."""
    keys: tuple[str, ...] = ()
    """Keys that announced."""
    notes: tuple[str, ...] = ()


def mtp_of(
    config: Config,
    names: Sequence[str],
    tensors: Tensors | None,
    heads: Heads | None,
    weights: Sequence[Weight],
    whole: bool,
) -> Mtp:
    """What is known of the heads of a model with the architectures `names`.

    `weights` are those of the part `mtp`; `whole` says whether the list of tensors is that of all layers.
    """
    number, keys = announced_heads(config)
    announced = bool(number)
    if tensors is None or (heads is None and not whole):
        missing = (
            "no list of tensors could be read" if tensors is None else "the list of tensors is not whole"
        )
        said = (
            f"the configuration announces {number} (`{keys[0]}`)"
            if announced
            else "the configuration announces none"
        )
        return _nothing(announced, number, None, f"{missing}, and {said}", keys)
    if heads is None:
        if announced:
            reason = f"`{keys[0]}` announces {number}, but none of {len(tensors)} tensors belongs to a head"
        else:
            reason = f"none of {len(tensors)} tensors belongs to a head"
        return _nothing(announced, number, False, reason, keys)
    layers, whole_heads = count_heads(heads)
    files = tuple(dict.fromkeys(file for group in heads.groups for file in group.files))
    sizes = [group.bytes for group in heads.groups]
    found = [
        one
        for weight in weights
        if is_matrix(weight) and (one := stored_scheme(weight)) is not None and one.scheme != PLAIN_BY_NAME
    ]
    main = dominant(found)
    count = sum(group.count for group in heads.groups)
    usable, reason = _usable(heads, names, files, tensors, whole_heads, count)
    return Mtp(
        announced=announced,
        announced_layers=number,
        present=True,
        tensors=count,
        experts=experts_of(heads),
        prefix=heads.prefix,
        layers=layers,
        dtype=main.scheme if main else None,
        files=files,
        weight_bytes=sum(size for size in sizes if size is not None) if None not in sizes else None,
        usable=usable,
        reason=reason,
        family=str(heads.form["id"]),
        keys=keys,
        notes=_notes(number, keys, layers),
    )


def _nothing(
    announced: bool, number: int | None, present: bool | None, reason: str, keys: tuple[str, ...]
) -> Mtp:
    """No heads, or none that could be seen."""
    none = 0 if present is False else None
    return Mtp(
        announced, number, present, none, None, None, none, None, (), none, False, reason, None, keys
    )  # fmt: skip


def _usable(
    heads: Heads, names: Sequence[str], files: Sequence[str], tensors: Tensors, joined: bool, count: int
) -> tuple[bool, str]:
    """Whether SGLang's drafts can read the heads, and why."""
    what = f"{count} tensors `{heads.prefix}*`"
    if not joined:
        return False, f"{what} are there, but not the projection that joins token and hidden state"
    apart = [file for file in files if file in tensors.unindexed]
    if apart and not (
        any(file.rsplit("/", 1)[-1] == _UNINDEXED_NAME for file in apart)
        and any(fnmatchcase(name, like) for name in names for like in _LOADS_UNINDEXED)
    ):
        return False, f"{what} are in `{apart[0]}`, which the index does not name and SGLang does not load"
    if not heads.form["nextn"]:
        return False, f"{what} are {heads.form['id']} heads, which NEXTN does not read"
    return True, f"{what} are there"


def _notes(number: int | None, keys: Sequence[str], layers: int) -> tuple[str, ...]:
    """Where configuration and tensors disagree."""
    if number is None:
        return ("the configuration does not announce the heads",)
    if number != layers:
        return (f"`{keys[0]}` announces {number}, the tensors hold {layers}",)
    return ()
