"""Checks the whole table against everything that is known, in the tests and for a table of one's own.

The loader refuses a row that is malformed.  Here is what takes more than one row to see: ids used twice,
flags, choices and versions that never were, and choices that no row speaks of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from autolaunch.capability.autos import AutoRow, PreferRow
from autolaunch.capability.conditions import Condition, flag_names
from autolaunch.capability.dimensions import Dimension
from autolaunch.capability.fact_names import UNSET
from autolaunch.capability.flashinfer import bundled_declarations, bundled_flashinfer_versions
from autolaunch.capability.rows import RowError, Scope
from autolaunch.capability.rules import ANY_CHOICE, Rule
from autolaunch.capability.table import COMBINATIONS, Table
from autolaunch.capability.versions import VersionRange, version_key
from autolaunch.request.catalogue import bundled_catalogue, bundled_versions
from autolaunch.request.flags import Flag, FlagCatalogue

ELSEWHERE: Final = frozenset({"on", "off", UNSET})
"""Choices that no list of a version holds: switches, and nothing at all."""


def problems(table: Table, files: Iterable[str] | None = None) -> tuple[str, ...]:
    """What is wrong with `table`, one sentence each; only of `files` (`rules/x`, `auto/x`) where given."""
    wanted = None if files is None else set(files)
    found: list[str] = []
    ids: dict[str, str] = {}
    for name, rows in _files(table, found):
        for row in rows:
            identifier = getattr(row, "id", "")
            if identifier and identifier in ids:
                found.append(f"{name}: id {identifier} is used in {ids[identifier]} too")
            ids[identifier] = name
            found += [f"{name}: {identifier}: {problem}" for problem in _row(table, row, name)]
    if wanted is not None:
        return tuple(one for one in found if any(one.startswith(f"{name}:") for name in wanted))
    return (*found, *_dimensions(table), *_unraced(table), *uncovered(table))


def _unraced(table: Table) -> Iterator[str]:
    """Each choice that is kept out of races without a rule that says why."""
    for dimension in table.dimensions:
        rules = table.rules_of(dimension) if dimension.unraced else ()
        for choice in dimension.unraced:
            if not any(rule.warns_slow(choice) for rule in rules):
                yield f"{dimension.flag} {choice} is not raced, and no rule warns that it is slow"


def uncovered(table: Table) -> tuple[str, ...]:
    """Each choice of a kernel dimension that some known version offers and no row names."""
    found = []
    for dimension in table.dimensions:
        if not dimension.kernel:
            continue
        named = {choice for rule in table.rules_of(dimension) for choice in rule.choices}
        for choice, version in known_choices(dimension).items():
            if choice not in named:
                found.append(f"{dimension.flag} {choice} (SGLang {version}) has no row")
    return tuple(found)


def without_auto(table: Table) -> tuple[str, ...]:
    """Each kernel dimension of which no row says what SGLang picks, so that it stays unknown."""
    return tuple(
        f"{dimension.flag} has no automatic choice: write auto/{dimension.stem}.toml"
        for dimension in table.dimensions
        if dimension.kernel and not table.autos(dimension).autos and set(known_choices(dimension)) - {"on"}
    )


def known_choices(dimension: Dimension) -> dict[str, str]:
    """Every choice that a bundled version offers, with the newest version that does."""
    found: dict[str, str] = {}
    for catalogue in _catalogues():
        flag = dimension.in_version(catalogue)
        if flag is not None:
            found.update(dict.fromkeys(dimension.choices(flag), catalogue.version))
    return found


@lru_cache(maxsize=1)
def _catalogues() -> tuple[FlagCatalogue, ...]:
    """The flags of every bundled version, oldest first."""
    return tuple(bundled_catalogue(version) for version in bundled_versions())


@lru_cache(maxsize=1)
def _dests() -> frozenset[str]:
    """Every attribute that a flag of a bundled version sets."""
    return frozenset(flag.dest for catalogue in _catalogues() for flag in catalogue.flags)


def _files(table: Table, found: list[str]) -> Iterator[tuple[str, Sequence[Rule | AutoRow | PreferRow]]]:
    """The rows of every file; a file that cannot be read is a problem."""
    spoken_of = {COMBINATIONS, *(stem for dimension in table.dimensions for stem in dimension.rules)}
    for stem in table.rule_files():
        if stem not in spoken_of:
            found.append(f"rules/{stem}: no dimension names this file in its `rules`")
        try:
            yield f"rules/{stem}", table.rules(stem)
        except RowError as error:
            found.append(f"rules/{stem}: {error}")
    stems = {dimension.stem: dimension for dimension in table.dimensions}
    for stem in table.auto_files():
        if stem not in stems:
            found.append(f"auto/{stem}: no dimension is called `--{stem}`")
            continue
        try:
            autos = table.autos(stems[stem])
        except RowError as error:
            found.append(f"auto/{stem}: {error}")
            continue
        yield f"auto/{stem}", (*autos.autos, *autos.prefers)


def _row(table: Table, row: Rule | AutoRow | PreferRow, file: str) -> Iterator[str]:
    """What is wrong with one row."""
    yield from _scope(row.scope)
    if isinstance(row, Rule):
        yield from _rule(table, row, file)
        return
    dimension = table.dimension(f"--{file.removeprefix('auto/')}")
    if dimension is None:
        return
    if isinstance(row, PreferRow):
        yield from _choices(dimension, row.order)
    elif not row.value.startswith("="):
        yield from _choices(dimension, (row.value,))
    if isinstance(row, AutoRow):
        later = _later(table, dimension)
        for dest in _flags_of(row.scope):
            if dest in later:
                yield f"asks for flag.{dest}, which is resolved after {dimension.flag}"


def _rule(table: Table, rule: Rule, file: str) -> Iterator[str]:
    """What is wrong with one rule."""
    if not rule.dimensions and file != f"rules/{COMBINATIONS}":
        yield f"a rule on a combination belongs into {COMBINATIONS}.toml"
    for flag in rule.dimensions:
        dimension = table.dimension(flag)
        if dimension is None or dimension.flag != flag:
            yield f"{flag} is no dimension in its newest spelling"
        elif file.removeprefix("rules/") not in dimension.rules:
            yield f"{flag} looks for its rules in {', '.join(dimension.rules)}"
        else:
            yield from _choices(dimension, rule.choices)
    if rule.backend is not None and not _declared(rule.backend.function, rule.backend.backend):
        yield f"no known FlashInfer declares `{rule.backend.backend}` of `{rule.backend.function}`"
    for companion in rule.require:
        if not companion.is_variable and all(one.resolve(companion.name) is None for one in _catalogues()):
            yield f"no known version has {companion.name}"


def _declared(function: str, backend: str) -> bool:
    """Whether some bundled version of FlashInfer declares the SMs of that backend."""
    found = map(bundled_declarations, bundled_flashinfer_versions())
    return any(one is not None and one.functions.get(function, {}).get(backend) for one in found)


def _choices(dimension: Dimension, choices: Iterable[str]) -> Iterator[str]:
    """The choices that no version offers."""
    known = known_choices(dimension)
    if not known or not any(flag.choices for flag in _flags(dimension)):
        return  # a number or free text
    for choice in choices:
        if choice not in known and choice not in ELSEWHERE and choice != ANY_CHOICE:
            yield f"no known version offers `{choice}` for {dimension.flag}"


def _flags(dimension: Dimension) -> Iterator[Flag]:
    """The flag of each version that has it."""
    return (flag for one in _catalogues() if (flag := dimension.in_version(one)) is not None)


def _scope(scope: Scope) -> Iterator[str]:
    """Versions and flags of a scope that never were."""
    yield from _range("sglang", scope.sglang, bundled_versions())
    yield from _range("flashinfer", scope.flashinfer, bundled_flashinfer_versions())
    for dest in _flags_of(scope):
        if dest not in _dests():
            yield f"no flag of a known version sets `{dest}`"


def _flags_of(scope: Scope) -> tuple[str, ...]:
    """The flags a scope asks for."""
    conditions: list[Condition] = [scope.when, *([scope.unless] if scope.unless else [])]
    return tuple(dest for condition in conditions for dest in flag_names(condition))


def _range(name: str, versions: VersionRange | None, known: Sequence[str]) -> Iterator[str]:
    """What is wrong with a range: it holds for no known version, or reaches where nothing was checked."""
    if versions is None:
        return
    if not any(versions.holds(version) for version in known):
        yield f"{name} `{versions.text}` holds for no known version"
    first, last = version_key(known[0]), version_key(known[-1])
    for bound in versions.bounds():
        key = version_key(bound)
        if key is None or first is None or last is None or not first <= key <= last:
            yield f"{name} `{versions.text}` names {bound}, which is outside {known[0]} to {known[-1]}"


def _later(table: Table, dimension: Dimension) -> frozenset[str]:
    """The attributes of the dimensions that are resolved after `dimension`."""
    at = table.dimensions.index(dimension)
    return frozenset(one.dest for one in table.dimensions[at:])


def _dimensions(table: Table) -> Iterator[str]:
    """What is wrong with the dimensions themselves."""
    seen: set[str] = set()
    for dimension in table.dimensions:
        for name in (dimension.flag, *dimension.also):
            if name in seen:
                yield f"dimensions_gpu: {name} is there twice"
            seen.add(name)
            if all(one.resolve(name) is None for one in _catalogues()):
                yield f"dimensions_gpu: no known version has {name}"
        newest = next((f for one in reversed(_catalogues()) if (f := dimension.in_version(one))), None)
        if newest is not None and newest.dest != dimension.dest:
            yield f"dimensions_gpu: {dimension.flag} sets `{newest.dest}`, not `{dimension.dest}`"
        if dimension.when is not None:
            for dest in flag_names(dimension.when):
                if dest not in _dests():
                    yield f"dimensions_gpu: {dimension.flag}: no flag sets `{dest}`"
