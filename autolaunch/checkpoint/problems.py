"""How reading a checkpoint can end other than well: broken files, or something autolaunch does not read.

    CheckpointError          exit 1   the files are there and broken: SGLang would fail on them too
    └── NoSuchModelError     exit 2   the model named on the command line is nothing that exists

A `NotInspected` is no error: SGLang may serve such a model, autolaunch only knows nothing about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autolaunch.errors import EXIT_USAGE, AutolaunchError

Kind = Literal[
    "gguf",  # a GGUF file, a folder of them, or a reference to one on the hub
    "diffusion",  # a diffusers pipeline (model_index.json)
    "mistral",  # Mistral's own format (params.json, consolidated*.safetensors)
    "object-store",  # s3://, gs://, az://
    "remote",  # any other scheme://
    "modelscope",  # SGLANG_USE_MODELSCOPE is set
    "offline",  # not here, and the network is forbidden
    "unreachable",  # the hub did not answer, or not with what it should
    "gated",  # the hub wants a token, or one that was accepted for this model
    "not-found",  # the hub has no such model
    "no-config",  # found, but nothing in it that describes a model
]


class CheckpointError(AutolaunchError):
    """A checkpoint that cannot be read because something in it is broken."""


class NoSuchModelError(CheckpointError):
    """The model on the command line is neither a folder nor a name the hub allows."""

    exit_code = EXIT_USAGE


@dataclass(frozen=True, slots=True)
class NotInspected:
    """A model that is served without autolaunch knowing anything of it, and why."""

    kind: Kind
    model: str
    reason: str
    """One sentence without full stop, to stand after "not inspected:"."""
    because: tuple[str, ...] = ()
    hint: str | None = None


def shown(text: str, limit: int = 300) -> str:
    """`text` from a file or its name, fit for one line of a message: no control characters, not too long."""
    plain = "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text[:limit]
    )
    return plain if len(text) <= limit else f"{plain}…"
