"""Turns a request and a candidate into the argv and environment that are executed.

This is the only place that puts SGLang's flags on a command line.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from autolaunch.candidates.candidate import Candidate


@dataclass(frozen=True, slots=True)
class Command:
    """What `exec` is given: `argv` with the interpreter first, and the variables added to the environment."""

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()

    def shell(self) -> str:
        """One line that a POSIX shell understands as exactly this command."""
        words = [f"{name}={shlex.quote(value)}" for name, value in self.env]
        return " ".join([*words, shlex.join(self.argv)])

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """`base` with the additions of this command."""
        return {**base, **dict(self.env)}

    def with_candidate(self, candidate: Candidate) -> Command:
        """This command with the flags of `candidate` at its end, where they win over earlier ones."""
        return Command(argv=self.argv + candidate.flags, env=self.env + candidate.env)
