"""Profiles for tests, each valid for a start of its own, and failures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autolaunch.profiles.failed import Failed, Setting
from autolaunch.profiles.profile import Chosen, Entrant, Measured, Profile

FINGERPRINT = {
    "checkpoint.config": "c0ffee" * 10,
    "gpu.count": 1,
    "gpu.name": "NVIDIA H200",
    "gpu.sm": 90,
    "model.name": "Qwen3-8B",
    "parallel.tp": 1,
    "platform": "cuda",
    "version.sglang": "0.5.21",
}
TRITON = Chosen(("--attention-backend", "triton"), (), "c1", "table", "--attention-backend", "triton")
FA3 = Chosen(("--attention-backend", "fa3"), (), "c2", "table", "--attention-backend", "fa3")
SETTING = Setting(
    platform="cuda",
    config="c0ffee" * 5,
    sm=90,
    gpu="NVIDIA H200",
    versions=(("driver", "580.95.05"), ("flashinfer", "0.6.7"), ("sglang", "0.5.21")),
    architecture="Qwen3MoeForCausalLM",
    scheme="fp8_block",
    tp=8,
    given=("flag.kv_cache_dtype=fp8_e5m2",),
)


def made(**changes: Any) -> Profile:
    """A profile of a race on an H200 that `--attention-backend triton` won; with `changes`.

    `fingerprint` is laid over that of the others.
    """
    fingerprint = {**FINGERPRINT, **changes.pop("fingerprint", {})}
    profile = Profile(
        model="Qwen3-8B",
        chosen=TRITON,
        reason="it is 25.3 % faster than the original command",
        origin="tune",
        created="2026-11-30T12:00:00+00:00",
        fingerprint=fingerprint,
        workload={"input_tokens": 1024, "output_tokens": 256, "concurrency": 32, "rounds": 1, "words": "in=1024,out=256,concurrency=32"},
        objective={"name": "throughput", "unit": "output_tok_per_s", "higher_is_better": True},
        measured=Measured(
            depth="slice",
            unit="output_tok_per_s",
            value=1395.0,
            original_value=1113.0,
            gain={"mean": 0.253, "low": 0.24, "high": 0.27, "rounds": 5},
        ),
        entrants=(
            Entrant(TRITON, value=1395.0, gain=0.253, rank=1),
            Entrant(FA3, value=1200.0, gain=0.08, lost="it is slower than c1", rank=2),
            Entrant(Chosen(), value=1113.0, lost="it is slower than c1", rank=3),
        ),
    )  # fmt: skip
    return replace(profile, **changes)


def failed(choice: str = "fa3", **changes: Any) -> Failed:
    """A crash of `--attention-backend CHOICE` in a race; with `changes`."""
    one = Failed(
        flags=("--attention-backend", choice),
        kind="crash",
        stage="capture",
        reason="RuntimeError: no kernel image is available",
        where="race",
        date="2026-12-01T03:00:00+00:00",
        setting=SETTING,
        env=(("TRITON_INTERPRET", "1"),),
        dimension="--attention-backend",
        choice=choice,
        beside=(("--moe-runner-backend", "triton"),),
        depth="the first 4 of 60 layers",
    )
    return replace(one, **changes)
