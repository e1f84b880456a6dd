"""Imports a script, which has no `.py` in its name, as a module."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType

from tests.real_server import ROOT


def load_script(name: str) -> ModuleType:
    """The module of the script at `name`, fresh, with its neighbours importable as when it is run."""
    path = ROOT / name
    loader = SourceFileLoader(path.stem.replace("-", "_"), str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    neighbours, no_cache = str(path.parent), sys.dont_write_bytecode
    sys.path.insert(0, neighbours)
    sys.dont_write_bytecode = True  # a script without suffix would leave `democ` beside it
    try:
        sys.modules[loader.name] = module  # where dataclasses look for it
        loader.exec_module(module)
    finally:
        sys.modules.pop(loader.name, None)
        sys.path.remove(neighbours)
        sys.dont_write_bytecode = no_cache
    return module
