"""The one direction of the house: a module imports only from modules that come before it in `ORDER`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "autolaunch"

# The flow, from the ground up.  A new module gets its place here, and STRUCTURE.md says what it is for.
ORDER = [
    "autolaunch",
    "errors",
    "units",
    "redact",
    "folders",
    "tables",
    "cached_json",
    "request",
    "request.probe",
    "request.interpreter",
    "request.hub_cache",
    "request.weights",
    "request.entry",
    "request.flags",
    "request.source_values",
    "request.arguments",
    "request.flag_source",
    "request.catalogue",
    "request.config_file",
    "request.notices",
    "request.command_line",
    "detect",
    "detect.host",
    "detect.nvml",
    "detect.visible",
    "detect.proc",
    "detect.products",
    "detect.gpus",
    "detect.machine",
    "detect.ranks",
    "detect.site",
    "detect.toolchain",
    "detect.modules",
    "detect.software",
    "detect.machine_file",
    "detect.plan",
    "checkpoint",
    "checkpoint.problems",
    "checkpoint.file_names",
    "checkpoint.read",
    "checkpoint.masks",
    "checkpoint.headers",
    "checkpoint.tensors",
    "checkpoint.index",
    "checkpoint.alike",
    "checkpoint.raw",
    "checkpoint.folder",
    "checkpoint.fetch",
    "checkpoint.hub",
    "checkpoint.source",
    "checkpoint.config",
    "checkpoint.layers",
    "checkpoint.attention",
    "checkpoint.experts",
    "checkpoint.weights",
    "checkpoint.stored",
    "checkpoint.declared_groups",
    "checkpoint.declared",
    "checkpoint.spared",
    "checkpoint.quantization",
    "checkpoint.heads",
    "checkpoint.mtp",
    "checkpoint.widths",
    "checkpoint.sizes",
    "checkpoint.checkpoint",
    "candidates",
    "candidates.candidate",
    "capability",
    "capability.versions",
    "capability.fact_names",
    "capability.kleene",
    "capability.fact_tests",
    "capability.conditions",
    "capability.rows",
    "capability.rules",
    "capability.dimensions",
    "capability.autos",
    "capability.table",
    "capability.flashinfer_source",
    "capability.flashinfer",
    "capability.flag_facts",
    "capability.facts",
    "capability.verdicts",
    "capability.situation",
    "capability.judge",
    "capability.repair",
    "capability.cautions",
    "capability.known_versions",
    "capability.evaluate",
    "capability.conflicts",
    "capability.contenders",
    "capability.check",
    "memory",
    "memory.facts",
    "memory.weights",
    "memory.cache",
    "memory.reserve",
    "memory.values",
    "memory.estimate",
    "nextn",
    "nextn.families",
    "nextn.spelling",
    "nextn.plan",
    "nextn.suggest",
    "candidates.dimensions",
    "candidates.generate",
    "candidates.tabled",
    "command",
    "profiles",
    "profiles.profile",
    "profiles.tuned_flags",
    "profiles.fields",
    "profiles.limits",
    "profiles.rows",
    "profiles.document",
    "profiles.digests",
    "profiles.fingerprint",
    "profiles.matching",
    "profiles.names",
    "profiles.files",
    "profiles.mounts",
    "profiles.status",
    "profiles.proofs",
    "profiles.kept",
    "profiles.store",
    "profiles.exchange",
    "profiles.marks",
    "profiles.failed",
    "profiles.failures_file",
    "profiles.failures",
    "profiles.setting",
    "profiles.learned",
    "assessment",
    "race",
    "race.outcomes",
    "race.slo",
    "race.conversations",
    "race.prompts_file",
    "race.logs",
    "race.journal",
    "race.progress",
    "race.when",
    "race.workload",
    "race.objective",
    "race.paired",
    "race.batches",
    "race.trace_file",
    "race.steps",
    "race.depth",
    "race.kernels",
    "race.trace",
    "race.company",
    "race.ports",
    "race.guarding",
    "race.guarding.processes",
    "race.guarding.leftovers",
    "race.guard",
    "race.guarded",
    "slice",
    "slice.problems",
    "race.child",
    "race.child.operations",
    "race.child.engine_host",
    "race.failures",
    "race.overlay",
    "race.control",
    "race.host_process",
    "race.engine",
    "slice.families",
    "slice.kinds",
    "slice.part",
    "slice.shards",
    "slice.files",
    "slice.config_cut",
    "slice.plan",
    "slice.complete",
    "slice.cut",
    "slice.child",
    "slice.child.dequantize",
    "slice.child.float4",
    "slice.child.make_weights",
    "slice.child.matrix_blocks",
    "slice.child.packed_integers",
    "slice.child.shard_files",
    "slice.child.stored_formats",
    "slice.spec",
    "slice.weights_child",
    "slice.synthesize",
    "slice.dequantized",
    "race.windows",
    "race.warm_up_windows",
    "race.measure",
    "race.traced",
    "race.yardstick",
    "race.gate_statistics",
    "race.gate_prompts",
    "race.gate_answers",
    "race.gate_reference",
    "race.gate_agreement",
    "race.gate_original",
    "race.gate",
    "race.result",
    "race.scale",
    "race.bounds",
    "race.gpu_memory",
    "race.pace",
    "race.trials",
    "race.step_limits",
    "race.warming",
    "race.judge",
    "race.stopwatch",
    "race.tactics",
    "race.final",
    "race.screen",
    "race.truth",
    "race.wave",
    "race.patience",
    "race.crowding",
    "race.loading",
    "race.waiting",
    "race.setting",
    "race.race",
    "choose",
    "choose.words",
    "choose.choose",
    "launch",
    "launch.processes",
    "launch.attempt_record",
    "launch.mistrust",
    "launch.attempts",
    "launch.breaker",
    "launch.watching",
    "launch.watching.orders",
    "launch.watching.processes",
    "launch.watching.server",
    "launch.watching.client",
    "launch.watching.ending",
    "launch.watching.asking",
    "launch.watching.judging",
    "launch.watching.verifying",
    "launch.watching.record",
    "launch.watching.health",
    "launch.watch",
    "launch.instructions",
    "ready",
    "slice.home",
    "launch.execute",
    "launch.report",
    "launch.deciding",
    "launch.signals",
    "launch.child",
    "launch.supervise",
    "explain",
    "explain.screen",
    "explain.recipe",
    "explain.plan",
    "explain.words",
    "explain.document",
    "explain.choices",
    "explain.why",
    "explain.next_steps",
    "explain.text",
    "explain.markdown",
    "doctor",
    "doctor.checks",
    "doctor.software",
    "doctor.doctor",
    "options",
    "options.checks",
    "options.options",
    "options.declarations",
    "explain.explain",
    "invocation",
    "profiles.parts",
    "tune",
    "tune.result",
    "tune.text",
    "profiles.from_race",
    "tune.ground",
    "tune.engines",
    "tune.racing",
    "serve",
    "serve.unmeasured",
    "serve.asked",
    "tune.lessons",
    "tune.learning",
    "serve.stages",
    "serve.lookup",
    "serve.launchable",
    "serve.settled",
    "serve.by_profile",
    "tune.measuring",
    "serve.decide",
    "tune.report",
    "serve.serve",
    "tune.tune",
    "profiles.text",
    "profiles.commands",
    "profiles.cli",
    "cli",
    "launch_server",
    "__main__",
]

# Run by path as processes of their own, some of them by another Python: nothing of autolaunch is there.
STANDALONE = {
    "race.guard",
    "race.child.engine_host",
    "race.child.operations",
    "slice.child.dequantize",
    "slice.child.float4",
    "slice.child.make_weights",
    "slice.child.matrix_blocks",
    "slice.child.packed_integers",
    "slice.child.shard_files",
    "slice.child.stored_formats",
    "launch.watch",
    "request.probe",
}
ALONE_TOGETHER = {"launch.watch": "launch.watching", "race.guard": "race.guarding"}
"""Those with a folder of their own: its modules import each other, the program imports them, and nothing else of autolaunch."""
HEAVY = {"torch", "sglang", "transformers", "numpy", "flashinfer"}
BROAD = {"Exception", "BaseException"}


def module_name(path: Path) -> str:
    """`race/gate.py` as `race.gate`, the package itself as `autolaunch`."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts) or "autolaunch"


def modules() -> list[Path]:
    """Every module of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> set[str]:
    """Names of the modules that `path` imports, wherever in the file; autolaunch's without the prefix."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the direction"
            base = node.module or ""
            inside = {f"{base}.{alias.name}" for alias in node.names}
            found.update(name if is_module(name) else base for name in inside)
    return found


def is_module(name: str) -> bool:
    """Whether `autolaunch.x.y` names a module rather than something in one."""
    path = PACKAGE.joinpath(*name.split(".")[1:])
    return name.startswith("autolaunch.") and (path.is_dir() or path.with_suffix(".py").exists())


def folder_of(name: str) -> str | None:
    """The folder that a program run by path shares with `name`, if it is one of these or lies in it."""
    inside = (folder for folder in ALONE_TOGETHER.values() if is_below(name, folder))
    return ALONE_TOGETHER.get(name) or next(inside, None)


def is_below(name: str, folder: str) -> bool:
    """Whether a module is the package `folder` or lies in it."""
    return name == folder or name.startswith(f"{folder}.")


def test_every_module_has_one_place() -> None:
    assert len(ORDER) == len(set(ORDER))
    assert set(map(module_name, modules())) == set(ORDER)


@pytest.mark.parametrize("path", modules(), ids=module_name)
def test_imports_point_back(path: Path) -> None:
    name = module_name(path)
    for imported in imports(path):
        if imported.split(".")[0] != "autolaunch":
            assert imported.split(".")[0] not in HEAVY or name in STANDALONE, f"{name} imports {imported}"
            continue
        target = imported.removeprefix("autolaunch").lstrip(".") or "autolaunch"
        assert ORDER.index(target) < ORDER.index(name), f"{name} imports {target}, which comes after it"
        folder = folder_of(name)
        alone = name in STANDALONE or folder is not None
        beside = folder is not None and is_below(target, folder)
        assert not alone or beside, f"{name} runs alone and imports {target}"


@pytest.mark.parametrize("name", [one for one in ORDER if one != "__main__" and ".child." not in one])
def test_each_module_imports_alone_and_stays_light(name: str) -> None:
    full = "autolaunch" if name == "autolaunch" else f"autolaunch.{name}"
    code = f"import sys, {full}; print(*sorted(set(sys.modules) & {HEAVY!r}))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=PACKAGE.parent
    )
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_broad_handlers_are_where_they_must_be() -> None:
    """Only the parts that start the original command after a fault may catch everything."""
    allowed = {"launch.deciding", "launch.supervise", "race.child.engine_host", "cli"}
    found = set()
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler):
                names = (
                    {one.id for one in ast.walk(node.type) if isinstance(one, ast.Name)}
                    if node.type
                    else BROAD
                )
                if names & BROAD:
                    found.add(module_name(path))
    assert found <= allowed
