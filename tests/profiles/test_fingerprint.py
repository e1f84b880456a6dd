"""From a start to its fingerprint: what belongs to it, under which name, and what does not."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autolaunch.detect.gpus import Gpu, Machine
from autolaunch.detect.software import Package, detect_software
from autolaunch.profiles.document import from_toml, to_toml
from autolaunch.profiles.fingerprint import fingerprint_of, model_name, neutral_dests, versions_of
from autolaunch.profiles.matching import differences, judge
from autolaunch.profiles.profile import Fingerprint
from autolaunch.request.catalogue import bundled_catalogue, bundled_versions
from autolaunch.request.command_line import read_request
from autolaunch.request.interpreter import Interpreter
from autolaunch.tables import load_rows
from tests.checkpoint.make_checkpoint import write_checkpoint
from tests.profiles.made import made

VERSION = "0.5.23"
PYTHON = Interpreter("/usr/bin/python3", Path("/nonexistent/sglang"), VERSION, "a test")
VERSIONS = {"sglang": VERSION, "torch": "2.12.0", "driver": "580.95", "cudnn": None}
WISHES = {"admit": (), "lossy": False, "nextn": "auto", "candidates": ()}
H200 = Gpu(0, "NVIDIA H200", 90, 132, 150_000_000_000, power_limit_w=700.0)
CPU = Machine("cpu", "none", 8, 1 << 34)
SECRET = "s3cr3tValue77"


def gpus(count: int, **changes: Any) -> Machine:
    return Machine(
        "cuda",
        "nvml",
        16,
        1 << 38,
        tuple(replace(H200, index=one, **changes) for one in range(count)),
        nvlink=count > 1 or None,
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_checkpoint(
        tmp_path / "Qwen3-8B", [("a.weight", "BF16", (8, 8)), ("b.weight", "BF16", (4, 4))], shards=2
    )


def taken(
    model: Path,
    *flags: str,
    machine: Machine | None = None,
    environ: Mapping[str, str] | None = None,
    wishes: Mapping[str, Any] = WISHES,
    versions: Mapping[str, str | None] = VERSIONS,
    version: str = VERSION,
    cache: Path | None = None,
    name: str | None = None,
) -> Fingerprint:
    catalogue = bundled_catalogue(version)
    request = read_request(
        ["--model-path", name or str(model), *flags], "serve", PYTHON, catalogue, model.parent, {}
    )
    found = fingerprint_of(
        request,
        catalogue,
        machine or gpus(8),
        versions,
        environ or {},
        model.parent,
        wishes=wishes,
        cache=cache,
    )
    assert found is not None
    return found


def changed(before: Fingerprint, after: Fingerprint) -> set[str]:
    return {one.field for one in differences(before, after, shipped=False)}


def test_what_a_plain_start_is(model: Path) -> None:
    found = taken(model)
    digests = {name for name in found if name.startswith("checkpoint.")}
    assert digests == {"checkpoint.config", "checkpoint.index", "checkpoint.headers", "checkpoint.files"}
    assert {name: value for name, value in found.items() if name not in digests | {"version.autolaunch"}} == {
        "entry": "launch_server",
        "gpu.count": 1,
        "gpu.memory_bytes": 150_000_000_000,
        "gpu.name": "NVIDIA H200",
        "gpu.power_limit_w": 700.0,
        "gpu.sm": 90,
        "gpu.sm_count": 132,
        "model.name": "Qwen3-8B",
        "parallel.dp": 1,
        "parallel.dp_attention": False,
        "parallel.ep": 1,
        "parallel.nodes": 1,
        "parallel.pp": 1,
        "parallel.tp": 1,
        "platform": "cuda",
        "version.driver": "580.95",
        "version.sglang": VERSION,
        "version.torch": "2.12.0",
        "wish.lossy": False,
        "wish.nextn": "auto",
    }
    assert list(found) == sorted(found)


def test_a_cpu_has_cores_a_name_and_no_gpus(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autolaunch.profiles.fingerprint.cpu_name", lambda: "Xeon")
    found = taken(model, machine=CPU)
    assert (found["host.cores"], found["host.cpu"]) == (8, "Xeon")
    assert not [name for name in found if name.startswith("gpu.")]
    assert changed(found, taken(model, machine=replace(CPU, cores=4))) == {"host.cores"}
    monkeypatch.setattr("autolaunch.profiles.fingerprint.cpu_name", lambda: "EPYC")
    assert changed(found, taken(model, machine=CPU)) == {"host.cpu"}


def test_a_file_of_flags_that_nobody_reads_counts(model: Path) -> None:
    catalogue = bundled_catalogue(VERSION)
    for typed, counts in ((("--config", "x.yaml"), True), (("--config=x.yaml",), True), ((), False)):
        request = replace(
            read_request(["--model-path", str(model)], "serve", PYTHON, catalogue, model.parent, {}),
            entry="sglang_serve",
            argv=("--model-path", str(model), *typed),
        )
        found = fingerprint_of(request, catalogue, CPU, {}, {}, model.parent, wishes={}, cache=None)
        assert found is not None and ("unread" in found) is counts


@pytest.mark.parametrize(
    ("flags", "fields"),
    [
        (("--tp", "2"), {"parallel.tp", "gpu.count", "gpu.nvlink"}),
        (("--tp-size=1",), set()),
        (("--pp-size", "2"), {"parallel.pp", "gpu.count", "gpu.nvlink"}),
        (("--dp", "2"), {"parallel.dp", "gpu.count", "gpu.nvlink"}),
        (("--ep", "2"), {"parallel.ep"}),
        (("--enable-dp-attention",), {"parallel.dp_attention"}),
        (("--nnodes", "2", "--node-rank", "1"), {"parallel.nodes"}),
        (("--attention-backend", "fa3"), {"pin.attention_backend"}),
        (("--fp4-gemm-backend", "flashinfer_cudnn"), {"pin.fp4_gemm_backend"}),
        (("--max-running-requests", "64"), {"pin.max_running_requests"}),
        (("--kv-cache-dtype", "fp8_e4m3"), {"pin.kv_cache_dtype"}),
        (("--quantization", "modelopt_fp4"), {"pin.quantization"}),
        (("--disable-radix-cache",), {"pin.disable_radix_cache"}),
        (("--context-length", "8192"), {"flag.context_length"}),
        (("--trust-remote-code",), {"flag.trust_remote_code"}),
        (("--lora-paths", "a=/x", "b=/y"), {"flag.lora_paths"}),
        (("--device", "cuda"), set()),
        (("--not-a-flag", "1"), {"unread"}),
        (("--port", "1234", "--host", "::", "--api-key", SECRET, "--served-model-name", "x"), set()),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_a_flag_changes_its_field_alone(model: Path, flags: tuple[str, ...], fields: set[str]) -> None:
    assert changed(taken(model), taken(model, *flags)) == fields


def test_every_neutral_flag_leaves_the_fingerprint_as_it_is(model: Path) -> None:
    plain = taken(model)
    catalogue = bundled_catalogue(VERSION)
    neutral = neutral_dests(catalogue)
    assert len(neutral) > 40
    for row in load_rows("neutral_flags", "flag"):
        flag = catalogue.resolve(row["flag"])
        if flag is not None and row["flag"] in flag.names:
            value = () if not flag.takes_value else (flag.choices or ("1",))[:1]
            assert changed(plain, taken(model, row["flag"], *value)) == set(), row["flag"]


@pytest.mark.parametrize(
    ("variable", "fields"),
    [
        ("SGLANG_USE_AITER", {"env.SGLANG_USE_AITER"}),
        ("FLASHINFER_X", {"env.FLASHINFER_X"}),
        ("NCCL_ALGO", {"env.NCCL_ALGO"}),
        ("NCCL_DEBUG", set()),
        ("TRITON_INTERPRET", {"pin.TRITON_INTERPRET"}),
        ("TRITON_CACHE_DIR", set()),
        ("SGLANG_ENABLE_SPEC_V2", {"pin.SGLANG_ENABLE_SPEC_V2"}),
        ("OMP_NUM_THREADS", {"env.OMP_NUM_THREADS"}),
        ("HOME", set()),
        ("HF_TOKEN", set()),
        ("AUTOLAUNCH_STALE", set()),
        ("NCCL_ODD-NAME", set()),
    ],
)
def test_a_variable_changes_its_field_alone(model: Path, variable: str, fields: set[str]) -> None:
    assert changed(taken(model), taken(model, environ={variable: "1"})) == fields


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"name": "NVIDIA H100"}, {"gpu.name"}),
        ({"sm": 100}, {"gpu.sm"}),
        ({"sm_count": 114}, {"gpu.sm_count"}),
        ({"memory_bytes": 80_000_000_000}, {"gpu.memory_bytes"}),
        ({"power_limit_w": 500.0}, {"gpu.power_limit_w"}),
        ({"power_limit_w": None}, {"gpu.power_limit_w"}),
        ({"memory_free_bytes": 1, "memory_used_bytes": 5, "uuid": "GPU-1", "index": 3}, set()),
    ],
)
def test_a_gpu_changes_its_fields_alone(model: Path, changes: dict[str, Any], fields: set[str]) -> None:
    one = Machine("cuda", "nvml", 16, 1 << 38, (replace(H200, **changes),))
    assert changed(taken(model, machine=gpus(1)), taken(model, machine=one)) == fields


def test_only_the_gpus_that_are_used_count(model: Path) -> None:
    mixed = replace(gpus(2), gpus=(H200, replace(H200, index=1, name="NVIDIA H100", power_limit_w=350.0)))
    assert changed(taken(model), taken(model, machine=mixed)) == set()
    both = taken(model, "--tp", "2", machine=mixed)
    assert (both["gpu.name"], both["gpu.power_limit_w"]) == ("NVIDIA H100 + NVIDIA H200", 350.0)


def test_wishes_are_fields(model: Path) -> None:
    wishes = {
        **WISHES,
        "admit": ["b=1", "a=2"],
        "candidates": ["--page-size 16"],
        "lossy": True,
        "nextn": "off",
    }
    found = taken(model, wishes=wishes)
    assert (found["wish.admit"], found["wish.candidates"], found["wish.lossy"], found["wish.nextn"]) == (
        "a=2 | b=1",
        "--page-size 16",
        True,
        "off",
    )


def test_versions_of_what_is_installed(model: Path) -> None:
    software = detect_software(None, {}, for_sglang=VERSION)
    software = replace(
        software,
        others={
            "flash-attn-4": Package("4.0", "installed"),
            "transformers": Package("5", "installed"),
            "tilelang": Package("1", "pinned-by-sglang"),
        },
    )
    versions = versions_of(software, replace(gpus(1), driver="580.95"))
    assert (
        versions["sglang"] == VERSION and versions["driver"] == "580.95" and versions["flash-attn-4"] == "4.0"
    )
    assert "transformers" not in versions and "tilelang" not in versions
    assert "driver" not in versions_of(software, CPU)
    assert "version.cudnn" not in taken(model)  # nobody could say


def test_the_checkpoint_changes_its_fields_alone(model: Path, tmp_path: Path) -> None:
    cache, plain = tmp_path / "cache", taken(model)
    assert changed(plain, taken(model, cache=cache)) == set()
    (model / "README.md").write_text("words")
    assert changed(plain, taken(model, cache=cache)) == set()
    (model / "config.json").write_text(json.dumps({"model_type": "other"}))
    assert changed(plain, taken(model, cache=cache)) == {"checkpoint.config"}
    (model / "hf_quant_config.json").write_text("{}")
    assert changed(plain, taken(model, cache=cache)) == {"checkpoint.config", "checkpoint.quantization"}
    other = write_checkpoint(
        tmp_path / "x" / "Qwen3-8B", [("a.weight", "BF16", (8, 8)), ("c.weight", "BF16", (4, 4))], shards=2
    )
    assert changed(plain, taken(other)) == {"checkpoint.index", "checkpoint.headers"}
    larger = write_checkpoint(
        tmp_path / "y" / "Qwen3-8B", [("a.weight", "BF16", (8, 8)), ("b.weight", "BF16", (4, 8))], shards=2
    )
    assert changed(plain, taken(larger)) == {"checkpoint.index", "checkpoint.headers", "checkpoint.files"}


def test_one_file_of_several_is_named(model: Path) -> None:
    for name in ("q4.gguf", "q8.gguf"):
        (model / name).write_bytes(b"GGUF")
    first, second = (taken(model, name=str(model / name)) for name in ("q4.gguf", "q8.gguf"))
    assert changed(first, second) == {"checkpoint.file", "model.name"}


def test_a_snapshot_of_the_hub_has_its_commit_and_the_models_name(tmp_path: Path, model: Path) -> None:
    commits = ["1" * 40, "2" * 40]
    entry = tmp_path / "hub" / "models--Qwen--Qwen3-8B"
    for commit in commits:
        write_checkpoint(entry / "snapshots" / commit, [("a.weight", "BF16", (8, 8))])
    (entry / "refs").mkdir()
    (entry / "refs" / "main").write_text(commits[0])
    environ = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    main = taken(model, name="Qwen/Qwen3-8B", environ=environ)
    assert (main["checkpoint.commit"], main["model.name"]) == (commits[0], "Qwen3-8B")
    asked = taken(model, "--revision", commits[1], name="Qwen/Qwen3-8B", environ=environ)
    assert changed(main, asked) == {"checkpoint.commit", "flag.revision"}
    assert taken(model, name=str(entry / "snapshots" / commits[1]))["model.name"] == "Qwen3-8B"


@pytest.mark.parametrize("name", ["Qwen/not-here", "/nonexistent", "", "x" * 5000])
def test_no_weights_no_fingerprint(tmp_path: Path, name: str) -> None:
    catalogue = bundled_catalogue(VERSION)
    (tmp_path / "empty").mkdir()
    for one in (name, "empty"):
        request = read_request(["--model-path", one], "serve", PYTHON, catalogue, tmp_path, {})
        assert (
            fingerprint_of(
                request, catalogue, CPU, {}, {"HF_HUB_CACHE": str(tmp_path)}, tmp_path, wishes={}, cache=None
            )
            is None
        )


@pytest.mark.parametrize(
    ("model", "name"),
    [("/models/Qwen3-8B/", "Qwen3-8B"), ("Qwen/Qwen3-8B", "Qwen3-8B"), ("x", "x"), ("./", "here"), ("..", "here"),
     ("/hub/models--Qwen--Qwen3-8B/snapshots/" + "a" * 40, "Qwen3-8B"), ("/m/q4.gguf", "q4.gguf")],
)  # fmt: skip
def test_names_of_models(model: str, name: str) -> None:
    assert model_name(model, Path("/some/where/here")) == name


def test_no_secret_is_in_a_fingerprint(model: Path) -> None:
    flags = ("--api-key", SECRET, "--admin-api-key", SECRET, "--watermark-config", SECRET, "--ssl-keyfile-password", SECRET, "--bogus-token", SECRET,
             "--tokenizer-path", f"https://me:{SECRET}@hub/x", "--model-loader-extra-config", json.dumps({"password": SECRET}))  # fmt: skip
    environ = {
        "HF_TOKEN": SECRET,
        "SGLANG_API_KEY": SECRET,
        "SGLANG_URL": f"http://u:{SECRET}@h",
        "NCCL_SECRET": SECRET,
        "FLASHINFER_X": f"token={SECRET}",
    }
    wishes = {**WISHES, "candidates": [f"--api-key {SECRET} --page-size 16"]}
    found = taken(model, *flags, environ=environ, wishes=wishes)
    assert "flag.tokenizer_path" in found and "env.SGLANG_API_KEY" in found and "unread" in found
    assert SECRET not in json.dumps(found)


def test_long_and_odd_values_are_cut_and_shown(model: Path) -> None:
    text = json.dumps({"a": "b" * 5000})
    first, second = (
        taken(model, "--json-model-override-args", one) for one in (text, text.replace("a", "c"))
    )
    value = str(first["flag.json_model_override_args"])
    assert len(value) < 250 and "sha256:" in value
    assert changed(first, second) == {"flag.json_model_override_args"}
    odd = taken(model, environ={"SGLANG_X": "a\x1b[31m\nb\udcff"})["env.SGLANG_X"]
    assert str(odd).isprintable()


@pytest.mark.parametrize("version", bundled_versions())
def test_a_pin_has_one_name_in_all_versions(model: Path, version: str) -> None:
    catalogue = bundled_catalogue(version)
    spelling = next(
        name for name in ("--dsa-decode-backend", "--nsa-decode-backend") if name in catalogue.names()
    )
    choice = next(iter(catalogue.resolve(spelling).choices or ("fa3",)))  # type: ignore[union-attr]
    assert taken(model, spelling, choice, version=version)["pin.dsa_decode_backend"] == choice


ODD = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="ab=:/@ \"'\\-*.\n\x1b", max_size=40),
    st.sampled_from([SECRET, f"--api-key {SECRET}", f"key={SECRET}", f"http://u:{SECRET}@h", "***", "", "x" * 5000, "é\udcff", "\u202e", "1", "true"]),
)  # fmt: skip


@settings(deadline=None, max_examples=200)
@given(
    st.dictionaries(st.sampled_from(["SGLANG_X", "NCCL_API_KEY", "TRITON_TOKEN", "FLASHINFER_PATH"]), ODD),
    ODD,
    ODD,
)
def test_what_is_kept_fits_the_start_it_was_kept_for(environ: dict[str, str], flag: str, wish: str) -> None:
    """Whatever is hidden, cut or spelled out, it is so in the same way when the next start is compared."""
    with tempfile.TemporaryDirectory() as folder:
        model = write_checkpoint(Path(folder) / "Qwen3-8B", [("a.weight", "BF16", (8, 8))])
        flags = (
            f"--model-loader-extra-config={flag}",
            f"--tokenizer-path={flag}",
            f"--watermark-config={flag}",
        )
        now = taken(model, *flags, environ=environ, wishes={**WISHES, "candidates": [wish], "admit": [flag]})
    profile = replace(made(), model="Qwen3-8B", fingerprint=now)
    read = from_toml(to_toml(profile).encode(), where="x")
    assert read.fingerprint == now
    match = judge(read, now, None, None)
    assert (match.kind, match.differences, match.not_stated) == ("fits", (), ())


def test_a_huge_variable_costs_little(model: Path) -> None:
    started = time.process_time()
    for text in ("x" * 130_000, "a=" * 65_000, "key" * 40_000, "://" * 40_000, "-" * 130_000):
        taken(model, environ={"SGLANG_X": text})
    assert time.process_time() - started < 5
