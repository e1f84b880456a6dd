"""Pins and notices: what the user set, by which spelling, and what SGLang will say about the line."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from autolaunch.errors import UsageError, render_message
from autolaunch.request.command_line import Pin, Request, read_request
from autolaunch.request.interpreter import Interpreter
from tests.request.conftest import catalogue_of

HERE = "command line"


@pytest.fixture
def request_of(make_interpreter: Interpreter, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Read a line for `serve` with the flags of 0.5.21."""

    def read(*tokens: str) -> Request:
        return read_request(tokens, "serve", make_interpreter, catalogue_of("0.5.21"), tmp_path, {})

    return read


@pytest.mark.parametrize(
    ("tokens", "pin"),
    [
        (("--tp", "8"), Pin("--tp-size", "tp_size", "--tp", ("8",), HERE)),
        (("--tp-size=8",), Pin("--tp-size", "tp_size", "--tp-size=8", ("8",), HERE)),
        (("--tensor-par", "8"), Pin("--tp-size", "tp_size", "--tensor-par", ("8",), HERE)),
        (("--tp", "2", "--tp=4"), Pin("--tp-size", "tp_size", "--tp=4", ("4",), HERE)),
        (("--chunked-prefill-size", "-1"), Pin("--chunked-prefill-size", "chunked_prefill_size", "--chunked-prefill-size", ("-1",), HERE)),
        (("--disable-radix-cache",), Pin("--disable-radix-cache", "disable_radix_cache", "--disable-radix-cache", (), HERE)),
        (("--json-model-override-args", '{"a": "-x"}'), Pin("--json-model-override-args", "json_model_override_args", "--json-model-override-args", ('{"a": "-x"}',), HERE)),
        (("--cuda-graph-bs-decode", "1", "2"), Pin("--cuda-graph-bs-decode", "cuda_graph_bs_decode", "--cuda-graph-bs-decode", ("1", "2"), HERE)),
        (("--cuda-graph-bs-decode=7",), Pin("--cuda-graph-bs-decode", "cuda_graph_bs_decode", "--cuda-graph-bs-decode=7", ("7",), HERE)),
        (("--served-model-name", "a b"), Pin("--served-model-name", "served_model_name", "--served-model-name", ("a b",), HERE)),
        (("--served-model-name="), None),
    ],
)  # fmt: skip
def test_pins(request_of, tokens: tuple[str, ...], pin: Pin | None) -> None:  # type: ignore[no-untyped-def]
    if pin is None:
        tokens, pin = (tokens,), Pin("--served-model-name", "served_model_name", tokens, ("",), HERE)  # type: ignore[assignment,arg-type]
    request = request_of("org/m", *tokens)
    model = Pin("--model-path", "model_path", "--model-path", ("org/m",), HERE)
    assert request.pins == {"model_path": model, pin.dest: pin}
    assert request.notices == ()
    assert (request.model, request.entry) == ("org/m", "launch_server")


def test_a_switch_and_its_twin_pin_the_same(request_of) -> None:  # type: ignore[no-untyped-def]
    twins = [flag for flag in catalogue_of("0.5.21").flags if flag.action == "boolean_optional"]
    assert len(twins) >= 5
    for flag in twins:
        on, off = flag.names[0], next(name for name in flag.names if name.startswith("--no-"))
        assert request_of("m", on).pins[flag.dest] == Pin(on, flag.dest, on, (), HERE)
        assert request_of("m", on, off).pins[flag.dest] == Pin(on, flag.dest, off, ("false",), HERE)


def test_the_last_model_wins(request_of) -> None:  # type: ignore[no-untyped-def]
    assert request_of("a", "--model", "b").model == "b"
    assert request_of("--model-path=a").model == "a"
    assert request_of("--tp", "2").model is None


def test_nothing_after_two_dashes_is_a_flag(request_of) -> None:  # type: ignore[no-untyped-def]
    request = request_of("m", "--", "--tp", "2")
    assert set(request.pins) == {"model_path"}
    assert request.argv == ("--model-path", "m", "--", "--tp", "2")
    assert {notice.id for notice in request.notices} == {"request.stray-word"}


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (("--attention-backnd", "x"), "no flag `--attention-backnd`|did you mean `--attention-backend`?"),
        (("--unheard-of-thing=secret",), "no flag `--unheard-of-thing=…`"),
        (("--mode", "x"), "`--mode` is short for more than one flag|`--model-path`, `--model`"),
        (("--cuda-g",), "`--cuda-g` is short for more than one flag"),
        (("--tp",), "`--tp` lacks its value"),
        (("--tp", "--port", "2"), "`--tp` lacks its value"),
        (("--cuda-graph-bs-decode",), "`--cuda-graph-bs-decode` lacks its value"),
        (("--disable-radix-cache=1",), "`--disable-radix-cache=…` takes no value"),
        (("stray",), "`stray` belongs to no flag"),
        (("--tp", "2", "4"), "`4` belongs to no flag"),
        (("--config=x.yaml",), "SGLang ignores `--config=…`|write `--config FILE`"),
        (("--conf", "x.yaml"), "SGLang ignores `--conf`"),
    ],
)
def test_notices(request_of, tokens: tuple[str, ...], said: str) -> None:  # type: ignore[no-untyped-def]
    request = request_of("m", *tokens)
    assert request.argv == ("--model-path", "m", *tokens)
    (notice,) = request.notices
    text = render_message("warning", notice.text, notice.because, notice.evidence, notice.hint)
    for part in said.split("|"):
        assert part in text
    assert "secret" not in text


def test_many_faults_are_few_notices(request_of) -> None:  # type: ignore[no-untyped-def]
    start = time.monotonic()
    request = request_of("m", *(f"--unknown-{number}" for number in range(5000)), "--" + "x" * 1_000_000)
    assert 0 < len(request.notices) <= 8
    assert time.monotonic() - start < 5


def test_sglang_serve_keeps_its_line(request_of) -> None:  # type: ignore[no-untyped-def]
    """Flags are read as far as they are known, and nothing is said about the others."""
    line = (
        "m",
        "--model-type",
        "diffusion",
        "--port",
        "8000",
        "--num-inference-steps",
        "3",
        "--config",
        "x.json",
    )
    request = request_of(*line)
    assert (request.entry, request.argv, request.model) == ("sglang_serve", line, "m")
    assert request.pins["port"].values == ("8000",)
    assert request.notices == ()


def test_a_bad_configuration_file_is_a_usage_error(request_of) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match="No such file"):
        request_of("m", "--config", "missing.yaml")


def test_reading_a_request_is_cheap() -> None:
    """Imports, interpreter, catalogue and request together, over what a bare Python takes."""
    code = """
import os, sys, time
before = set(sys.modules)
start = time.process_time()
from pathlib import Path
from autolaunch.request.catalogue import load_catalogue
from autolaunch.request.command_line import read_request
from autolaunch.request.interpreter import find_interpreter
from autolaunch.errors import SglangNotFoundError
try:
    found = find_interpreter(None, os.environ, Path("/"))
except SglangNotFoundError:
    sys.exit("none")
catalogue = load_catalogue(found, Path(sys.argv[1]))
read_request(["m", "--tp", "8", "--attention-backend", "triton"], "serve", found, catalogue, Path("/"))
took = time.process_time() - start
assert not {"yaml", "subprocess", "platformdirs", "difflib", "shutil"} & (set(sys.modules) - before)
print(took)
"""
    root = Path(__file__).parent.parent.parent
    took = []
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", code, "/nonexistent"],
            cwd=root,
            capture_output=True,
            text=True,
        )
        if done.stderr.strip() == "none":
            pytest.skip("the Python of the tests holds no SGLang")
        assert done.returncode == 0, done.stderr
        took.append(float(done.stdout))
    assert min(took) < 0.12, took  # 0.04 s of a processor with nothing else to do
