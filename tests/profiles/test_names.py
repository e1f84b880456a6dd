"""Names of profiles: readable, the same for the same start, and never a way out of the folder."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autolaunch.profiles.document import from_toml, to_toml
from autolaunch.profiles.names import gpu_slug, is_name, model_slug, name_of
from tests.profiles.made import made

HOSTILE = [
    "../../../etc/passwd",
    "..",
    "/etc/cron.d/x",
    "a/../../b",
    "a\0b",
    "a\nb",
    "~root/x",
    ".hidden",
    "-rf",
    "\u202e\u0000",
    "模型",
    "",
    " ",
    "x" * 100_000,
    "CON",
    "a" * 99 + "/..",
    "$(reboot)",
    "%2e%2e%2f",
]


def test_a_name_says_what_it_is_for() -> None:
    gpu, _, rest = name_of(made()).partition("/")
    assert gpu == "h200"
    assert rest.startswith("Qwen3-8B.tp1.throughput.") and len(rest.rpartition(".")[2]) == 8
    assert name_of(made(fingerprint={"parallel.tp": 8, "gpu.count": 8})).split(".")[1] == "tp8"


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-blackwell-server-edition"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA H200 MIG 1g.18gb", "h200-mig-1g.18gb"),
        ("Tesla T4", "t4"),
        (None, "cpu"),
        ("", "cpu"),
        ("NVIDIA", "gpu"),
        ("../..", "gpu"),
    ],
)
def test_the_folder_of_a_gpu(name: str | None, slug: str) -> None:
    assert gpu_slug(name) == slug


def test_whatever_holds_for_another_start_has_another_name() -> None:
    names = {
        name_of(one)
        for one in [
            made(),
            made(fingerprint={"version.sglang": "0.5.22"}),
            made(fingerprint={"flag.context_length": 8192}),
            replace(made(), workload={"input_tokens": 1}),
            replace(made(), objective={"name": "latency"}),
        ]
    }
    assert len(names) == 5


def test_what_was_read_has_the_name_under_which_it_was_written() -> None:
    profile = replace(
        made(fingerprint={"gpu.power_limit_w": 700.0, "flag.x": "é ", "wish.lossy": False}),
        objective={"name": "throughput", "slo_ttft_ms": None, "ceilings": {"tpot": 25, "ttft": None}},
        workload={"source": {"sha256": "0" * 64, "conversations": 3}, "n": (1, 2), "none": None},
    )
    assert name_of(from_toml(to_toml(profile).encode(), where="x")) == name_of(profile)


def test_what_came_of_it_is_not_in_the_name() -> None:
    assert name_of(made(status="verified", created="2027-01-01", reason="other")) == name_of(made())


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_profile_does_not_leave_its_folder(text: str) -> None:
    for profile in [
        made(model=text),
        made(fingerprint={"gpu.name": text}),
        replace(made(), objective={"name": text}),
        made(fingerprint={"parallel.tp": text}),
    ]:
        name = name_of(profile)
        assert is_name(name), name
        assert len(name) < 250 and name.isascii()


@pytest.mark.parametrize(
    "text", [*HOSTILE, "h200", "h200/", "/h200/x", "h200/../x", "h200/x/y", "h200/.x", "h200//x"]
)
def test_what_is_no_name(text: str) -> None:
    assert not is_name(text)


def test_the_last_part_of_a_model_counts() -> None:
    assert model_slug("/models/Qwen3-8B/") == model_slug("Qwen/Qwen3-8B") == "Qwen3-8B"
