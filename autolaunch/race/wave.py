"""Where each engine of a wave stands before its first timed window: it loads, answers, warms up, is warm."""

from __future__ import annotations


class Wave:
    """Engines that start at once, by candidate id; who passed the gate, or is out, is not in it any more."""

    def __init__(self, start: int = 1, *, shared: bool = False) -> None:
        """`start` counts the starts of each candidate; `shared` says that others are up beside it."""
        self.start, self.shared = start, shared
        self.loading: dict[str, float] = {}
        """Those that do not answer yet, and when they were started."""
        self.cold: list[str] = []
        """Those that answer, in the order in which they will warm up."""
        self.warming: list[str] = []
        """Those that warm up, all at the same time."""
        self.warm: list[str] = []
        """Those that are warm and not gated."""
        self.original_due = False
        """Whether `c0`, which the others are compared with, has its own verdict still to come."""

    @property
    def names(self) -> list[str]:
        """Ids of all that are in it, the gate's reference included while that loads."""
        return [*self.loading, *self.cold, *self.warming, *self.warm]

    @property
    def is_over(self) -> bool:
        """Whether nothing is to be waited for or done."""
        return not self.names and not self.original_due

    def remove(self, name: str) -> None:
        """`name` is out, wherever it is."""
        self.loading.pop(name, None)
        for names in (self.cold, self.warming, self.warm):
            if name in names:
                names.remove(name)
