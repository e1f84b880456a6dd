"""`python -m autolaunch.launch_server …` in the place of `python -m sglang.launch_server …`."""

from __future__ import annotations

import sys


def end_at_interrupt() -> None:
    """Let SIGINT end this process at once, as it ends any program that is loading, and not by a traceback.

    `launch.signals` takes it over once there is something to end in order.
    """
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def collect_rarely() -> None:
    """Let Python look for garbage cycles a hundred times as rarely as it does on its own.

    What a start makes are modules and values that stay, and the process ends in an exec: every look is lost.
    """
    import gc

    gc.set_threshold(100_000)


def main() -> int:
    """Run SGLang's own command line through autolaunch and return its exit code."""
    end_at_interrupt()
    collect_rarely()
    from autolaunch.cli import launch_server, run_command

    return run_command(launch_server, sys.argv[1:], "python -m autolaunch.launch_server")


if __name__ == "__main__":
    sys.exit(main())
