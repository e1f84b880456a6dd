"""Reads `data/mtp_families.toml`: families of heads, and what must, must not or may stand beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final, Literal

from autolaunch.capability.fact_names import Facts
from autolaunch.capability.kleene import truth_and, truth_not
from autolaunch.capability.rows import Evidence, Row, RowError, Scope
from autolaunch.capability.versions import VersionRange, parse_range
from autolaunch.tables import load_table

FILE: Final = "data/mtp_families.toml"
ANY_FAMILY: Final = "*"

Form = Literal["nextn", "dspark", "separate"]
_FORMS: Final[tuple[Form, ...]] = ("nextn", "dspark", "separate")


@dataclass(frozen=True, slots=True)
class Draft:
    """Who drafts for some architectures, in which versions."""

    architectures: tuple[str, ...]
    draft_class: str
    sglang: VersionRange
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Unquantized:
    """Methods under which a draft is built without quantization, whatever its weights are."""

    methods: tuple[str, ...]
    sglang: VersionRange
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Gain:
    """What was reported: tokens per second with the heads, in times of those without."""

    low: float
    high: float
    of: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """One family of heads."""

    id: str
    title: str
    form: Form
    heads: str
    """What SGLang looks for; `{layers}` is the number of decoder layers."""
    algorithm: str
    resolves_to: str
    steps: int
    """Draft steps to ask for; 0 where the algorithm has none."""
    one_head_each: bool
    exactly_one: bool
    drafts: tuple[Draft, ...]
    unquantized: tuple[Unquantized, ...]
    gain: Gain | None

    def drafts_for(self, architecture: str) -> tuple[Draft, ...]:
        """The drafts of any version for `architecture`."""
        return tuple(
            draft
            for draft in self.drafts
            if any(fnmatchcase(architecture, like) for like in draft.architectures)
        )

    def draft_in(self, architecture: str, sglang: str) -> Draft | None:
        """Who drafts for `architecture` in the version `sglang`, if anybody does."""
        return next((one for one in self.drafts_for(architecture) if one.sglang.holds(sglang)), None)

    def forced_unquantized(self, method: str | None, sglang: str) -> Unquantized | None:
        """The row that says that the draft is built without quantization under `method`."""
        return next(
            (one for one in self.unquantized if method in one.methods and one.sglang.holds(sglang)), None
        )


@dataclass(frozen=True, slots=True)
class Clause:
    """A row on some families in some situation: a companion, a reason to fail, or a caution."""

    id: str
    families: tuple[str, ...]
    scope: Scope
    reason: str
    evidence: tuple[Evidence, ...]
    flag: str | None = None
    env: str | None = None
    value: str | None = None
    """None for a switch."""

    def applies(self, family: str, sglang: str, facts: Facts) -> bool:
        """Whether it is known to apply."""
        if family not in self.families and ANY_FAMILY not in self.families:
            return False
        if self.scope.sglang is not None and not self.scope.sglang.holds(sglang):
            return False
        unless = self.scope.unless
        spared = truth_not(unless.truth(facts)) if unless is not None else True
        return truth_and((self.scope.when.truth(facts), spared)) is True

    @property
    def tokens(self) -> tuple[str, ...]:
        """A companion as SGLang reads it; nothing for a variable."""
        if self.flag is None:
            return ()
        return (self.flag,) if self.value is None else (self.flag, self.value)


@dataclass(frozen=True, slots=True)
class Without:
    """Architectures with promises that no SGLang keeps."""

    id: str
    architectures: tuple[str, ...]
    reason: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class Families:
    """The whole file."""

    families: tuple[Family, ...]
    companions: tuple[Clause, ...]
    forbids: tuple[Clause, ...]
    cautions: tuple[Clause, ...]
    withouts: tuple[Without, ...]

    def family(self, architecture: str, form: Form = "nextn") -> Family | None:
        """The family whose heads a model of `architecture` has; `form` where there are several."""
        found = [one for one in self.families if one.drafts_for(architecture)]
        return next((one for one in found if one.form == form), next(iter(found), None))

    def without(self, architecture: str) -> Without | None:
        """Why no SGLang drafts for `architecture`, where that is known."""
        return next(
            (
                one
                for one in self.withouts
                if any(fnmatchcase(architecture, like) for like in one.architectures)
            ),
            None,
        )


@cache
def bundled_families() -> Families:
    """The rows of `data/mtp_families.toml`; RowError when one is wrong."""
    return parse_families(load_table("mtp_families"))


def parse_families(content: Mapping[str, list[dict[str, Any]]]) -> Families:
    """The rows of a parsed file; RowError when one is wrong."""
    if unknown := set(content) - {"family", "companion", "forbid", "caution", "without"}:
        raise RowError(f"{FILE}: has unknown tables {', '.join(sorted(unknown))}")

    def rows(kind: str) -> Iterator[Row]:
        return (Row(FILE, kind, values) for values in content.get(kind, []))

    found = Families(
        families=tuple(map(_family, content.get("family", []))),
        companions=tuple(map(_companion, rows("companion"))),
        forbids=tuple(map(_clause, rows("forbid"))),
        cautions=tuple(map(_clause, rows("caution"))),
        withouts=tuple(map(_without, rows("without"))),
    )
    known = {one.id for one in found.families} | {ANY_FAMILY}
    for clause in (*found.companions, *found.forbids, *found.cautions):
        if strange := set(clause.families) - known:
            raise RowError(f"{FILE}: {clause.id}: no family is named {', '.join(sorted(strange))}")
    return found


def _family(values: Mapping[str, Any]) -> Family:
    """One `[[family]]`, with the tables inside it."""
    inner = {key: values[key] for key in ("drafts", "unquantized", "gain") if key in values}
    row = Row(FILE, "family", {key: value for key, value in values.items() if key not in inner})
    form = row.text("form", "nextn", _FORMS)
    family = Family(
        id=row.text("id"),
        title=row.text("title"),
        form=next(one for one in _FORMS if one == form),
        heads=row.text("heads"),
        algorithm=row.text("algorithm", "NEXTN"),
        resolves_to=row.text("resolves_to", "EAGLE"),
        steps=row.number("steps", 3),
        one_head_each=row.switch("one_head_each", False),
        exactly_one=row.switch("exactly_one", False),
        drafts=tuple(_draft(row.id, one) for one in inner.get("drafts", [])),
        unquantized=tuple(_unquantized(row.id, one) for one in inner.get("unquantized", [])),
        gain=_gain(row.id, inner["gain"]) if "gain" in inner else None,
    )
    row.done()
    if not family.drafts:
        raise row.wrong("names nobody who drafts")
    return family


def _draft(family: str, values: Mapping[str, Any]) -> Draft:
    """One entry of `drafts`."""
    row = Row(FILE, "draft of", {"id": family, **values})
    draft = Draft(row.strings("architectures"), row.text("class"), *_where(row))
    row.done()
    return draft


def _unquantized(family: str, values: Mapping[str, Any]) -> Unquantized:
    """One entry of `unquantized`."""
    row = Row(FILE, "unquantized of", {"id": family, **values})
    found = Unquantized(row.strings("methods"), *_where(row))
    row.done()
    return found


def _where(row: Row) -> tuple[VersionRange, Evidence]:
    """The versions of an entry inside a family, and the place in SGLang's sources."""
    row.text("id")
    return parse_range(row.text("sglang")), Evidence("source", row.text("ref"))


def _gain(family: str, values: Mapping[str, Any]) -> Gain:
    """The `[family.gain]` of a family that has one."""
    numbers = [values.get("low"), values.get("high")]
    row = Row(FILE, "gain of", {"id": family, "of": values.get("of"), "evidence": values.get("evidence")})
    low, high = (float(one) if isinstance(one, int | float) else 0.0 for one in numbers)
    if not 0 < low <= high:
        raise row.wrong("`low` and `high` are numbers, the smaller one first")
    return Gain(low, high, row.sentence("of"), row.evidence())


def _companion(row: Row) -> Clause:
    """One `[[companion]]`: a flag or a variable."""
    flag, env, value = row.text("flag", ""), row.text("env", ""), row.text("value", "")
    if bool(flag) == bool(env) or (env and not value):
        raise row.wrong("is a `flag` with or without `value`, or an `env` with `value`")
    return _clause(row, flag or None, env or None, value or None)


def _clause(row: Row, flag: str | None = None, env: str | None = None, value: str | None = None) -> Clause:
    """What all rows on families have."""
    clause = Clause(
        id=row.identifier(),
        families=row.strings("families"),
        scope=row.scope(),
        reason=row.sentence("reason"),
        evidence=row.evidence(),
        flag=flag,
        env=env,
        value=value,
    )
    row.done()
    return clause


def _without(row: Row) -> Without:
    """One `[[without]]`."""
    found = Without(row.identifier(), row.strings("architectures"), row.sentence("reason"), row.evidence())
    row.done()
    return found
