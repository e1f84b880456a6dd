"""Makes the Python environment that the other scripts use: SGLang for the CPU, and autolaunch.

Needs nothing but Python with `venv` and `pip`.  Each step leaves a stamp in the environment when it is done,
so a run that was interrupted goes on where it stopped, and one with nothing to do takes no time.  A step
is done again when what it depends on has changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = ROOT / "scripts"
VENV = ROOT / ".venv"
OTHER_SGLANGS = ROOT / ".sglang"

SGLANG_VERSION = "0.5.21"
"""What the demo serves with and what most tests run against."""

REQUIREMENTS = SCRIPTS / "requirements-sglang-cpu.txt"
PLATFORM = SCRIPTS / "cpu-platform"

TORCHVISIONS = ("0.28.0", "0.16.2")
"""Tried in this order until one can be imported.

0.28.0 belongs to torch 2.13.0, but only to the same build of it: beside a torch built for the CPU, the
torchvision of the package index stops with "operator torchvision::nms does not exist", and so do the
releases back to 0.17.  0.16.2 is the last that can be imported without its compiled operators (seen on
Python 3.11, 2026-11-30); SGLang uses none of them here."""

NEEDED_BYTES = 3_500_000_000
"""2.4 GB stay (seen 2026-11-30), the rest is for files that pip unpacks on its way."""


class SetupError(Exception):
    """The environment could not be made; the message is for the user, `hint` says what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def say(text: str) -> None:
    """Tell the user what happens, on stderr."""
    print(text, file=sys.stderr, flush=True)


def run_script(main: Callable[[], int]) -> None:
    """Run `main` and exit with what it returns; a SetupError or Ctrl-C becomes one message."""
    try:
        code = main()
    except SetupError as error:
        say(f"error: {error}")
        if error.hint:
            say(f"\nhint: {error.hint}")
        code = 1
    except KeyboardInterrupt:
        say("\ninterrupted; the same command goes on from here")
        code = 130
    sys.exit(code)


class Environment:
    """One virtual environment in `folder`, made and filled step by step."""

    def __init__(self, folder: Path = VENV) -> None:
        self.folder = folder.absolute()
        self.python = self.folder / "bin" / "python"
        self.log = self.folder / "install.log"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep a second run out of the environment; make the folder, unless it is somebody else's."""
        mine = (self.folder / "pyvenv.cfg").exists() or (self.folder / ".install.lock").exists()
        if self.folder.exists() and not mine and any(self.folder.iterdir()):
            raise SetupError(
                f"`{self.folder}` is not empty and is no Python environment", "name another folder"
            )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / ".install.lock").open("w")
        except OSError as error:
            raise SetupError(f"`{self.folder}` cannot be written: {error.strerror}") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"another run installs into {shown(self.folder)}; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            self._lock = lock.fileno()
            yield

    def is_done(self, name: str, depends_on: object) -> bool:
        """Whether the step `name` was done, with the same `depends_on`."""
        try:
            return self._stamp(name).read_text() == json.dumps(depends_on, sort_keys=True)
        except FileNotFoundError:
            return False

    def step(self, name: str, depends_on: object, title: str, action: Callable[[], object]) -> None:
        """Do `action` unless it was done with the same `depends_on`."""
        if self.is_done(name, depends_on):
            return
        started = time.monotonic()
        say(f"{title} …")
        try:
            self._stamp(name).unlink(missing_ok=True)
            action()
            self._stamp(name).parent.mkdir(exist_ok=True)
            self._stamp(name).write_text(json.dumps(depends_on, sort_keys=True))
        except OSError as error:
            raise SetupError(f"{title}: {error}") from error
        say(f"  done in {time.monotonic() - started:.0f} s")

    def _stamp(self, name: str) -> Path:
        return self.folder / ".done" / f"{name}.json"

    def make(self) -> None:
        """Create the environment itself, or check that the one that is there works."""
        version = platform.python_version()
        self.step("venv", version, f"making {shown(self.folder)} with Python {version}", self._make)
        if subprocess.run([self.python, "-I", "-c", ""], capture_output=True).returncode != 0:
            raise SetupError(
                f"{self.python} does not start", f"remove {shown(self.folder)} and run this again"
            )

    def _make(self) -> None:
        ran = subprocess.run(
            [sys.executable, "-m", "venv", self.folder],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        if ran.returncode == 0:
            return
        if "ensurepip" in ran.stdout:
            raise SetupError(
                f"{sys.executable} cannot make environments: its module `ensurepip` is missing",
                "on Debian and Ubuntu, `apt install python3-venv`",
            )
        raise explained(ran.stdout, "the environment could not be made")

    def pip(self, *arguments: object) -> None:
        """Run `pip install` in the environment, output to its log; raises SetupError with the reason."""
        # -I: neither PYTHONPATH nor packages of the user may pass for installed ones.
        command: list[str | Path] = [
            self.python,
            "-I",
            "-m",
            "pip",
            "install",
            "--no-input",
            *map(str, arguments),
        ]
        environment = {**os.environ, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        with self.log.open("a+") as log:
            log.write(f"\n$ {' '.join(map(str, command))}\n")
            log.flush()
            start = log.seek(0, os.SEEK_END)
            # pip inherits the lock, which so outlives this script if it alone is killed.
            code = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=[self._lock],
            ).returncode
            log.seek(start)
            output = log.read()
        if code != 0:
            raise explained(output, "packages could not be installed", self.log)

    def imports(self, module: str) -> bool:
        """Whether `module` can be imported in the environment."""
        command: list[str | Path] = [self.python, "-I", "-W", "ignore", "-c", f"import {module}"]
        return subprocess.run(command, cwd="/", capture_output=True).returncode == 0

    def install_sglang(self, version: str = SGLANG_VERSION) -> None:
        """Everything that a server on the CPU needs, and a last look whether SGLang finds its platform."""
        self.make()
        wanted = digest(REQUIREMENTS)
        self.step(
            "requirements", wanted, "installing PyTorch and what SGLang needs on a CPU", self._requirements
        )
        self.step("torchvision", [wanted, TORCHVISIONS], "installing torchvision", self._torchvision)
        self.step(
            "sglang",
            version,
            f"installing SGLang {version}",
            lambda: self.pip("--no-deps", f"sglang=={version}"),
        )
        self.step("platform", digest(PLATFORM), "installing the CPU platform for SGLang", self._platform)
        everything = [wanted, TORCHVISIONS, version, digest(PLATFORM)]
        self.step("check", everything, "asking SGLang for its platform", lambda: self._check(version))

    def _requirements(self) -> None:
        free = shutil.disk_usage(self.folder).free
        if free < NEEDED_BYTES:
            gigabytes = f"{free / 1e9:.1f} GB are free, {NEEDED_BYTES / 1e9:.1f} GB are needed"
            raise SetupError(f"too little space for `{self.folder}`: {gigabytes}")
        self.pip("-r", REQUIREMENTS)

    def _torchvision(self) -> None:
        failed = []
        for version in TORCHVISIONS:
            try:
                self.pip("--no-deps", f"torchvision=={version}")
            except SetupError as error:
                failed.append(f"{version}: {error}")
                continue
            if self.imports("torchvision"):
                return
            failed.append(f"{version} cannot be imported beside this PyTorch")
        raise SetupError(
            "no torchvision fits the PyTorch that was installed: " + "; ".join(failed),
            "let pip find CPU builds of both (PIP_EXTRA_INDEX_URL), or use Python 3.11",
        )

    def _platform(self) -> None:
        # A copy, because a build writes beside its sources, and the checkout may be read-only.
        with tempfile.TemporaryDirectory() as scratch:
            copied = shutil.copytree(PLATFORM, Path(scratch) / PLATFORM.name, ignore=ignore_made)
            self.pip("--no-deps", "--force-reinstall", copied)

    def _check(self, version: str) -> None:
        question = "import sglang, sglang.srt.platforms as p; print(sglang.__version__, p.current_platform)"
        command: list[str | Path] = [self.python, "-I", "-W", "ignore", "-c", question]
        unset = {k: v for k, v in os.environ.items() if k not in ("SGLANG_USE_CPU_ENGINE", "SGLANG_PLATFORM")}
        ran = subprocess.run(command, cwd="/", capture_output=True, text=True, env=unset)
        answer = ran.stdout.strip().splitlines()[-1:]
        if ran.returncode != 0:
            last = (ran.stderr.strip().splitlines() or ["it said nothing"])[-1]
            raise SetupError(f"SGLang {version} was installed and does not start: {last}", self._anew())
        if not answer or not answer[0].startswith(version):
            raise SetupError(
                f"SGLang {version} was installed, but `{' '.join(answer)}` answers", self._anew()
            )
        if "TorchCpuPlatform" not in answer[0]:
            say(f"  note: SGLang chose another platform than the CPU: {answer[0].partition(' ')[2]}")

    def _anew(self) -> str:
        return f"remove {shown(self.folder)} and run this again"

    def install_autolaunch(self, extra: str = "") -> None:
        """autolaunch from this checkout, in place, with the requirements of `extra`."""
        depends_on = [str(ROOT), digest(ROOT / "pyproject.toml"), digest(ROOT / "autolaunch" / "__init__.py")]
        if not extra and self.is_done("autolaunch-dev", depends_on):
            return  # which includes everything
        title = "installing autolaunch" + (f" and its requirements for `{extra}`" if extra else "")
        what = f"{ROOT}[{extra}]" if extra else ROOT
        self.step(
            f"autolaunch-{extra}" if extra else "autolaunch", depends_on, title, lambda: self.pip("-e", what)
        )

    def provide_sglang(self, version: str, folder: Path = OTHER_SGLANGS) -> None:
        """Another SGLang as `folder`/sglang-<version>, for PYTHONPATH: its files only, no requirements."""
        target = folder / f"sglang-{version}"
        if target.exists():
            return
        say(f"fetching SGLang {version} for the tests …")
        folder.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as scratch:
            self.pip("--no-deps", "--target", f"{scratch}/files", f"sglang=={version}")
            Path(scratch, "files").rename(target)


def explained(output: str, otherwise: str, log: Path | None = None) -> SetupError:
    """The reason in the output of pip or venv, as one message."""
    where = f"\n  the whole output: {shown(log)}" if log else ""
    if "No space left on device" in output or "Errno 28" in output:
        return SetupError(
            f"no space left on the disk{where}", "make room, then run this again; it goes on from here"
        )
    if re.search(
        r"Temporary failure in name resolution|Name or service not known|Network is unreachable"
        r"|Failed to establish a new connection|Connection refused|Read timed out|Max retries exceeded"
        r"|ProxyError|NewConnectionError|NameResolutionError|ConnectTimeoutError",
        output,
    ):
        return SetupError(
            f"the package index cannot be reached{where}",
            "check the network and `pip config list`; the same command goes on from here",
        )
    missing = re.search(r"No matching distribution found for (\S+)", output)
    if missing:
        here = f"Python {platform.python_version()} on {platform.machine()}"
        # pip says the same of an index it could not reach, and gives the reason only while it tries again.
        unreached = "cannot be reached, or " if "(from versions: none)" in output else ""
        return SetupError(f"the package index {unreached}has no `{missing[1]}` for {here}{where}")
    last = [line for line in output.splitlines() if line.strip()][-6:]
    return SetupError("\n  ".join([otherwise, *last]) + where)


def ignore_made(folder: str, names: list[str]) -> list[str]:
    """What `shutil.copytree` leaves out: results of a build, not sources."""
    return [name for name in names if name in ("build", "__pycache__") or name.endswith(".egg-info")]


def digest(path: Path) -> str:
    """A name for the contents of a file, or of all source files of a folder."""
    found = hashlib.sha256()
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        inside = file.relative_to(path).parts
        if file.is_file() and not any(ignore_made("", [part]) for part in inside):
            found.update(f"{'/'.join(inside)}\0".encode() + file.read_bytes())
    return found.hexdigest()


def shown(path: Path) -> str:
    """`path` as a user would type it from where they are."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
