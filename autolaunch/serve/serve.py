"""What `serve` does in the process that becomes the server: as little as possible before the exec."""

from __future__ import annotations

import os
from pathlib import Path

from autolaunch.command import Command
from autolaunch.options.options import ServeOptions
from autolaunch.request.command_line import CommandName, original_argv, sglang_argv
from autolaunch.request.interpreter import find_interpreter


def serve(command: CommandName, tokens: tuple[str, ...], options: ServeOptions) -> int:
    """Become the server that `tokens` ask for, with what the stages decide; returns only from a dry run."""
    cwd = working_folder()
    interpreter = find_interpreter(options.python, os.environ, cwd)
    entry, argv = sglang_argv(tokens, command, environ=os.environ, cwd=cwd, package=interpreter.package)
    original = Command(original_argv(interpreter, entry, argv))
    if options.plain or asks_for_help(argv):
        from autolaunch.launch.execute import become, print_last

        if options.dry_run:
            return print_last(bare_document(original) if options.wants_document else original.shell())
        become(original, os.environ)
    if options.profile is not None:
        check_profile(options)
    from autolaunch.launch.supervise import Decision, Reporter, supervise

    def decide(reporter: Reporter) -> Decision:
        # Here, in the child: whatever is broken in there, the original can still be started.
        from autolaunch.folders import user_folders
        from autolaunch.invocation import Invocation
        from autolaunch.serve import decide as flow

        invocation = Invocation(
            command=command,
            tokens=tokens,
            options=options,
            interpreter=interpreter,
            original=original,
            environ=dict(os.environ),
            cwd=cwd,
            folders=user_folders(),
        )
        return flow.decide(invocation, reporter)

    return supervise(
        decide,
        original,
        strict=options.strict,
        dry_run=options.dry_run,
        show=bare_document if options.wants_document else Command.shell,
    )


def check_profile(options: ServeOptions) -> None:
    """UsageError where the profile that the user names is none: told before anything starts."""
    from autolaunch.folders import user_folders
    from autolaunch.profiles.exchange import named
    from autolaunch.profiles.store import Store

    named(Store.of(options.profile_dirs, user_folders()), options.profile or "")


def bare_document(command: Command) -> str:
    """What a dry run prints for a program where nothing was explained: the original command is chosen."""
    import json  # here, because only a dry run needs it

    chosen = {"id": "c0", "flags": [], "env": {}, "origin": "original", "reason": "nothing was decided"}
    return json.dumps(
        {
            "schema": "autolaunch.explain/1",
            "chosen": chosen,
            "command": list(command.argv),
            "env": dict(command.env),
        },
        indent=1,
    )


def working_folder() -> Path:
    """The working folder, by the kernel's own name where it has been deleted: SGLang starts there, too."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/proc/self/cwd")


def asks_for_help(argv: tuple[str, ...]) -> bool:
    """Whether SGLang would print its help and exit."""
    return any(token in ("-h", "--help") for token in argv)
