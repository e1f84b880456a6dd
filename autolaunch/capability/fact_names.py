"""The facts a row may ask for: name, kind and meaning.

A value may be `UNKNOWN` where nothing could be detected; "not there" is a value of its own (`none`, 0).
`flag.<dest>` is any flag of any known SGLang version by the attribute it sets, in the newest spelling,
and `env.<NAME>` any environment variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal


class Unknown(Enum):
    """The value of a fact that could not be detected."""

    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown.UNKNOWN

Value = bool | int | float | str | tuple[str, ...]
Fact = Value | Unknown
Facts = Mapping[str, Fact]
"""Facts by name; a name that is absent is unknown."""

Kind = Literal["number", "version", "text", "bool", "open"]

UNSET: Final = "unset"
"""The value of `flag.<dest>` that neither the user nor SGLang sets, and of an absent variable."""

NONE: Final = "none"
"""The value of a fact that does not apply: the experts' scheme of a dense model."""

FACT_NAMES: Final[Mapping[str, tuple[Kind, str]]] = {
    "platform": ("text", "cuda, cpu or other"),
    "sm": ("number", "compute capability, 120 for SM 12.0"),
    "sm_major": ("number", "its first part, 12 for SM 12.0"),
    "gpu_name": ("text", "the product's name"),
    "gpus": ("number", "GPUs that SGLang can see"),
    "sm_count": ("number", "multiprocessors of one GPU"),
    "memory_gb": ("number", "memory of one GPU, GiB"),
    "driver": ("version", "version of the GPU driver"),
    "cuda": ("version", "CUDA that PyTorch was built for"),
    "nvlink": ("bool", "the GPUs are linked by NVLink"),
    "p2p": ("bool", "the GPUs can read each other's memory"),
    "sglang": ("version", "version of SGLang"),
    "flashinfer": ("version", "version of FlashInfer"),
    "torch": ("version", "version of PyTorch"),
    "sgl_kernel": ("version", "version of SGLang's kernel package"),
    "cudnn": ("version", "version of cuDNN, `none` where it is not installed"),
    "module.cutlass": ("bool", "CuTe DSL can be imported"),
    "module.quack": ("bool", "the package quack-kernels can be imported"),
    "module.flash_attn.cute": ("bool", "the package flash-attn-4 can be imported"),
    "module.hpc": ("bool", "the package HPC-Ops can be imported"),
    "arch": ("text", "first of the checkpoint's `architectures`"),
    "model_type": ("text", "the checkpoint's `model_type`, of its language part"),
    "attention": ("text", "kind of attention: mha, gqa, mla, dsa, hybrid_linear, …"),
    "mla": ("bool", "the KV cache is latent (MLA, DSA, DeepSeek-V4)"),
    "sinks": ("bool", "attention has learnable sinks"),
    "sliding_window": ("bool", "some layers attend to a window"),
    "linear_attention": ("text", "kind of the linear layers: gdn, kda, lightning, mamba2, or none"),
    "head_dim": ("number", "width of a key head"),
    "v_head_dim": ("number", "width of a value head"),
    "heads": ("number", "attention heads of the model"),
    "kv_heads": ("number", "key-value heads of the model"),
    "heads_per_rank": ("number", "attention heads on one GPU"),
    "kv_heads_per_rank": ("number", "key-value heads on one GPU, at least 1"),
    "heads_per_kv_head": ("number", "attention heads to a key-value head on one GPU"),
    "dual_chunk": ("bool", "the checkpoint is configured for dual-chunk attention"),
    "moe": ("bool", "the model has routed experts"),
    "experts": ("number", "routed experts, 0 for a dense model"),
    "top_k": ("number", "experts per token, 0 for a dense model"),
    "expert_width": ("number", "intermediate size of one expert, 0 for a dense model"),
    "expert_width_per_rank": ("number", "that on one GPU"),
    "shared_experts": ("number", "experts that every token passes, 0 without them"),
    "shared_width_per_rank": ("number", "intermediate size of the shared experts on one GPU, 0 without them"),
    "dense_width_per_rank": (
        "number",
        "intermediate size of a layer without experts on one GPU, 0 without such layers",
    ),
    "dtype": ("text", "type of the unquantized weights and of the activations: bfloat16, float16"),
    "scheme": ("text", "quantization of the checkpoint: bf16, fp8_block, nvfp4, mixed, …"),
    "method": ("text", "what SGLang calls it: modelopt_fp4, compressed-tensors, …, or none"),
    "scheme_experts": ("text", "quantization of the routed experts, none for a dense model"),
    "scheme_shared": ("text", "quantization of the shared experts, none without them"),
    "scheme_dense": ("text", "quantization of the dense linear layers"),
    "scheme_attention": ("text", "quantization of the attention's projections"),
    "scheme_mtp": ("text", "quantization of the MTP heads, none without them"),
    "scheme_kv": ("text", "quantization the checkpoint names for its KV cache, or none"),
    "fp8_block": ("bool", "some part is quantized to FP8 in blocks"),
    "quant_block": ("number", "side of a quantization block, 0 without blocks"),
    "multimodal": ("bool", "the model takes images, sound or video"),
    "embedding": ("bool", "the model embeds or ranks, it generates nothing"),
    "mtp_present": ("bool", "the checkpoint holds MTP heads"),
    "mtp_family": ("text", "which family of MTP heads, or none"),
    "context_length": ("number", "tokens the model or `--context-length` allows"),
    "params_b": ("number", "parameters, in billions"),
    "lora": ("bool", "LoRA adapters are used"),
    "grammar": ("bool", "a grammar backend is on"),
    "disaggregation": ("text", "off, prefill or decode"),
    "deterministic": ("bool", "deterministic inference is asked for"),
    "dp_attention": ("bool", "attention is data-parallel"),
    "tp": ("number", "tensor-parallel size"),
    "dp": ("number", "data-parallel size"),
    "ep": ("number", "expert-parallel size"),
    "pp": ("number", "pipeline-parallel size"),
    "nodes": ("number", "machines that take part"),
    "spec": ("text", "speculative algorithm, or off"),
    "spec_topk": ("number", "--speculative-eagle-topk, `unset` where it is left to SGLang"),
    "spec_steps": ("number", "--speculative-num-steps, `unset` where it is left to SGLang"),
    "draft_tokens": ("number", "--speculative-num-draft-tokens, `unset` where it is left to SGLang"),
    "radix_cache": ("bool", "the prefix cache is on"),
    "cuda_graph": ("bool", "CUDA graphs are on for decoding"),
    "overlap": ("bool", "the overlap schedule is on"),
    "quantization_flag": ("text", "the `--quantization` that was typed, or none"),
}

MODULE: Final = "module."
FLAG: Final = "flag."
ENV: Final = "env."


def fact_kind(name: str) -> Kind | None:
    """The kind of fact `name`; None when there is no such fact. Flags and variables are `open`."""
    if name.startswith((FLAG, ENV)):
        return "open" if name.partition(".")[2] else None
    row = FACT_NAMES.get(name)
    return row[0] if row else None
