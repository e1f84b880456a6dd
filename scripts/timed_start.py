"""Starts that are timed: a plain server until it is healthy, and the state of the caches before any start."""

from __future__ import annotations

import http.client
import os
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from autolaunch.command import Command
from autolaunch.race.guarded import Guarded, name_scratch
from autolaunch.race.ports import Ports

CACHES = {
    "XDG_CACHE_HOME": "xdg",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "SGLANG_CACHE_DIR": "sglang",
    "SGLANG_DG_CACHE_DIR": "deep_gemm",
    "DG_JIT_CACHE_DIR": "deep_gemm",
    "TVM_FFI_CACHE_DIR": "tvm-ffi",
    "CUTE_DSL_CACHE_DIR": "cute-dsl",
    "CUDA_CACHE_PATH": "cuda",
}
"""Variables that say where compiled kernels are kept, and a folder for each; a cold start gets empty ones."""


def plain_start_s(
    command: Command, environ: Mapping[str, str], *, cwd: Path, log: Path, deadline: float
) -> float | None:
    """Seconds from the start of `command`, a plain server, to its first healthy answer; None without one."""
    port = Ports().next()
    argv = [*command.argv, "--host", "127.0.0.1", "--port", str(port)]
    began = time.monotonic()
    guarded = Guarded(argv, log=log, environ=dict(environ), cwd=cwd, scratch=name_scratch(environ))
    try:
        while time.monotonic() < deadline:
            if is_healthy(port):
                return time.monotonic() - began
            if guarded.exited(0.1) is not None:
                return None
        return None
    finally:
        guarded.end()


def is_healthy(port: int) -> bool:
    """Whether the server on `port` answers as one that is up."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, http.client.HTTPException):
        return False


@contextmanager
def cache_state(state: str, environ: Mapping[str, str], model: Path) -> Iterator[dict[str, str]]:
    """The environment of one timed start: as it is, the model in memory, or with nothing kept of before."""
    if state == "warm":
        read_through(model)
        yield dict(environ)
        return
    forget(model)
    folder = Path(tempfile.mkdtemp(prefix="cold-"))
    try:
        places = {name: str(folder / place) for name, place in CACHES.items()}
        kept = {"HF_HOME": str(Path("~/.cache/huggingface").expanduser())}
        yield {**kept, **environ, **places}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def read_through(model: Path) -> None:
    """Read every file of `model`, so that the next reader finds it in memory."""
    for path in sorted(path for path in model.iterdir() if path.is_file()):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 24):
                continue


def forget(model: Path) -> None:
    """Have the kernel drop what it keeps of the files of `model`."""
    for path in sorted(path for path in model.iterdir() if path.is_file()):
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
