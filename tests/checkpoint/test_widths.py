"""What one rank holds: heads, KV heads, experts and their width."""

from __future__ import annotations

import pytest

from autolaunch.checkpoint.attention import Attention
from autolaunch.checkpoint.experts import Moe
from autolaunch.checkpoint.quantization import Quantization
from autolaunch.checkpoint.widths import Widths, widths_of

GQA = Attention("gqa", "gqa", heads=64, kv_heads=8, head_dim=128)
MLA = Attention("mla", "mla", heads=128, kv_heads=1, head_dim=192)
MOE = Moe(experts=128, top_k=8, expert_width=1536)
BF16 = Quantization("bf16", None)
FP8 = Quantization("fp8_block", "fp8", {"experts": "fp8_block", "dense": "fp8_block"}, block=(128, 128))


def widths(
    attention: Attention = GQA, moe: Moe | None = None, quantization: Quantization = BF16, **ranks: int
) -> Widths:
    dense = None if moe else 12288
    return widths_of(attention, moe, quantization, dense_width=dense, **ranks)


@pytest.mark.parametrize(
    ("tp", "heads", "kv_heads", "replicated"),
    [(1, 64, 8, False), (4, 16, 2, False), (8, 8, 1, False), (16, 4, 1, True), (64, 1, 1, True)],
)
def test_heads_are_shared_and_kv_heads_kept_whole(
    tp: int, heads: int, kv_heads: int, replicated: bool
) -> None:
    found = widths(tp=tp)
    assert (found.heads, found.kv_heads, found.kv_replicated) == (heads, kv_heads, replicated)
    assert found.problems == ()


def test_heads_that_do_not_divide_are_a_problem() -> None:
    found = widths(Attention("gqa", "gqa", heads=40, kv_heads=10), tp=8)
    assert found.problems == ("10 KV heads and 8 ranks do not divide each other",)
    found = widths(Attention("gqa", "gqa", heads=20, kv_heads=4), tp=8)
    assert found.problems == ("20 attention heads cannot be divided among 8 ranks",)


def test_a_latent_is_on_every_rank() -> None:
    found = widths(MLA, tp=8)
    assert (found.heads, found.kv_heads, found.kv_replicated) == (16, 1, False)


def test_data_parallel_attention_splits_less() -> None:
    assert widths(MLA, tp=8, attention_dp=8).heads == 128
    assert widths(GQA, tp=8, attention_dp=2).kv_heads == 2


@pytest.mark.parametrize(
    ("tp", "ep", "experts", "width", "problem"),
    [
        (4, 1, 128, 384, None),
        (8, 1, 128, 192, "expert width 192 of a rank is no multiple of 128, the size of a fp8_block block"),
        (8, 8, 16, 1536, None),
        (8, 2, 64, 384, None),
        (5, 1, 128, 307, "1536 expert width cannot be divided among 5 ranks"),
        (6, 3, 42, 768, "128 experts cannot be divided among 3 ranks"),
    ],
)
def test_experts_are_split_by_number_or_by_width(
    tp: int, ep: int, experts: int, width: int, problem: str | None
) -> None:
    found = widths(moe=MOE, quantization=FP8, tp=tp, ep=ep)
    assert (found.experts, found.expert_width) == (experts, width)
    assert problem is None or problem in found.problems
    assert problem is not None or found.problems == ()


def test_the_unit_is_that_of_the_part() -> None:
    nvfp4 = Quantization("nvfp4", "modelopt_fp4", {"experts": "nvfp4", "dense": "bf16"}, group=16)
    assert widths(moe=Moe(8, 2, 1536), quantization=nvfp4, tp=8).problems == ()
    narrow = widths(moe=Moe(8, 2, 160), quantization=nvfp4, tp=8)
    assert narrow.problems == ("expert width 20 of a rank is no multiple of 16, the size of a nvfp4 block",)
    assert widths(quantization=nvfp4, tp=8).problems == ()
    assert widths(quantization=FP8, tp=64).problems == (
        "dense width 192 of a rank is no multiple of 128, the size of a fp8_block block",
    )


def test_what_is_not_known_stays_unknown() -> None:
    found = widths(Attention("none", "none"), tp=2)
    assert (found.heads, found.kv_heads, found.experts) == (None, None, None)
