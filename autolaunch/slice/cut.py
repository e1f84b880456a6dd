"""A plan into a folder that SGLang loads as a model: a cut config.json and index, links, and copied tensors.

Nothing is ever written through a link: every file is new, or the attempt fails and leaves nothing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autolaunch.checkpoint.file_names import CONFIG, HF_QUANT_CONFIG, INDEX
from autolaunch.checkpoint.problems import CheckpointError
from autolaunch.slice.complete import lacking
from autolaunch.slice.plan import SlicePlan
from autolaunch.slice.problems import SliceError
from autolaunch.slice.shards import copy_tensors
from autolaunch.units import format_bytes

WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".onnx", ".h5", ".msgpack")
"""Files with weights of the whole are no part of a slice, unless the plan names them."""
_INDEX = ".index.json"
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class Slice:
    """A slice on disk."""

    folder: Path
    plan: SlicePlan


def cut(plan: SlicePlan, folder: Path) -> Slice:
    """Make the slice in `folder`, which must not exist; SliceError says why not, and nothing is left then.

    A synthetic slice gets no index: whoever makes its weights writes it, since SGLang refuses an index that
    names a missing file.
    """
    missing = lacking(plan)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise SliceError(
            "a slice would not be complete",
            because=(f"it would lack `{missing[0]}`{more}, which other layers of that kind have",),
            hint="check where the model comes from",
        )
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise _failed(folder, error) from error
    with contextlib.ExitStack() as undo:
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        try:
            _fill(plan, folder)
        except OSError as error:
            raise _failed(folder, error) from error
        except CheckpointError as error:
            raise SliceError(error.what, because=error.because, hint=error.hint) from error
        undo.pop_all()
    return Slice(folder, plan)


def _fill(plan: SlicePlan, folder: Path) -> None:
    """Write and link everything that belongs into `folder`."""
    _write(folder / CONFIG, plan.config)
    if plan.hf_quant_config is not None:
        _write(folder / HF_QUANT_CONFIG, plan.hf_quant_config)
    if plan.source is not None:
        written = {CONFIG, INDEX, *plan.tensors.values()}
        if plan.hf_quant_config is not None:
            written.add(HF_QUANT_CONFIG)
        _link_small_files(plan.source.absolute(), folder, written)
    if plan.kind == "synthetic":
        return
    if plan.source is None:
        raise SliceError("a slice of weights needs the folder that holds them")
    free = shutil.disk_usage(folder).free
    if plan.copied_bytes > free:
        raise OSError(
            errno.ENOSPC, f"{format_bytes(plan.copied_bytes)} are needed and {format_bytes(free)} free"
        )
    for file in sorted(set(plan.tensors.values())):
        if file in plan.copied:
            names = {plan.origin(name): name for name, where in plan.tensors.items() if where == file}
            copy_tensors(plan.source / file, folder / file, names)
        else:
            (folder / file).symlink_to(plan.source.absolute() / file)
    index = {"metadata": {"total_size": plan.weight_bytes}, "weight_map": dict(sorted(plan.tensors.items()))}
    _write(folder / INDEX, index)


def _link_small_files(source: Path, folder: Path, written: Collection[str]) -> None:
    """Link everything in `source` that is neither weights, nor an index, nor `written` anew."""
    with os.scandir(source) as entries:
        for entry in entries:
            name = entry.name
            if name in written or name.startswith(".") or name.endswith((*WEIGHTS, _INDEX)):
                continue
            if entry.is_file():
                (folder / name).symlink_to(source / name)


def _write(path: Path, value: Mapping[str, Any]) -> None:
    """Write `value` as JSON into a file that must be new."""
    with path.open("x", encoding="utf-8") as stream:
        json.dump(value, stream, indent=2)


def _failed(folder: Path, error: OSError) -> SliceError:
    """The error about a folder that could not be written."""
    full = error.errno in _FULL
    return SliceError(
        "the disk is full: a slice does not fit" if full else f"cannot make a slice in `{folder}`",
        because=(
            f"the system says: {error.strerror or error}",
            *((f"the folder is `{folder.parent}`",) if full else ()),
        ),
        hint="set TMPDIR to a folder on a disk with more room" if full else None,
    )
