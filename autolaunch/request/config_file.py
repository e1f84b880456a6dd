"""SGLang's `--config FILE`, turned into the tokens that SGLang of that version makes of it.

SGLang replaces the exact token `--config` and the one after it, wherever they stand, by the tokens of the
file, which it puts in front of the command line, so that the command line wins.  Three rules changed
between versions; they are recognized in SGLang's own source file, not by version number:

  * a mapping as a value becomes JSON (0.5.14 and later) or Python's text for a dict (before);
  * a key may be any long spelling of a flag (0.5.23), or its `dest` only (before), where it matters
    whether the key names a switch;
  * a deprecated flag with one value is accepted (0.5.23) or refused (before).

Nothing here trusts the file: size, kind and the amount of data behind its aliases are limited.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autolaunch.errors import UsageError
from autolaunch.request.flags import Flag, FlagCatalogue
from autolaunch.units import format_bytes

CONFIG = "--config"

_MERGER_FILES = ("srt/utils/server_args_config_parser.py", "srt/server_args_config_parser.py")
_SIZE_LIMIT_BYTES = 256 << 10  # PyYAML reads about 100 KiB a second, and real files have a few KiB
_WEIGHT_LIMIT = 100_000  # values, and hundreds of characters, counted as often as aliases repeat them
_MERGE_ALIAS_LIMIT = 16  # aliases in a file with `<<`: merging is where they multiply while it is read


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A configuration file and what is left of the command line without it."""

    path: str
    """As typed."""
    tokens: tuple[str, ...]
    """What SGLang puts in front of `rest`."""
    rest: tuple[str, ...]
    declined: Mapping[str, str]
    """By `dest`: the keys of switches set to false.  They leave no token behind, yet the user chose."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """How one version turns keys and values into tokens."""

    mapping_as_json: bool = True
    any_spelling: bool = True
    """Keys may be any long spelling, and any flag with exactly one value is accepted."""


def read_config_file(
    argv: Sequence[str], catalogue: FlagCatalogue, package: Path, cwd: Path
) -> ConfigFile | None:
    """The configuration file that `argv` names, None when it names none.

    UsageError where SGLang would refuse it, and for files too large or too deep to be read safely.
    """
    count = sum(token == CONFIG for token in argv)
    if count == 0:
        return None
    if count > 1:
        raise UsageError(
            f"`{CONFIG}` is given {count} times", because=("SGLang reads exactly one such file",)
        )
    at = list(argv).index(CONFIG)
    if at + 1 == len(argv):
        raise UsageError(f"no file after `{CONFIG}`", hint=f"name one: `{CONFIG} server.yaml`")
    typed = argv[at + 1]
    content = _parse(typed, _text(typed, cwd))
    rules = _rules(package)
    switches = {key for flag in catalogue.flags if flag.action == "store_true" for key in _keys(flag, rules)}
    refused = _refused(catalogue, rules)
    tokens: list[str] = []
    declined: dict[str, str] = {}
    for key, value in content.items():
        if not isinstance(key, str):
            raise UsageError(f"the key `{key}` in `{typed}` is no text", hint="write it in quotes")
        plain = key.replace("-", "_")
        if plain in refused:
            raise UsageError(
                f"SGLang does not take `{key}` from a configuration file",
                because=(f"`{refused[plain].names[0]}` is neither a switch nor a flag with plain values",),
                hint="put it on the command line",
            )
        if value is False and plain in switches:
            declined[_dest(catalogue, key)] = key
        else:
            tokens += _tokens(key, value, plain in switches, rules)
    return ConfigFile(typed, tuple(tokens), (*argv[:at], *argv[at + 2 :]), declined)


def _tokens(key: str, value: object, is_switch: bool, rules: _Rules) -> Iterator[str]:
    """The tokens of one key."""
    if isinstance(value, list) and not value:
        return
    yield f"--{key}"
    if isinstance(value, bool):
        if not is_switch:
            yield str(value).lower()
    elif isinstance(value, list):
        yield from (_plain(key, item) for item in value)
    elif isinstance(value, dict) and rules.mapping_as_json:
        try:
            yield json.dumps(value)
        except (TypeError, ValueError) as error:  # a date, or a mapping inside itself
            raise UsageError(
                f"the value of `{key}` cannot be written as JSON", because=(str(error),)
            ) from error
    else:
        yield _plain(key, value)


def _plain(key: str, value: object) -> str:
    """`value` as Python writes it, which is what SGLang passes on."""
    try:
        return str(value)
    except ValueError as error:  # a number of thousands of digits
        raise UsageError(f"the value of `{key}` cannot be written as text", because=(str(error),)) from error


def _text(typed: str, cwd: Path) -> str:
    """The text of the file that was named as `typed`."""
    what = f"cannot read `{CONFIG} {typed}`"
    path = Path(cwd, typed)
    if path.suffix.lower() not in (".yaml", ".yml"):
        raise UsageError(what, because=(f"SGLang takes YAML only, and the name ends in `{path.suffix}`",))
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            # A pipe can be read once, and then SGLang would find it empty.
            raise UsageError(what, because=("it is no regular file",))
        if status.st_size > _SIZE_LIMIT_BYTES:
            raise UsageError(
                what,
                because=(
                    f"it has {format_bytes(status.st_size)}; {format_bytes(_SIZE_LIMIT_BYTES)} are read",
                ),
            )
        # NOTE: no encoding on purpose: SGLang opens it in that of the locale.
        return path.read_text()
    except (OSError, ValueError) as error:
        raise UsageError(what, because=(f"`{path}`: {getattr(error, 'strerror', None) or error}",)) from error


def _parse(typed: str, text: str) -> Mapping[Any, Any]:
    """The mapping in `text`, with all that its aliases stand for counted."""
    import yaml  # here, because most command lines name no file

    what = f"`{CONFIG} {typed}` holds no usable YAML"
    try:
        if "<<" in text and text.count("*") > _MERGE_ALIAS_LIMIT:
            aliases = sum(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader))
            if aliases > _MERGE_ALIAS_LIMIT:
                raise UsageError(what, because=(f"it merges mappings and has {aliases} aliases",))
        content = yaml.safe_load(text)
        if content is not None and not isinstance(content, dict):
            raise UsageError(what, because=(f"SGLang wants keys and values, and this is a {_kind(content)}",))
        if not _is_modest(content):
            raise UsageError(what, because=("its aliases stand for too much data",))
    except yaml.YAMLError as error:
        raise UsageError(what, because=(_where(error),)) from error
    except (ValueError, TypeError) as error:  # an impossible date, a mapping as a key
        raise UsageError(what, because=(str(error),)) from error
    except RecursionError as error:
        raise UsageError(what, because=("it is nested too deeply",)) from error
    return content or {}


def _is_modest(content: object) -> bool:
    """Whether `content`, written out without aliases, stays within the limit."""
    waiting, weight = [content], 0
    while waiting:
        node = waiting.pop()
        weight += 1
        if isinstance(node, dict):
            waiting += [*node.keys(), *node.values()]
        elif isinstance(node, list | tuple | set):
            waiting += node
        elif isinstance(node, str | bytes):
            weight += len(node) // 100
        if weight + len(waiting) > _WEIGHT_LIMIT:
            return False
    return True


def _kind(content: object) -> str:
    """What a person calls the top of a YAML document."""
    return "list" if isinstance(content, list) else "single value"


def _where(error: Exception) -> str:
    """The complaint of the YAML reader in one line."""
    problem = str(getattr(error, "problem", None) or error).splitlines()[0]
    mark = getattr(error, "problem_mark", None)
    return f"line {mark.line + 1}, column {mark.column + 1}: {problem}" if mark else problem


def _rules(package: Path) -> _Rules:
    """The rules of the SGLang in `package`, by what its own reader does; the newest when it is not found."""
    for name in _MERGER_FILES:
        try:
            text = (package / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        return _Rules(mapping_as_json="json.dumps(" in text, any_spelling="_config_keys(" in text)
    return _Rules()


def _keys(flag: Flag, rules: _Rules) -> set[str]:
    """The keys, underscores for dashes, that mean `flag` when SGLang asks whether it is a switch."""
    spellings = {name[2:].replace("-", "_") for name in flag.names if name.startswith("--")}
    return {flag.dest, *spellings} if rules.any_spelling else {flag.dest}


def _refused(catalogue: FlagCatalogue, rules: _Rules) -> dict[str, Flag]:
    """The keys that SGLang refuses, with the flag each means."""
    refused: dict[str, Flag] = {}
    accepted: set[str] = set()
    for flag in catalogue.flags:
        plain = flag.action in ("store", "store_true")
        if plain or (rules.any_spelling and flag.nargs is None):
            accepted |= _keys(flag, rules)
        elif flag.action != "help":
            refused.update(dict.fromkeys(_keys(flag, rules), flag))
    if rules.any_spelling:  # a key that a plain flag also reads stays usable
        return {key: flag for key, flag in refused.items() if key not in accepted}
    return refused


def _dest(catalogue: FlagCatalogue, key: str) -> str:
    """The attribute that the switch `key` sets."""
    flag = catalogue.resolve(f"--{key}")
    return flag.dest if flag else key.replace("-", "_")
