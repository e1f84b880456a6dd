"""A model name into a `RawCheckpoint`: a folder, the local Hugging Face cache, or the hub's metadata.

The network is asked only when the name is neither a folder nor a model whose tensors the cache knows.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from autolaunch.checkpoint.folder import read_folder
from autolaunch.checkpoint.problems import CheckpointError, NoSuchModelError, NotInspected, shown
from autolaunch.checkpoint.raw import RawCheckpoint
from autolaunch.checkpoint.read import open_regular
from autolaunch.request.hub_cache import cached_snapshot, is_hub_id, similar_models

__all__ = ["HUB_SECONDS", "RawCheckpoint", "read_checkpoint"]

HUB_SECONDS = 20.0
"""For all that is asked of the hub together; the launch waits for it."""

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
# sglang 0.5.9 to 0.5.23, srt/utils/runai_utils.py SUPPORTED_SCHEMES
_OBJECT_STORES = frozenset({"s3", "gs", "az"})
# A GGUF file of a repository, as `owner/name/file.gguf` or `owner/name:Q4_K_M`.
# sglang 0.5.23 srt/utils/hf_transformers/common.py resolve_hf_gguf_reference
_GGUF_REFERENCE = re.compile(r"[^/:\s]+/[^/:\s]+(?:/.+\.gguf|:[A-Za-z0-9_.-]+)", re.IGNORECASE)
_HINT_FOLDER = "pass a folder with config.json in it, or a model id such as `Qwen/Qwen3-8B`"


def read_checkpoint(
    model: str,
    *,
    cwd: Path,
    environ: Mapping[str, str] = os.environ,
    revision: str | None = None,
    hub_seconds: float = HUB_SECONDS,
) -> RawCheckpoint | NotInspected:
    """Read the checkpoint `model` names; CheckpointError when what lies there is broken."""
    url = _URL.match(model)
    if url is not None:
        return _elsewhere(model, url[1])
    path = cwd / os.path.expanduser(model)  # noqa: PTH111  (pathlib's raises for users that do not exist)
    if model and "\0" not in model and os.path.lexists(path):
        return read_folder(path, path=model) if path.is_dir() else _file(model, path)
    if _GGUF_REFERENCE.fullmatch(model):
        return NotInspected("gguf", model, "it names a GGUF file on the hub, which autolaunch does not read")
    if not is_hub_id(model) or model.startswith("."):
        raise NoSuchModelError(
            f"there is no model `{shown(model)}`",
            because=("it is no folder here, and the hub allows no such name",),
            hint=_HINT_FOLDER,
        )
    cached = _cached(model, environ, revision)
    if isinstance(cached, NotInspected) or (cached is not None and cached.tensors is not None):
        return cached
    asked = _ask_hub(model, environ, revision or "main", hub_seconds)
    if cached is not None and isinstance(asked, NotInspected):
        return replace(cached, notes=(*cached.notes, f"the hub was asked: {asked.reason}"))
    return asked


def _cached(
    model: str, environ: Mapping[str, str], revision: str | None
) -> RawCheckpoint | NotInspected | None:
    """What the local cache knows of `model`; a snapshot may hold a tokenizer or a configuration alone."""
    snapshot = cached_snapshot(model, environ, revision)
    if snapshot is None:
        return None
    try:
        return read_folder(snapshot.folder, path=model, source="hf-cache", revision=snapshot.revision)
    except NoSuchModelError:
        return None


def _ask_hub(
    model: str, environ: Mapping[str, str], revision: str, seconds: float
) -> RawCheckpoint | NotInspected:
    """What the hub knows of `model`, unless the user forbids to ask."""
    from autolaunch.checkpoint.fetch import Fetch, hub_place, is_offline
    from autolaunch.checkpoint.hub import read_hub

    # sglang 0.5.23 srt/utils/common.py get_bool_env_var takes these two words
    if environ.get("SGLANG_USE_MODELSCOPE", "").lower() in ("true", "1"):
        return NotInspected(
            "modelscope",
            model,
            "SGLANG_USE_MODELSCOPE is set, and autolaunch does not ask ModelScope",
            hint="download the model and pass its folder",
        )
    similar = similar_models(model, environ)
    if is_offline(environ):
        return NotInspected(
            "offline",
            model,
            "it is not in the local cache, and HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set",
            hint=_hint("offline", model, similar),
        )
    answer = read_hub(model, Fetch(hub_place(environ), model, revision, seconds=seconds), path=model)
    if isinstance(answer, NotInspected) and answer.hint is None:
        bare = answer.kind == "not-found" and "/" not in model
        because = ("it names no owner, as in `owner/name`",) if bare else ()
        return replace(answer, because=because, hint=_hint(answer.kind, model, similar))
    return answer


def _hint(kind: str, model: str, similar: tuple[str, ...]) -> str | None:
    """One thing to do about a model that was not found where it should be."""
    if similar and kind in {"offline", "unreachable", "not-found"}:
        return f"did you mean {' or '.join(f'`{shown(one)}`' for one in similar)}, which the local cache has?"
    if kind == "gated":
        return "set HF_TOKEN to a token of an account that was granted access"
    if kind in {"offline", "unreachable", "not-found"}:
        if "/" not in model:
            return "name it with its owner, as in `owner/name`, or pass the folder of the model"
        return "check the name and the network, or pass the folder of the model"
    return None


def _elsewhere(model: str, scheme: str) -> NotInspected:
    """The outcome for a model that SGLang loads through a connector."""
    hint = "copy config.json and the index of the model to a folder and pass that to `autolaunch explain`"
    if scheme.lower() in _OBJECT_STORES:
        return NotInspected("object-store", model, "its files lie in an object store", hint=hint)
    return NotInspected("remote", model, f"its files are reached by `{shown(scheme)}://`", hint=hint)


def _file(model: str, path: Path) -> NotInspected:
    """The outcome for a name that is a file."""
    try:
        stream, _ = open_regular(path)
        with stream:
            start = stream.read(4)
    except CheckpointError as error:
        raise NoSuchModelError(error.what, because=error.because, hint=_HINT_FOLDER) from error
    if start == b"GGUF" or path.suffix == ".gguf":
        return NotInspected("gguf", model, "it is a GGUF file, which autolaunch does not read")
    raise NoSuchModelError(f"`{shown(model)}` is a file, not the folder of a model", hint=_HINT_FOLDER)
