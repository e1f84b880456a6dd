"""Each field of a fingerprint, changed alone, gives the answer that data/fingerprint.toml documents."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autolaunch.profiles.fields import INVALIDATES, consequence_of, field_rules
from autolaunch.profiles.matching import Match, best, differences, judge
from autolaunch.profiles.profile import Profile
from tests.profiles.made import made

# field, value then, value now, what that invalidates.  Every row of the file is here (a test counts).
TABLE: list[tuple[str, Any, Any, str]] = [
    ("platform", "cuda", "cpu", "identity"),
    ("gpu.name", "NVIDIA H200", "NVIDIA H100", "identity"),
    ("gpu.sm", 90, 100, "identity"),
    ("gpu.count", 1, 2, "identity"),
    ("gpu.sm_count", 132, 114, "identity"),
    ("gpu.memory_bytes", 150_000_000_000, 80_000_000_000, "identity"),
    ("gpu.memory_bytes", 150_000_000_000, 150_900_000_000, "same"),
    ("parallel.tp", 1, 2, "identity"),
    ("parallel.pp", 1, 2, "identity"),
    ("parallel.dp", 1, 2, "identity"),
    ("parallel.ep", 1, 2, "identity"),
    ("parallel.nodes", 1, 2, "identity"),
    ("parallel.dp_attention", False, True, "identity"),
    ("pin.moe_runner_backend", "triton", "cutlass", "identity"),
    ("pin.TRITON_INTERPRET", "1", "0", "identity"),
    ("wish.admit", "attention-backend=fa3", "attention-backend=fa4", "identity"),
    ("wish.candidates", "--a 1", "--a 2", "identity"),
    ("wish.lossy", False, True, "identity"),
    ("wish.nextn", "auto", "on", "identity"),
    ("wish.something_new", "a", "b", "identity"),
    ("entry", "launch_server", "sglang_serve", "identity"),
    ("unread", "--x", "--y", "identity"),
    ("version.sglang", "0.5.21", "0.5.23", "trust"),
    ("version.sgl_kernel", "0.3.20", "0.3.21", "trust"),
    ("version.flashinfer", "0.6.7", "0.7.2", "trust"),
    ("version.torch", "2.11.0", "2.12.0", "trust"),
    ("version.triton", "3.5", "3.6", "trust"),
    ("version.cuda", "12.9", "13.0", "trust"),
    ("version.driver", "575.57", "580.95", "trust"),
    ("version.flash-attn-4", "4.0", "4.1", "trust"),
    ("checkpoint.config", "a" * 32, "b" * 32, "trust"),
    ("checkpoint.index", "a" * 32, "b" * 32, "trust"),
    ("checkpoint.headers", "a" * 32, "b" * 32, "trust"),
    ("checkpoint.quantization", "a" * 32, "b" * 32, "trust"),
    ("checkpoint.files", "a" * 32, "b" * 32, "trust"),
    ("checkpoint.file", "q4.gguf", "q8.gguf", "trust"),
    ("checkpoint.commit", "a" * 40, "b" * 40, "trust"),
    ("flag.enable_lora", False, True, "trust"),
    ("flag.lora_paths", "a=b", "a=c", "trust"),
    ("flag.grammar_backend", "xgrammar", "outlines", "trust"),
    ("flag.dtype", "bfloat16", "float16", "trust"),
    ("flag.disaggregation_mode", "prefill", "decode", "trust"),
    ("flag.json_model_override_args", "{}", '{"a": 1}', "trust"),
    ("flag.speculative_draft_model_quantization", "fp8", "unquant", "trust"),
    ("env.SGLANG_USE_AITER", "0", "1", "trust"),
    ("env.SGL_ENABLE_JIT_DEEPGEMM", "0", "1", "trust"),
    ("env.FLASHINFER_USE_CUDA_NORM", "0", "1", "trust"),
    ("gpu.nvlink", True, False, "trust"),
    ("gpu.p2p", True, False, "trust"),
    ("host.cpu", "Xeon", "EPYC", "trust"),
    ("a_field_of_the_future", 1, 2, "trust"),
    ("flag.context_length", 8192, 32768, "speed"),
    ("flag.mem_fraction_static", "0.8", "0.9", "speed"),
    ("flag.schedule_policy", "lpm", "fcfs", "speed"),
    ("gpu.power_limit_w", 700.0, 500.0, "speed"),
    ("gpu.power_limit_w", 700.0, 690.0, "same"),
    ("env.NCCL_ALGO", "Ring", "Tree", "speed"),
    ("env.TRITON_F32_DEFAULT", "tf32", "ieee", "speed"),
    ("env.PYTORCH_CUDA_ALLOC_CONF", "a", "b", "speed"),
    ("env.OMP_NUM_THREADS", "1", "2", "speed"),
    ("host.cores", 8, 4, "speed"),
    ("env.NCCL_DEBUG", "INFO", "WARN", "nothing"),
    ("env.SGLANG_LOG_MS", "0", "1", "nothing"),
    ("env.HOSTNAME", "a", "b", "nothing"),
    ("version.autolaunch", "0.1.0", "0.2.0", "nothing"),
]
KIND = {"same": "fits", "nothing": "fits", "speed": "stale", "trust": "stale", "identity": "other"}
DEFAULTS = {
    "parallel.tp",
    "parallel.pp",
    "parallel.dp",
    "parallel.ep",
    "parallel.nodes",
    "parallel.dp_attention",
    "wish.lossy",
    "wish.nextn",
}
MUST_BE_STATED = {"platform", "gpu.name", "gpu.sm", "gpu.count", "unread", "version.autolaunch"}


def stands(profile: Profile, now: dict[str, Any], *, like: bool = True) -> Match:
    return judge(profile, now, profile.workload if like else None, profile.objective if like else None)


def starting(**fields: Any) -> tuple[Profile, dict[str, Any]]:
    profile = made(fingerprint={"version.autolaunch": "0.1.0", "version.driver": "575.57", **fields})
    return profile, dict(profile.fingerprint)


def test_the_same_start_fits() -> None:
    profile, now = starting()
    match = stands(profile, now)
    assert (match.kind, match.differences, match.not_stated, match.gravest) == ("fits", (), (), "nothing")


@pytest.mark.parametrize(
    ("field", "then", "now", "invalidates"), TABLE, ids=[f"{row[0]}-{row[3]}" for row in TABLE]
)
def test_a_field_changed_alone(field: str, then: Any, now: Any, invalidates: str) -> None:
    profile, start = starting(**{field: then})
    match = stands(profile, {**start, field: now})
    assert match.kind == KIND[invalidates]
    if invalidates == "same":
        assert match.differences == ()
        return
    (difference,) = match.differences
    assert (difference.field, difference.then, difference.now, difference.invalidates) == (
        field,
        then,
        now,
        invalidates,
    )
    assert difference.consequence == consequence_of(field).consequence
    assert f"`{field}` was " in difference.words and difference.words.endswith(difference.consequence)
    assert bool(match.doubts) == (invalidates != "nothing")


@pytest.mark.parametrize(
    ("field", "then", "now", "invalidates"),
    [row for row in TABLE if row[3] != "same"],
    ids=[row[0] for row in TABLE if row[3] != "same"],
)
def test_a_field_that_one_side_does_not_have(field: str, then: Any, now: Any, invalidates: str) -> None:
    """What was stated and is not any more differs; so does what was not set when the profile was made here."""
    other = now if field in DEFAULTS else then  # the value that is no default
    profile, start = starting(**{field: other})
    gone = {name: value for name, value in start.items() if name != field}
    match = stands(profile, gone)
    assert match.kind == ("fits" if field == "version.autolaunch" else KIND[invalidates])
    silent = replace(profile, fingerprint=gone)
    back = stands(silent, start)
    assert back.kind == KIND[invalidates]
    assert field in [one.field for one in back.differences]
    if field not in DEFAULTS:
        assert "not set" in back.differences[0].words


@pytest.mark.parametrize(
    ("field", "then", "now", "invalidates"),
    [row for row in TABLE if row[3] != "same"],
    ids=[row[0] for row in TABLE if row[3] != "same"],
)
def test_what_a_shipped_profile_need_not_state(field: str, then: Any, now: Any, invalidates: str) -> None:
    """Neither the machine nor what the user sets may be left open; the rest is listed as not stated."""
    value = now if field in DEFAULTS else then
    profile, start = starting(**{field: value})
    shipped = replace(
        profile, origin="shipped", fingerprint={one: text for one, text in start.items() if one != field}
    )
    match = stands(shipped, start)
    strict = field in DEFAULTS | MUST_BE_STATED or field.startswith(("pin.", "wish."))
    assert match.kind == (KIND[invalidates] if strict else "fits")
    assert match.not_stated == (() if strict else (field,))
    assert bool(differences(shipped.fingerprint, start, shipped=True)) == strict


def test_every_row_of_the_file_is_in_the_table() -> None:
    seen = {consequence_of(row[0]).field for row in TABLE} | {"model", "workload", "objective", "model.name"}
    listed = {name for name in field_rules() if name not in seen}
    # Rows with a list of fields speak of all of them alike; one of each list is above.
    by_reason = {consequence_of(row[0]).reason for row in TABLE}
    assert all(field_rules()[name].reason in by_reason for name in listed), listed


def test_rows_are_well_formed() -> None:
    for rule in field_rules().values():
        assert rule.invalidates in INVALIDATES
        assert rule.absence in ("counts", "shipped", "older")
        assert (
            rule.reason
            and not rule.reason.endswith(".")
            and rule.consequence
            and not rule.consequence.endswith(".")
        )
        assert (rule.within is None) or 0 < rule.within < 0.1


def test_a_field_that_another_autolaunch_did_not_know_is_not_stated() -> None:
    profile, start = starting()
    older = replace(profile, fingerprint={**start, "version.autolaunch": "0.0.9"})
    match = stands(older, {**start, "host.cpu": "Xeon", "checkpoint.tokenizer": "a"})
    assert match.kind == "fits"
    assert match.not_stated == ("checkpoint.tokenizer", "host.cpu")
    assert [one.field for one in match.differences] == ["version.autolaunch"]
    assert (
        stands(older, {**start, "flag.context_length": 8192}).kind == "stale"
    )  # a flag was known, and not set
    assert stands(profile, {**start, "host.cpu": "Xeon"}).kind == "stale"  # this autolaunch would have known


def test_numbers_and_their_texts_are_the_same() -> None:
    profile, start = starting(**{"flag.context_length": "8192", "gpu.memory_bytes": 1000})
    assert stands(profile, {**start, "flag.context_length": 8192, "gpu.memory_bytes": 1009}).kind == "fits"
    assert stands(profile, {**start, "flag.context_length": 8192, "gpu.memory_bytes": 1020}).kind == "other"
    on, now = starting(**{"flag.enable_mixed_chunk": True})
    assert stands(on, {**now, "flag.enable_mixed_chunk": 1}).kind == "stale"


def test_another_workload_or_objective_is_another_start() -> None:
    profile, now = starting()
    heavier = {**profile.workload, "concurrency": 64, "words": "heavier"}
    match = judge(profile, now, heavier, profile.objective)
    assert (match.kind, [one.field for one in match.differences]) == ("other", ["workload"])
    assert match.differences[0].now == "heavier"
    latency = judge(profile, now, profile.workload, {"name": "latency"})
    assert (latency.kind, [one.field for one in latency.differences]) == ("other", ["objective"])
    assert judge(profile, now, None, None).kind == "fits"
    told = {**profile.objective, "slo_ttft_ms": None}  # as it is at hand; a file holds no None
    assert judge(profile, now, {**profile.workload, "words": "said in another way"}, told).kind == "fits"
    assert judge(profile, now, None, {**told, "slo_ttft_ms": 200.0}).kind == "other"


def test_a_model_is_known_by_its_name_or_its_configuration() -> None:
    profile, now = starting()
    renamed = stands(profile, {**now, "model.name": "mine"})
    assert (renamed.kind, [one.field for one in renamed.differences]) == ("fits", ["model.name"])
    retrained = stands(profile, {**now, "checkpoint.config": "d" * 32})
    assert (retrained.kind, retrained.gravest) == ("stale", "trust")
    other = stands(profile, {**now, "model.name": "mine", "checkpoint.config": "d" * 32})
    assert (other.kind, other.differences[0].field) == ("other", "model")


def test_the_gravest_difference_comes_first() -> None:
    profile, now = starting()
    match = stands(
        profile, {**now, "flag.context_length": 1, "version.sglang": "0.5.23", "env.NCCL_DEBUG": "INFO"}
    )
    assert [one.invalidates for one in match.differences] == ["trust", "speed", "nothing"]
    assert match.gravest == "trust"


def test_what_is_best() -> None:
    profile, now = starting()
    old, new = (
        replace(profile, created="2026-11-01T00:00:00+00:00"),
        replace(profile, created="2026-12-01T00:00:00+00:00"),
    )
    stale = replace(new, fingerprint={**now, "version.sglang": "0.5.9"}, created="2026-12-02T00:00:00+00:00")
    other = replace(new, fingerprint={**now, "gpu.name": "NVIDIA H100"}, created="2026-12-03T00:00:00+00:00")
    bad = replace(new, status="quarantined", created="2026-12-04T00:00:00+00:00")
    shipped = replace(new, origin="shipped", created="2026-12-05T00:00:00+00:00")

    def first(*profiles: Profile) -> Profile | None:
        found = best(profiles, now, None, None).match
        return found.profile if found else None

    assert first(old, new) is new
    assert first(stale, old) is old
    assert first(shipped, old) is old
    assert first(bad, old) is old
    abroad = replace(profile, created="2026-12-01T01:00:00+02:00")  # an hour before midnight of UTC
    assert first(abroad, new) is new and first(replace(profile, created="long ago"), abroad) is abroad
    assert first(bad, stale) is bad  # its next best may still be launched; see the statuses
    assert first(other, stale) is stale
    assert first(other) is None
    assert best([other], now, None, None).nearest is not None
    assert best([], now, None, None) == best([], now, {}, {})


def test_the_nearest_of_others_is_of_this_model_and_differs_least() -> None:
    profile, now = starting()
    far = replace(profile, fingerprint={**now, "gpu.name": "NVIDIA H100", "gpu.count": 8, "parallel.tp": 8})
    near = replace(profile, fingerprint={**now, "parallel.tp": 2})
    stranger = replace(
        profile, model="Llama", fingerprint={**now, "model.name": "Llama", "checkpoint.config": "e" * 32}
    )
    found = best([far, near, stranger], now, None, None)
    assert found.match is None and found.nearest is not None and found.nearest.profile is near
    assert best([stranger], now, None, None).nearest is None


def test_a_shipped_profile_never_overrides_what_is_pinned() -> None:
    profile, now = starting()
    shipped = replace(
        profile,
        origin="shipped",
        fingerprint={"platform": "cuda", "gpu.name": "NVIDIA H200", "gpu.sm": 90, "gpu.count": 1},
    )
    assert stands(shipped, now, like=False).kind == "fits"
    assert stands(shipped, {**now, "pin.attention_backend": "fa3"}, like=False).kind == "other"
    assert stands(shipped, {**now, "gpu.name": "NVIDIA B200"}, like=False).kind == "other"
    assert stands(shipped, {**now, "parallel.tp": 2}, like=False).kind == "other"
