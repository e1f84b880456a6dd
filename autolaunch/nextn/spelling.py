"""What must be typed for a family of heads in one SGLang version, and what to look out for: `spell`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autolaunch.capability.fact_names import ENV, FLAG, UNSET, Fact, Facts
from autolaunch.capability.flag_facts import FactSheet, derived, facts_of_features, parsed
from autolaunch.capability.rows import Evidence, fill
from autolaunch.nextn.families import Clause, Families, Family

_TOPK = 1
# The attribute that a renamed flag sets in the newest version, by which facts are named.
_NEWEST = {"mamba_scheduler_strategy": "mamba_radix_cache_strategy"}


@dataclass(frozen=True, slots=True)
class Spelling:
    """Flags and variables for one family, without those that the user set already."""

    flags: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    changes: Mapping[str, str]
    """The flags by the attribute they set, `on` for a switch."""
    companions: tuple[str, ...]
    """Why each flag or variable beside the algorithm and its numbers is there."""
    evidence: tuple[Evidence, ...]


def spell(family: Family, heads: int | None, sglang: str, facts: Facts, rows: Families) -> Spelling:
    """What drafting with `heads` heads of `family` takes; `facts` say what the user set.

    Steps, branches and draft tokens are always named: left out, SGLang fills them in after it has chosen the
    attention, which on SM 10.x loses trtllm_mha (0.5.23 srt/arg_groups/speculative_hook.py:1155-1174).
    """
    wanted: list[tuple[str, str | None]] = [("--speculative-algorithm", family.algorithm)]
    if family.steps:
        steps = min(family.steps, heads) if family.one_head_each and heads else family.steps
        wanted += [
            ("--speculative-num-steps", str(steps)),
            ("--speculative-eagle-topk", str(_TOPK)),
            ("--speculative-num-draft-tokens", str(steps + 1)),
        ]
    reasons: list[str] = []
    env: dict[str, str] = {}
    evidence: list[Evidence] = []
    for row in rows.companions:
        if not row.applies(family.id, sglang, facts) or _is_set(row, facts):
            continue
        if row.env is not None:
            env[row.env] = row.value or ""
            reasons.append(f"`{row.env}={row.value}`: {row.reason}")
        elif row.flag is not None:
            wanted.append((row.flag, row.value))
            reasons.append(f"`{' '.join(row.tokens)}`: {row.reason}")
        evidence += row.evidence
    added = [(flag, value) for flag, value in wanted if not _is_pinned(flag, facts)]
    return Spelling(
        flags=tuple(token for flag, value in added for token in (flag, value) if token is not None),
        env=tuple(sorted(env.items())),
        changes={dest_of(flag): value or "on" for flag, value in added},
        companions=tuple(reasons),
        evidence=tuple(evidence),
    )


def with_spelling(facts: Facts, spelling: Spelling) -> FactSheet:
    """The facts as they would be with the flags and variables of `spelling`."""
    sheet = FactSheet(facts)
    for dest, value in spelling.changes.items():
        fact: Fact = True if value == "on" else parsed(value)
        sheet[f"{FLAG}{dest}"] = fact
        sheet.update(derived(dest, fact))
    sheet.update((f"{ENV}{name}", value) for name, value in spelling.env)
    kept = ("spec_topk", "spec_steps", "draft_tokens")
    sheet.update((name, fact) for name, fact in facts_of_features(sheet) if name in kept)
    return sheet


def cautions_of(
    family: Family, sglang: str, facts: Facts, rows: Families
) -> tuple[tuple[str, ...], tuple[Evidence, ...]]:
    """What to look out for under `facts`, and who says so."""
    found = [row for row in rows.cautions if row.applies(family.id, sglang, facts)]
    return tuple(fill(row.reason, facts) for row in found), tuple(
        one for row in found for one in row.evidence
    )


def dest_of(flag: str) -> str:
    """The attribute that `flag` sets in the newest version."""
    dest = flag.removeprefix("--").replace("-", "_")
    return _NEWEST.get(dest, dest)


def _is_pinned(flag: str, facts: Facts) -> bool:
    """Whether the user set `flag`."""
    return bool(FactSheet(facts).get(f"{FLAG}{dest_of(flag)}", UNSET) != UNSET)


def _is_set(row: Clause, facts: Facts) -> bool:
    """Whether the user set the flag or the variable of a companion, to whatever value."""
    if row.flag is not None:
        return _is_pinned(row.flag, facts)
    return bool(FactSheet(facts).get(f"{ENV}{row.env}", UNSET) != UNSET)
