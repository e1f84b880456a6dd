"""Finds the Python interpreter that holds SGLang, and SGLang's folder in it, without importing it.

The server is started as `python -m sglang.launch_server`, so this answers what that command would
import: the working folder first (unless `PYTHONSAFEPATH` is set), then the interpreter's own path.
A regular package in the working folder wins; a plain folder named `sglang`, such as a git checkout,
does not.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autolaunch.errors import SglangNotFoundError, UsageError
from autolaunch.folders import is_file
from autolaunch.request import probe
from autolaunch.request.probe import MARK, locate_sglang

if TYPE_CHECKING:
    import subprocess

PROBE_TIMEOUT_S = 30.0

_LOOK_EVERY_S = 0.1
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_PROBE_OUTPUT_LIMIT = 1 << 20
_PIP_SH_LINE = re.compile(r"""^'''exec' (?:"([^"]+)"|'([^']+)'|(\S+))""")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """An interpreter and the SGLang that `python -m sglang.…` would run in it."""

    python: str
    """Absolute, and never resolved through links: a link is what makes a virtual environment."""
    package: Path
    """The folder of the `sglang` package."""
    version: str
    """`0.5.21`, `0.0.0.dev1+g1234567`, or `unknown`."""
    source: str
    """Where the interpreter was found: `--python`, `this environment`, `VIRTUAL_ENV`, …"""


def find_interpreter(named: str | None, environ: Mapping[str, str], cwd: Path) -> Interpreter:
    """The interpreter that holds SGLang.

    Sources, in order: `named` (`--python`; an executable or the folder of an environment; nothing else
    is tried then), this interpreter, `VIRTUAL_ENV`, `CONDA_PREFIX`, the first line of the `sglang`
    script on PATH, `python3` and `python` on PATH.  Raises SglangNotFoundError with what each said, or
    UsageError when `named` is no interpreter.
    """
    tried: list[str] = []
    for source, python in _sources(named, environ, cwd, tried):
        found, reason = _look_into(python, environ, cwd)
        if found is not None:
            return Interpreter(python=python, package=Path(found[0]), version=found[1], source=source)
        tried.append(f"{source}: `{python}` {reason}")
    raise SglangNotFoundError(
        "found no Python interpreter that holds SGLang"
        if named is None
        else f"`--python {named}` holds no SGLang",
        because=tuple(tried),
        hint="install SGLang, or name the environment that holds it with `--python PATH`",
    )


def _sources(
    named: str | None, environ: Mapping[str, str], cwd: Path, tried: list[str]
) -> Iterator[tuple[str, str]]:
    """Each source with the interpreter it names, once; what names none is added to `tried`."""
    if named is not None:
        yield "--python", _named_python(named, environ, cwd)
        return
    seen: set[str] = set()
    for source, python, reason in _unnamed(environ, cwd):
        if python is None:
            tried.append(f"{source}: {reason}")
        elif python not in seen:
            seen.add(python)
            yield source, python


def _unnamed(environ: Mapping[str, str], cwd: Path) -> Iterator[tuple[str, str | None, str]]:
    """Each place to look, with the interpreter found there or the reason why there is none."""
    yield "this environment", sys.executable or None, "it does not know its own interpreter"
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = environ.get(variable)
        if prefix:
            python = _python_of(Path(cwd, prefix))
            yield f"`{variable}`", python, f"no `bin/python` in `{prefix}`"
    script = _on_path("sglang", environ, cwd)
    if script is None:
        yield "`sglang` on PATH", None, "not found"
    else:
        python = _shebang_python(Path(script), environ, cwd)
        yield "`sglang` on PATH", python, f"the first lines of `{script}` name no Python"
    for name in ("python3", "python"):
        yield f"`{name}` on PATH", _on_path(name, environ, cwd), "not found"


def _named_python(named: str, environ: Mapping[str, str], cwd: Path) -> str:
    """The interpreter the user named, by path, by environment folder or by a name on PATH."""
    hint = "name an executable such as `/opt/venv/bin/python`, or the folder of an environment"
    if not named or "\0" in named:
        raise UsageError("`--python` names nothing", hint=hint)
    path = Path(os.path.expanduser(named))  # noqa: PTH111  Path.expanduser raises for an unknown user
    path = Path(cwd, path)
    try:
        is_folder, is_there = path.is_dir(), path.exists()
    except OSError as error:
        raise UsageError(
            f"cannot look at `--python {named}`", because=(str(error.strerror),), hint=hint
        ) from error
    if is_folder:
        python = _python_of(path)
        if python is None:
            raise UsageError(f"`--python {named}` is a folder without `bin/python`", hint=hint)
        return python
    if os.sep not in named:
        on_path = _on_path(named, environ, cwd)
        if on_path is not None:
            return on_path
    if not is_there:
        raise UsageError(f"`--python {named}` is not there", because=(f"it would be `{path}`",), hint=hint)
    if not os.access(path, os.X_OK):
        raise UsageError(f"`--python {named}` cannot be executed", hint=hint)
    return str(path)


def _python_of(environment: Path) -> str | None:
    """The interpreter of a virtual or conda environment."""
    for name in ("python3", "python"):
        python = environment / "bin" / name
        if os.access(python, os.X_OK):
            return str(python)
    return None


def _on_path(name: str, environ: Mapping[str, str], cwd: Path) -> str | None:
    """The first executable file called `name` on PATH; `shutil.which` costs more to import than to write."""
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        path = Path(cwd, folder, name)
        if os.access(path, os.X_OK) and is_file(path):
            return str(path)
    return None


def _shebang_python(script: Path, environ: Mapping[str, str], cwd: Path) -> str | None:
    """The Python that runs `script`: by its `#!` line, past `env`, or by pip's `/bin/sh` line."""
    try:
        with script.open("rb") as file:
            head = file.read(4096).decode("utf-8", "surrogateescape")
    except OSError:
        return None
    first, _, rest = head.partition("\n")
    if not first.startswith("#!"):
        return None
    words = first[2:].split()
    if words and Path(words[0]).name == "sh":
        exec_line = _PIP_SH_LINE.match(rest)
        words = [next(filter(None, exec_line.groups()))] if exec_line else []
    elif words and Path(words[0]).name == "env":
        # `env -S python3 -X …`, `env NAME=value python3`: the first word that is neither is the program.
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word][:1]
    if not words or "python" not in Path(words[0]).name:
        return None
    python = words[0] if os.sep in words[0] else _on_path(words[0], environ, cwd)
    return python if python and Path(python).is_absolute() else None


def _look_into(python: str, environ: Mapping[str, str], cwd: Path) -> tuple[tuple[str, str] | None, str]:
    """The package folder and version `python` would import, or None and the reason."""
    if not _is_this_process(python, environ):
        return _ask(python, environ, cwd)
    path = _own_path()
    try:
        return locate_sglang(path if environ.get("PYTHONSAFEPATH") else [str(cwd), *path]), ""
    except LookupError as error:
        return None, str(error.args[0])


def _own_path() -> list[str]:
    """The module path of this process without the folder of its script, which `python -m` does not see."""
    script_folder = str(Path(sys.argv[0]).parent) if sys.argv and sys.argv[0] else ""
    has_it = bool(sys.path) and sys.path[0] == script_folder and not sys.flags.safe_path
    return sys.path[1:] if has_it else sys.path


def _is_this_process(python: str, environ: Mapping[str, str]) -> bool:
    """Whether this process has the module path that a fresh `python` would have."""
    flags = sys.flags
    plain = not (flags.isolated or flags.no_site or flags.ignore_environment)
    same_user_site = not flags.no_user_site or bool(environ.get("PYTHONNOUSERSITE"))
    same_path = environ.get("PYTHONPATH") == os.environ.get("PYTHONPATH")
    return python == sys.executable and plain and same_user_site and same_path


def _ask(python: str, environ: Mapping[str, str], cwd: Path) -> tuple[tuple[str, str] | None, str]:
    """What the probe says when `python` runs it, or None and the reason; never hangs."""
    import json
    import subprocess

    process = None
    # What would end this process waits until the probe is ended, which would outlive it.
    ending = {number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ending)
    try:
        process = subprocess.Popen(
            [python, probe.__file__, str(cwd)],
            cwd=cwd,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that a wrapper which hangs is ended with all it started
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
        )
        lines, fault = _read_answer(process, ending)
    except (OSError, ValueError) as error:
        return None, f"cannot be run ({getattr(error, 'strerror', None) or error})"
    finally:
        if process is not None:
            with suppress(ProcessLookupError):  # it has ended already, as it should
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if not (lines and lines[-1].startswith(MARK)):
        return None, fault or (
            f"ended without an answer: {lines[-1][:200]}" if lines else "ended without an answer"
        )
    try:
        answer = json.loads(lines[-1].removeprefix(MARK))
        if "reason" in answer:
            return None, str(answer["reason"])
        return (str(answer["package"]), str(answer["version"])), ""
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, "answered with something else"


def _read_answer(process: subprocess.Popen[bytes], ending: set[signal.Signals]) -> tuple[list[str], str]:
    """The lines `process` prints up to its answer, and the fault when it gave none.

    That is when it took too long, said too much, or one of the signals `ending` has come meanwhile.
    """
    import select
    import time

    if process.stdout is None:
        raise AssertionError("started with a pipe")
    descriptor = process.stdout.fileno()
    poll, output = select.poll(), bytearray()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    deadline = time.monotonic() + PROBE_TIMEOUT_S
    fault = ""
    while not fault:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            fault = f"did not answer within {PROBE_TIMEOUT_S:.0f} s"
            break
        if ending & signal.sigpending():
            fault = "was interrupted"
            break
        if not poll.poll(min(left_s, _LOOK_EVERY_S) * 1000):
            continue
        chunk = os.read(descriptor, 65536)
        output += chunk
        # Not waiting for the end of the pipe: something that the interpreter started may hold it open.
        if not chunk or (output.endswith(b"\n") and output.rpartition(b"\n" + MARK.encode())[1]):
            break
        if len(output) > _PROBE_OUTPUT_LIMIT:
            fault = "printed too much instead of an answer"
    process.stdout.close()
    return [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()], fault
