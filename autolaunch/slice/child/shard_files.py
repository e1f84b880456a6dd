"""Tensors into safetensors files: every place is known before the first byte is written.

A *batch* is a list of modules alike in everything (the experts of one layer); its tensors of one role lie
in one file behind each other, a *run*, so that what was made for many modules at once is written at once.
Threads write, because one alone moves 2 GB a second and a GPU makes ten times that.

NOTE: imported by path under SGLang's interpreter, with nothing of autolaunch importable.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import re
import struct
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

torch: Any = importlib.import_module("torch")
blocks: Any = importlib.import_module("matrix_blocks")
stored_formats: Any = importlib.import_module("stored_formats")

INDEX = "model.safetensors.index.json"
EXPERT = re.compile(r"\.experts\.[0-9]+\.")
ALIGNMENT = 8
STAGING_BYTES = 64 << 20
"""Of pinned memory for each thread that takes tensors from a GPU."""
MOST_WAITING = 12
"""Tensors that wait to be written, each at most a chunk of `make_weights`."""
THREADS = 8


class BadTensorError(Exception):
    """A tensor that cannot be made or read; the message names it."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor that a file is to hold."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str

    @property
    def bytes(self) -> int:
        """Its size."""
        size: int = math.prod(self.shape) * blocks.TORCH[self.dtype].itemsize
        return size


@dataclass(slots=True)
class Batch:
    """Modules that are stored alike, in the order of their places in the files."""

    format: Any
    modules: list[str] = field(default_factory=list)
    tensors: dict[str, list[Tensor]] = field(default_factory=dict)
    """By role, one for each module."""


def read_tensors(rows: Sequence[Sequence[Any]]) -> list[Tensor]:
    """Tensors from rows of a job: name, dtype, shape, file."""
    tensors = [Tensor(name, dtype, tuple(shape), file) for name, dtype, shape, file in rows]
    for one in tensors:
        if one.dtype not in blocks.TORCH:
            raise BadTensorError(f"`{one.name}` is {one.dtype}, which is not known")
        if Path(one.file).name != one.file or not one.file.endswith(".safetensors"):
            raise BadTensorError(f"`{one.name}` is in `{one.file}`, which is no name of a safetensors file")
    return tensors


def batches_of(tensors: Sequence[Tensor], declared: tuple[int, int] | None) -> list[Batch]:
    """`tensors` as batches, in order of first appearance; BadTensorError names an unknown format."""
    modules: dict[str, dict[str, Tensor]] = {}
    for one in tensors:
        module, role = stored_formats.split_role(one.name)
        modules.setdefault(module, {})[role] = one
    found: dict[tuple[Any, ...], Batch] = {}
    for module, parts in modules.items():
        # In this order their places in the files are given, which must be the same for all of a batch.
        stored = tuple(sorted((role, one.dtype, one.shape, one.file) for role, one in parts.items()))
        key = (EXPERT.sub(".experts.N.", module), stored)
        batch = found.get(key)
        if batch is None:
            shown = {role: blocks.Stored(one.dtype, one.shape) for role, one in parts.items()}
            try:
                batch = found[key] = Batch(stored_formats.recognize(shown, declared))
            except blocks.UnknownFormatError as error:
                raise BadTensorError(f"`{next(iter(parts.values())).name}`: {error}") from error
        batch.modules.append(module)
        for role, one in parts.items():
            batch.tensors.setdefault(role, []).append(one)
    return list(found.values())


class ShardFiles:
    """A context manager that writes tensors to their places in the files of `folder`.

    Leaving it without an exception waits for all writes and adds the index; the files are then complete.
    """

    def __init__(
        self, folder: Path, runs: Sequence[Sequence[Tensor]], device: Any, threads: int = THREADS
    ) -> None:
        """Files in `folder` for the tensors of `runs`, which come from `device`."""
        self.bytes = 0
        self._folder = folder
        self._on_gpu = device.type == "cuda"
        self._places: dict[str, tuple[str, int]] = {}
        self._descriptors: dict[str, int] = {}
        self._headers: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}
        self._pool = ThreadPoolExecutor(threads)
        self._waiting = threading.Semaphore(MOST_WAITING)
        self._writes: list[Future[None]] = []
        self._local = threading.local()
        self._plan(runs)

    def _plan(self, runs: Sequence[Sequence[Tensor]]) -> None:
        """Give every tensor its place: wide elements first, so that each lies at a multiple of its width."""
        by_file: dict[str, list[Tensor]] = {}
        for run in sorted(runs, key=lambda run: -blocks.TORCH[run[0].dtype].itemsize):
            for one in run:
                by_file.setdefault(one.file, []).append(one)
        for file, tensors in by_file.items():
            entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
            end = 0
            for one in tensors:
                if one.name in self._places:
                    raise BadTensorError(f"`{one.name}` is there twice")
                offsets = [end, end + one.bytes]
                entries[one.name] = {"dtype": one.dtype, "shape": list(one.shape), "data_offsets": offsets}
                self._places[one.name] = (file, end)
                end += one.bytes
            header = json.dumps(entries, separators=(",", ":")).encode()
            header += b" " * (-len(header) % ALIGNMENT)
            self._headers[file] = struct.pack("<Q", len(header)) + header
            self._sizes[file] = end
            self.bytes += end

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as undo:
            undo.callback(self._close)
            for file, header in self._headers.items():
                flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW
                descriptor = self._descriptors[file] = os.open(self._folder / file, flags, 0o644)
                write_all(descriptor, header, 0)
            undo.pop_all()
        return self

    def put(self, first: Tensor, items_before: int, value: Any) -> None:
        """Write `value`, of which the first dimension counts items, into a run that begins with `first`.

        `items_before` items of the run lie before it.  The write may still be going on when this returns.
        """
        self._waiting.acquire()
        file, start = self._places[first.name]
        offset = len(self._headers[file]) + start + items_before * item_bytes(value)
        self._writes.append(self._pool.submit(self._write, self._descriptors[file], offset, value))
        if self._writes[0].done():  # an error ends everything now, not after minutes
            self._writes.pop(0).result()

    def _write(self, descriptor: int, offset: int, value: Any) -> None:
        """Write the bytes of `value` at `offset`, through pinned memory where it is on a GPU."""
        try:
            flat = value.contiguous().reshape(-1).view(torch.uint8)
            step = STAGING_BYTES if self._on_gpu else max(1, flat.numel())
            for start in range(0, flat.numel(), step):
                piece = flat[start : start + step]
                if self._on_gpu:
                    piece = self._staging()[: piece.numel()].copy_(piece)
                write_all(descriptor, memoryview(piece.numpy()), offset + start)
        finally:
            self._waiting.release()

    def _staging(self) -> Any:
        """The pinned memory of this thread."""
        if not hasattr(self._local, "staging"):
            self._local.staging = torch.empty(STAGING_BYTES, dtype=torch.uint8, pin_memory=True)
        return self._local.staging

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)
        try:
            if kind is None:
                for write in self._writes:
                    write.result()
                self._check_and_index()
        finally:
            self._close()

    def _check_and_index(self) -> None:
        """Write the index, now that every file has the length its header says."""
        for file, descriptor in self._descriptors.items():
            size, wanted = os.fstat(descriptor).st_size, len(self._headers[file]) + self._sizes[file]
            if size != wanted:
                raise BadTensorError(f"`{file}` has {size} bytes and should have {wanted}")
        names = {name: file for name, (file, _) in self._places.items()}
        index = {"metadata": {"total_size": self.bytes}, "weight_map": names}
        (self._folder / INDEX).write_text(json.dumps(index, indent=1))

    def _close(self) -> None:
        """Close all files."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])


def item_bytes(value: Any) -> int:
    """Bytes of one item along the first dimension of `value`."""
    size: int = math.prod(value.shape[1:]) * value.element_size()
    return size


def write_all(descriptor: int, data: Any, offset: int) -> None:
    """Write all of `data` at `offset`; the system may take a part at a time."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def run_of(batch: Batch) -> list[list[Tensor]]:
    """The runs of `batch`, one a role."""
    return list(batch.tensors.values())


def pick_device(wanted: str) -> Any:
    """`auto` as a GPU where one can be used, everything else as torch spells it."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(wanted)


def read_job(path: str) -> Mapping[str, Any]:
    """The job that a child was started with."""
    job: Mapping[str, Any] = json.loads(Path(path).read_text())
    return job
