"""The command `autolaunch`; `--version` answers before anything is imported."""

from __future__ import annotations

import sys


def main() -> int:
    """Run the command line of this process and return its exit code."""
    if sys.argv[1:] == ["--version"] and sys.stdout is not None:
        from autolaunch import __version__

        try:
            sys.stdout.write(f"autolaunch {__version__}\n")
            sys.stdout.flush()
        except OSError as error:
            from autolaunch.launch.execute import silence

            silence(sys.stdout)  # else Python tries again at its exit, and ends with 120
            sys.exit(f"error: could not write to stdout\n  because {error.strerror}")
        return 0
    from autolaunch.launch_server import collect_rarely, end_at_interrupt

    end_at_interrupt()
    collect_rarely()
    from autolaunch.cli import autolaunch, run_command

    return run_command(autolaunch, sys.argv[1:], "autolaunch")


if __name__ == "__main__":
    sys.exit(main())
