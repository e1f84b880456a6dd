"""The verdict on one choice of one dimension: the rules about it, weighed the same way everywhere.

A choice is excluded when the version does not offer it or an exclude applies, unknown when one may apply,
eligible when an allow applies, and else unknown.  Whoever decides and whoever explains asks here.
"""

from __future__ import annotations

from collections.abc import Mapping

from autolaunch.capability.dimensions import Dimension
from autolaunch.capability.flag_facts import flag_value
from autolaunch.capability.rows import Evidence
from autolaunch.capability.rules import Numerics, Rule
from autolaunch.capability.situation import Situation
from autolaunch.capability.verdicts import ChoiceVerdict, Hit, Requirement
from autolaunch.request.flags import Flag


class Judge(Situation):
    """A situation that gives verdicts."""

    def verdict(
        self, dimension: Dimension, flag: Flag | None, choice: str, *, automatic: bool = False
    ) -> ChoiceVerdict:
        """The verdict on `choice`; `automatic` choices are SGLang's own and need not be on offer."""
        if not automatic:
            refused = self._not_offered(dimension, flag, choice)
            if refused is not None:
                return refused
        with self.assuming(dimension.dest, flag_value(flag, () if choice == "on" else (choice,))):
            return self._weigh(dimension, choice, automatic=automatic)

    def asks_for(self, dimension: Dimension, names: frozenset[str]) -> bool:
        """Whether a rule about `dimension` asks for one of the facts `names`."""
        if dimension.flag not in self._asked:
            rules = self._rules_of(dimension)
            self._asked[dimension.flag] = frozenset(name for rule in rules for name in rule.names)
        return not names.isdisjoint(self._asked[dimension.flag])

    def _not_offered(self, dimension: Dimension, flag: Flag | None, choice: str) -> ChoiceVerdict | None:
        """The verdict on a choice that this version does not have."""
        version = self.catalogue.version
        if flag is None:
            reason = f"SGLang {version} has no `{dimension.flag}`"
        elif flag.choices is not None and flag.takes_value and choice not in flag.choices:
            reason = f"`{dimension.flag}` of SGLang {version} does not offer `{choice}`"
        else:
            return None
        where = flag.source if flag else "all its flags"
        return ChoiceVerdict(
            choice=choice,
            verdict="excluded",
            reason=reason,
            rules=(f"choices.{dimension.dest}",),
            evidence=(Evidence("source", f"sglang {version} {where}"),),
            failure="rejected",
            stage="start",
            numerics=dimension.numerics,
        )

    def _weigh(self, dimension: Dimension, choice: str, *, automatic: bool) -> ChoiceVerdict:
        """The rules on an offered choice.

        What SGLang picks by itself is not judged by what failed here: plain SGLang would run it too, and only
        a measurement may put something else in its place.
        """
        found: dict[str, list[Hit]] = {"exclude": [], "allow": [], "unknown": [], "warn": []}
        maybe: dict[str, list[tuple[Rule, tuple[str, ...]]]] = {"exclude": [], "allow": []}
        requires: list[Requirement] = []
        numerics: set[Numerics] = set()
        for rule in self._rules_of(dimension):
            if not rule.is_about(dimension.flag, choice) or (automatic and rule.learned):
                continue
            truth = self.truth(rule)
            if truth is None and rule.effect in maybe:
                maybe[rule.effect].append((rule, self.missing(rule)))
            if truth is not True:
                continue
            if rule.numerics is not None:
                numerics.add(rule.numerics)
            if rule.effect == "require":
                hit = self.hit(rule)
                requires += [Requirement(one, hit) for one in rule.require if self.exists(one)]
            else:
                found[rule.effect].append(self.hit(rule))
        common = {
            "choice": choice,
            "numerics": _worst(numerics) or dimension.numerics,
            "warnings": tuple(found["warn"]),
            "requires": tuple(requires),
        }
        if found["exclude"]:
            return _verdict("excluded", found["exclude"], common)
        if maybe["exclude"]:
            return self._for_want(maybe["exclude"], common)
        if found["allow"]:
            return _verdict("eligible", found["allow"], common)
        if maybe["allow"]:
            return self._for_want(maybe["allow"], common)
        if found["unknown"]:
            return _verdict("unknown", found["unknown"], common)
        return ChoiceVerdict(verdict="unknown", reason="no rule speaks of it here", **common)  # type: ignore[arg-type]

    def _for_want(
        self, rules: list[tuple[Rule, tuple[str, ...]]], common: Mapping[str, object]
    ) -> ChoiceVerdict:
        """Unknown, because facts are missing."""
        missing = tuple(dict.fromkeys(name for _, names in rules for name in names))
        hits = [self.hit(rule) for rule, _ in rules]
        names = " and ".join(f"`{name}`" for name in missing) or "something"
        verb = "excludes" if rules[0][0].effect == "exclude" else "allows"
        reason = f"{names} could not be detected, and rule {hits[0].rule} {verb} it for some values"
        return ChoiceVerdict(
            verdict="unknown",
            reason=reason,
            missing=missing,
            rules=tuple(hit.rule for hit in hits),
            evidence=_evidence(hits),
            hits=tuple(hits),
            **common,  # type: ignore[arg-type]
        )

    def _rules_of(self, dimension: Dimension) -> tuple[Rule, ...]:
        """The rules about `dimension`, looked up once."""
        if dimension.flag not in self._rules:
            self._rules[dimension.flag] = self.table.rules_of(dimension)
        return self._rules[dimension.flag]


def _verdict(name: str, hits: list[Hit], common: Mapping[str, object]) -> ChoiceVerdict:
    """A verdict that rests on rules that apply; the first one gives the reason."""
    return ChoiceVerdict(
        verdict=name,  # type: ignore[arg-type]
        reason=hits[0].sentence,
        rules=tuple(hit.rule for hit in hits),
        evidence=_evidence(hits),
        failure=hits[0].failure if name == "excluded" else None,
        stage=hits[0].stage if name == "excluded" else None,
        hits=tuple(hits),
        **common,  # type: ignore[arg-type]
    )


def _evidence(hits: list[Hit]) -> tuple[Evidence, ...]:
    """The evidence of all rules, each once."""
    return tuple(dict.fromkeys(one for hit in hits for one in hit.evidence))


def _worst(numerics: set[Numerics]) -> Numerics | None:
    """The least trustworthy of what the rules say about precision."""
    order: tuple[Numerics, ...] = ("lossy", "unknown", "same")
    return next((one for one in order if one in numerics), None)
