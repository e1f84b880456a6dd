"""One start as the table sees it: its facts, asked by rules, and refined while dimensions are resolved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autolaunch.capability.fact_names import ENV, FLAG, UNKNOWN, UNSET, Fact
from autolaunch.capability.flag_facts import DERIVED, FactSheet, derived
from autolaunch.capability.flashinfer import DeclaredSms
from autolaunch.capability.kleene import Truth, truth_and, truth_not
from autolaunch.capability.rows import Evidence, fill
from autolaunch.capability.rules import Companion, Rule, scope_missing, scope_truth
from autolaunch.capability.table import Table
from autolaunch.capability.verdicts import Hit
from autolaunch.request.flags import Flag, FlagCatalogue

_YES = frozenset({"1", "true", "yes", "y", "on", "t"})
"""How SGLang lets a variable be switched on."""
_TYPED = {
    "speculative_eagle_topk": "spec_topk",
    "speculative_num_steps": "spec_steps",
    "speculative_num_draft_tokens": "draft_tokens",
    "ep_size": "ep",
    "enable_dp_attention": "dp_attention",
}
"""Facts that repeat a flag as it was typed; a choice of that flag counts as typed."""


class Situation:
    """The table, the flags of this version, FlashInfer's declarations and the facts of one start."""

    def __init__(
        self, facts: FactSheet, table: Table, catalogue: FlagCatalogue, declared: DeclaredSms
    ) -> None:
        """`facts` is refined in place while the dimensions are resolved."""
        self.facts = facts
        self.table = table
        self.catalogue = catalogue
        self._declared = declared
        self._rules: dict[str, tuple[Rule, ...]] = {}
        self._asked: dict[str, frozenset[str]] = {}

    @contextmanager
    def assuming(self, dest: str, value: Fact) -> Iterator[None]:
        """The facts as they are when flag `dest` is `value`."""
        changed: dict[str, Fact] = {f"{FLAG}{dest}": value, **dict(derived(dest, value))}
        if dest in _TYPED:
            changed[_TYPED[dest]] = value
        before = {name: self.facts[name] for name in changed if name in self.facts}
        self.facts.update(changed)
        try:
            yield
        finally:
            for name in changed:
                del self.facts[name]
            self.facts.update(before)

    def names_for(self, dest: str) -> frozenset[str]:
        """The facts that change with flag `dest`."""
        names = {f"{FLAG}{dest}"}
        names.update(name for name, _ in derived(dest, UNSET))
        return frozenset(names | ({_TYPED[dest]} if dest in _TYPED else set()))

    def settle(self, dest: str, value: Fact) -> None:
        """From now on flag `dest` is `value`, by SGLang or by a repair."""
        self.facts[f"{FLAG}{dest}"] = value
        if dest in DERIVED and dest != "quantization":  # `quantization_flag` is what was typed
            self.facts.update(derived(dest, value))

    def combinations(self, names: frozenset[str] | None = None) -> Iterator[Hit]:
        """The rules on combinations of flags that apply; only those that ask for one of `names`, if given."""
        for rule in self.table.combinations():
            if names is not None and names.isdisjoint(rule.names):
                continue
            if self.truth(rule) is True and not (rule.effect == "require" and self._satisfied(rule)):
                yield self.hit(rule)

    def hit(self, rule: Rule) -> Hit:
        """`rule` as one that applies to the present facts."""
        shown: dict[str, object] = {name: self.facts.get(name, UNKNOWN) for name in rule.names}
        sentence_facts = _Shown(self.facts)
        evidence = rule.evidence
        if rule.backend is not None:
            function, backend = rule.backend.function, rule.backend.backend
            ref = f"flashinfer {self._declared_version()}: SMs declared for `{function}`"
            evidence = (*evidence, Evidence("source", f"{ref}, backend `{backend}`" if backend else ref))
        return Hit(
            rule=rule.id,
            effect=rule.effect,
            reason=fill(rule.reason, sentence_facts),
            contradiction=fill(rule.contradiction, sentence_facts),
            failure=rule.failure,
            stage=rule.stage,
            evidence=evidence,
            facts=tuple(shown.items()),  # type: ignore[arg-type]
        )

    def lacks(self, companion: Companion) -> bool:
        """Whether `companion` is not what will run."""
        wanted = companion.values or (True,)
        value = self.facts.get(self._fact_of(companion), UNSET)
        if companion.is_variable and str(value).lower() in _YES:
            value = "1"
        return value is not UNKNOWN and str(value) not in {str(one) for one in wanted}

    def is_set(self, companion: Companion) -> bool:
        """Whether the flag or variable of `companion` is set to something."""
        return self.facts.get(self._fact_of(companion), UNSET) not in (UNSET, False)

    def exists(self, companion: Companion) -> bool:
        """Whether this version has the flag of `companion`."""
        return companion.is_variable or self.catalogue.resolve(companion.name) is not None

    def flag_of(self, dest: str) -> Flag | None:
        """The flag of this version that sets what the newest one calls `dest`."""
        dimension = next((one for one in self.table.dimensions if one.dest == dest), None)
        return dimension.in_version(self.catalogue) if dimension else self.catalogue.flag(dest)

    def dest_of(self, companion: Companion) -> str:
        """The attribute that the flag of `companion` sets, in the newest spelling."""
        dimension = self.table.dimension(companion.name)
        if dimension is not None:
            return dimension.dest
        flag = self.catalogue.resolve(companion.name)
        return flag.dest if flag else companion.name.removeprefix("--").replace("-", "_")

    def _fact_of(self, companion: Companion) -> str:
        """The name of the fact that tells `companion`."""
        return f"{ENV}{companion.name}" if companion.is_variable else f"{FLAG}{self.dest_of(companion)}"

    def _satisfied(self, rule: Rule) -> bool:
        """Whether everything that `rule` requires is there."""
        return not any(self.lacks(companion) for companion in rule.require)

    def truth(self, rule: Rule) -> Truth:
        """Whether `rule` applies to the present facts."""
        truth = scope_truth(rule.scope, self.facts)
        if rule.backend is None or truth is False:
            return truth
        supported = self._supports(rule)
        return truth_and((truth, truth_not(supported) if rule.effect == "exclude" else supported))

    def _supports(self, rule: Rule) -> Truth:
        """Whether FlashInfer declares the GPU for the rule's backend."""
        sm = self.facts.get("sm", UNKNOWN)
        if rule.backend is None or not isinstance(sm, int):
            return None
        return self._declared.supports(rule.backend.function, rule.backend.backend, sm)

    def missing(self, rule: Rule) -> tuple[str, ...]:
        """The facts for want of which it is unknown whether `rule` applies."""
        names = list(scope_missing(rule.scope, self.facts))
        if rule.backend is not None and self._supports(rule) is None:
            names.append("sm" if self.facts.get("sm", UNKNOWN) is UNKNOWN else "flashinfer")
        return tuple(dict.fromkeys(names))

    def _declared_version(self) -> str:
        """The FlashInfer versions whose declarations speak."""
        return " and ".join(one.version for one in self._declared.versions) or "unknown"


class _Shown(dict[str, object]):
    """Facts as sentences show them."""

    def __init__(self, facts: FactSheet) -> None:
        super().__init__()
        self._facts = facts

    def get(self, key: str, default: object = None) -> object:
        """The fact's value, an unknown one in words."""
        value = self._facts.get(key, UNKNOWN)
        return "unknown" if value is UNKNOWN else value
