"""Groups of tensors: what is one, and what can be asked of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from autolaunch.checkpoint.headers import read_header
from autolaunch.checkpoint.masks import MalformedEntriesError, bundles, collapse
from autolaunch.checkpoint.tensors import Tensors, grouped, sampled
from tests.checkpoint.make_checkpoint import Tensor, nvfp4_moe, write_header

SMALL = [
    ("embed.weight", "BF16", (8, 4)),
    *((f"model.layers.{layer}.mlp.experts.{expert}.w{part}", "U8", (4, 2)) for layer in (5, 50) for expert in (0, 9, 10) for part in (1, 2)),
    ("model.layers.5.mlp.experts.11.w1", "BF16", (4, 2)),
    ("model.layers.6.norm.weight", "BF16", (4,)),
]  # fmt: skip


@pytest.fixture
def small(tmp_path: Path) -> Tensors:
    """A handful of tensors."""
    write_header(tmp_path / "a.safetensors", SMALL)
    found = read_header(tmp_path / "a.safetensors")
    return Tensors(grouped(found.bundles), complete=True, total_bytes=found.data_bytes)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("model.layers.61.mlp.experts.255.w1.weight", "model.layers.N.mlp.experts.N.w1.weight"),
        ("layers.0.scale_2", "layers.N.scale_2"),
        ("h.0", "h.N"),
        ("0.weight", "N.weight"),
        ("12", "N"),
        ("conv1d.3d.x2", "conv1d.3d.x2"),
        ("layers.٣.a", "layers.٣.a"),
        (f"layers.{'1' * 10}.a", f"layers.{'1' * 10}.a"),
        ("", ""),
        ("a..1..b", "a..N..b"),
    ],
)
def test_collapse(name: str, pattern: str) -> None:
    assert collapse(name) == pattern


def test_groups(small: Tensors) -> None:
    found = {(group.pattern, group.layer, group.dtype): group for group in small.groups}
    assert len(found) == len(small.groups) == 7
    group = found["model.layers.N.mlp.experts.N.w1", 5, "U8"]
    assert (group.count, group.shape, group.bytes, group.files) == (3, (4, 2), 24, ("a.safetensors",))
    assert group.numbers(0) == {5}
    assert group.numbers(1) == {0, 9, 10}
    assert group.numbers(2) == frozenset()
    assert found["embed.weight", None, "BF16"].layer is None
    assert sorted(small.names()) == sorted(name for name, _, _ in SMALL)
    assert len(small) == len(SMALL)


@pytest.mark.parametrize(
    "prefix",
    ["", "model.layers.5", "model.layers.5.", "model.layers.", "model.layers.5.mlp.experts.1", "embed", "nothing", "model.layers.5.mlp.experts.10.w2", "model.layers.6.norm.weight", "mod"],
)  # fmt: skip
def test_prefixes_are_those_of_names(prefix: str, small: Tensors) -> None:
    fitting = [name for name, _, _ in SMALL if name.startswith(prefix)]
    assert small.count(prefix) == len(fitting)
    assert {name for group in small.matching(prefix) for name in group.names()} >= set(fitting)
    assert bool(small.matching(prefix)) == bool(fitting)


def test_prefixes_with_any_number(small: Tensors) -> None:
    assert small.count("model.layers.N.mlp.experts.N.w1") == 7
    assert small.count("model.layers.N.norm") == 1


def test_single_tensors(small: Tensors) -> None:
    info = small.get("model.layers.5.mlp.experts.11.w1")
    assert info is not None
    assert (info.dtype, info.shape, info.bytes, info.file) == ("BF16", (4, 2), 16, "a.safetensors")
    assert "model.layers.50.mlp.experts.9.w2" in small
    assert "model.layers.N.mlp.experts.9.w2" not in small
    assert "model.layers.7.norm.weight" not in small


def test_names_alone_make_groups_too() -> None:
    groups = grouped(bundles("a.safetensors", [name for name, _, _ in SMALL]))
    assert sum(group.count for group in groups) == len(SMALL)
    assert {group.dtype for group in groups} == {None}
    assert {group.bytes for group in groups} == {None}


def test_a_layer_without_header_is_like_the_nearest_one() -> None:
    def entry(name: str, dtype: str) -> str:
        return f'}},"{name}":{{"dtype":"{dtype}","shape":[4'

    known = bundles("a", [entry("layers.0.x", "BF16"), entry("layers.9.x", "U8")])
    listed = bundles("b", ["layers.0.x", "layers.1.x", "layers.8.x", "other"])
    groups = sampled(grouped(listed), grouped(known))
    assert {(one.layer, one.dtype, one.bytes, one.sampled) for one in groups} == {
        (0, "BF16", 8, False),
        (1, "BF16", 8, True),
        (8, "U8", 4, True),
        (None, None, None, False),
    }


@pytest.mark.parametrize(
    "entries", [["a", "a"], ["x.0.1", "x.0.1"], ["x.0.1.2", "x.0.1.2"], ["x.1", "x.2", "x.1"], ['a":{"dtype":"U8","shape":[1']]
)  # fmt: skip
def test_odd_entries(entries: list[str]) -> None:
    with pytest.raises(MalformedEntriesError):
        bundles("a", entries)


def test_line_breaks_in_names() -> None:
    assert {bundle.pattern for bundle in bundles("a", ["a\n.1", "b.1\n", "\n"])} == {"a\n.N", "b.1\n", "\n"}


def test_the_large_example_has_the_names_it_says() -> None:
    small: list[Tensor] = list(nvfp4_moe(layers=4, experts=2, hidden=64))
    assert len({name for name, _, _ in small}) == len(small)
    groups = grouped(bundles("a", [name for name, _, _ in nvfp4_moe()]))
    tensors = Tensors(groups, complete=False, total_bytes=None)
    assert (len(tensors), tensors.count("mtp.")) == (371_111, 1553)
    assert tensors.matching("mtp.layers.0.mlp.experts.")[0].numbers(1) == frozenset(range(512))
