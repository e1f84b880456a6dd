"""Facts from machine, software, checkpoint and request; what nobody detected stays unknown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autolaunch.capability.fact_names import FACT_NAMES, UNKNOWN, Fact
from autolaunch.capability.facts import facts_of
from autolaunch.capability.flag_facts import FactSheet
from autolaunch.capability.table import bundled_table
from autolaunch.checkpoint.attention import Attention
from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.checkpoint.experts import Moe
from autolaunch.checkpoint.mtp import Mtp
from autolaunch.checkpoint.quantization import Quantization
from autolaunch.detect.machine import Gpu, Machine
from autolaunch.detect.software import Package, Software
from autolaunch.request.catalogue import bundled_catalogue, bundled_versions
from autolaunch.request.command_line import read_request
from autolaunch.request.interpreter import Interpreter

NOBODY = Package(None, "assumed")
GPU = Gpu(0, "NVIDIA RTX PRO 6000 Blackwell Server Edition", 120, sm_count=188, memory_bytes=96 << 30)
MACHINE = Machine("cuda", "nvml", 64, 1 << 40, gpus=(GPU,) * 8, driver="580.65.06", cuda="13.0")
MOE = Checkpoint(
    path="/models/m",
    source="folder",
    architecture="Qwen3_5MoeForConditionalGeneration",
    model_type="qwen3_5_moe",
    config={},
    attention=Attention("hybrid_linear", "gqa", heads=32, kv_heads=2, head_dim=256, linear="gdn", n_linear=45, n_full=15),
    moe=Moe(experts=512, top_k=10, expert_width=1024),
    quantization=Quantization(
        "nvfp4", "modelopt_fp4", {"experts": "nvfp4", "attention": "bf16", "mtp": "bf16", "kv_cache": "fp8_tensor"}, group=16
    ),
    mtp=Mtp(True, 1, True, 1553, 512, "mtp.", 1, "bf16", (), None, True, "", "qwen3_5"),
    num_layers=60,
    hidden_size=4096,
    vocab_size=248320,
    context_length=262144,
    dtype="bfloat16",
    weight_bytes=None,
    parameters=397_000_000_000,
    multimodal=True,
)  # fmt: skip


def software(**versions: str) -> Software:
    """Installed versions; the rest nobody knows."""
    names = ("sglang", "flashinfer", "torch", "sgl_kernel", "cudnn", "triton", "cuda")
    return Software(
        **{one: Package(versions[one], "installed") if one in versions else NOBODY for one in names}
    )  # type: ignore[arg-type]


def facts(
    *tokens: str,
    version: str = "0.5.21",
    machine: Machine = MACHINE,
    checkpoint: Checkpoint | None = MOE,
    environ: dict[str, str] | None = None,
) -> FactSheet:
    """The facts of a command line."""
    catalogue = bundled_catalogue(version)
    interpreter = Interpreter("/usr/bin/python3", Path("/nowhere/sglang"), version, "test")
    request = read_request(tokens, "launch_server", interpreter, catalogue, Path("/"), {})
    return facts_of(
        machine,
        software(sglang=version, flashinfer="0.6.18", cuda="13.0"),
        checkpoint,
        request,
        catalogue,
        bundled_table().dimensions,
        environ or {},
    )


def test_every_fact_has_its_name() -> None:
    sheet = facts("--tp-size", "8")
    assert {name for name in sheet if not name.startswith("flag.")} <= set(FACT_NAMES)
    assert set(FACT_NAMES) <= set(sheet)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sm", 120),
        ("sm_major", 12),
        ("gpus", 8),
        ("memory_gb", 96.0),
        ("nvlink", UNKNOWN),
        ("flashinfer", "0.6.18"),
        ("cudnn", UNKNOWN),
        ("arch", "Qwen3_5MoeForConditionalGeneration"),
        ("attention", "hybrid_linear"),
        ("mla", False),
        ("linear_attention", "gdn"),
        ("v_head_dim", 256),
        ("heads_per_rank", 4),
        ("kv_heads_per_rank", 1),
        ("heads_per_kv_head", 4),
        ("module.quack", True),
        ("module.hpc", UNKNOWN),
        ("moe", True),
        ("expert_width_per_rank", 128),
        ("scheme_experts", "nvfp4"),
        ("scheme_dense", "none"),
        ("scheme_kv", "fp8_tensor"),
        ("scheme_mtp", "bf16"),
        ("fp8_block", False),
        ("quant_block", 16),
        ("mtp_present", True),
        ("params_b", 397.0),
        ("tp", 8),
        ("ep", 1),
        ("spec", "off"),
        ("spec_topk", "unset"),
        ("radix_cache", True),
        ("grammar", True),
        ("quantization_flag", "none"),
        ("disaggregation", "off"),
        ("lora", False),
        ("context_length", 262144),
    ],
)
def test_the_seed_case(name: str, value: Fact) -> None:
    assert facts("--tp-size", "8")[name] == value


@pytest.mark.parametrize(
    ("tokens", "name", "value"),
    [
        (["--tp", "8", "--ep", "4"], "expert_width_per_rank", 512),
        (["--tp", "8", "--moe-a2a-backend", "deepep"], "ep", 8),
        (["--tp", "8", "--moe-a2a-backend", "none"], "ep", 1),
        (["--tp", "3"], "heads_per_rank", 32 / 3),
        (["--tp", "8", "--dp", "8", "--enable-dp-attention"], "heads_per_rank", 32),
        (["--speculative-algorithm", "nextn"], "spec", "NEXTN"),
        (["--speculative-algorithm", "EAGLE", "--speculative-eagle-topk", "4"], "spec_topk", 4),
        (["--disable-radix-cache"], "radix_cache", False),
        (["--disable-radix-cache"], "flag.disable_radix_cache", True),
        (["--grammar-backend", "none"], "grammar", False),
        (["--quantization", "modelopt_fp4"], "quantization_flag", "modelopt_fp4"),
        (["--lora-paths", "a=/x", "b=/y"], "lora", True),
        (["--disaggregation-mode", "decode"], "disaggregation", "decode"),
        (["--context-length", "4096"], "context_length", 4096),
        (["--context-length", "128Ki"], "context_length", 131072),
        (["--chunked-prefill-size", "8k"], "flag.chunked_prefill_size", 8000),
        (["--max-running-requests", "nan"], "flag.max_running_requests", "nan"),
        (["--chunked-prefill-size", "-1"], "flag.chunked_prefill_size", -1),
        (["--mem-fraction-static", "0.9"], "flag.mem_fraction_static", 0.9),
        (["--is-embedding"], "embedding", True),
        (["--page-size", "64"], "flag.page_size", 64),
        ([], "flag.page_size", "unset"),
        ([], "env.SGLANG_X", "unset"),
    ],
)
@pytest.mark.parametrize("version", ["0.5.9", "0.5.21"])
def test_what_flags_say(tokens: list[str], name: str, value: Fact, version: str) -> None:
    assert facts(*tokens, version=version).get(name, UNKNOWN) == value


@pytest.mark.parametrize("version", bundled_versions())
def test_a_renamed_flag_is_one_fact_in_every_version(version: str) -> None:
    old = version in ("0.5.9", "0.5.10.post1", "0.5.11")
    sheet = facts(
        "--nsa-prefill-backend" if old else "--dsa-prefill-backend",
        "trtllm",
        "--tensor-parallel-size",
        "8",
        "--cuda-graph-max-bs" if old else "--cuda-graph-max-bs-decode",
        "64",
        version=version,
    )
    assert (sheet["flag.dsa_prefill_backend"], sheet["flag.cuda_graph_max_bs_decode"]) == ("trtllm", 64)
    assert (sheet["tp"], sheet["flag.tp_size"]) == (8, 8)


def test_without_gpu_and_checkpoint_nothing_is_guessed() -> None:
    sheet = facts(machine=Machine("cpu", "none", 2, 1 << 30), checkpoint=None)
    known = {name for name, value in sheet.items() if value is not UNKNOWN}
    assert sheet["platform"] == "cpu"
    assert not known & {
        "sm",
        "gpus",
        "memory_gb",
        "arch",
        "attention",
        "moe",
        "scheme",
        "mtp_present",
        "embedding",
    }
    assert sheet.get("moe", UNKNOWN) is UNKNOWN


def test_mixed_gpus_have_no_sm() -> None:
    other = Gpu(1, "NVIDIA H200", 90)
    assert facts(machine=Machine("cuda", "nvml", 2, 1, gpus=(GPU, other)))["sm"] is UNKNOWN


def test_an_unreadable_tensor_list_proves_nothing() -> None:

    mtp = replace(MOE.mtp, present=None)
    sheet = facts(checkpoint=replace(MOE, mtp=mtp, quantization=Quantization("unknown", None)))
    assert sheet["mtp_present"] is UNKNOWN
    assert sheet["scheme"] is sheet["scheme_dense"] is sheet["method"] is UNKNOWN


def test_only_variables_of_the_kernels_are_facts() -> None:
    sheet = facts(
        environ={"SGLANG_X": "1", "HF_TOKEN": "hf_secret", "NCCL_NVLS_ENABLE": "0", "SGLANG_EMPTY": ""}
    )
    assert {name for name in sheet if name.startswith("env.")} == {"env.SGLANG_X", "env.NCCL_NVLS_ENABLE"}


def test_modules_that_nobody_looked_for_are_there_where_sglang_installs_them() -> None:
    planned = replace(software(), sglang=Package("0.5.17", "assumed"))
    looked = replace(planned, modules={"quack": False, "hpc": None})
    catalogue = bundled_catalogue("0.5.17")
    assert facts_of(MACHINE, planned, None, None, catalogue)["module.quack"] is True
    assert facts_of(MACHINE, planned, None, None, catalogue)["module.hpc"] is UNKNOWN
    assert facts_of(MACHINE, looked, None, None, catalogue)["module.quack"] is False
    assert facts_of(MACHINE, looked, None, None, catalogue)["module.hpc"] is UNKNOWN


@pytest.mark.parametrize(
    ("config", "value"),
    [({}, UNKNOWN), ({"hidden_size": 1}, False), ({"dual_chunk_attention_config": {"chunk_size": 1}}, True)],
)
def test_the_configuration_says_whether_attention_is_in_dual_chunks(
    config: dict[str, object], value: Fact
) -> None:
    assert facts(checkpoint=replace(MOE, config=config))["dual_chunk"] is value
