"""What `serve` was called with, and the request behind it: what its stages hand on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from autolaunch.command import Command
from autolaunch.folders import Folders
from autolaunch.options.options import ServeOptions
from autolaunch.request.command_line import CommandName, Request
from autolaunch.request.flags import FlagCatalogue
from autolaunch.request.interpreter import Interpreter


@dataclass(frozen=True, slots=True)
class Invocation:
    """Everything `serve` was called with."""

    command: CommandName
    tokens: tuple[str, ...]
    """What is SGLang's, in order."""
    options: ServeOptions
    interpreter: Interpreter
    original: Command
    environ: Mapping[str, str]
    cwd: Path
    folders: Folders


@dataclass(frozen=True, slots=True)
class Understood:
    """The request together with the flags it was read by."""

    request: Request
    catalogue: FlagCatalogue
