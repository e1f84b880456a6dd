"""Arguments of the fake SGLang, parsed by argparse as the real ones."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from sglang.srt.plugins import LOADED  # type: ignore[import-not-found]


def prepare_server_args(argv: list[str]) -> Any:
    """The parsed arguments; `--config` is merged in front of the rest."""
    if "--config" in argv:
        at = argv.index("--config")
        merged = json.loads(Path(argv[at + 1]).read_text())
        argv = [*merged, *argv[:at], *argv[at + 2 :]]
    parser = argparse.ArgumentParser(prog="sglang serve")
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--api-key")
    parser.add_argument("--admin-api-key")
    parser.add_argument("--ssl-keyfile-password")
    parser.add_argument("--enable-metrics", action="store_true")
    parser.add_argument("--skip-tokenizer-init", action="store_true")
    parser.add_argument("--prefill-cuda-graph", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--behave", default="well")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tp-size", "--tp", type=int, default=1)
    parsed = parser.parse_args(argv)
    parsed.plugins = LOADED
    return parsed
