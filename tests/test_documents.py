"""What the documents say is what the code does: help texts, modules, options, scripts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_layering import ORDER, PACKAGE

ROOT = Path(__file__).parent.parent
DOCUMENTS = ["README.md", "STRUCTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]
HELP = re.compile(r"```console\n\$ autolaunch ([a-z ]*--help)\n(.*?)```", re.S)


def help_blocks() -> list[tuple[str, str]]:
    """Every `--help` block of the README: arguments and the text below them."""
    return HELP.findall((ROOT / "README.md").read_text())


@pytest.mark.parametrize(("arguments", "shown"), help_blocks())
def test_help_blocks_are_the_real_help(arguments: str, shown: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "TERM": "dumb"}
    done = subprocess.run(
        [sys.executable, "-m", "autolaunch", *arguments.split()],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout.rstrip() == shown.rstrip()


def test_the_readme_shows_the_help() -> None:
    assert help_blocks()


def test_structure_lists_the_modules_in_their_order() -> None:
    """A later name of a row lies in the folder of the first: `race/result`, `race` is `race/race`."""
    listed = []
    for row in re.findall(r"^\| (`.+?) \|", (ROOT / "STRUCTURE.md").read_text(), re.M):
        first, *more = re.findall(r"`([\w/]+)`", row)
        folder = first.rpartition("/")[0]
        listed += [first, *(f"{folder}/{name}" if folder else name for name in more)]
    packages = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("__init__.py")}
    ordered = [name.replace(".", "/") for name in ORDER if name != "autolaunch"]
    assert listed == [name for name in ordered if name not in packages]


def test_structure_names_every_table() -> None:
    text = (ROOT / "STRUCTURE.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    for path in (ROOT / "autolaunch" / "data").glob("*.toml"):
        assert f"data/{path.name}" in text


def test_dependencies_have_a_reason() -> None:
    declared = re.search(r"^dependencies = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.S | re.M)
    assert declared
    names = re.findall(r'"([a-z-]+)', declared[1])
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert names and all(f"| {name} |" in text for name in names)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_named_files_exist(document: str) -> None:
    for name in re.findall(
        r"`?((?:scripts|autolaunch|tests|benchmarks)/[\w./-]*\w)", (ROOT / document).read_text()
    ):
        assert list(ROOT.glob(name)) or list(ROOT.glob(f"{name}.py")), f"{document} names {name}"


def test_options_in_the_readme_exist() -> None:
    from autolaunch.cli import own_option_names

    text = (ROOT / "README.md").read_text()
    assert all(name in text for name in own_option_names())


def test_the_project_speaks_of_itself_alone() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split():
        path = ROOT / name
        if path.suffix in {".py", ".md", ".toml", ".txt", ""} and path.is_file() and name != "LICENSE":
            found = re.search(r"(?<![\w/])/(root|work|home)/\w+", path.read_text(errors="replace"))
            assert not found or name.startswith("tests/"), f"{name}: a machine's path {found}"
