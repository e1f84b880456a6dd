"""From a start to its fingerprint: all that may change which choice is right or fastest, field by field.

What each field means, and what a difference in it invalidates, stands in data/fingerprint.toml.  No value is
a secret: what names or looks like one is hidden, and long ones are cut to their beginning and a digest.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from autolaunch import __version__
from autolaunch.detect.host import cpu_name
from autolaunch.detect.machine import Machine
from autolaunch.detect.ranks import pinned_number, used_gpus
from autolaunch.detect.software import FIELDS, Software
from autolaunch.profiles.digests import checkpoint_fields
from autolaunch.profiles.fields import consequence_of, presentable
from autolaunch.profiles.profile import Fingerprint, FlatValue
from autolaunch.profiles.tuned_flags import exact_flag, tuned_flags, tuned_variables
from autolaunch.redact import redact, redact_argv, redact_value
from autolaunch.request.command_line import SWITCHED_OFF, Pin, Request
from autolaunch.request.config_file import CONFIG
from autolaunch.request.flags import FlagCatalogue
from autolaunch.request.hub_cache import cached_snapshot, is_hub_id
from autolaunch.request.weights import model_folder
from autolaunch.tables import load_rows

_PARALLEL: Final = {
    "parallel.tp": ("tp_size", "tensor_parallel_size"),
    "parallel.pp": ("pp_size", "pipeline_parallel_size"),
    "parallel.dp": ("dp_size", "data_parallel_size"),
    "parallel.ep": ("ep_size", "expert_parallel_size"),
    "parallel.nodes": ("nnodes", ""),
}
_DP_ATTENTION = "enable_dp_attention"
_ELSEWHERE: Final = frozenset(
    {*(dest for dests in _PARALLEL.values() for dest in dests), _DP_ATTENTION, "model_path", "config"}
)
"""Flags that have fields of their own."""
_UNIMPORTANT: Final = frozenset({"transformers", "xgrammar"})
"""Distributions that hold no kernel."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)
_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}", re.ASCII)
_DEST = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
_LONGEST = 200
_SHOWN = 120


def fingerprint_of(
    request: Request,
    catalogue: FlagCatalogue,
    machine: Machine,
    software_versions: Mapping[str, str | None],
    environ: Mapping[str, str],
    cwd: Path,
    *,
    wishes: Mapping[str, Any],
    cache: Path | None,
) -> Fingerprint | None:
    """The fingerprint of this start on `machine`, the whole one; None where the weights are not on it.

    `software_versions` are those of `versions_of`; `wishes` what the user told autolaunch itself (`admit`,
    `lossy`, `nextn`, `candidates`); `cache` is the user's cache folder.
    """
    folder = _folder(request, cwd, environ)
    checkpoint = None if folder is None else checkpoint_fields(folder, cache)
    if folder is None or checkpoint is None:
        return None
    found: dict[str, FlatValue] = {"platform": machine.platform, "entry": request.entry, **checkpoint}
    found["model.name"] = model_name(request.model or "", folder)
    if request.model and (cwd / request.model).is_file():
        found["checkpoint.file"] = Path(request.model).name  # one of several in its folder
    found.update(_machine_fields(request, machine))
    found.update(_parallel_fields(request))
    found.update(_flag_fields(request, catalogue, machine))
    found.update(_wish_fields(wishes))
    found.update(_variable_fields(environ))
    found.update((f"version.{name}", text) for name, text in software_versions.items() if text)
    found["version.autolaunch"] = __version__
    return {name: presentable(name, _cut(value)) for name, value in sorted(found.items())}


def versions_of(software: Software, machine: Machine) -> dict[str, str | None]:
    """The versions that belong to a fingerprint, by the names of its fields."""
    versions: dict[str, str | None] = {name: getattr(software, name).version for name in FIELDS}
    for name, package in software.others.items():
        if package.source == "installed" and name not in _UNIMPORTANT:
            versions[name] = package.version
    if machine.platform == "cuda":
        versions["driver"] = machine.driver
    return versions


def model_name(model: str, folder: Path | None = None) -> str:
    """What a model is called: the last part of its path or hub id, of a snapshot the model's own name."""
    parts = [
        part
        for part in re.split(r"[/\\]+", os.fspath(folder) if _is_here(model) and folder else model)
        if part
    ]
    for at, part in enumerate(parts):
        if part.startswith("models--") and parts[at + 1 : at + 2] == ["snapshots"]:
            return part.rpartition("--")[2]
    return parts[-1] if parts else "model"


def neutral_dests(catalogue: FlagCatalogue) -> frozenset[str]:
    """The flags of this SGLang, by `dest`, that no result depends on."""
    flags = (exact_flag(catalogue, row["flag"]) for row in load_rows("neutral_flags", "flag"))
    return frozenset(flag.dest for flag in flags if flag is not None)


def _is_here(model: str) -> bool:
    """Whether a name says nothing but where: `.`, `..` and the like."""
    return not model.strip("./\\")


def _folder(request: Request, cwd: Path, environ: Mapping[str, str]) -> Path | None:
    """Where the weights lie: a folder, or the snapshot of the revision that was asked for."""
    model, revision = request.model, request.revision
    if model and revision and is_hub_id(model) and not os.path.lexists(cwd / model):
        snapshot = cached_snapshot(model, environ, revision)
        return snapshot.folder if snapshot is not None else None
    return model_folder(model, cwd=cwd, environ=environ)


def _machine_fields(request: Request, machine: Machine) -> dict[str, FlatValue]:
    """The GPUs that the start uses, or the CPU."""
    if machine.platform != "cuda":
        return _told({"host.cores": machine.cores, "host.cpu": cpu_name()})
    used = used_gpus(request, machine)[0]
    gpus = used.gpus
    told: dict[str, FlatValue | None] = {
        "gpu.count": len(gpus),
        "gpu.name": _one(gpu.name for gpu in gpus),
        "gpu.sm": _one(gpu.sm for gpu in gpus),
        "gpu.sm_count": _one(gpu.sm_count for gpu in gpus),
        "gpu.memory_bytes": min((gpu.memory_bytes for gpu in gpus if gpu.memory_bytes), default=None),
        "gpu.power_limit_w": min((gpu.power_limit_w for gpu in gpus if gpu.power_limit_w), default=None),
        "gpu.nvlink": used.nvlink,
        "gpu.p2p": used.p2p,
    }
    return _told(told)


def _told(fields: Mapping[str, FlatValue | None]) -> dict[str, FlatValue]:
    """`fields` without those that nobody could tell."""
    return {name: value for name, value in fields.items() if value is not None}


def _one(values: Iterable[str | int | None]) -> FlatValue | None:
    """What all have in common; where they differ, all there is in one text."""
    seen = dict.fromkeys(value for value in values if value is not None)
    return next(iter(seen), None) if len(seen) < 2 else " + ".join(sorted(map(str, seen)))


def _parallel_fields(request: Request) -> Iterator[tuple[str, FlatValue]]:
    """How the model is split, said or not."""
    for name, (dest, formerly) in _PARALLEL.items():
        yield name, max(1, pinned_number(request, dest, 1, formerly))
    pin = request.pins.get(_DP_ATTENTION)
    yield "parallel.dp_attention", pin is not None and pin.values != SWITCHED_OFF


def _flag_fields(
    request: Request, catalogue: FlagCatalogue, machine: Machine
) -> Iterator[tuple[str, FlatValue]]:
    """The flags that were set: `pin.…` where a choice could set them too, `flag.…` otherwise."""
    elsewhere = _ELSEWHERE | neutral_dests(catalogue)
    if machine.platform in ("cuda", "cpu"):
        elsewhere |= {"device"}  # it is what made the platform this
    tuned = {
        flag.dest: row.field
        for row in tuned_flags()
        for name in row.names
        if (flag := exact_flag(catalogue, name)) is not None
    }
    for dest, pin in request.pins.items():
        if dest in tuned:
            yield tuned[dest], _pinned(pin)
        elif dest not in elsewhere and _DEST.fullmatch(dest):
            yield f"flag.{dest}", _pinned(pin)
    if request.notices or (request.entry == "sglang_serve" and _names_a_file(request.argv)):
        yield "unread", shlex.join(redact_argv(request.argv))


def _names_a_file(argv: Sequence[str]) -> bool:
    """Whether there is a configuration file, which nobody reads for this entry point."""
    return any(word.partition("=")[0] == CONFIG for word in argv)


def _pinned(pin: Pin) -> FlatValue:
    """The value of a flag, a secret one hidden."""
    if not pin.values or pin.values == SWITCHED_OFF:
        return not pin.values
    values = redact_argv((f"--{pin.dest.replace('_', '-')}", *pin.values))[1:]
    text = values[0] if len(values) == 1 else shlex.join(values)
    return int(text) if _NUMBER.fullmatch(text) else text


def _wish_fields(wishes: Mapping[str, Any]) -> Iterator[tuple[str, FlatValue]]:
    """What the user told autolaunch itself; nothing where nothing was said."""
    for name, value in wishes.items():
        if isinstance(value, bool | str | int | float):
            yield f"wish.{name}", value
        elif value:
            yield f"wish.{name}", " | ".join(sorted(redact(str(one)) for one in value))


def _variable_fields(environ: Mapping[str, str]) -> Iterator[tuple[str, FlatValue]]:
    """The variables that invalidate something, and those that a choice could set."""
    tuned = {one.name: one.field for one in tuned_variables()}
    for name, value in environ.items():
        if not _VARIABLE.fullmatch(name):
            continue
        field = tuned.get(name, f"env.{name}")
        if consequence_of(field).invalidates != "nothing":
            yield field, redact_value(name, value)


def _cut(value: FlatValue) -> FlatValue:
    """`value`, of a long text its beginning and a digest."""
    if not isinstance(value, str) or len(value) <= _LONGEST:
        return value
    digest = hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()
    return f"{value[:_SHOWN]}… sha256:{digest[:32]}"
