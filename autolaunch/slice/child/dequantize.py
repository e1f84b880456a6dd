"""Writes the weights of a quantized checkpoint as what they stand for, in BF16.

    python dequantize.py JOB.json

The job: `{"source", "folder", "result", "device", "block": [128, 128] or null}`.  Tensors are those that the
index of `source` names, or all without an index; files keep their names.  A matrix and its scales become one
tensor `….weight`, blocks of gpt-oss the transposed tensor that its loader wants in BF16; scales of the KV
cache go, everything else is copied.  The file `result` gets `{"tensors", "bytes", "seconds", "device",
"formats"}` or `{"error"}`.

NOTE: runs by path under SGLang's interpreter, 3.10 or later, with nothing of autolaunch importable.
"""

from __future__ import annotations

import importlib
import json
import struct
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

if str(Path(__file__).parent) not in sys.path:
    sys.path.insert(0, str(Path(__file__).parent))
torch: Any = importlib.import_module("torch")
safetensors: Any = importlib.import_module("safetensors")
blocks: Any = importlib.import_module("matrix_blocks")
shard_files: Any = importlib.import_module("shard_files")
stored_formats: Any = importlib.import_module("stored_formats")

CHUNK = 1 << 26
"""Numbers worked out at a time; see `make_weights`."""
CHUNK_CPU = 1 << 22
OUT = "BF16"


def main(argv: Sequence[str]) -> int:
    """Do the job in the file that `argv` names; the exit code is 1 when it could not be done."""
    job = shard_files.read_job(argv[0])
    try:
        result = dequantize(job)
    except (shard_files.BadTensorError, OSError, RuntimeError, safetensors.SafetensorError) as error:
        Path(job["result"]).write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        raise
    Path(job["result"]).write_text(json.dumps(result))
    return 0


def dequantize(job: Mapping[str, Any]) -> dict[str, Any]:
    """Write all tensors of `job`; BadTensorError names one whose format is not known."""
    started = time.monotonic()
    source = Path(job["source"])
    tensors = [one for one in stored_tensors(source) if not stored_formats.KV_SCALE.search(one.name)]
    batches = shard_files.batches_of(tensors, tuple(job["block"]) if job.get("block") else None)
    device = shard_files.pick_device(job.get("device", "auto"))
    outcomes = [out_run(batch) for batch in batches]
    with shard_files.ShardFiles(Path(job["folder"]), outcomes, device) as files:
        reader = Reader(source, device)
        for batch, run in zip(batches, outcomes, strict=True):
            write(batch, run, reader, files, CHUNK if device.type == "cuda" else CHUNK_CPU)
    return {
        "tensors": sum(map(len, outcomes)),
        "bytes": files.bytes,
        "seconds": time.monotonic() - started,
        "device": str(device),
        "formats": sorted({batch.format.name for batch in batches}),
    }


def stored_tensors(source: Path) -> Iterator[Any]:
    """The tensors of the checkpoint in the folder `source`, in the order of its files."""
    index = source / shard_files.INDEX
    if index.exists():
        wanted = json.loads(index.read_text())["weight_map"]
        names = sorted(set(wanted.values()))
    else:
        wanted = None
        names = sorted(file.name for file in source.glob("*.safetensors"))
    for file in names:
        for name, entry in read_header(source / file).items():
            if name != "__metadata__" and (wanted is None or wanted.get(name) == file):
                yield from shard_files.read_tensors([(name, entry["dtype"], entry["shape"], file)])


def read_header(path: Path) -> dict[str, Any]:
    """The header of a safetensors file."""
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header: dict[str, Any] = json.loads(stream.read(length))
    return header


def out_run(batch: Any) -> list[Any]:
    """The tensors that `batch` becomes."""
    layout = batch.format
    if layout.name == "plain":
        ((_, run),) = batch.tensors.items()
        return list(run)
    stored = batch.tensors[layout.main]
    rows, columns = layout.real
    shape: tuple[int, ...] = (columns, rows) if layout.transposed else (rows, columns)
    if len(stored[0].shape) > 2:
        shape = (layout.items, *shape)
    return [
        shard_files.Tensor(out_name(one.name, module), OUT, shape, one.file)
        for one, module in zip(stored, batch.modules, strict=True)
    ]


def out_name(stored: str, module: str) -> str:
    """What the tensor that stands in `stored` is called when it is not quantized."""
    if stored == module or stored == f"{module}.weight":
        return stored
    return f"{module}.weight" if stored.startswith(f"{module}.") else module


def write(batch: Any, run: Sequence[Any], reader: Reader, files: Any, chunk: int) -> None:
    """Read, work out and write `batch` as the tensors of `run`, about `chunk` numbers at a time."""
    layout = batch.format
    if layout.name == "plain":
        for n, one in enumerate(run):
            files.put(run[0], n, reader.read(one)[None])
        return
    rows, columns = layout.real
    step = max(1, chunk // (rows * columns))
    modules = max(1, step // layout.items)
    for start in range(0, len(run), modules):
        parts = {
            role: stacked([reader.read(one) for one in tensors[start : start + modules]], layout.shapes[role])
            for role, tensors in batch.tensors.items()
        }
        items = len(parts[layout.main])
        for first in range(0, items, step):
            values = layout.decode({role: part[first : first + step] for role, part in parts.items()})
            values = values.transpose(1, 2) if layout.transposed else values
            files.put(run[0], start * layout.items + first, values.to(blocks.TORCH[OUT]).contiguous())


def stacked(read: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """Tensors of several modules as one `[items, …]`, where an item has `shape`."""
    return torch.stack([one.reshape(-1, *shape) for one in read]).flatten(0, 1)


class Reader:
    """Tensors of a checkpoint, on one device."""

    def __init__(self, source: Path, device: Any) -> None:
        """Reads from the folder `source`."""
        self._source = source
        self._device = str(device)
        self._file = ""
        self._open: Any = None

    def read(self, tensor: Any) -> Any:
        """The tensor itself; the file it is in stays open until one of another file is asked for."""
        if tensor.file != self._file:
            path = str(self._source / tensor.file)
            self._file = tensor.file
            self._open = safetensors.safe_open(path, framework="pt", device=self._device)
        return self._open.get_tensor(tensor.name)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
