"""Conditions of rows, compiled once and answered in three values: true, false, or None for unknown.

False wins an "and", true wins an "or", and what is left with an unknown fact is unknown, with the names of
the facts that were missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from autolaunch.capability.fact_names import FLAG, UNKNOWN, Facts, fact_kind
from autolaunch.capability.fact_tests import Test, compile_test
from autolaunch.capability.kleene import Truth, truth_or


@dataclass(frozen=True, slots=True)
class Condition:
    """A table of tests that all must hold, and alternatives of which one must."""

    tests: tuple[tuple[str, Test], ...] = ()
    alternatives: tuple[tuple[Condition, ...], ...] = ()
    """Each `any` list, of which one table must hold."""

    def truth(self, facts: Facts) -> Truth:
        """Whether the condition holds for `facts`."""
        unknown = False
        for name, test in self.tests:
            fact = facts.get(name, UNKNOWN)
            truth = None if fact is UNKNOWN else test(fact, facts)
            if truth is False:
                return False
            unknown = unknown or truth is None
        for group in self.alternatives:
            truth = truth_or(one.truth(facts) for one in group)
            if truth is False:
                return False
            unknown = unknown or truth is None
        return None if unknown else True

    def missing(self, facts: Facts) -> tuple[str, ...]:
        """The facts for want of which the condition is unknown; none when it is not."""
        if self.truth(facts) is not None:
            return ()
        names: dict[str, None] = {}
        for name, test in self.tests:
            fact = facts.get(name, UNKNOWN)
            if fact is UNKNOWN:
                names[name] = None
            elif test(fact, facts) is None:
                other = getattr(test, "refers_to", name)
                names[other if facts.get(other, UNKNOWN) is UNKNOWN else name] = None
        for group in self.alternatives:
            if truth_or(one.truth(facts) for one in group) is None:
                names.update((name, None) for one in group for name in one.missing(facts))
        return tuple(names)

    def names(self) -> tuple[str, ...]:
        """Every fact the condition asks for, in its order."""
        found = dict.fromkeys(name for name, _ in self.tests)
        for group in self.alternatives:
            for one in group:
                found.update(dict.fromkeys(one.names()))
        return tuple(found)


ALWAYS = Condition()


def compile_condition(table: Any) -> Condition:
    """The condition of a row's table; ValueError that says what is wrong with it.

    `flag`, `env` and `module` tables, which TOML makes of dotted keys such as `flag.x`, are flattened.
    """
    if not isinstance(table, Mapping):
        raise ValueError(f"a condition is a table, not `{table!r}`")
    tests: list[tuple[str, Test]] = []
    alternatives: list[tuple[Condition, ...]] = []
    for name, wanted in _flat(table):
        if name == "any":
            if not isinstance(wanted, list) or len(wanted) < 2:
                raise ValueError("`any` is a list of two tables or more")
            alternatives.append(tuple(map(compile_condition, wanted)))
            continue
        kind = fact_kind(name)
        if kind is None:
            raise ValueError(f"`{name}` is no fact")
        try:
            tests.append((name, compile_test(name, kind, wanted)))
        except ValueError as error:
            raise ValueError(f"`{name}`: {error}") from error
    return Condition(tuple(tests), tuple(alternatives))


def _flat(table: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    """The entries of `table`, with `flag`, `env` and `module` tables flattened."""
    for name, wanted in table.items():
        if name in ("flag", "env", "module") and isinstance(wanted, Mapping):
            for key, inner in wanted.items():
                yield f"{name}.{key}", inner
        else:
            yield name, wanted


def flag_names(condition: Condition) -> tuple[str, ...]:
    """The flags a condition asks for, by the attribute they set."""
    return tuple(name.removeprefix(FLAG) for name in condition.names() if name.startswith(FLAG))
