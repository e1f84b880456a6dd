"""Tensors without data get numbers of natural scale, in every known format, and an engine loads them."""

from __future__ import annotations

import json
import math
import re
import subprocess
import time
from pathlib import Path

import pytest

from autolaunch.race.guarded import temporary_folder
from autolaunch.slice.spec import TensorSpec
from autolaunch.slice.synthesize import declared_block, kinds_for, synthesize
from autolaunch.slice.weights_child import CHILD, Made, Setting, WeightsError
from tests.real_server import server_environment
from tests.slice.safetensors_values import Stored, fp4, read_folder, spread

FP8_BLOCK = {"quantization_config": {"weight_block_size": [128, 128]}}
R, C = 192, 256
"""Of every matrix: one and a half blocks of 128 rows."""

FORMATS: dict[str, list[tuple[str, str, tuple[int, ...]]]] = {
    "block": [("weight", "F8_E4M3", (R, C)), ("weight_scale_inv", "F32", (2, 2))],
    "tensor": [("weight", "F8_E4M3", (R, C)), ("weight_scale", "F32", ()), ("input_scale", "F32", ())],
    "channel": [("weight", "F8_E4M3", (R, C)), ("weight_scale", "BF16", (R, 1))],
    "mxfp8": [("weight", "F8_E4M3", (R, C)), ("weight_scale_inv", "U8", (R, C // 32))],
    "int8": [("weight", "I8", (R, C)), ("weight_scale", "F32", (R, 1))],
    "nvfp4": [
        ("weight", "U8", (R, C // 2)),
        ("weight_scale", "F8_E4M3", (R, C // 16)),
        ("weight_scale_2", "F32", ()),
        ("input_scale", "F32", ()),
    ],
    "nvfp4_ct": [
        ("weight_packed", "U8", (R, C // 2)),
        ("weight_scale", "F8_E4M3", (R, C // 16)),
        ("weight_global_scale", "F32", (1,)),
        ("input_global_scale", "F32", (1,)),
    ],
    "mxfp4": [("weight", "I8", (R, C // 2)), ("scale", "F8_E8M0", (R, C // 32))],
    "w4afp8": [("weight", "I8", (R, C // 2)), ("weight_scale_inv", "BF16", (R, C // 128))],
    "int4_ct": [
        ("weight_packed", "I32", (R, C // 8)),
        ("weight_scale", "BF16", (R, C // 32)),
        ("weight_shape", "I64", (2,)),
    ],
    "awq": [
        ("qweight", "I32", (C, R // 8)),
        ("qzeros", "I32", (C // 64, R // 8)),
        ("scales", "F16", (C // 64, R)),
    ],
    "gptq": [
        ("qweight", "I32", (C // 8, R)),
        ("qzeros", "I32", (C // 64, R // 8)),
        ("scales", "F16", (C // 64, R)),
        ("g_idx", "I32", (C,)),
    ],
}
OTHERS = [
    ("model.embed_tokens.weight", "BF16", (512, 64)),
    ("model.layers.0.input_layernorm.weight", "BF16", (C,)),
    ("model.layers.0.mlp.gate.e_score_correction_bias", "F32", (64,)),
    ("model.layers.0.self_attn.q_proj.bias", "BF16", (R,)),
    ("model.layers.0.self_attn.k_proj.k_scale", "F32", ()),
    ("model.layers.0.linear_attn.A_log", "F32", (64,)),
    ("model.layers.0.linear_attn.dt_bias", "BF16", (64,)),
    ("model.layers.0.linear_attn.conv1d.weight", "BF16", (64, 1, 4)),
    ("model.layers.0.self_attn.sinks", "BF16", (64,)),
    ("lm_head.weight", "BF16", (512, 64)),
    ("model.layers.0.mlp.experts.gate_up_proj_blocks", "U8", (3, R, C // 32, 16)),
    ("model.layers.0.mlp.experts.gate_up_proj_scales", "U8", (3, R, C // 32)),
    ("model.layers.0.mlp.experts.gate_up_proj_bias", "BF16", (3, R)),
]


def all_specs() -> list[TensorSpec]:
    """A module of every format, experts of one layer in two files, and tensors of every kind."""
    specs = [TensorSpec(*one, "a.safetensors") for one in OTHERS]
    for name, parts in FORMATS.items():
        for role, dtype, shape in parts:
            specs.append(TensorSpec(f"model.layers.0.{name}.{role}", dtype, shape, "a.safetensors"))
    for expert in range(6):
        for role, dtype, shape in FORMATS["block"]:
            file = "a.safetensors" if expert < 4 else "b.safetensors"
            specs.append(
                TensorSpec(f"model.layers.1.mlp.experts.{expert}.up_proj.{role}", dtype, shape, file)
            )
    return specs


def setting(python: str, folder: Path, **options: object) -> Setting:
    """A child on the CPU that logs into `folder`."""
    environ = server_environment({"TMPDIR": str(folder)})
    return Setting(python, environ, folder / "child.log", device="cpu", **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def written(sglang_python: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Made]:
    """A folder with all of `all_specs`."""
    home = tmp_path_factory.mktemp("synthetic")
    made = synthesize(all_specs(), home / "made", setting(sglang_python, home), config=FP8_BLOCK)
    assert sorted(one.name for one in home.iterdir()) == ["child.log", "made"], "the job and scratch are gone"
    return home / "made", made


def decoded(tensors: dict[str, Stored], module: str, layout: str) -> list[list[float]]:
    """The matrix `module`, worked out number by number."""
    part = {role: tensors[f"{module}.{role}"].values for role, _, _ in FORMATS[layout]}
    if layout in ("block", "tensor", "channel", "mxfp8", "int8"):
        scales = part.get("weight_scale_inv") or part["weight_scale"]
        place = {
            "block": lambda r, c: scales[(r // 128) * 2 + c // 128],
            "tensor": lambda r, c: scales[0],
            "channel": lambda r, c: scales[r],
            "int8": lambda r, c: scales[r],
            "mxfp8": lambda r, c: 2.0 ** (scales[r * (C // 32) + c // 32] - 127),
        }[layout]
        return [[part["weight"][r * C + c] * place(r, c) for c in range(C)] for r in range(R)]
    if layout in ("nvfp4", "nvfp4_ct", "mxfp4"):
        data = tensors[f"{module}.{'weight_packed' if layout == 'nvfp4_ct' else 'weight'}"].data
        group = 32 if layout == "mxfp4" else 16
        scales = part["scale" if layout == "mxfp4" else "weight_scale"]
        whole = {
            "nvfp4": lambda: part["weight_scale_2"][0],
            "nvfp4_ct": lambda: 1 / part["weight_global_scale"][0],
            "mxfp4": lambda: 1.0,
        }[layout]()
        return [
            [
                fp4(data[(r * C + c) // 2] >> 4 * (c % 2) & 15) * scales[(r * C + c) // group] * whole
                for c in range(C)
            ]
            for r in range(R)
        ]
    if layout == "w4afp8":
        data, scales = tensors[f"{module}.weight"].data, part["weight_scale_inv"]
        code = lambda r, c: data[(r * C + c) // 2] >> 4 * (c % 2) & 15  # noqa: E731
        return [
            [(code(r, c) - 16 * (code(r, c) > 7)) * scales[(r * C + c) // 128] for c in range(C)]
            for r in range(R)
        ]
    words = {role: [int(one) & 0xFFFFFFFF for one in values] for role, values in part.items()}
    if layout == "int4_ct":
        scales = part["weight_scale"]
        code = lambda r, c: words["weight_packed"][(r * C + c) // 8] >> 4 * (c % 8) & 15  # noqa: E731
        return [[(code(r, c) - 8) * scales[(r * C + c) // 32] for c in range(C)] for r in range(R)]
    zeros, scales = words["qzeros"], part["scales"]
    places = [0, 4, 1, 5, 2, 6, 3, 7] if layout == "awq" else list(range(8))
    zero = lambda r, c: zeros[(c // 64) * (R // 8) + r // 8] >> 4 * places[r % 8] & 15  # noqa: E731
    if layout == "awq":
        code = lambda r, c: words["qweight"][c * (R // 8) + r // 8] >> 4 * places[r % 8] & 15  # noqa: E731
        return [[(code(r, c) - zero(r, c)) * scales[(c // 64) * R + r] for c in range(C)] for r in range(R)]
    code = lambda r, c: words["qweight"][(c // 8) * R + r] >> 4 * (c % 8) & 15  # noqa: E731
    return [[(code(r, c) - zero(r, c) - 1) * scales[(c // 64) * R + r] for c in range(C)] for r in range(R)]


@pytest.mark.sglang
def test_every_tensor_is_written_as_its_header_says(written: tuple[Path, Made]) -> None:
    folder, made = written
    tensors = read_folder(folder)
    specs = all_specs()
    assert {name: (one.dtype, one.shape) for name, one in tensors.items()} == {
        spec.name: (spec.dtype, spec.shape) for spec in specs
    }
    assert (made.tensors, made.device) == (len(specs), "cpu")
    assert made.bytes == sum(len(one.data) for one in tensors.values())


@pytest.mark.sglang
@pytest.mark.parametrize("layout", FORMATS)
def test_weights_and_scales_come_from_one_matrix_of_natural_scale(
    written: tuple[Path, Made], layout: str
) -> None:
    values = [
        one for row in decoded(read_folder(written[0]), f"model.layers.0.{layout}", layout) for one in row
    ]
    assert spread(values) == pytest.approx(0.02, rel=0.05)
    assert 0.06 < max(map(abs, values)) < 0.13
    assert abs(sum(values) / len(values)) < 0.002


@pytest.mark.sglang
def test_kinds_of_tensors(written: tuple[Path, Made]) -> None:
    got = {name: one.values for name, one in read_folder(written[0]).items() if one.dtype in ("BF16", "F32")}
    layer = "model.layers.0."
    assert spread(got["model.embed_tokens.weight"]) == pytest.approx(0.02, rel=0.05)
    assert spread(got["lm_head.weight"]) == pytest.approx(0.08, rel=0.05)
    norm = got[f"{layer}input_layernorm.weight"]
    assert spread([one - 1 for one in norm]) == pytest.approx(0.02, rel=0.3)
    assert set(got[f"{layer}self_attn.q_proj.bias"]) == {0.0}
    assert got[f"{layer}self_attn.k_proj.k_scale"] == [1.0]
    assert 0.003 < spread(got[f"{layer}mlp.gate.e_score_correction_bias"]) < 0.03
    assert all(0 <= one <= math.log(16.001) for one in got[f"{layer}linear_attn.A_log"])
    assert all(0.0009 < math.log1p(math.exp(one)) < 0.11 for one in got[f"{layer}linear_attn.dt_bias"])
    assert 0.2 < spread(got[f"{layer}linear_attn.conv1d.weight"]) < 0.4
    assert 0.5 < spread(got[f"{layer}self_attn.sinks"]) < 1.5
    assert 0.01 < got[f"{layer}tensor.input_scale"][0] < 0.2


@pytest.mark.sglang
def test_experts_differ_and_lie_in_their_files(written: tuple[Path, Made]) -> None:
    tensors = read_folder(written[0])
    experts = [tensors[f"model.layers.1.mlp.experts.{n}.up_proj.weight"].data for n in range(6)]
    assert len(set(experts)) == 6
    index = json.loads((written[0] / "model.safetensors.index.json").read_text())["weight_map"]
    assert index["model.layers.1.mlp.experts.5.up_proj.weight_scale_inv"] == "b.safetensors"


@pytest.mark.sglang
def test_the_same_seed_gives_the_same_bytes(
    written: tuple[Path, Made], sglang_python: str, tmp_path: Path
) -> None:
    synthesize(all_specs(), tmp_path / "made", setting(sglang_python, tmp_path), config=FP8_BLOCK)
    synthesize(all_specs(), tmp_path / "other", setting(sglang_python, tmp_path), config=FP8_BLOCK, seed=1)
    for file in ("a.safetensors", "b.safetensors"):
        assert (tmp_path / "made" / file).read_bytes() == (written[0] / file).read_bytes()
        assert (tmp_path / "other" / file).read_bytes() != (written[0] / file).read_bytes()


ROUND_TRIP = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch, matrix_blocks, stored_formats
torch.manual_seed(1)
errors = {}
for name, parts in json.loads(sys.argv[2]).items():
    stored = {role: matrix_blocks.Stored(dtype, tuple(shape)) for role, dtype, shape in parts}
    layout = stored_formats.recognize(stored, (128, 128))
    values = torch.randn(2, *layout.real) * 0.02
    values[0, :, :128] *= 30
    made = layout.encode(values)
    for role, one in stored.items():
        assert made[role].shape == (2, *one.shape) and made[role].itemsize == matrix_blocks.TORCH[one.dtype].itemsize, role
    back = layout.decode(made)
    error = (back - values).norm(dim=(1, 2)) / values.norm(dim=(1, 2))
    errors[name] = [layout.name, *error.tolist()]
print(json.dumps(errors))
"""
STEPS = {"F8": 0.035, "I8": 0.02, "nvfp4": 0.12, "mxfp4": 0.16, "int4": 0.13, "awq": 0.13, "gptq": 0.13}
"""Root mean square errors a healthy format stays below, relative to a normal matrix (one scale a row or less)."""


@pytest.mark.sglang
def test_round_trips_stay_within_the_step_of_the_format(sglang_python: str) -> None:
    ran = subprocess.run(
        [sglang_python, "-c", ROUND_TRIP, str(CHILD), json.dumps(FORMATS)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    errors = json.loads(ran.stdout)
    assert errors.keys() == FORMATS.keys()
    for name, (layout, *relative) in errors.items():
        limit = next(limit for start, limit in STEPS.items() if layout.startswith(start))
        assert max(relative) < limit, (name, layout, relative)
        assert min(relative) > 0.001, "something was quantized"


@pytest.mark.sglang
@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([("x.weight", "F8_E4M3", (8, 8))], "`x.weight`: it is F8_E4M3 and has no scale"),
        ([("x.weight", "F8_E4M3", (8, 8)), ("x.weight_scale", "F32", (3, 5))], r"scales of \[3, 5\] fit no"),
        ([("x.qweight", "I32", (8, 8))], "no qzeros"),
        ([("x.weight", "I64", (8, 8))], "`x.weight` is I64"),
        ([("x.weight", "F6_E2M3", (8, 8))], "F6_E2M3, which is not known"),
        ([("x.weight", "BF16", (8, 8)), ("x.weight_scale", "F32", ())], "it is BF16 and has weight_scale"),
        (
            [("x.weight_packed", "I32", (8, 8)), ("x.weight_scale", "BF16", (8, 2)), ("x.weight_zero_point", "I32", (1, 2))],
            "`weight_zero_point` is not known",
        ),
    ],
)  # fmt: skip
def test_an_unknown_format_is_refused_by_name(
    sglang_python: str, tmp_path: Path, parts: list[tuple[str, str, tuple[int, ...]]], said: str
) -> None:
    specs = [TensorSpec(*one, "a.safetensors") for one in parts]
    with pytest.raises(WeightsError) as caught:
        synthesize(specs, tmp_path / "made", setting(sglang_python, tmp_path), config={})
    assert re.search(said, caught.value.because[0]), caught.value.because
    assert caught.value.evidence == f"log: {tmp_path / 'child.log'}"
    assert not list(tmp_path.glob("*.json"))


def stub(folder: Path, text: str) -> str:
    """A program that stands in for Python."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_child_that_dies_is_told_with_its_last_words(tmp_path: Path) -> None:
    python = stub(tmp_path, "echo about to fail; exit 3")
    with pytest.raises(WeightsError) as caught:
        synthesize(all_specs(), tmp_path / "made", setting(python, tmp_path), config={})
    assert caught.value.because == ("it ended with exit status 3", "about to fail")


def test_a_child_that_hangs_is_ended(tmp_path: Path) -> None:
    python = stub(tmp_path, "sleep 600 & echo $! > pid; wait")
    started = time.monotonic()
    with pytest.raises(WeightsError, match=r"could not make weights for a synthetic slice within 1\.0 s"):
        synthesize(all_specs(), tmp_path / "made", setting(python, tmp_path, limit_s=1.0), config={})
    assert time.monotonic() - started < 15
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_leaving_by_a_tick_leaves_nothing(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    options = setting(stub(tmp_path, "sleep 600"), tmp_path, on_tick=interrupt)
    with pytest.raises(KeyboardInterrupt):
        synthesize(all_specs(), tmp_path / "made", options, config={})
    assert sorted(one.name for one in tmp_path.iterdir() if one.suffix == ".json") == []
    assert temporary_folder(options.environ) == str(tmp_path)


def test_a_missing_interpreter_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(WeightsError):
        synthesize(all_specs(), tmp_path / "made", setting("/nowhere/python", tmp_path), config={})


def test_rows_for_other_architectures_are_left_out() -> None:
    patterns = [row["pattern"] for row in kinds_for({"architectures": ["Qwen3ForCausalLM"]})]
    nexts = [row["pattern"] for row in kinds_for({"architectures": ["Qwen3NextForCausalLM"]})]
    assert len(nexts) == len(patterns) + 1
    assert patterns[-1] == "", "the last row takes everything"


@pytest.mark.parametrize(
    ("config", "block"),
    [
        ({}, None),
        (FP8_BLOCK, [128, 128]),
        ({"text_config": FP8_BLOCK}, [128, 128]),
        ({"quantization_config": {"weight_block_size": [128, "x"]}}, None),
        ({"quantization_config": "fp8"}, None),
    ],
)
def test_the_declared_block(config: dict[str, object], block: list[int] | None) -> None:
    assert declared_block(config) == block
