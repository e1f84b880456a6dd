"""A checkpoint and the facts of a start into a plan for its heads: `suggest`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autolaunch.capability.conflicts import conflict
from autolaunch.capability.fact_names import FLAG, NONE, UNKNOWN, UNSET
from autolaunch.capability.flag_facts import FactSheet
from autolaunch.capability.flashinfer import DeclaredSms
from autolaunch.capability.rows import fill
from autolaunch.capability.table import Table
from autolaunch.capability.verdicts import Evaluation, Hit
from autolaunch.capability.versions import version_key
from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.checkpoint.quantization import method_in
from autolaunch.nextn.families import Families, Family, Form, Gain, bundled_families
from autolaunch.nextn.plan import NextnMode as NextnMode
from autolaunch.nextn.plan import NextnPlan as NextnPlan
from autolaunch.nextn.spelling import Spelling, cautions_of, spell, with_spelling
from autolaunch.request.catalogue import bundled_versions
from autolaunch.request.flags import FlagCatalogue
from autolaunch.units import format_bytes

MAX_RUNNING_REQUESTS = 48
"""What every version read sets when it drafts and the flag is missing (0.5.9 srt/server_args.py:2363; 0.5.23
srt/arg_groups/speculative_hook.py:1090)."""
_PLAIN = frozenset({"bf16", "fp16", "fp32"})
_LIMIT = "max_running_requests"
_DRAFT_PATH = "speculative_draft_model_path"
_MISSING_KEY = (
    "the draft's loader stops unless the configuration, or its class, has `num_nextn_predict_layers`"
)


def suggest(
    checkpoint: Checkpoint,
    evaluation: Evaluation,
    table: Table,
    catalogue: FlagCatalogue,
    *,
    declared: DeclaredSms | None = None,
    mode: NextnMode = "auto",
) -> NextnPlan:
    """What to do with the heads of `checkpoint`; `mode` is `--nextn`."""
    rows = bundled_families()
    facts = FactSheet(
        (name, fact)
        for name, fact in evaluation.facts.items()
        if fact is not UNKNOWN or not name.startswith(FLAG)  # what SGLang would pick is not looked at here
    )
    given = FactSheet(evaluation.given)
    pinned = given.get(f"{FLAG}speculative_algorithm", UNSET) not in (UNSET, NONE)
    plan, family = _known(checkpoint, facts, rows)
    separate = family is not None and family.form == "separate"
    pinned = pinned or (_is_set(given, _DRAFT_PATH) and not separate)
    plan = replace(plan, pinned=pinned)
    if family is None or not plan.usable:
        return _absent_but_asked(plan, checkpoint) if pinned else plan
    sglang = str(facts.get("sglang"))
    spelling = spell(family, checkpoint.mtp.layers, sglang, given, rows)
    asked = facts if pinned else with_spelling(facts, spelling)
    warnings, sources = cautions_of(family, sglang, asked, rows)
    plan = replace(
        plan,
        warnings=(*plan.warnings, *warnings),
        evidence=(*plan.evidence, *spelling.evidence, *sources),
        **_worth(family.gain),
        **_price(checkpoint, facts),
        max_running_requests=None if _is_set(given, _LIMIT) else MAX_RUNNING_REQUESTS,
    )
    forbidden = next((row for row in rows.forbids if row.applies(family.id, sglang, facts)), None)
    if forbidden is not None:
        hit = Hit(
            forbidden.id,
            "exclude",
            fill(forbidden.reason, facts),
            "",
            "rejected",
            "start",
            forbidden.evidence,
        )
        return _refused(plan, hit)
    if pinned:
        return replace(plan, reason=f"your flags already say how to draft; {plan.reason}")
    hit_of_table = conflict(evaluation, table, catalogue, spelling.changes, declared)
    if hit_of_table is not None:
        return _refused(plan, hit_of_table)
    return _ready(plan, spelling, mode)


def with_room(plan: NextnPlan, concurrency: int | None) -> NextnPlan:
    """`plan` for `concurrency` requests at once, some of which would wait under SGLang's own limit."""
    limit = plan.max_running_requests
    if limit is None or concurrency is None or concurrency <= limit or not plan.flags:
        return plan
    holds = f"`--max-running-requests {concurrency}` holds the workload"
    why = f"{holds}: SGLang would set {limit} when it drafts"
    return replace(
        plan,
        flags=(*plan.flags, "--max-running-requests", str(concurrency)),
        companions=(*plan.companions, why),
        max_running_requests=None,
    )


def _known(checkpoint: Checkpoint, facts: FactSheet, rows: Families) -> tuple[NextnPlan, Family | None]:
    """Whether checkpoint and version go together, before the flags are looked at."""
    mtp, architecture = checkpoint.mtp, checkpoint.architecture
    form: Form = "dspark" if mtp.family == "dspark" else "nextn"
    family = rows.family(architecture, form)
    sglang = facts.get("sglang")
    if family is None:
        none = rows.without(architecture)
        reason = (
            none.reason if none else f"no SGLang that is known drafts with heads of {architecture or 'it'}"
        )
        if not mtp.present:
            reason = f"{mtp.reason}; {none.reason}" if none else mtp.reason
        evidence = none.evidence if none else ()
        in_version = False if none or mtp.present else None
        return NextnPlan(False, False, reason, in_version=in_version, evidence=evidence), None
    plan = NextnPlan(False, False, "", family=family.id, title=family.title)
    if not isinstance(sglang, str):
        return replace(plan, reason="which SGLang will run is not known"), family
    draft = family.draft_in(architecture, sglang)
    if draft is None:
        return _undrafted(plan, family, checkpoint, sglang), family
    plan = replace(plan, in_version=True, draft_class=draft.draft_class, evidence=(draft.evidence,))
    if family.form == "separate":
        if _is_set(facts, _DRAFT_PATH):
            reason = f"the draft model {facts.get(f'{FLAG}{_DRAFT_PATH}')} is named"
            return replace(plan, usable=True, reason=reason), family
        reason = f"its heads are {family.heads}, to be named with `--speculative-draft-model-path`"
        return replace(plan, reason=reason), family
    if not mtp.present:
        heads = family.heads.replace("{layers}", str(checkpoint.num_layers or "N"))
        looked = f"; SGLang would load {heads}" if mtp.announced else ""
        return replace(plan, reason=f"{mtp.reason}{looked}", warnings=mtp.notes), family
    misfit = _misfit(checkpoint, family, sglang)
    if misfit is not None:
        return replace(plan, reason=misfit, warnings=mtp.notes), family
    said = mtp.reason if family.form == "nextn" else f"{mtp.tensors} tensors `{mtp.prefix}*` are there"
    notes = (*mtp.notes, _MISSING_KEY) if family.exactly_one and mtp.announced_layers is None else mtp.notes
    return replace(plan, usable=True, reason=said, warnings=notes), family


def _undrafted(plan: NextnPlan, family: Family, checkpoint: Checkpoint, sglang: str) -> NextnPlan:
    """The plan where nobody drafts in this version; between versions that were read it is not known."""
    architecture, mtp = checkpoint.architecture, checkpoint.mtp
    first = family.drafts_for(architecture)[0]
    key = version_key(sglang)
    later = [one for one in bundled_versions() if key is not None and (version_key(one) or key) >= key]
    if later and later[0] != sglang and family.draft_in(architecture, later[0]):
        reason = f"SGLang {sglang} was not read; {later[0]} drafts for {architecture}, older ones do not"
        return replace(plan, reason=reason, evidence=(first.evidence,))
    reason = f"SGLang {sglang} has no draft class for {architecture}; {first.sglang.text} has one"
    if not mtp.present:
        reason = f"{mtp.reason}, and {reason}"
    return replace(plan, reason=reason, in_version=False, evidence=(first.evidence,))


def _misfit(checkpoint: Checkpoint, family: Family, sglang: str) -> str | None:
    """Why the draft class could not load the heads that are there."""
    mtp = checkpoint.mtp
    if not mtp.usable and family.form == "nextn":
        return mtp.reason
    if family.exactly_one and mtp.announced_layers not in (None, 1):
        return (
            f"the loader of {family.title} asserts that `num_nextn_predict_layers` is 1, "
            f"and the configuration says {mtp.announced_layers}"
        )
    method = method_in(checkpoint.quantization, sglang, (checkpoint.architecture,))
    stored = checkpoint.quantization.parts.get("mtp", mtp.dtype)
    if stored and stored not in _PLAIN and family.forced_unquantized(method, sglang):
        return (
            f"the heads are stored as {stored}, and SGLang {sglang} builds this draft without quantization "
            f"under {method}, so their weights would not fit"
        )
    return None


def _absent_but_asked(plan: NextnPlan, checkpoint: Checkpoint) -> NextnPlan:
    """The plan where the user's flags draft although the heads are not there."""
    if checkpoint.mtp.present is not False or plan.family is None or plan.in_version is not True:
        return plan
    text = (
        "SGLang does not check that the tensors are there: without a draft model of its own the heads would "
        "hold whatever was in memory, which shows only in an acceptance length of about 1"
    )
    return replace(plan, warnings=(*plan.warnings, text))


def _refused(plan: NextnPlan, hit: Hit) -> NextnPlan:
    """The plan where a rule forbids it here."""
    return replace(
        plan,
        usable=False,
        reason=f"{plan.reason}, but {hit.sentence}",
        conflict=hit,
        evidence=(*plan.evidence, *hit.evidence),
    )


def _ready(plan: NextnPlan, spelling: Spelling, mode: NextnMode) -> NextnPlan:
    """The plan with what must be typed."""
    return replace(
        plan,
        suggested=mode != "off",
        flags=spelling.flags,
        env=spelling.env,
        companions=spelling.companions,
    )


def _worth(gain: Gain | None) -> dict[str, Any]:
    """What was reported for the family."""
    if gain is None:
        return {}
    return {
        "gain": f"{gain.low:g} to {gain.high:g} times the {gain.of}",
        "gain_range": (gain.low, gain.high),
        "gain_evidence": gain.evidence,
    }


def _price(checkpoint: Checkpoint, facts: FactSheet) -> dict[str, Any]:
    """What the heads take of each GPU: they are split over the ranks like the model's own layers."""
    size, ranks = checkpoint.mtp.weight_bytes, facts.get("tp")
    if size is None:
        return {}
    share = -(-size // ranks) if isinstance(ranks, int) and ranks > 0 else size
    return {
        "cost_bytes": share,
        "cost": f"about {format_bytes(share)} of weights on each GPU, and their share of the cache",
    }


def _is_set(facts: FactSheet, dest: str) -> bool:
    """Whether a flag is set."""
    return bool(facts.get(f"{FLAG}{dest}", UNSET) != UNSET)
