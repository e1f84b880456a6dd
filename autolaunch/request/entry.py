"""The two ways into SGLang, and which of them a command line takes.

Almost everything goes to `python -m sglang.launch_server`.  What only `sglang serve` understands goes
there, untouched: a named model type, and models of the diffusion server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from autolaunch.request.interpreter import Interpreter
from autolaunch.request.weights import model_folder

Entry = Literal["launch_server", "sglang_serve"]
CommandName = Literal["serve", "launch_server"]

LAUNCH_SERVER = ("-m", "sglang.launch_server")

_MODEL_TYPE = "--model-type"
_MODEL_FLAGS = ("--model-path", "--model")
_PIPELINE = "--pipeline-class-name"  # a flag of SGLang's diffusion server only
_DIFFUSION_INDEXES = ("model_index.json", "modular_model_index.json")
_DIFFUSION_REGISTRIES = ("multimodal_gen/registry.py", "multimodal_gen/configs/pipeline_configs/*.py")
_INDEX_LIMIT_BYTES = 1 << 20
_SERVE = "import sys; from sglang.cli.main import main; sys.exit(main())"


def sglang_argv(
    tokens: Sequence[str],
    command: CommandName,
    *,
    environ: Mapping[str, str] = os.environ,
    cwd: Path | None = None,
    package: Path | None = None,
) -> tuple[Entry, tuple[str, ...]]:
    """The entry point of SGLang and its tokens for what was typed after `serve` or `launch_server`.

    For `serve`, a first token without a dash is the model, as in `sglang serve`; nothing else changes.
    What only `sglang serve` understands goes there untouched: `--model-type`, and diffusion models, told
    by the index in their folder or, for one that is not here, by their name in the sources of `package`.
    """
    argv = tuple(tokens)
    if command == "launch_server":
        return "launch_server", argv
    positional = bool(argv) and not argv[0].startswith("-")
    model = argv[0] if positional else _typed_model(argv)
    for_serve = any(token.partition("=")[0] in (_MODEL_TYPE, _PIPELINE) for token in argv)
    if for_serve or (model and _is_diffusion_model(model, environ, cwd or Path.cwd(), package)):
        return "sglang_serve", argv
    return "launch_server", (_MODEL_FLAGS[0], *argv) if positional else argv


def original_argv(interpreter: Interpreter, entry: Entry, argv: Sequence[str]) -> tuple[str, ...]:
    """The command line of SGLang's own entry point, interpreter first."""
    if entry == "launch_server":
        return (interpreter.python, *LAUNCH_SERVER, *argv)
    script = Path(interpreter.python).parent / "sglang"
    try:
        with script.open("rb") as file:
            is_ours = b"sglang.cli" in file.read(4096)
    except OSError:
        is_ours = False
    start = (str(script),) if is_ours else ("-c", _SERVE)
    return (interpreter.python, *start, "serve", *argv)


def as_flags(argv: tuple[str, ...]) -> tuple[str, ...]:
    """What `sglang serve` makes of its tokens: the model type taken out, then the model given its flag."""
    kept: list[str] = []
    tokens = iter(argv)
    for token in tokens:
        if token == _MODEL_TYPE:
            next(tokens, None)
        elif not token.startswith(f"{_MODEL_TYPE}="):
            kept.append(token)
    if kept and not kept[0].startswith("-"):
        kept.insert(0, _MODEL_FLAGS[0])
    return tuple(kept)


def _typed_model(argv: Sequence[str]) -> str | None:
    """The model as `sglang serve` looks for it: the first exact spelling, not the last."""
    for at, token in enumerate(argv):
        name, equals, value = token.partition("=")
        if name in _MODEL_FLAGS:
            if equals:
                return value
            if at + 1 < len(argv):
                return argv[at + 1]
    return None


def _is_diffusion_model(model: str, environ: Mapping[str, str], cwd: Path, package: Path | None) -> bool:
    """Whether `sglang serve` would start its diffusion server for `model`, as far as files here tell."""
    import json  # here, because most models are no diffusion models

    try:
        path = Path(cwd, model)
        folder = path if path.is_dir() else model_folder(model, cwd=cwd, environ=environ)
        if folder is not None:
            indexes = [folder / name for name in _DIFFUSION_INDEXES if (folder / name).is_file()]
            if not indexes or indexes[0].stat().st_size > _INDEX_LIMIT_BYTES:
                return False
            return "_diffusers_version" in json.loads(indexes[0].read_bytes())
        return package is not None and _is_registered(model, package)
    except (OSError, ValueError, TypeError, RuntimeError):
        return False  # SGLang looks again, and says what is wrong with the model


def _is_registered(model: str, package: Path) -> bool:
    """Whether the sources of the diffusion server name the hub id `model`."""
    wanted = f'"{model}"'
    return any(
        wanted in path.read_text(encoding="utf-8", errors="replace")
        for pattern in _DIFFUSION_REGISTRIES
        for path in package.glob(pattern)
    )
