"""The engine host with one more operation: `reload`, other weights of the same shapes into the live engine.

    python reloading_host.py --control FD

Several states of one model then cost one start.  Runs under SGLang's interpreter, as the host itself does.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

HOST = Path(__file__).parents[2] / "autolaunch" / "race" / "child" / "engine_host.py"


def load_host() -> Any:
    """The engine host's module, by its path."""
    spec = importlib.util.spec_from_file_location("engine_host", HOST)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> int:
    """Serve an engine that can be given other weights."""
    host = load_host()
    original = host.load_operations

    def load_operations() -> ModuleType:
        operations: Any = original()

        class Host(operations.Host):  # type: ignore[misc]
            """A host that also reloads."""

            def __init__(self, engine: Any) -> None:
                super().__init__(engine)
                self.operations["reload"] = self.reload

            def reload(self, path: str) -> str:
                """Take the weights in the folder `path`; RuntimeError where SGLang does not.

                SGLang's scheduler ends when it is not idle, as for a moment after its last answer.
                """
                while not self.flush():
                    time.sleep(0.05)
                done = self.engine.update_weights_from_disk(path)
                if not done[0]:
                    raise RuntimeError(str(done))
                return str(done[1])

        operations.Host = Host
        return operations  # type: ignore[no-any-return]

    host.load_operations = load_operations
    return int(host.main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main())
