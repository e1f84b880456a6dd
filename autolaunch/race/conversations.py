"""The user's own conversations, as values; their text is in no `repr`, and nothing here prints it."""

from __future__ import annotations

from dataclasses import dataclass, field

from autolaunch.errors import UsageError

BYTES_PER_TOKEN = 4
"""Of UTF-8, about; the launcher has no tokenizer, and a shape needs no more."""


class WorkloadError(UsageError, ValueError):
    """A workload that cannot be understood."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user says next, and how long the answer to it has to be."""

    text: str = field(repr=False)
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in order; each is sent with everything before it, answers included, as its prefix."""

    turns: tuple[Turn, ...]

    @property
    def prompt_tokens(self) -> tuple[int, ...]:
        """About how many tokens each turn's whole prompt has."""
        counts, so_far = [], 0
        for turn in self.turns:
            so_far += max(1, tokens_of(turn.text))
            counts.append(so_far)
            so_far += turn.output_tokens
        return tuple(counts)

    @property
    def held_tokens(self) -> int:
        """About how many tokens the whole conversation has, its last answer included."""
        return self.prompt_tokens[-1] + self.turns[-1].output_tokens


@dataclass(frozen=True, slots=True)
class Source:
    """The file that conversations came from, by what may be said of it."""

    sha256: str
    conversations: int
    """In the file; no more are kept than a race can send."""


def tokens_of(text: str) -> int:
    """About how many tokens `text` has."""
    return -(-len(text.encode(errors="surrogatepass")) // BYTES_PER_TOKEN)
