"""Fetches small pieces of a model from the hub, within a limit of bytes each and a deadline for all together.

huggingface-hub gives the session (proxies, certificates), the token and the addresses of files.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from autolaunch import __version__
from autolaunch.checkpoint.problems import Kind, shown

_DEFAULT_ENDPOINT = "https://huggingface.co"
_TRUE = frozenset({"1", "on", "yes", "true"})
_CHUNK = 1 << 16


class FetchError(Exception):
    """The hub did not give what it was asked for."""

    def __init__(self, kind: Kind, reason: str) -> None:
        """`kind` and `reason` are those of the outcome for the user."""
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Place:
    """Which hub, and how to ask it."""

    endpoint: str
    token: str | None = field(repr=False)

    @property
    def host(self) -> str:
        """The hub's name for messages: of its address, which may hold a password, the host alone."""
        try:
            return shown(urlsplit(self.endpoint).hostname or "the hub")
        except ValueError:
            return "the hub"


class Fetch:
    """One model on the hub, asked until `seconds` are over."""

    def __init__(self, place: Place, model: str, revision: str, *, seconds: float) -> None:
        """The deadline begins to run."""
        self._place = place
        self._model = model
        self._revision = revision
        self._end = time.monotonic() + seconds

    def listing(self) -> Any:
        """What the hub's API says of the model, its files with their sizes among it (JSON text as bytes)."""
        revision = quote(self._revision, safe="")
        return self._get(
            f"{self._place.endpoint}/api/models/{self._model}/revision/{revision}?blobs=true", 1 << 24
        )

    def file(self, name: str, limit: int, start: int = 0, stop: int | None = None) -> bytes:
        """The file `name`, or its bytes from `start` up to `stop`."""
        from huggingface_hub import hf_hub_url

        url = hf_hub_url(self._model, name, revision=self._revision, endpoint=self._place.endpoint)
        if stop is None:
            return self._get(url, limit)
        return self._get(url, stop - start, {"range": f"bytes={start}-{stop - 1}"}, skip=start)

    def left(self) -> float:
        """Seconds until the deadline, not below 0."""
        return max(0.0, self._end - time.monotonic())

    def _get(self, url: str, limit: int, headers: Mapping[str, str] | None = None, skip: int = 0) -> bytes:
        """At most `limit` bytes from `url`; one byte more of a whole file is an error."""
        sent = {"user-agent": f"autolaunch/{__version__}", **(headers or {})}
        if self._place.token:
            sent["authorization"] = f"Bearer {self._place.token}"
        if self.left() == 0:
            raise FetchError("unreachable", f"{self._place.host} took too long")
        content = bytearray()
        with _errors(self._place.host), _opened(url, sent, self.left()) as (status, answer, chunks):
            self._check(status, answer)
            whole = headers is None
            drop = skip if status == 200 else 0  # a server that knows no ranges sends the file from its start
            for chunk in chunks:
                content += chunk[drop:]
                drop = max(0, drop - len(chunk))
                if self.left() == 0:
                    raise FetchError("unreachable", f"{self._place.host} took too long")
                if len(content) > limit or (len(content) == limit and not whole):
                    break
        if whole and len(content) > limit:
            raise FetchError("unreachable", f"{self._place.host} sent more than a file of this kind may hold")
        return bytes(content[:limit])

    def _check(self, status: int, headers: Mapping[str, str]) -> None:
        """Raise unless the answer with this status and these headers is one."""
        if status in (200, 206):
            return
        code = headers.get("x-error-code", "")
        said = f"{self._place.host} answers {status}"
        if code == "GatedRepo" or status == 403:
            raise FetchError("gated", f"{said}: access to this model has to be granted")
        if status == 401 and code != "RepoNotFound":
            what = "the token is not accepted" if self._place.token else "a token is needed"
            raise FetchError("gated", f"{said}: {what}")
        if status in (401, 404):
            raise FetchError("not-found", f"{said}: no such model, file or revision is visible there")
        raise FetchError("unreachable", said)


def hub_place(environ: Mapping[str, str]) -> Place:
    """The hub and the token that `environ` names, else the default and the token of `hf auth login`."""
    endpoint = (environ.get("HF_ENDPOINT") or _DEFAULT_ENDPOINT).rstrip("/")
    token = environ.get("HF_TOKEN") or environ.get("HUGGING_FACE_HUB_TOKEN")
    if not token and environ.get("HF_HUB_DISABLE_IMPLICIT_TOKEN", "").lower() not in _TRUE:
        from huggingface_hub import get_token

        token = get_token()
    return Place(endpoint, token.strip() if token else None)


def is_offline(environ: Mapping[str, str]) -> bool:
    """Whether the user forbids asking the hub."""
    return (environ.get("HF_HUB_OFFLINE") or environ.get("TRANSFORMERS_OFFLINE") or "").lower() in _TRUE


@contextmanager
def _opened(
    url: str, headers: Mapping[str, str], seconds: float
) -> Iterator[tuple[int, Mapping[str, str], Iterator[bytes]]]:
    """Status, headers and content of the answer to a GET.

    huggingface-hub's session is of requests, since 1.0 of httpx, since 2.0 of httpx2.
    """
    from huggingface_hub.utils import get_session  # type: ignore[attr-defined]

    session: Any = get_session()
    timeout = max(0.1, min(seconds, 10.0))
    if callable(getattr(session, "stream", None)):
        with session.stream("GET", url, headers=headers, timeout=timeout) as answer:
            yield answer.status_code, _lower(answer.headers), answer.iter_bytes()
    else:
        with session.get(url, headers=headers, timeout=timeout, stream=True) as answer:
            yield answer.status_code, _lower(answer.headers), _as_it_comes(answer)


def _as_it_comes(answer: Any) -> Iterator[bytes]:
    """The content of an answer of requests, which by itself would wait until a chunk is full."""
    read = getattr(answer.raw, "read1", None)  # since urllib3 2.1
    if read is None:
        yield from answer.iter_content(_CHUNK)
    else:
        while chunk := read(_CHUNK, decode_content=True):
            yield chunk


def _lower(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Headers by their names in lower case."""
    return {name.lower(): value for name, value in headers.items()}


@contextmanager
def _errors(host: str) -> Iterator[None]:
    """Failures of the network, whichever library carries it, as FetchErrors."""
    try:
        yield
    except _failures() as error:
        raise FetchError("unreachable", f"{host} does not answer ({_said(error)})") from error


def _failures() -> tuple[type[Exception], ...]:
    """What the libraries raise that are in use by now; requests has OSErrors, bad addresses ValueErrors."""
    found: list[type[Exception]] = [OSError, ValueError]
    for library in ("httpx", "httpx2", "urllib3.exceptions"):
        module = sys.modules.get(library)
        kinds = [getattr(module, name, None) for name in ("HTTPError", "InvalidURL")]
        found += [kind for kind in kinds if kind is not None]
    return tuple(found)


def _said(error: Exception) -> str:
    """What went wrong, without addresses: they may hold a password."""
    name = type(error).__name__
    if "Timeout" in name:
        return "timeout"
    return "redirects without end" if name == "TooManyRedirects" else name
