"""Conditions in three values: the laws of the logic, every way to say something, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolaunch.capability.conditions import Condition, compile_condition
from autolaunch.capability.fact_names import UNKNOWN, Fact
from autolaunch.capability.flag_facts import FactSheet
from autolaunch.capability.kleene import Truth, truth_and, truth_not, truth_or

TRUTHS = st.sampled_from([True, False, None])


@given(TRUTHS, TRUTHS, TRUTHS)
def test_the_laws_of_three_values(a: Truth, b: Truth, c: Truth) -> None:
    assert truth_and([a, b]) == truth_and([b, a])
    assert truth_or([a, truth_or([b, c])]) == truth_or([truth_or([a, b]), c])
    assert truth_not(truth_and([a, b])) == truth_or([truth_not(a), truth_not(b)])
    assert truth_and([a, truth_or([b, c])]) == truth_or([truth_and([a, b]), truth_and([a, c])])
    assert truth_not(truth_not(a)) == a
    assert truth_and([a, a]) == a == truth_or([a, a])
    assert truth_and([a, truth_or([a, b])]) == a


def test_nothing_at_all() -> None:
    assert truth_and([]) is True
    assert truth_or([]) is False
    assert compile_condition({}).truth({}) is True


# Conditions over few facts with few values, so that random facts meet them.
VALUES: dict[str, list[Any]] = {
    "sm": [80, 90, 100, 103, 110, 120, 121],
    "scheme": ["nvfp4", "fp8_block", "bf16"],
    "moe": [True, False],
    "tp": [1, 2, 4, 8],
    "experts": [0, 8, 512],
    "flashinfer": ["0.6.3", "0.6.18", "0.7.2"],
    "flag.page_size": [1, 64, "unset"],
}
WANTED: dict[str, st.SearchStrategy[Any]] = {
    "sm": st.sampled_from([120, "12x", "10x", ">=100", "<90", [100, 103], ["8x", 90]]),
    "scheme": st.sampled_from(["nvfp4", "*fp*", ["bf16", "nvfp4"]]),
    "moe": st.booleans(),
    "tp": st.sampled_from([8, ">1", {"multiple_of": 2}, {"fact": "experts"}, ">=2,<8"]),
    "experts": st.sampled_from([0, {"multiple_of": "tp"}, ">0"]),
    "flashinfer": st.sampled_from(["<0.6.7", ">=0.6.18", "0.7.2"]),
    "flag.page_size": st.sampled_from([64, ">1", "unset", [1, "unset"]]),
}
ENTRIES = st.sampled_from(sorted(WANTED)).flatmap(
    lambda name: st.tuples(st.just(name), WANTED[name] | WANTED[name].map(lambda wanted: {"not": wanted}))
)
FLAT = st.lists(ENTRIES, max_size=4).map(dict)
TABLES = st.one_of(
    FLAT,
    st.tuples(FLAT, st.lists(FLAT, min_size=2, max_size=3)).map(lambda pair: {**pair[0], "any": pair[1]}),
)
WHOLE = st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()})


@given(TABLES, WHOLE, st.sets(st.sampled_from(sorted(VALUES))))
def test_learning_a_fact_never_turns_an_answer_round(
    table: dict[str, Any], whole: dict[str, Fact], hidden: set[str]
) -> None:
    """What is true or false with facts missing stays so when they become known: unknown is never a guess."""
    condition = compile_condition(table)
    partly = {name: UNKNOWN if name in hidden else value for name, value in whole.items()}
    before = condition.truth(partly)
    after = condition.truth(whole)
    assert after is not None
    assert before in (None, after)


@given(TABLES, WHOLE, st.sets(st.sampled_from(sorted(VALUES))))
def test_the_missing_facts_are_named(table: dict[str, Any], whole: dict[str, Fact], hidden: set[str]) -> None:
    condition = compile_condition(table)
    partly = {name: value for name, value in whole.items() if name not in hidden}
    missing = condition.missing(partly)
    assert bool(missing) == (condition.truth(partly) is None)
    assert set(missing) <= hidden
    assert set(missing) <= {*condition.names(), "tp", "experts"}


@given(TABLES, WHOLE)
def test_not_of_a_whole_table_is_its_opposite(table: dict[str, Any], whole: dict[str, Fact]) -> None:
    for name, wanted in table.items():
        if name != "any":
            plain, opposite = compile_condition({name: wanted}), compile_condition({name: {"not": wanted}})
            assert plain.truth(whole) is truth_not(opposite.truth(whole))


@pytest.mark.parametrize(
    ("table", "facts", "truth"),
    [
        ({"sm": "12x"}, {"sm": 121}, True),
        ({"sm": "12x"}, {"sm": 12}, False),
        ({"sm": {"not": ["10x", 110]}}, {"sm": 110}, False),
        ({"sm": ">=90,<120"}, {"sm": 103}, True),
        ({"arch": "Qwen3_5*"}, {"arch": "Qwen3_5MoeForCausalLM"}, True),
        ({"arch": "Qwen3_5*"}, {"arch": "Qwen3MoeForCausalLM"}, False),
        ({"moe": True}, {"moe": 1}, False),
        ({"experts": 1}, {"experts": True}, False),
        ({"experts": [0, 1]}, {"experts": True}, False),
        ({"flashinfer": "<0.6.7"}, {"flashinfer": "none"}, False),
        ({"flashinfer": "<0.6.7"}, {"flashinfer": "nightly"}, None),
        ({"cudnn": "none"}, {"cudnn": "none"}, True),
        ({"torch": "2.9.1"}, {"torch": "2.9.1+cu130"}, True),
        ({"flag": {"page_size": 64}}, {"flag.page_size": 64}, True),
        ({"flag": {"page_size": ">1"}}, {}, False),
        ({"flag": {"page_size": "!=64"}}, {}, True),
        ({"flag": {"page_size": {"not": ">1"}}}, {}, True),
        ({"flag": {"enable_lora": False}}, {}, True),
        ({"flag": {"enable_lora": True}}, {}, False),
        ({"flag": {"attention_backend": "!=fa3"}}, {"flag.attention_backend": "triton"}, True),
        ({"flag": {"attention_backend": ["fa3", "unset"]}}, {}, True),
        ({"flag": {"lora_paths": "a"}}, {"flag.lora_paths": ("a", "b")}, True),
        ({"env": {"SGLANG_X": ["1", "true"]}}, {"env.SGLANG_X": "1"}, True),
        ({"env": {"SGLANG_X": "unset"}}, {}, True),
        ({"expert_width_per_rank": {"multiple_of": "quant_block"}}, {"expert_width_per_rank": 192, "quant_block": 128}, False),
        ({"expert_width_per_rank": {"multiple_of": "quant_block"}}, {"expert_width_per_rank": 192, "quant_block": 0}, True),
        ({"expert_width_per_rank": {"multiple_of": 64}}, {"expert_width_per_rank": 85.5}, False),
        ({"expert_width_per_rank": {"not": {"multiple_of": "quant_block"}}}, {"expert_width_per_rank": 192}, None),
        ({"v_head_dim": {"not": {"fact": "head_dim"}}}, {"v_head_dim": 128, "head_dim": 192}, True),
        ({"spec_topk": ">1"}, {"spec_topk": "unset"}, False),
        ({"any": [{"moe": True}, {"sm": 90}]}, {"moe": UNKNOWN, "sm": 90}, True),
        ({"any": [{"moe": True}, {"sm": 90}]}, {"sm": 80}, None),
    ],
)  # fmt: skip
def test_every_way_to_say_it(table: dict[str, Any], facts: dict[str, Fact], truth: Truth) -> None:
    assert compile_condition(table).truth(FactSheet(facts)) is truth


def test_a_relation_names_the_fact_that_is_missing() -> None:
    condition = compile_condition({"expert_width_per_rank": {"multiple_of": "quant_block"}})
    assert condition.missing({"expert_width_per_rank": 192}) == ("quant_block",)
    assert condition.missing({"quant_block": 128}) == ("expert_width_per_rank",)


@pytest.mark.parametrize(
    "table",
    [
        [],
        "sm",
        {"smm": 120},
        {"flag.": 1},
        {"sm": "blackwell"},
        {"sm": True},
        {"sm": []},
        {"sm": ["!=90"]},
        {"moe": 1},
        {"moe": "yes"},
        {"scheme": 4},
        {"scheme": ">=fp4"},
        {"scheme": "!=fp4"},
        {"flashinfer": ">=x"},
        {"flashinfer": 0.6},
        {"tp": ">=two"},
        {"tp": {"multiple_of": 0}},
        {"tp": {"multiple_of": "scheme"}},
        {"tp": {"multiple_of": 2, "not": 8}},
        {"tp": {"fact": "nothing"}},
        {"tp": {"over": 4}},
        {"tp": {}},
        {"tp": None},
        {"any": []},
        {"any": [{"tp": 1}]},
        {"any": {"tp": 1}},
        {"any": [{"tp": 1}, 5]},
    ],
)
def test_what_says_nothing_is_refused(table: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        compile_condition(table)


def test_a_condition_of_nothing_asks_for_nothing() -> None:
    assert Condition().names() == ()
