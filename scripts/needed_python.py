"""Importing this goes on under a newer Python where the running one is too old for the scripts, or says so.

Written so that Python 3.6 can read it: such Pythons are the ones that need the message.
"""

import os
import platform
import sys

OLDEST = (3, 11)
NEWEST_TRIED = (3, 19)


def newer_python():
    """A newer Python on PATH, or None."""
    for minor in range(OLDEST[1], NEWEST_TRIED[1] + 1):
        for folder in os.environ.get("PATH", "").split(os.pathsep):
            found = os.path.join(folder, "python3." + str(minor))  # noqa: PTH118 - old Pythons have no pathlib
            if os.access(found, os.X_OK):
                return found
    return None


if sys.version_info < OLDEST:
    python = newer_python()
    if python:
        os.execv(python, [python, *sys.argv])
    here = f"{platform.python_version()} ({sys.executable})"
    sys.stderr.write(
        f"error: Python 3.11 or newer is needed, and this is {here}\n\n"
        "hint: install one so that `python3.11` or a newer one is on PATH\n"
    )
    sys.exit(1)
