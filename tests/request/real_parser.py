"""Run by the Python that holds an SGLang: parses many command lines with SGLang's own parser.

    python real_parser.py < [[token, ...], ...] > {"flags": [...], "results": [...]}

One line of JSON each way, as often as asked: importing SGLang is what takes time.

A result is {"error": message}, or {"parsed": all attributes, "explicit": {dest: raw value}}, where explicit
holds only what the line sets, before any conversion.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, NoReturn


class RefusedError(Exception):
    """SGLang's parser does not take the line."""


class Parser(argparse.ArgumentParser):
    """SGLang's parser with exceptions for exits."""

    def error(self, message: str) -> NoReturn:
        raise RefusedError(message)


def make_parser(raw: bool) -> Parser:
    """The parser of `prepare_server_args`; `raw` without defaults, conversions and choices."""
    from sglang.srt.server_args import ServerArgs

    parser = Parser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    for action in parser._actions if raw else ():
        action.default = argparse.SUPPRESS
        action.required = False
        action.choices = None
        action.type = None
    return parser


def merged(parser: Parser, line: list[str]) -> list[str]:
    """The line with its configuration file in place, as `prepare_server_args` has it."""
    if "--config" not in line:
        return line
    try:
        from sglang.srt.utils.server_args_config_parser import ConfigArgumentMerger
    except ImportError:
        from sglang.srt.server_args_config_parser import ConfigArgumentMerger
    try:
        result: list[str] = ConfigArgumentMerger(parser).merge_config_with_args(line)
    except Exception as error:
        raise RefusedError(f"{type(error).__name__}: {error}") from error
    return result


def parse(full: Parser, raw: Parser, line: list[str]) -> dict[str, Any]:
    """What SGLang makes of one line."""
    try:
        line = merged(full, line)
        parsed = vars(full.parse_args(line))
        explicit = vars(raw.parse_args(line))
    except RefusedError as error:
        return {"error": str(error)}
    return {
        "merged": line,
        "parsed": {key: repr(value) for key, value in parsed.items()},
        "explicit": explicit,
    }


def describe(action: argparse.Action) -> dict[str, Any]:
    """One flag as the parser has it."""
    return {
        "names": list(action.option_strings),
        "dest": action.dest,
        "action": type(action).__name__,
        "nargs": action.nargs,
        "type": getattr(action.type, "__name__", None) if action.type else None,
        "choices": None
        if action.choices is None
        else sorted(str(c) for c in action.choices if c is not None),
    }


def main() -> None:
    """Answer on the descriptor that stdout was, since SGLang prints at import."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    full, raw = make_parser(raw=False), make_parser(raw=True)
    flags = [describe(action) for action in full._actions]
    for question in sys.stdin:
        results = [parse(full, raw, line) for line in json.loads(question)]
        answer.write(json.dumps({"flags": flags, "results": results}, default=str) + "\n")
        answer.flush()
    os._exit(0)  # SGLang's threads do not end by themselves in every version


if __name__ == "__main__":
    main()
