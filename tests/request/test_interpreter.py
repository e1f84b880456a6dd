"""Which Python is found, which `sglang` it would import, and that odd Pythons end in one clear message."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autolaunch.errors import SglangNotFoundError, UsageError
from autolaunch.request import interpreter as subject
from autolaunch.request import probe
from autolaunch.request.interpreter import Interpreter, find_interpreter


def make_package(folder: Path, version: str | None = "0.5.99") -> Path:
    """A package in `folder` that looks like SGLang, as far as finding it goes."""
    package = folder / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('never imported')")
    (package / "launch_server.py").touch()
    if version:
        (package / "_version.py").write_text(
            f"version: str\n__version__: str\n__version__ = version = '{version}'\n"
        )
    return package


def script(path: Path, text: str) -> Path:
    """An executable file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def python_with(path: Path, site: Path) -> Path:
    """A Python at `path` that has `site` on its module path, by a shell script in front."""
    return script(path, f'#!/bin/sh\nPYTHONPATH="{site}" exec "{sys.executable}" "$@"\n')


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """An environment in which nothing is to be found."""
    (tmp_path / "empty").mkdir()
    return {"PATH": str(tmp_path / "empty"), "HOME": str(tmp_path)}


@pytest.fixture
def own_path(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The module path of this process: nothing but what a test puts there, whatever runs the tests."""
    path: list[str] = []
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(subject, "_own_path", lambda: path)
    monkeypatch.setattr(
        sys, "meta_path", [finder for finder in sys.meta_path if "ditable" not in repr(finder)]
    )
    return path


def test_this_environment_comes_first(tmp_path: Path, bare: dict[str, str], own_path: list[str]) -> None:
    package = make_package(tmp_path / "site")
    own_path.append(str(tmp_path / "site"))
    bare["VIRTUAL_ENV"] = str(tmp_path)
    found = find_interpreter(None, bare, tmp_path)
    assert found == Interpreter(sys.executable, package, "0.5.99", "this environment")
    assert "sglang" not in sys.modules


def test_working_folder(tmp_path: Path, bare: dict[str, str], own_path: list[str]) -> None:
    """A package there wins, unless PYTHONSAFEPATH is set; a plain folder does not."""
    site, cwd = make_package(tmp_path / "site"), tmp_path / "work"
    own_path.append(str(site.parent))
    (cwd / "sglang" / "python").mkdir(parents=True)
    assert find_interpreter(None, bare, cwd).package == site
    shutil.rmtree(cwd)
    here = make_package(cwd, "1.0")
    assert find_interpreter(None, bare, cwd).package == here
    assert find_interpreter(None, {**bare, "PYTHONSAFEPATH": "1"}, cwd).package == site


@pytest.mark.usefixtures("own_path")
def test_editable_install(tmp_path: Path, bare: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By a finder, as setuptools has it; a plain folder in the way hides it, and that is said."""
    package = make_package(tmp_path / "checkout" / "python")
    spec = probe.PathFinder.find_spec("sglang", [str(package.parent)])

    class EditableFinder:
        @staticmethod
        def find_spec(name: str, path: object, target: object = None) -> object:
            return spec if name == "sglang" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, EditableFinder])
    assert find_interpreter(None, bare, tmp_path).package == package
    (tmp_path / "above" / "sglang").mkdir(parents=True)
    with pytest.raises(SglangNotFoundError, match="plain folder"):
        find_interpreter(None, bare, tmp_path / "above")


@pytest.mark.usefixtures("own_path")
def test_every_source_that_was_tried_is_named(tmp_path: Path, bare: dict[str, str]) -> None:
    script(tmp_path / "empty" / "sglang", "#!/usr/bin/env bash\necho no\n")
    with pytest.raises(SglangNotFoundError) as caught:
        find_interpreter(None, {**bare, "VIRTUAL_ENV": "/none", "CONDA_PREFIX": "/conda"}, tmp_path)
    said = str(caught.value)
    for part in (
        "error: found no Python interpreter that holds SGLang",
        f"this environment: `{sys.executable}` has no `sglang`",
        "`VIRTUAL_ENV`: no `bin/python` in `/none`",
        "`CONDA_PREFIX`: no `bin/python` in `/conda`",
        "name no Python",
        "`python3` on PATH: not found",
        "hint: install SGLang",
    ):
        assert part in said


@pytest.mark.usefixtures("own_path")
@pytest.mark.parametrize(
    ("source", "variable"),
    [("`VIRTUAL_ENV`", "VIRTUAL_ENV"), ("`CONDA_PREFIX`", "CONDA_PREFIX"), ("`python3` on PATH", "PATH")],
)
def test_other_environments(tmp_path: Path, bare: dict[str, str], source: str, variable: str) -> None:
    package = make_package(tmp_path / "site")
    python = python_with(tmp_path / "venv" / "bin" / "python3", tmp_path / "site")
    value = python.parent if variable == "PATH" else tmp_path / "venv"
    found = find_interpreter(None, {**bare, variable: str(value)}, tmp_path)
    assert found == Interpreter(str(python), package, "0.5.99", source)


@pytest.mark.usefixtures("own_path")
@pytest.mark.parametrize(
    "shebang",
    [
        "#!{python}",
        "#! {python} -E",
        "#!/usr/bin/env python9",
        "#!/usr/bin/env -S python9 -X dev",
        "#!/usr/bin/env A=b python9",
        "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''",
        "#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''",
    ],
)
def test_the_sglang_script_on_path(tmp_path: Path, bare: dict[str, str], shebang: str) -> None:
    package = make_package(tmp_path / "site")
    python = python_with(tmp_path / "deep" / "python9", tmp_path / "site")
    script(tmp_path / "bin" / "sglang", shebang.format(python=python) + "\nimport sglang\n")
    bare["PATH"] = f"{tmp_path / 'bin'}:{python.parent}"
    found = find_interpreter(None, bare, tmp_path)
    assert found == Interpreter(str(python), package, "0.5.99", "`sglang` on PATH")


@pytest.mark.usefixtures("own_path")
@pytest.mark.parametrize(
    "content",
    ["", "#!", "#!\n", "#!/usr/bin/env\n", "#!relative/python\n", "\x7fELF\x00\xff", "#!/bin/sh\nexec x\n", "#!/bin/ruby\n"],
)  # fmt: skip
def test_odd_scripts_name_no_python(tmp_path: Path, bare: dict[str, str], content: str) -> None:
    script(tmp_path / "empty" / "sglang", "").write_bytes(content.encode("latin-1"))
    with pytest.raises(SglangNotFoundError, match="name no Python"):
        find_interpreter(None, bare, tmp_path)


def test_named(tmp_path: Path, bare: dict[str, str]) -> None:
    """By path, by folder, by name on PATH; never resolved through links."""
    package = make_package(tmp_path / "site")
    python = python_with(tmp_path / "venv" / "bin" / "python", tmp_path / "site")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "venv")
    bare["PATH"] = str(python.parent)
    for named, expected in (
        (str(python), python),
        ("venv/bin/python", python),
        (str(tmp_path / "venv"), python),
        ("venv", python),
        ("link", link / "bin" / "python"),
        ("~/venv", python),
        ("python", python),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HOME", str(tmp_path))
            found = find_interpreter(named, bare, tmp_path)
        assert found == Interpreter(str(expected), package, "0.5.99", "--python"), named


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("", "names nothing"),
        ("a\0b", "names nothing"),
        ("missing", "is not there"),
        ("/dev/null/x", "is not there"),
        ("x" * 5000, "cannot look at"),
        (".", "without `bin/python`"),
        ("text", "cannot be executed"),
        ("~nobody-of-this-name/x", "is not there"),
    ],
)
def test_named_is_no_interpreter(tmp_path: Path, bare: dict[str, str], named: str, said: str) -> None:
    (tmp_path / "text").write_text("x")
    with pytest.raises(UsageError, match=said) as caught:
        find_interpreter(named, bare, tmp_path)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#!/bin/sh\nexit 3\n", "ended without an answer"),
        ("#!/bin/sh\necho 'no module named x' >&2; exit 1\n", "no module named x"),
        ("#!/nonexistent/python\n", "cannot be run"),
        ("", "cannot be run"),
        ("#!/bin/sh\nyes\n", "printed too much"),
        ("#!/bin/sh\nsleep 60\n", "did not answer within 1 s"),
        ("#!/bin/sh\nsleep 60 & sleep 60\n", "did not answer within 1 s"),
        ("#!/bin/sh\nkill -9 $$\n", "ended without an answer"),
        ("#!/bin/sh\necho 'autolaunch-probe {'\n", "answered with something else"),
        ("#!/bin/sh\necho 'autolaunch-probe [1]'\n", "answered with something else"),
        (f"#!/bin/sh\necho 'autolaunch-probe {'[' * 100_000}'\n", "answered with something else"),
    ],
)
def test_broken_pythons(
    tmp_path: Path, bare: dict[str, str], monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.setattr(subject, "PROBE_TIMEOUT_S", 1.0)
    script(tmp_path / "python", text)
    bare["PATH"] = os.environ["PATH"]
    start = time.monotonic()
    with pytest.raises(SglangNotFoundError) as caught:
        find_interpreter("./python", bare, tmp_path)
    assert said in str(caught.value)
    assert time.monotonic() - start < 10
    assert len(str(caught.value)) < 1500


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_a_hanging_python_too(tmp_path: Path, number: signal.Signals) -> None:
    """It is in a session of its own, and would outlive the launcher that the signal ends."""
    pid_file = tmp_path / "pid"
    script(
        tmp_path / "python",
        f"#!/bin/sh\necho $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 60\n",
    )
    code = (
        "import os, signal; from pathlib import Path; signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "from autolaunch.request.interpreter import find_interpreter\n"
        f"find_interpreter('./python', os.environ, Path({str(tmp_path)!r}))"
    )
    launcher = subprocess.Popen([sys.executable, "-c", code])
    deadline = time.monotonic() + 20
    while not pid_file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    launcher.send_signal(number)
    assert launcher.wait(10) == -number
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_an_answer_among_noise(tmp_path: Path, bare: dict[str, str]) -> None:
    """What a `sitecustomize` prints, and a child that keeps the output open, do no harm."""
    make_package(tmp_path / "site")
    (tmp_path / "site" / "sitecustomize.py").write_text(
        "import subprocess; print('hello\\n{}'); subprocess.Popen(['sleep', '60'])"
    )
    python = python_with(tmp_path / "python", tmp_path / "site")
    bare["PATH"] = os.environ["PATH"]
    start = time.monotonic()
    assert find_interpreter(str(python), bare, tmp_path).version == "0.5.99"
    assert time.monotonic() - start < 20


def test_probe_runs_by_path_and_alone(tmp_path: Path) -> None:
    """Also where autolaunch is not importable, with the working folder first as `python -m` has it."""
    package = make_package(tmp_path)
    for options, environ in (([], {}), (["-S"], {}), (["-I"], {})):
        done = subprocess.run(
            [sys.executable, *options, probe.__file__, str(tmp_path)],
            capture_output=True,
            text=True,
            env={"PATH": "", **environ},
            cwd=tmp_path,
        )
        line = done.stdout.strip()
        assert line.startswith(probe.MARK), done.stderr
        answer = json.loads(line.removeprefix(probe.MARK))
        if "-I" not in options:  # isolated: the working folder is not looked into
            assert answer == {"package": str(package), "version": "0.5.99"}


@pytest.mark.parametrize(
    ("files", "version"),
    [
        ({"sglang/_version.py": "__version__ = version = '1.2.3'\n"}, "1.2.3"),
        ({"sglang/version.py": '__version__ = "0.4.6.post1"\n'}, "0.4.6.post1"),
        ({"sglang/_version.py": "__version__: str\nx = 1\n", "sglang/version.py": "__version__ = '7'\n"}, "7"),
        ({"sglang/version.py": "try:\n    from a import __version__\nexcept ImportError:\n    __version__ = '0'\n"}, "unknown"),
        ({"sglang-0.0.0.dev1+gabc.dist-info/METADATA": ""}, "0.0.0.dev1+gabc"),
        ({"sglang-0.3.egg-info/PKG-INFO": ""}, "0.3"),
        ({"sglang_router-0.3.dist-info/METADATA": ""}, "unknown"),
        ({}, "unknown"),
    ],
)  # fmt: skip
def test_version(tmp_path: Path, files: dict[str, str], version: str) -> None:
    make_package(tmp_path, None)
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert probe.locate_sglang([str(tmp_path)])[1] == version


@pytest.mark.usefixtures("own_path")
def test_what_is_no_sglang(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "sglang.py").touch()
    with pytest.raises(LookupError, match="no `launch_server` beside it"):
        probe.locate_sglang([str(tmp_path / "a")])
    other = tmp_path / "b" / "sglang"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    with pytest.raises(LookupError, match="no `launch_server` beside it"):
        probe.locate_sglang([str(tmp_path / "b")])
    with pytest.raises(LookupError, match="has no `sglang`"):
        probe.locate_sglang([str(tmp_path), "/nonexistent", str(tmp_path / "file.zip")])


def test_the_real_one(sglang_python: str) -> None:
    found = find_interpreter(sglang_python, os.environ, Path("/"))
    code = (
        "import sglang, sys; print(sglang.__path__[0]); from sglang.version import __version__ as v; print(v)"
    )
    done = subprocess.run([sglang_python, "-c", code], capture_output=True, text=True, cwd="/", check=True)
    assert [str(found.package), found.version] == done.stdout.split()[-2:]
