"""Writes safetensors files with random weights of natural scale, quantized as their headers say.

    python make_weights.py JOB.json

The job: `{"folder", "result", "seed", "device", "block": [128, 128] or null, "kinds": [rows],
"tensors": [[name, dtype, shape, file], …]}`.  Kinds are the rows of `data/synthetic.toml`, of which the
first whose `pattern` is found in a name says how its tensor is drawn.  A quantized weight and its scales are
made from one matrix.  The file `result` gets `{"tensors", "bytes", "seconds", "device"}` or `{"error"}`.

NOTE: runs by path under SGLang's interpreter, 3.10 or later, with nothing of autolaunch importable.
"""

from __future__ import annotations

import importlib
import json
import math
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if str(Path(__file__).parent) not in sys.path:
    sys.path.insert(0, str(Path(__file__).parent))
torch: Any = importlib.import_module("torch")
blocks: Any = importlib.import_module("matrix_blocks")
shard_files: Any = importlib.import_module("shard_files")

CHUNK = 1 << 26
"""Numbers made at a time: 256 MiB in float32, and a few times that while they are quantized."""
CHUNK_CPU = 1 << 22


def main(argv: Sequence[str]) -> int:
    """Do the job in the file that `argv` names; the exit code is 1 when it could not be done."""
    job = shard_files.read_job(argv[0])
    try:
        result = make(job)
    except (shard_files.BadTensorError, OSError, RuntimeError) as error:
        Path(job["result"]).write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}))
        raise
    Path(job["result"]).write_text(json.dumps(result))
    return 0


def make(job: Mapping[str, Any]) -> dict[str, Any]:
    """Write all tensors of `job`; BadTensorError names one that cannot be made."""
    started = time.monotonic()
    tensors = shard_files.read_tensors(job["tensors"])
    batches = shard_files.batches_of(tensors, tuple(job["block"]) if job.get("block") else None)
    kinds = Kinds(job["kinds"])
    for batch in batches:
        kinds.check(batch)
    device = shard_files.pick_device(job.get("device", "auto"))
    generator = torch.Generator(device=device)
    generator.manual_seed(job["seed"])
    runs = [run for batch in batches for run in shard_files.run_of(batch)]
    with shard_files.ShardFiles(Path(job["folder"]), runs, device) as files:
        for batch in batches:
            fill(batch, files, kinds, generator)
    seconds = time.monotonic() - started
    return {"tensors": len(tensors), "bytes": files.bytes, "seconds": seconds, "device": str(device)}


def fill(batch: Any, files: Any, kinds: Kinds, generator: Any) -> None:
    """Make and write the tensors of `batch`, a chunk at a time."""
    layout = batch.format
    most = CHUNK if generator.device.type == "cuda" else CHUNK_CPU
    if layout.name == "plain":
        ((_, run),) = batch.tensors.items()
        step = max(1, most // max(1, math.prod(run[0].shape)))
        for start in range(0, len(run), step):
            count = min(step, len(run) - start)
            files.put(run[0], start, kinds.draw(run[0], count, generator))
        return
    rows, columns = layout.real
    items = layout.items * len(batch.modules)
    step = max(1, most // (rows * columns))
    std = kinds.spread_of(batch.modules[0] + ".weight")
    for start in range(0, items, step):
        shape = (min(step, items - start), rows, columns)
        values = torch.empty(shape, device=generator.device).normal_(0, std, generator=generator)
        made = layout.encode(values)
        del values
        for role, run in batch.tensors.items():
            files.put(run[0], start, made[role])


class Kinds:
    """How tensors are drawn, by their names."""

    def __init__(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """`rows` as in `data/synthetic.toml`; the first that fits counts."""
        self._rows = [(re.compile(row["pattern"]), row) for row in rows]

    def row(self, name: str) -> Mapping[str, Any]:
        """The first row whose pattern is found in `name`."""
        for pattern, row in self._rows:
            if pattern.search(name):
                return row
        raise shard_files.BadTensorError(f"no kind of tensor is known for `{name}`")

    def spread_of(self, name: str) -> float:
        """The standard deviation of the matrix `name`."""
        row = self.row(name)
        if row["draw"] != "normal":
            raise shard_files.BadTensorError(f"`{name}` is quantized and drawn as `{row['draw']}`")
        return float(row["std"])

    def check(self, batch: Any) -> None:
        """BadTensorError where a tensor of `batch` cannot be drawn."""
        if batch.format.name != "plain":
            self.spread_of(batch.modules[0] + ".weight")
            return
        ((_, run),) = batch.tensors.items()
        draw = self.row(run[0].name)["draw"]
        if run[0].dtype not in blocks.FLOATS and draw not in ("constant", "count"):
            raise shard_files.BadTensorError(
                f"`{run[0].name}` is {run[0].dtype}, and no format is known for it"
            )

    def draw(self, tensor: Any, count: int, generator: Any) -> Any:
        """`count` tensors like `tensor`, `[count, …]`."""
        row, shape = self.row(tensor.name), (count, *tensor.shape)
        made = torch.empty(shape, dtype=blocks.TORCH[tensor.dtype], device=generator.device)
        draw = row["draw"]
        if draw == "normal":
            return made.normal_(row.get("mean", 0.0), row["std"], generator=generator)
        if draw == "constant":
            return made.fill_(row["value"])
        if draw == "count":
            numbers = torch.arange(math.prod(tensor.shape), device=generator.device)
            return made.copy_(numbers.reshape(tensor.shape))
        low, high = row["low"], row["high"]
        numbers = torch.empty(shape, device=generator.device)
        if draw == "log_of_uniform":
            return made.copy_(numbers.uniform_(low, high, generator=generator).log_())
        if draw == "softplus_inverse":  # of numbers whose logarithm is uniform
            numbers = numbers.uniform_(math.log(low), math.log(high), generator=generator).exp_()
            return made.copy_(numbers + torch.log(-torch.expm1(-numbers)))
        raise shard_files.BadTensorError(f"`{tensor.name}` is to be drawn as `{draw}`, which is not known")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
