"""The bundled tables, and what reads them."""

from __future__ import annotations

import subprocess
import sys

from tests.real_server import ROOT

READ = """
import sys
sys.modules["tomli"] = None
from autolaunch.tables import DATA, toml
from autolaunch.profiles.document import from_toml
assert toml.__name__ == "tomllib"
files = [*DATA.rglob("*.toml")]
for file in files:
    toml.loads(file.read_text())
profiles = [from_toml(file.read_bytes(), where=file.name) for file in (DATA / "profiles").rglob("*.toml")]
print(len(files) > 50, len(profiles) > 0)
"""


def test_without_its_requirement_all_tables_and_profiles_are_read_all_the_same() -> None:
    """A server starts even where autolaunch was put there without what it needs."""
    done = subprocess.run([sys.executable, "-c", READ], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == (["True", "True"], "")
