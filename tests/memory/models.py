"""Models in figures, as their configurations have them, for sums that were done by hand."""

from __future__ import annotations

from typing import Any

from autolaunch.capability.fact_names import Fact
from autolaunch.capability.flag_facts import FactSheet
from autolaunch.checkpoint.attention import Attention
from autolaunch.checkpoint.checkpoint import Checkpoint
from autolaunch.checkpoint.quantization import Quantization
from autolaunch.detect.gpus import Gpu, Machine
from tests.nextn.heads import ABSENT, checkpoint, mtp

GIB = 1 << 30
MIB = 1 << 20

LLAMA_8B = checkpoint(
    "LlamaForCausalLM", ABSENT, attention=Attention("gqa", "gqa", 32, 8, 128, 128, n_full=32), num_layers=32,
    hidden_size=4096, weight_bytes=16_060_522_496, context_length=131072,
    weight_bytes_by_part={
        "attention": 2_684_354_560, "dense": 11_274_289_152, "embedding": 1_050_673_152, "lm_head": 1_050_673_152,
        "other": 532_480,
    },
)  # fmt: skip

DEEPSEEK_V3 = checkpoint(
    "DeepseekV3ForCausalLM", mtp(weight_bytes=14 * GIB),
    attention=Attention("mla", "mla", 128, 1, 192, 128, 512, 1536, 64, n_full=61), num_layers=61, hidden_size=7168,
    quantization=Quantization("fp8_block", "fp8", {"experts": "fp8_block", "attention": "fp8_block"}, block=(128, 128)),
    weight_bytes=688_586_727_753, context_length=163840,
    weight_bytes_by_part={
        "experts": 612 * GIB, "shared_experts": 2 * GIB, "dense": GIB, "attention": 11 * GIB, "mtp": 14 * GIB,
        "embedding": 1_853_358_080, "lm_head": 1_853_358_080, "other": 64 * MIB,
    },
)  # fmt: skip

DEEPSEEK_V32 = checkpoint(
    "DeepseekV32ForCausalLM", ABSENT, attention=Attention("dsa", "dsa", 128, 1, 192, 128, 512, 1536, 64, 2048, n_full=61),
    num_layers=61, hidden_size=7168, config={"index_head_dim": 128},
)  # fmt: skip

GPT_OSS = checkpoint(
    "GptOssForCausalLM", ABSENT, num_layers=36, hidden_size=2880,
    attention=Attention("sliding_hybrid", "gqa", 64, 8, 64, 64, sliding_window=128, n_full=18, n_sliding=18),
)  # fmt: skip

QWEN_397B = checkpoint(
    "Qwen3_5MoeForConditionalGeneration", mtp(), num_layers=60, hidden_size=4096, context_length=262144,
    attention=Attention("hybrid_linear", "gqa", 32, 2, 256, 256, linear="gdn", n_full=15, n_linear=45),
    config={
        "linear_num_value_heads": 64, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
    },
)  # fmt: skip


def facts(tp: int = 1, version: str = "0.5.23", **changes: Fact) -> FactSheet:
    """Facts of a start; `flag_x` is the flag `x`."""
    sheet = FactSheet(
        {
            "sglang": version, "arch": "LlamaForCausalLM", "tp": tp, "dp": 1, "ep": 1, "pp": 1, "dp_attention": False,
            "spec": "off", "radix_cache": True, "cuda_graph": True, "dtype": "bfloat16", "quantization_flag": "none",
            "lora": False, "sm": 90,
        }
    )  # fmt: skip
    sheet.update((name.replace("flag_", "flag.", 1), value) for name, value in changes.items())
    return sheet


def machine(memory_mib: int | None = 81559, count: int = 8, **changes: Any) -> Machine:
    """`count` GPUs, H100 by default."""
    memory = None if memory_mib is None else memory_mib * MIB
    gpus = tuple(Gpu(index, "GPU", 90, memory_bytes=memory, **changes) for index in range(count))
    return Machine("cuda", "named", 16, 64 * GIB, gpus)


def plain(architecture: str, attention: Attention, **changes: Any) -> Checkpoint:
    """A model without heads."""
    return checkpoint(architecture, ABSENT, attention=attention, **changes)
