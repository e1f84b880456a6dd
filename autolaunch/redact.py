"""Hides secrets in whatever is written down or shown: logs, journals, records, messages.

A secret is known by its name (`--api-key`, `HF_TOKEN`, `"password": …`), by its shape (`hf_…`, `Bearer …`,
`user:word@host`), or by its value, where an environment holds it.  Hiding too much is the lesser fault; what
people need to read in SGLang's logs (`#token: 57`, `token usage: 0.02`, `api_key=None`) stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

HIDDEN = "***"
STAND_IN = "not-the-real-one"
"""What a command gets in place of a secret that it has no use for."""

# SGLang's options with a secret value, each with its shortest spelling that is no other option's.
_SECRET_OPTIONS = {
    "--api-key": "--ap",
    "--admin-api-key": "--ad",
    "--ssl-keyfile-password": "--ssl-keyfile-",
    "--watermark-config": "--wate",
}
_SECRET_WORD = r"(?:key|token|password|passwd|passphrase|secret|credentials?)"  # noqa: S105
_NUMBER = r"[-+]?\d[\d.,_]*(?:e[-+]?\d+)?%?"


def _abbreviations(option: str, shortest: str) -> str:
    """A pattern of `option` and of each abbreviation down to `shortest`."""
    spellings = [option[:length] for length in range(len(option), len(shortest) - 1, -1)]
    return "|".join(map(re.escape, spellings))


_OPTION = "|".join(_abbreviations(option, shortest) for option, shortest in _SECRET_OPTIONS.items())
# Prefixes are bounded, and start where a word starts: a long run of letters must not cost its square.
_NAME = rf"(?:{_OPTION}|[\w.-]{{0,80}}?{_SECRET_WORD}(?:[-_][a-z0-9])?)"
_VALUE = r"""(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[^\s"',;&|)\]}]+)"""
_NAMED = re.compile(
    rf"""(?<![\w-])(?P<name>{_NAME})(?P<separator>["']?\s{{0,4}}[=:]\s{{0,4}}|["'],?\s{{1,4}})(?P<value>{_VALUE})""",
    re.IGNORECASE,
)
# A shell word: quoted and bare parts in a row.  Nothing follows it, so its overlaps cost no backtracking.
_WORD = r"""(?:"(?:\\.|[^"\\\n])*"|'[^'\n]*'|\\.|[^\s\\])+"""
_OPTION_AND_WORD = re.compile(
    rf"(?<![\w-])(?P<name>(?=--){_NAME})(?P<separator>[ \t]+(?!--)|=)(?P<value>{_WORD})", re.IGNORECASE
)
_SHAPES = (
    (re.compile(r"\bhf_[A-Za-z0-9]{6,}"), f"hf_{HIDDEN}"),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"), f"sk-{HIDDEN}"),
    (re.compile(r"\b(Bearer|Basic)\s+(?!\*)[A-Za-z0-9._~+/=-]{4,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    (re.compile(r"(?<=://)[^\s/?#\"'@]{1,512}@(?=[^\s@]|$)"), f"{HIDDEN}@"),
    (re.compile(r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)[^-]{1,20000}"), rf"\1{HIDDEN}"),
)
_SECRET_NAME = re.compile(
    rf"(?:{_OPTION}|-{{1,2}}[\w.-]{{0,80}}?{_SECRET_WORD}(?:[-_][a-z0-9])?)", re.IGNORECASE
)
_HARMLESS = re.compile(r"""["']?(?:None|null|true|false|\*\*\*|)["']?""", re.IGNORECASE)
_COUNTED = re.compile(rf"""["']?{_NUMBER}["']?""", re.IGNORECASE)


_OF_THE_SERVER = re.compile(
    "|".join(
        _abbreviations(one, _SECRET_OPTIONS[one]) for one in _SECRET_OPTIONS if one != "--watermark-config"
    )
)
"""The options whose secret is for whoever asks the server over HTTP; a watermark changes the answers."""
_VARIABLE = re.compile(rf"[A-Z0-9_]*{_SECRET_WORD}", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"://(?:[^\s/:@]*:)?([^\s/@]+)@")
_SHORTEST_KNOWN = 6
"""Characters of a value that is hidden wherever it stands; a shorter one is a part of ordinary words."""


def redact(text: str, known: Sequence[str] = ()) -> str:
    """`text` with every secret in it replaced by `***`; doing it twice changes nothing more.

    `known` are values that are secret wherever they stand; see `secrets_of`.
    """
    for value in known:
        text = text.replace(value, HIDDEN)
    for pattern, replacement in _SHAPES:
        text = pattern.sub(replacement, text)
    return _NAMED.sub(_hide, _OPTION_AND_WORD.sub(_hide, text))


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """The words of a command line, values of secret options hidden, as many words as before."""
    shown: list[str] = []
    is_secret = False
    for word in argv:
        name, equals, value = word.partition("=")
        if is_secret and not word.startswith("--"):
            shown.append(HIDDEN)
            is_secret = False
            continue
        names_secret = _SECRET_NAME.fullmatch(name) is not None
        if names_secret and equals:
            shown.append(f"{name}={value if _is_shown(name, value) else HIDDEN}")
        else:
            shown.append(redact(word))
        is_secret = names_secret and not equals and not name.lower().endswith("-token")
    return tuple(shown)


def redact_value(name: str, value: str) -> str:
    """`value` of the variable or setting `name`, hidden where either says that it is a secret."""
    return redact(f"{name}={value}").partition("=")[2]


def redact_choice(
    flags: Sequence[str], env: Iterable[tuple[str, str]]
) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Flags and variables of a candidate as files hold and compare them: no secrets, variables by name."""
    return redact_argv(flags), tuple(sorted((name, redact_value(name, value)) for name, value in env))


def without_credentials(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line whose keys and passwords for HTTP are replaced, for an engine that serves none."""
    words: list[str] = []
    is_secret = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if is_secret and not word.startswith("--"):
            words.append(STAND_IN if word else word)
            is_secret = False
            continue
        is_secret = _OF_THE_SERVER.fullmatch(name) is not None and not equals
        named = equals and _OF_THE_SERVER.fullmatch(name) is not None
        words.append(f"{name}={STAND_IN}" if named else word)
    return tuple(words)


def secrets_of(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The values that an environment shows to be secret, longest first."""
    from urllib.parse import unquote  # here, because only a race asks, and every start hides secrets

    found: set[str] = set()
    for name, value in environ.items():
        if _VARIABLE.fullmatch(name):
            found.update(value.splitlines())
        found.update(_IN_ADDRESS.findall(value))
    found |= {unquote(one) for one in found}
    hidden = (
        one
        for one in map(str.strip, found)
        if len(one) >= _SHORTEST_KNOWN and not (_HARMLESS.fullmatch(one) or _COUNTED.fullmatch(one))
    )
    return tuple(sorted(hidden, key=lambda one: (-len(one), one)))


def _hide(match: re.Match[str]) -> str:
    name, separator, value = match["name"], match["separator"], match["value"]
    if _is_shown(name, value) or (
        ":" in separator and name.lower() in ("key", "token") and '"' not in separator
    ):
        return match[0]
    quote = value[0] if value[0] in "\"'" and value[-1] == value[0] else ""
    return f"{name}{separator}{quote}{HIDDEN}{quote}"


def _is_shown(name: str, value: str) -> bool:
    """Whether `value` gives nothing away: it is empty, or a count of tokens."""
    if _HARMLESS.fullmatch(value):
        return True
    return name.lower().endswith("token") and _COUNTED.fullmatch(value) is not None
