"""The profiles that come with autolaunch: sound, with provenance, for their own GPU alone, and really there."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from autolaunch.detect.products import products
from autolaunch.folders import Folders
from autolaunch.profiles.document import from_toml
from autolaunch.profiles.kept import Kept
from autolaunch.profiles.matching import judge
from autolaunch.profiles.names import gpu_slug, is_name, model_slug
from autolaunch.profiles.profile import FlatValue
from autolaunch.profiles.store import SHIPPED, Store
from autolaunch.profiles.tuned_flags import check
from autolaunch.race.workload import parse_workload
from autolaunch.request.catalogue import bundled_catalogue, bundled_versions
from tests.real_server import ROOT

FILES = sorted(SHIPPED.rglob("*.toml"))
SEED = "rtx-pro-6000-blackwell-server-edition/Qwen3.5-397B-A17B-NVFP4.tp8.throughput"


def kept(path: Path) -> Kept:
    """The profile in `path`."""
    return Store((SHIPPED,)).read_file(path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_is_sound_and_says_where_it_comes_from(path: Path) -> None:
    profile = from_toml(path.read_bytes(), where=path.name)
    assert (profile.origin, profile.status) == ("shipped", "fresh")
    assert profile.provenance and all(len(one) > 20 for one in profile.provenance)
    assert profile.reason and profile.measured.figures
    assert check(profile.chosen, None, model=None, wished=()) is None
    print_ = profile.fingerprint
    assert {"platform", "gpu.name", "gpu.sm", "gpu.count", "parallel.tp", "model.name"} <= set(print_)
    name = kept(path).name
    tp, objective = print_["parallel.tp"], profile.objective["name"]
    assert name.startswith(
        f"{gpu_slug(str(print_['gpu.name']))}/{model_slug(profile.model)}.tp{tp}.{objective}"
    )
    product = products().named(str(print_["gpu.name"]))
    assert product is not None and product.sm == print_["gpu.sm"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_is_known_to_every_version_that_may_use_it(path: Path) -> None:
    profile = kept(path).profile
    for version in bundled_versions():
        why = check(profile.chosen, bundled_catalogue(version), model=None, wished=())
        assert why is None, f"{version}: {why}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_none_is_applied_to_another_gpu(path: Path) -> None:
    profile = kept(path).profile
    same: dict[str, FlatValue] = {**profile.fingerprint, "version.autolaunch": "9"}
    assert judge(profile, same, None, None).kind == "fits"
    others = [
        {"gpu.name": product.name, "gpu.sm": product.sm}
        for product in products().rows
        if product.name != profile.fingerprint["gpu.name"]
    ]
    others += [{"gpu.count": 3}, {"gpu.sm": 75}, {"parallel.tp": 2}, {"platform": "cpu"}, {"parallel.pp": 2}]
    for other in others:
        assert judge(profile, {**same, **other}, None, None).kind == "other", other
    without_gpu = {name: value for name, value in same.items() if not name.startswith("gpu.")}
    assert judge(profile, without_gpu, None, None).kind == "other"
    for product in products().rows:
        if gpu_slug(product.name) != kept(path).name.partition("/")[0]:
            found = Store((SHIPPED,)).candidates_for(gpu_slug(product.name), profile.model)
            assert path not in [one.path for one in found]


def test_the_first_one() -> None:
    found = Store.of((), Folders(ROOT / "none", ROOT / "none", ROOT / "none")).candidates_for(
        "rtx-pro-6000-blackwell-server-edition", "nvidia/Qwen3.5-397B-A17B-NVFP4"
    )
    assert [one.name for one in found] == [SEED]
    profile = found[0].profile
    flags = " ".join(profile.chosen.flags)
    for words in (
        "--moe-runner-backend flashinfer_cutlass",
        "--fp4-gemm-backend flashinfer_cudnn",
        "--speculative-algorithm NEXTN",
    ):
        assert words in flags
    assert (profile.measured.original_value, profile.measured.value, profile.measured.depth) == (
        72,
        172,
        "none",
    )
    assert "2,100" in profile.measured.figures
    assert "FlashInfer before 0.6.7" in profile.warnings[0]


@pytest.mark.parametrize(
    "path", [one for one in FILES if one.parent.name == "h200"], ids=lambda path: path.stem
)
def test_figures_of_the_h200_are_those_that_were_measured(path: Path) -> None:
    profile = kept(path).profile
    assert profile.measured.weights == "synthetic" and profile.chosen.is_original
    benchmark = json.loads((ROOT / "benchmarks/slices-h200.json").read_text())
    words = str(profile.workload["words"])
    workload = parse_workload(words)
    assert workload.to_json().items() <= dict(profile.workload).items()
    race = next(one for one in benchmark["races"] if words in one["command"] and "pick" in one)
    assert (race["pick"], race["race_s"]) == ("c0", profile.measured.race_s)
    assert profile.fingerprint["version.sglang"] == benchmark["software"]["sglang"]
    is_whole = "prefill_full" in race["gpu_ms"]["c0"]
    costs = {}
    for flags, times in race["gpu_ms"].items():
        prefill, step = (times[f"{one}_full" if is_whole else one] for one in ("prefill", "decode_step"))
        costs[flags] = prefill + (workload.output_tokens - 1) * step
    for entrant in profile.entrants:
        cost = costs[" ".join(entrant.chosen.flags) or "c0"]
        if not entrant.chosen.is_original:
            assert entrant.gain == pytest.approx(costs["c0"] / cost - 1, abs=1e-4)
        tokens = workload.concurrency * workload.output_tokens
        assert entrant.value == (pytest.approx(tokens / cost * 1000, abs=0.1) if is_whole else None)


def test_the_link_at_the_top() -> None:
    assert (ROOT / "profiles").resolve() == SHIPPED.resolve()
    assert all(is_name(kept(path).name) for path in FILES) and len(FILES) >= 3


@pytest.mark.slow
def test_they_are_in_the_wheel(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    source = tmp_path / "source"
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split():
        if name.startswith(("autolaunch/", "profiles")) or name in ("pyproject.toml", "README.md"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            if (ROOT / name).is_symlink():
                (source / name).symlink_to((ROOT / name).readlink())
            elif (ROOT / name).exists():
                (source / name).write_bytes((ROOT / name).read_bytes())
    argv = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-w",
        tmp_path,
        source,
    ]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = wheel.namelist()
        for path in FILES:
            name = f"autolaunch/data/profiles/{path.relative_to(SHIPPED).as_posix()}"
            assert wheel.read(name) == path.read_bytes()
    assert not [name for name in names if name.startswith("profiles/")]
