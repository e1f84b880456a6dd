"""A pasted line that starts SGLang into MODEL, flags and variables: "this recipe against my card".

Such a line comes from a README, an issue or a compose file: with variables in front, `docker run …` around
it, backslashes at the ends of its lines, a log behind it.  What starts SGLang in it is looked for; nothing
in it is run.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from autolaunch.errors import UsageError

_MODULES = ("sglang.launch_server", "autolaunch.launch_server", "-msglang.launch_server")
_PROGRAMS = ("sglang", "autolaunch")
_ASSIGNMENT = re.compile(r"(?:-e|--env=|-E)?([A-Z_][A-Z0-9_]*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{(\w+)(?::?-([^}]*))?\}|(\w+))")
_CONTINUED = re.compile(r"[ \t]*\\[ \t]*\r?\n")
# A part in quotes or an escaped letter, in which no comment starts, or else a comment.
_COMMENT = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|(?<!\S)#(?P<comment>[^\n]*)""", re.DOTALL)
_YAML_KEY = re.compile(r"(?:command|args):\s*(?:[>|]-?)?\s*(?=-|$)")
_REDIRECTED = re.compile(r"(?<=\s)[012](?=>)")
_OPERATORS = frozenset(";&|<>()")
_MOST_NESTED = 3
_LONGEST = 100_000
_MODEL_FLAGS = ("--model-path", "--model")


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a pasted line asks SGLang for."""

    tokens: tuple[str, ...]
    """As `serve` takes them."""
    env: Mapping[str, str] = field(default_factory=dict)


def read_recipe(tokens: Sequence[str]) -> Recipe:
    """The recipe behind what was typed after `explain`; UsageError where nothing in it starts SGLang.

    What stands before `--` wins: a MODEL there takes the place of the pasted one, flags there come last.
    """
    at = list(tokens).index("--") if "--" in tokens else len(tokens)
    typed, pasted = list(tokens[:at]), list(tokens[at + 1 :])
    if at == len(tokens) and _starts(tokens) is not None:
        typed, pasted = [], list(tokens)
    if not pasted:
        return Recipe(tuple(typed))
    if pasted[0].startswith("-") and pasted[0] not in _MODULES:
        return Recipe((*typed, *pasted))
    found = _parse(pasted, 0)
    if found is None:
        shown = " ".join(pasted)[:60]
        raise UsageError(
            f"nothing in `{shown}` starts SGLang",
            because=("a line with `sglang.launch_server` or `sglang serve` is looked for after `--`",),
            hint="for example: `autolaunch explain -- python -m sglang.launch_server --model-path MODEL`",
        )
    flags, env = found
    model, typed = (typed[:1], typed[1:]) if typed and not typed[0].startswith("-") else ([], typed)
    pasted_model, flags = _model_of(flags)
    return Recipe((*(model or pasted_model), *flags, *typed), env)


def _parse(words: Sequence[str], depth: int) -> tuple[list[str], dict[str, str]] | None:
    """The words after what starts SGLang, and the variables before it; looks into quoted commands too."""
    if len(words) == 1 and (re.search(r"\s", words[0]) or words[0].startswith("[")):
        words = _split(words[0])
    start = _starts(words)
    if start is None:
        if depth < _MOST_NESTED:
            for word in words:
                if "sglang" in word and re.search(r"\s", word):
                    found = _parse([word], depth + 1)
                    if found is not None:
                        return found[0], {**_assigned(words), **found[1]}
        return None
    env = _assigned(words[:start])
    flags: list[str] = []
    for word in words[start:]:
        if word and set(word) <= _OPERATORS:
            break
        if word.strip():
            flags.append(_filled(word.strip(), env))
    return flags, env


def _split(text: str) -> list[str]:
    """The words of a shell line, or of a list as Dockerfiles have it; operators are words of their own."""
    text = text[:_LONGEST].replace("\xa0", " ").strip().strip("`")  # as pages and issues have it
    if text.startswith("["):
        try:
            words = json.loads(text)
        except (ValueError, RecursionError):
            words = None
        if isinstance(words, list) and all(isinstance(word, str) for word in words):
            return words
    lines: list[str] = []
    for line in _CONTINUED.sub(" ", _COMMENT.sub(_without_comment, text)).splitlines():
        plain = _YAML_KEY.sub("", line.strip(), count=1)
        if not plain:
            continue
        if plain.startswith("-") and lines:  # flags on lines of their own, as compose files have them
            lines[-1] += f" {plain}"
        else:
            lines.append(plain)
    lexer = shlex.shlex(
        _REDIRECTED.sub("", " ; ".join(lines)), posix=True, punctuation_chars="".join(_OPERATORS)
    )
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError as error:
        raise UsageError(
            "the pasted line cannot be split into words",
            because=(str(error).lower(),),
            hint="check its quotes",
        ) from error


def _without_comment(part: re.Match[str]) -> str:
    """What remains of a part of a shell line: of a comment, that the line goes on."""
    comment: str | None = part["comment"]
    if comment is None:
        return part[0]
    return "\\" if comment.rstrip().endswith("\\") else ""


def _starts(words: Sequence[str]) -> int | None:
    """The position after the words that start SGLang."""
    for at, word in enumerate(words):
        if word in _MODULES or word.endswith("sglang/launch_server.py"):
            return at + 1
        if PurePosixPath(word).name in _PROGRAMS and list(words[at + 1 : at + 2]) == ["serve"]:
            return at + 2
    return None


def _assigned(words: Sequence[str]) -> dict[str, str]:
    """The variables that `words` set, also those that `docker run -e` does."""
    found: dict[str, str] = {}
    for word in words:
        match = _ASSIGNMENT.fullmatch(word)
        if match is not None:
            found[match[1]] = _filled(match[2], found)
    return found


def _filled(word: str, env: Mapping[str, str]) -> str:
    """`word` with the variables that the pasted line itself sets, or has a default for."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        return env.get(name, match[0] if match[2] is None else match[2])

    return _VARIABLE.sub(value, word)


def _model_of(flags: list[str]) -> tuple[list[str], list[str]]:
    """The model of `flags`, and the others."""
    if flags and not flags[0].startswith("-"):
        return flags[:1], flags[1:]
    for at, word in enumerate(flags):
        name, equals, value = word.partition("=")
        if name in _MODEL_FLAGS:
            if equals:
                return [value], flags[:at] + flags[at + 1 :]
            if at + 1 < len(flags):
                return [flags[at + 1]], flags[:at] + flags[at + 2 :]
    return [], flags
