"""Tensors that a slice's layers lack against their like."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autolaunch.slice.complete import lacking
from autolaunch.slice.cut import cut
from autolaunch.slice.problems import SliceError
from tests.checkpoint.make_checkpoint import Tensor
from tests.slice.models import dense, plan_of, write_sharded

SCALE = "model.layers.2.mlp.down_proj.weight_scale_inv"


def test_a_missing_scale_is_named(tmp_path: Path) -> None:
    config, tensors = dense()
    plan = plan_of(write_sharded(tmp_path / "model", [one for one in tensors if one[0] != SCALE], config))
    assert lacking(plan) == (SCALE,)
    with pytest.raises(SliceError, match="would not be complete") as caught:
        cut(plan, tmp_path / "slice")
    assert SCALE in str(caught.value)
    assert not (tmp_path / "slice").exists()


def test_a_scale_missing_beyond_the_slice_is_no_concern(tmp_path: Path) -> None:
    config, tensors = dense(layers=12)
    deep = "model.layers.9.mlp.down_proj.weight_scale_inv"
    plan = plan_of(write_sharded(tmp_path / "model", [one for one in tensors if one[0] != deep], config))
    assert lacking(plan) == ()


def test_a_layer_stored_otherwise_needs_other_scales(tmp_path: Path) -> None:
    """Quantizers leave the first and last layers as they were."""
    config, tensors = dense(layers=12)
    changed: list[Tensor] = []
    for name, dtype, shape in tensors:
        if name == "model.layers.0.mlp.down_proj.weight":
            dtype = "BF16"
        if name != "model.layers.0.mlp.down_proj.weight_scale_inv":
            changed.append((name, dtype, shape))
    assert lacking(plan_of(write_sharded(tmp_path / "model", changed, config))) == ()


def test_a_missing_expert_is_named(tmp_path: Path) -> None:
    config, tensors = dense(layers=8)
    gone = "model.layers.1.mlp.experts.2.up_proj.weight"
    experts: list[Tensor] = [
        (f"model.layers.{layer}.mlp.experts.{expert}.up_proj.weight", "BF16", (4, 32))
        for layer in range(8)
        for expert in range(4)
    ]
    kept = [one for one in [*tensors, *experts] if one[0] != gone]
    assert lacking(plan_of(write_sharded(tmp_path / "model", kept, config))) == (gone,)


def test_layers_are_compared_with_their_own_kind(tmp_path: Path) -> None:
    config, tensors = dense(layers=8)
    config["layer_types"] = ["sliding_attention", "full_attention"] * 4
    config |= {"architectures": ["GptOssForCausalLM"], "sliding_window": 128}
    sinks: list[Tensor] = [(f"model.layers.{layer}.self_attn.sinks", "BF16", (2,)) for layer in (1, 3, 5, 7)]
    plan = plan_of(write_sharded(tmp_path / "model", [*tensors, *sinks], config))
    assert lacking(plan) == ()
    lame = plan_of(write_sharded(tmp_path / "lame", [*tensors, *sinks[1:]], config))
    assert lacking(lame) == ("model.layers.1.self_attn.sinks",)


def test_a_tensor_that_the_plan_forgot_is_named(tmp_path: Path) -> None:
    config, tensors = dense()
    plan = plan_of(write_sharded(tmp_path / "model", tensors, config))
    torn = replace(plan, tensors={name: file for name, file in plan.tensors.items() if name != SCALE})
    assert lacking(torn) == (SCALE,)
    assert lacking(replace(plan, whole=None)) == ()
