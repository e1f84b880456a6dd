"""How many layers show all that repeats."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autolaunch.checkpoint.config import language_config
from autolaunch.checkpoint.layers import with_class_defaults
from autolaunch.slice.kinds import Repeat, find_repeat, kinds_of, whole_periods

NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"


def test_layers_that_are_all_alike() -> None:
    assert find_repeat(["a"] * 36, 4) == Repeat(0, 1, 4)
    assert find_repeat(["a"] * 2, 1) == Repeat(0, 1, 2)


def test_dense_layers_come_before_the_pattern() -> None:
    assert find_repeat(["dense"] * 3 + ["moe"] * 58, 4) == Repeat(3, 1, 5)
    assert find_repeat(["dense"] + ["moe"] * 45, 4) == Repeat(1, 1, 4)


def test_hybrids_keep_whole_periods() -> None:
    assert find_repeat(["l", "l", "l", "f"] * 12, 8) == Repeat(0, 4, 8)
    assert find_repeat(["s", "f"] * 18, 4) == Repeat(0, 2, 4)
    assert find_repeat(["d", *["s"] * 4, "f", *(["s"] * 5 + ["f"]) * 7], 4) == Repeat(1, 6, 13)


def test_a_pattern_that_ends_before_the_last_layer() -> None:
    assert find_repeat(NANO, 8) == Repeat(0, 7, 14)


def test_without_a_pattern_every_kind_comes_twice() -> None:
    kinds = "abacabbacccab"
    found = find_repeat(kinds, 3)
    assert found.period == 0
    assert all(kinds[: found.layers].count(kind) >= 2 for kind in "abc")


def test_a_kind_that_comes_late_is_in_it() -> None:
    found = find_repeat([*"ab" * 10, "c", *"ab" * 10], 4)
    assert found.layers >= 21


def test_what_a_user_asks_for_is_rounded_up() -> None:
    assert whole_periods(Repeat(3, 1, 5), 1) == 4
    assert whole_periods(Repeat(0, 4, 8), 5) == 8
    assert whole_periods(Repeat(0, 4, 8), 8) == 8
    assert whole_periods(Repeat(0, 4, 8), 9) == 12
    assert whole_periods(Repeat(0, 0, 17), 3) == 3


@given(
    start=st.lists(st.sampled_from("xyz"), max_size=4),
    pattern=st.lists(st.sampled_from("abc"), min_size=1, max_size=6),
    times=st.integers(6, 12),
    least=st.integers(1, 8),
)
def test_a_pattern_is_shown_twice_and_whole(
    start: list[str], pattern: list[str], times: int, least: int
) -> None:
    kinds = [*start, *pattern * times]
    found = find_repeat(kinds, least)
    assert found.layers >= min(least, len(kinds))
    assert set(kinds[: found.layers]) == set(kinds)
    if found.period:
        assert (found.layers - found.start) % found.period == 0
        assert found.layers >= found.start + 2 * found.period
        shown = kinds[found.start : found.layers]
        assert shown == [shown[n % found.period] for n in range(len(shown))]
    else:
        assert 2 * found.layers <= len(start) + 2 * len(pattern) + max(least, len(pattern)) + len(kinds)


def test_kinds_by_attention_experts_and_choice() -> None:
    config = {
        "architectures": ["GlmMoeDsaForCausalLM"],
        "num_hidden_layers": 8,
        "num_attention_heads": 4,
        "hidden_size": 64,
        "kv_lora_rank": 16,
        "index_topk": 8,
        "index_topk_freq": 2,
        "first_k_dense_replace": 1,
    }
    kinds = kinds_of(with_class_defaults(language_config(config)), 8)
    assert [("dense" in kind, "shared" in kind) for kind in kinds] == [
        (True, False), (False, False), (False, True), (False, False), (False, True), (False, False),
        (False, True), (False, False),
    ]  # fmt: skip


def test_kinds_by_numbers_of_layers() -> None:
    config = {"num_hidden_layers": 4, "num_attention_heads": 2, "hidden_size": 8, "mlp_only_layers": [2]}
    kinds = kinds_of(language_config(config), 4)
    assert [kinds[0] == kind for kind in kinds] == [True, True, False, True]
