"""Traces into GPU times: made-up ones for each way an engine can run, and real ones of an H200."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
from pathlib import Path

import pytest

from autolaunch.race import trace_file
from autolaunch.race.depth import layer_us
from autolaunch.race.kernels import same_kernels
from autolaunch.race.outcomes import GpuTimes
from autolaunch.race.steps import split_phases
from autolaunch.race.trace import LARGEST, TraceError, gpu_times, read_trace
from autolaunch.race.trace_file import Kernel, Trace, busy_us
from tests.race.made_traces import FULL, LAYER, MOE, Maker, batch, forward, write

REAL = Path(__file__).parent / "traces"


def times(
    maker: Maker, output_tokens: int, *, layers: int = 4, total_layers: int = 4, **options: int
) -> GpuTimes:
    """GPU times of a made-up batch of one rank."""
    return gpu_times(
        [maker.trace()], layers=layers, total_layers=total_layers, output_tokens=output_tokens, **options
    )


def real_trace(name: str) -> tuple[Trace, int, int]:
    """A real trace and what its name states: layers and tokens."""
    (path,) = REAL.glob(f"{name}.t*.json.gz")
    layers, tokens = re.search(r"\.(\d+)-layers\.", path.name), re.search(r"\.t(\d+)\.", path.name)
    assert layers is not None
    assert tokens is not None
    return read_trace(path), int(layers[1]), int(tokens[1])


def real_times(name: str, total_layers: int = 36, **options: int) -> GpuTimes:
    """GPU times of a real trace."""
    trace, layers, tokens = real_trace(name)
    return gpu_times([trace], layers=layers, total_layers=total_layers, output_tokens=tokens, **options)


# Files


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_a_file_is_read_in_the_order_of_time(tmp_path: Path, name: str) -> None:
    kernels = [Kernel(3.0, 1.0, "b", 2), Kernel(1.0, 1.0, "a", 1)]
    trace = read_trace(write(tmp_path / name, kernels))
    assert [kernel.name for kernel in trace.kernels] == ["a", "b"]
    assert trace.kernels[0].form == "[[128, 1, 1], null, null]"


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("missing.json", None, "cannot be read"),
        ("cut.json.gz", gzip.compress(b'{"traceEvents": []}')[:-10], "cannot be read"),
        ("not.json.gz", b"nothing compressed", "cannot be read"),
        ("half.json", b'{"traceEvents": [', "is no trace"),
        ("list.json", b"[]", "is no trace"),
        ("other.json", b'{"events": []}', "is no trace"),
        (
            "words.json",
            b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": "x"}]}',
            "is no trace",
        ),
        ("deep.json", b"[" * 100_000, "is no trace"),
        (
            "empty.json",
            b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1}]}',
            "no kernel of a GPU",
        ),
    ],
)
def test_broken_files(tmp_path: Path, name: str, data: bytes | None, words: str) -> None:
    path = tmp_path / name
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(TraceError, match=words):
        read_trace(path)


def test_files_have_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.json.gz", [Kernel(1.0, 1.0, "a" * 4096, 1)])
    monkeypatch.setattr(trace_file, "JSON_LIMIT_BYTES", 1024)
    with pytest.raises(TraceError, match="unpacks to more"):
        read_trace(path)
    monkeypatch.setattr(trace_file, "FILE_LIMIT_BYTES", 16)
    with pytest.raises(TraceError, match="larger than"):
        read_trace(path)


def test_kernels_at_the_same_time_count_once() -> None:
    kernels = [
        Kernel(0.0, 10.0, "a", 1),
        Kernel(2.0, 3.0, "b", 2),
        Kernel(8.0, 4.0, "c", 3),
        Kernel(20.0, 1.0, "d", 4),
    ]
    assert busy_us(kernels) == 13.0
    assert busy_us([]) == 0.0


# Steps


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("prefill_graph", [False, True])
@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("extra_step", [True, False])
def test_prefill_and_steps(passes: int, prefill_graph: bool, graphs: bool, extra_step: bool) -> None:
    maker = batch(
        [LAYER] * 4,
        steps=31,
        passes=passes,
        prefill_graph=prefill_graph,
        graphs=graphs,
        extra_step=extra_step,
    )
    found = times(maker, 32)
    one_pass = len(forward([LAYER] * 4))
    # Without graphs, the kernels between the last of the prefill and the marker may belong to either.
    assert found.prefill_ms == pytest.approx((1 + passes * one_pass * 50 + 1) / 1e3, abs=2.1e-3)
    assert found.decode_step_ms == pytest.approx((one_pass * 2 + 2) / 1e3, abs=1e-6)
    assert found.decode_steps in (31, 32)
    assert found.busy_ms == pytest.approx(busy_us(maker.kernels) / 1e3)
    assert not found.overlapping
    # As many gaps of a microsecond as there are kernels.
    assert found.prefill_waited_ms == pytest.approx((2 + passes * one_pass) / 1e3, abs=2.1e-3)
    assert found.decode_step_waited_ms == pytest.approx((one_pass + 2) / 1e3)


def test_a_prefill_in_pieces_of_graphs_is_no_decode() -> None:
    """Newer SGLang replays what lies between attention layers; there can be more pieces than steps."""
    maker = Maker()
    piece = ["proj", "post_norm", "up", "act", "mul", "down", "norm", "q", "k", "rope"]
    for _ in range(4):
        maker.run(["embed"], 5.0)
        for _ in range(12):
            maker.run(piece, 40.0, graph=True)
            maker.run(["prefill_attention"], 90.0)
    for _ in range(16):
        maker.run(forward([LAYER] * 12), 2.0, graph=True)
        maker.run(["sample"], 1.0)
    found = times(maker, 16)
    assert found.decode_steps == 16
    assert found.prefill_ms == pytest.approx(4 * (5 + 12 * (400 + 90)) / 1e3)


def test_the_first_steps_after_a_large_prefill_do_not_count() -> None:
    """The power cap slows them for 20 to 30 ms."""
    maker = batch([LAYER] * 4, steps=0, extra_step=False)
    for number in range(90):
        maker.run(forward([LAYER] * 4), 3.0 if number < 45 else 2.0, graph=True)
    found = times(maker, 90)
    assert found.decode_step_ms == pytest.approx(39 * 2 / 1e3)
    assert found.decode_spread == 0.0


def test_drafts_make_a_step_of_several_replays() -> None:
    maker = batch([LAYER] * 4, steps=0, extra_step=False)
    for _ in range(12):  # of 32 tokens: nearly three of them a step
        for _ in range(3):
            maker.run(forward([LAYER]), 1.0, graph=True)
        maker.run([f"verify_{name}" for name in forward([LAYER] * 4)], 3.0, graph=True)
        maker.run(["accept"], 1.0)
    found = times(maker, 32, total_layers=5)
    assert found.decode_steps == 12
    assert found.decode_step_ms == pytest.approx((3 * 12 * 1 + 39 * 3 + 1) / 1e3)
    assert found.decode_step_full_ms == pytest.approx(found.decode_step_ms + 9 * 3 / 1e3)


def test_a_second_wave_is_not_part_of_any_step() -> None:
    """More prompts than slots: a prefill among the decode steps, before which some slots run empty."""
    maker = Maker()
    for _ in range(2):
        maker.run(forward([LAYER] * 4), 50.0)
        for _ in range(24):
            maker.run(forward([LAYER] * 4), 2.0, graph=True)
    found = times(maker, 24, total_layers=8)
    assert found.overlapping
    assert found.decode_steps == 48
    assert found.decode_step_ms == pytest.approx(39 * 2 / 1e3)
    assert found.prefill_ms == pytest.approx(2 * 39 * 50 / 1e3)
    assert found.prefill_full_ms == pytest.approx(found.prefill_ms + 4 * 2 * 9 * 50 / 1e3)
    assert found.decode_step_full_ms is not None


def test_a_chunk_of_a_prefill_between_two_steps_is_prefill() -> None:
    maker = batch([LAYER] * 4, steps=10, extra_step=False)
    maker.run(forward([LAYER] * 4), 50.0)
    for _ in range(40):
        maker.run(forward([LAYER] * 4), 2.0, graph=True)
    found = times(maker, 51)
    assert found.overlapping
    assert found.prefill_ms == pytest.approx((2 * 39 * 50 + 2) / 1e3, abs=2e-3)


def test_the_slowest_rank_counts() -> None:
    fast, slow = batch([LAYER] * 4, steps=31).trace(), batch([LAYER] * 4, steps=31, decode_us=2.5).trace()
    options = {"layers": 4, "total_layers": 4, "output_tokens": 32}
    assert gpu_times([fast, slow], **options) == gpu_times([slow], **options)
    assert gpu_times([slow, fast], **options) == gpu_times([slow], **options)


def test_what_cannot_be_told_is_not_guessed() -> None:
    maker = Maker()
    maker.run([f"kernel_{number * number % 997}" for number in range(3000)], 1.0)
    with pytest.raises(TraceError, match="cannot be told from the rest"):
        times(maker, 32)
    with pytest.raises(TraceError, match="too few"):
        times(batch([LAYER] * 4, steps=1), 2)
    with pytest.raises(TraceError, match="there is no trace"):
        gpu_times([], layers=4, total_layers=4, output_tokens=32)


# Depth


@pytest.mark.parametrize("graphs", [True, False])
def test_layers_are_told_apart(graphs: bool) -> None:
    found = times(batch([LAYER] * 3, steps=31, passes=2, graphs=graphs), 32, layers=3, total_layers=36)
    assert found.decode_step_full_ms == pytest.approx(found.decode_step_ms + 33 * 9 * 2 / 1e3)
    assert found.prefill_full_ms == pytest.approx(found.prefill_ms + 33 * 2 * 9 * 50 / 1e3)


def test_a_whole_model_needs_no_layers() -> None:
    found = times(batch([["a", "b", "c"]], steps=31), 32, layers=1, total_layers=1)
    assert found.decode_step_full_ms == found.decode_step_ms
    assert found.prefill_full_ms == found.prefill_ms


def test_dense_layers_in_front_of_experts() -> None:
    maker = batch([LAYER, LAYER, LAYER, MOE, MOE], steps=31)
    for options in ({}, {"tail_layers": 2}):
        found = times(maker, 32, layers=5, total_layers=61, **options)
        assert found.decode_step_full_ms == pytest.approx(found.decode_step_ms + 56 * 11 * 2 / 1e3), options
    single = times(batch([LAYER, LAYER, LAYER, MOE], steps=31), 32, layers=4, total_layers=61, tail_layers=1)
    assert single.decode_step_full_ms is None, "one layer of the kind that repeats has no end"


def test_a_hybrid_repeats_by_periods() -> None:
    kinds = [LAYER, LAYER, LAYER, FULL]
    found = times(batch(kinds * 2, steps=31), 32, layers=8, total_layers=48, period=4)
    assert found.decode_step_full_ms == pytest.approx(found.decode_step_ms + 40 * 9 * 2 / 1e3)
    for layers, period in ((4, 4), (8, 3)):
        lost = times(
            batch(kinds * (layers // 4), steps=31), 32, layers=layers, total_layers=48, period=period
        )
        assert lost.decode_step_full_ms is None


def test_layers_that_differ_each_have_no_common_time() -> None:
    layers = [[f"{name}_{number}" for name in LAYER] for number in range(4)]
    found = times(batch(layers, steps=31), 32, layers=4, total_layers=48)
    assert found.decode_step_full_ms is None
    assert found.prefill_full_ms is None


def test_kernels_outside_of_the_layers_do_not_pass_for_them() -> None:
    maker = Maker()
    maker.run(["copy"] * 4, 1.0)
    maker.run([f"something_{number}" for number in range(100)], 1.0)
    assert layer_us(maker.kernels, 4) is None


# What ran


def test_the_largest_kernels_and_their_shares() -> None:
    found = times(batch([[f"kernel_{number}" for number in range(20)]] * 2, steps=31), 32, layers=2)
    assert {kernel.phase for kernel in found.kernels} == {"prefill", "decode"}
    for phase in ("prefill", "decode"):
        shares = [kernel.share for kernel in found.kernels if kernel.phase == phase]
        assert len(shares) == LARGEST
        assert shares == sorted(shares, reverse=True)
        assert sum(shares) < 1
    assert json.loads(json.dumps(found.to_json()))["kernels"][0]["count"] == 2


def test_candidates_with_the_same_kernels() -> None:
    original = times(batch([LAYER] * 4, steps=31), 32)
    slower = times(batch([LAYER] * 4, steps=40, decode_us=4.0, passes=2), 41)
    other = times(batch([MOE] * 4, steps=31), 32)
    deeper = times(batch([LAYER] * 5, steps=31), 32, layers=5, total_layers=5)
    assert same_kernels(original, slower), "neither time nor the number of passes makes another candidate"
    assert not same_kernels(original, other)
    assert not same_kernels(original, deeper), "a step has more of them"
    assert not same_kernels(dataclasses.replace(original, decode_signature=""), original)
    tiles = batch([LAYER] * 4, steps=31)
    tiles.kernels = [dataclasses.replace(kernel, form="[other]") for kernel in tiles.kernels]
    assert not same_kernels(original, times(tiles, 32)), "the same source with other tiles"


# Real traces: one H200, SGLang 0.5.17, 2026-12-01


@pytest.mark.parametrize(
    ("name", "options", "prefill_ms", "step_ms", "prefill_full_ms", "step_full_ms"),
    [
        ("dense-fp8.4-layers.deep_gemm", {}, 3.114, 0.5218, 26.71, 3.798),
        ("dense-fp8.4-layers.prefill-graphs", {}, 50.04, 0.6979, 447.2, 5.374),
        ("dense-fp8.4-layers.triton", {}, 85.33, 0.9441, 761.0, 7.607),
        ("moe-fp8.4-layers.triton", {}, 1.489, 0.3619, 12.72, 2.679),
        ("moe-fp8.4-layers.deep_gemm", {}, 28.90, 1.433, 255.0, 12.30),
        ("glm-moe.4-layers.nextn", {"tail_layers": 3}, 7.406, 1.831, 57.0, 8.009),
        ("qwen3-next.8-layers", {"period": 4}, 140.5, 4.077, 630.9, 18.09),
        ("deepseek.4-layers.flashmla", {}, 240.6, 1.306, 1989.0, 10.58),
    ],
)
def test_real_traces(
    name: str,
    options: dict[str, int],
    prefill_ms: float,
    step_ms: float,
    prefill_full_ms: float,
    step_full_ms: float,
) -> None:
    found = real_times(name, **options)
    figures = (found.prefill_ms, found.decode_step_ms, found.prefill_full_ms, found.decode_step_full_ms)
    assert figures == pytest.approx((prefill_ms, step_ms, prefill_full_ms, step_full_ms), rel=2e-3)
    assert not found.overlapping
    # Layers and what surrounds them add up: nothing outside of the layers took less than no time.
    for whole, part in ((prefill_full_ms, prefill_ms), (step_full_ms, step_ms)):
        assert (whole - part) / (36 - found.layers) * found.layers < part


@pytest.mark.parametrize(
    "name",
    [
        "dense-fp8.4-layers.deep_gemm",
        "dense-fp8.4-layers.prefill-graphs",
        "dense-fp8.4-layers.triton",
        "moe-fp8.4-layers.triton",
    ],
)
@pytest.mark.parametrize("before", [1, 2])
def test_a_second_prefill_among_the_steps_of_a_real_trace(name: str, before: int) -> None:
    """The same pass again before a step: twice the prefill, at any depth, and the same step."""
    trace, layers, tokens = real_trace(name)
    kernels, once = trace.kernels, real_times(name)
    phases = split_phases(kernels, tokens)
    at = kernels.index(phases.steps[before][0])
    late_us = kernels[at - 1].end_us - phases.prefill[0].start_us + 5
    first_free = 1 + max(kernel.correlation or 0 for kernel in kernels)
    again = [
        dataclasses.replace(
            kernel,
            start_us=kernel.start_us + late_us,
            correlation=None if kernel.correlation is None else kernel.correlation + first_free,
        )
        for kernel in phases.prefill
    ]
    shift_us = again[-1].end_us + 5 - kernels[at].start_us
    after = [dataclasses.replace(kernel, start_us=kernel.start_us + shift_us) for kernel in kernels[at:]]
    both = Trace("", (*kernels[:at], *again, *after))
    found = gpu_times([both], layers=layers, total_layers=36, output_tokens=tokens)
    assert found.prefill_waited_ms == pytest.approx(once.prefill_waited_ms, abs=1e-6)
    assert found.decode_step_waited_ms == pytest.approx(once.decode_step_waited_ms, rel=0.1)
    assert found.overlapping
    assert found.prefill_ms == pytest.approx(2 * once.prefill_ms, rel=0.01)
    assert found.prefill_full_ms == pytest.approx(2 * (once.prefill_full_ms or 0), rel=0.01)
    assert found.decode_step_full_ms == pytest.approx(once.decode_step_full_ms, rel=0.01)


@pytest.mark.parametrize(
    ("name", "step_ms"),
    [
        ("dense-fp8.4-layers.triton", (2.52, 2.59)),
        ("moe-fp8.4-layers.triton", (0.942, 0.942)),
        ("moe-fp8.4-layers.deep_gemm", (4.196, 4.196)),
    ],
)
def test_extrapolation_meets_what_deeper_models_took(name: str, step_ms: tuple[float, float]) -> None:
    """Steps of 12 layers, traced on the same machine in other runs; each of them varied by 1 to 2 %."""
    found = real_times(name, total_layers=12).decode_step_full_ms
    assert found is not None
    assert 0.98 * step_ms[0] < found < 1.02 * step_ms[1]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("dense-fp8.4-layers.deep_gemm", {"--attention-backend fa3", "--fp8-gemm-backend deep_gemm"}),
        ("dense-fp8.4-layers.triton", {"--attention-backend triton", "--fp8-gemm-backend triton"}),
        ("moe-fp8.4-layers.triton", {"--attention-backend fa3", "--moe-runner-backend triton"}),
        ("moe-fp8.4-layers.deep_gemm", {"--attention-backend fa3", "--moe-runner-backend deep_gemm"}),
        ("qwen3-next.8-layers", {"--linear-attn-backend triton", "--moe-runner-backend triton"}),
        ("deepseek.4-layers.flashmla", {"--attention-backend flashmla", "--moe-runner-backend triton"}),
    ],
)
def test_what_ran_in_real_traces(name: str, shown: set[str]) -> None:
    found = real_times(name)
    decode = {f"{kernel.dimension} {kernel.backend}" for kernel in found.kernels if kernel.phase == "decode"}
    assert shown <= decode


def test_real_candidates_are_told_apart() -> None:
    original = real_times("dense-fp8.4-layers.prefill-graphs")
    assert same_kernels(original, real_times("dense-fp8.4-layers.prefill-graphs"))
    assert not same_kernels(original, real_times("dense-fp8.4-layers.triton"))


@pytest.mark.parametrize("path", sorted(REAL.glob("*.json.gz")), ids=lambda path: path.name)
def test_layers_are_told_apart_in_every_step(path: Path) -> None:
    """Not by luck in one of them."""
    tokens, layers = re.search(r"\.t(\d+)\.", path.name), re.search(r"\.(\d+)-layers\.", path.name)
    assert tokens is not None
    assert layers is not None
    phases = split_phases(read_trace(path).kernels, int(tokens[1]))
    period = 4 if path.name.startswith("qwen3-next") else 1
    figures = [layer_us(step, int(layers[1]), period=period) for step in phases.forward]
    assert all(figure is not None for figure in figures)
    known = [figure for figure in figures if figure is not None]
    assert max(known) < 1.1 * min(known)


def test_traces_keep_nothing_personal() -> None:
    for path in REAL.glob("*.json.gz"):
        events = json.loads(gzip.decompress(path.read_bytes()))
        assert set(events) == {"traceEvents"}
        assert path.stat().st_size < 48 * 1024
        assert {key for event in events["traceEvents"] for key in event} == {
            "ph",
            "cat",
            "name",
            "ts",
            "dur",
            "args",
        }


def test_a_trace_is_a_value() -> None:
    assert Trace("a", (Kernel(0.0, 1.0, "a", 1),)) == Trace("a", (Kernel(0.0, 1.0, "a", 1),))
