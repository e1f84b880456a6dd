"""Kleene's logic of three values: true, false, and None for unknown."""

from __future__ import annotations

from collections.abc import Iterable

Truth = bool | None


def truth_and(truths: Iterable[Truth]) -> Truth:
    """Kleene's "and"; true for nothing at all."""
    seen = set(truths)
    return False if False in seen else None if None in seen else True


def truth_or(truths: Iterable[Truth]) -> Truth:
    """Kleene's "or"; false for nothing at all."""
    seen = set(truths)
    return True if True in seen else None if None in seen else False


def truth_not(truth: Truth) -> Truth:
    """Kleene's "not"."""
    return None if truth is None else not truth
