"""Which of SGLang's entry points a line takes, and with which tokens."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autolaunch.request.entry import Entry, as_flags, original_argv, sglang_argv
from autolaunch.request.interpreter import Interpreter

LLM, SERVE = "launch_server", "sglang_serve"


@pytest.mark.parametrize(
    ("tokens", "entry", "argv"),
    [
        ([], LLM, []),
        (["m"], LLM, ["--model-path", "m"]),
        (["m", "--tp", "8"], LLM, ["--model-path", "m", "--tp", "8"]),
        (["--model-path", "m"], LLM, ["--model-path", "m"]),
        (["--model=m"], LLM, ["--model=m"]),
        (["--tp", "8", "m"], LLM, ["--tp", "8", "m"]),
        (["m", "n"], LLM, ["--model-path", "m", "n"]),
        (["", "--tp", "8"], LLM, ["--model-path", "", "--tp", "8"]),
        (["-", "x"], LLM, ["-", "x"]),
        (["m", "--model-type", "llm"], SERVE, ["m", "--model-type", "llm"]),
        (["--model-type=diffusion", "m"], SERVE, ["--model-type=diffusion", "m"]),
        (["m", "--pipeline-class-name", "X"], SERVE, ["m", "--pipeline-class-name", "X"]),
    ],
)
def test_serve(tokens: list[str], entry: Entry, argv: list[str], tmp_path: Path) -> None:
    assert sglang_argv(tokens, "serve", environ={}, cwd=tmp_path) == (entry, tuple(argv))
    assert sglang_argv(tokens, "launch_server", environ={}, cwd=tmp_path) == (LLM, tuple(tokens))


def diffusion_model(folder: Path, content: object, name: str = "model_index.json") -> Path:
    """A folder with a diffusers index."""
    folder.mkdir(parents=True)
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("content", "entry"),
    [
        ({"_diffusers_version": "0.30", "_class_name": "X"}, SERVE),
        ({"_class_name": "X"}, LLM),
        ("{", LLM),
        ("3", LLM),
        ("null", LLM),
        ("[" * 100_000, LLM),
        (" " * (2 << 20), LLM),
    ],
    ids=["diffusers", "other", "broken", "number", "null", "deep", "huge"],
)
def test_local_folder(tmp_path: Path, content: object, entry: Entry) -> None:
    for name in ("model_index.json", "modular_model_index.json"):
        folder = diffusion_model(tmp_path / name, content, name)
        for tokens in ([str(folder)], [name, "--tp", "2"], ["--model-path", name], [f"--model={name}"]):
            assert sglang_argv(tokens, "serve", environ={}, cwd=tmp_path)[0] == entry


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME", "HOME"])
def test_hub_cache(tmp_path: Path, variable: str) -> None:
    below = {"HF_HUB_CACHE": "", "HF_HOME": "hub", "HOME": ".cache/huggingface/hub"}[variable]
    snapshot = tmp_path / below / "models--org--image" / "snapshots" / "abc"
    diffusion_model(snapshot, {"_diffusers_version": "1"})
    environ = {variable: str(tmp_path)}
    assert sglang_argv(["org/image"], "serve", environ=environ, cwd=Path("/"))[0] == SERVE
    assert sglang_argv(["org/text"], "serve", environ=environ, cwd=Path("/"))[0] == LLM


def test_models_the_diffusion_server_knows_by_name(tmp_path: Path) -> None:
    package = tmp_path / "sglang"
    configs = package / "multimodal_gen" / "configs" / "pipeline_configs"
    configs.mkdir(parents=True)
    (package / "multimodal_gen" / "registry.py").write_text('hf_model_paths=["org/one"]')
    (configs / "x.py").write_text('register(hf_model_paths=[\n    "org/two",\n])')
    for model, entry in (("org/one", SERVE), ("org/two", SERVE), ("org/on", LLM), ("org/three", LLM)):
        assert sglang_argv([model], "serve", environ={}, cwd=tmp_path, package=package)[0] == entry
        assert sglang_argv([model], "serve", environ={}, cwd=tmp_path)[0] == LLM


@pytest.mark.parametrize(
    "model", ["~nobody-here/m", "a\0b", "x" * 5000, "/dev/null", "/proc/1/mem", "..", "~"]
)
def test_odd_models_do_no_harm(model: str, tmp_path: Path) -> None:
    package = tmp_path / "sglang"
    expected = (LLM, ("--model-path", model))
    assert sglang_argv([model], "serve", environ={}, cwd=tmp_path, package=package) == expected


@pytest.mark.parametrize(
    ("argv", "flags"),
    [
        ((), ()),
        (("m", "--model-type", "llm", "--tp", "2"), ("--model-path", "m", "--tp", "2")),
        (("--model-type", "llm", "m"), ("--model-path", "m")),
        (("--model-type=llm", "--model", "m"), ("--model", "m")),
        (("m", "--model-type"), ("--model-path", "m")),
    ],
)
def test_serve_tokens_as_flags(argv: tuple[str, ...], flags: tuple[str, ...]) -> None:
    assert as_flags(argv) == flags


def test_original_argv(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    interpreter = Interpreter(str(python), tmp_path, "0.5.21", "--python")
    assert original_argv(interpreter, "launch_server", ("--model-path", "m", "--x=1")) == (
        str(python), "-m", "sglang.launch_server", "--model-path", "m", "--x=1",
    )  # fmt: skip
    without = original_argv(interpreter, "sglang_serve", ("m",))
    assert without[:2] == (str(python), "-c")
    assert without[3:] == ("serve", "m")
    beside = python.parent / "sglang"
    beside.write_text("#!/bin/sh\nexec something-else\n")
    assert original_argv(interpreter, "sglang_serve", ("m",)) == without
    beside.write_text(f"#!{python}\nfrom sglang.cli.main import main\n")
    assert original_argv(interpreter, "sglang_serve", ("m",)) == (str(python), str(beside), "serve", "m")


def test_serve_reaches_the_command_line_of_sglang(tmp_path: Path) -> None:
    """Without a script beside the interpreter, `-c` hands over the same arguments."""
    cli = tmp_path / "sglang" / "cli"
    cli.mkdir(parents=True)
    for folder in (cli, cli.parent):
        (folder / "__init__.py").touch()
    (cli / "main.py").write_text("import sys\ndef main():\n    print(sys.argv[1:])\n    return 7\n")
    interpreter = Interpreter(sys.executable, cli.parent, "0", "--python")
    script = Path(sys.executable).parent / "sglang"
    argv = original_argv(interpreter, "sglang_serve", ("m", "--x y"))
    if script.exists():
        assert argv[1] == str(script)
        argv = (argv[0], "-c", "import sys; from sglang.cli.main import main; sys.exit(main())", *argv[2:])
    done = subprocess.run(
        argv, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    assert (done.returncode, done.stdout.strip()) == (7, "['serve', 'm', '--x y']"), done.stderr
