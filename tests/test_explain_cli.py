"""`autolaunch explain` and `autolaunch doctor` as they are typed: options, streams, exit codes."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.explain.cases import QWEN_397B, write_model
from tests.explain.schema import check_document
from tests.real_server import ROOT

PLAN = ("--for-gpu", "RTX PRO 6000", "--for-gpus", "8", "--for-sglang", "0.5.21")


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of the seed case."""
    return write_model(QWEN_397B, tmp_path_factory.mktemp("models"))


def run(*words: str, cwd: Path = ROOT, **environ: str) -> subprocess.CompletedProcess[str]:
    """One command to its end; a traceback is never an answer."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environ}
    done = subprocess.run(
        [sys.executable, "-m", "autolaunch", *words],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def explained(*words: str, **environ: str) -> dict[str, Any]:
    """The document of a command that succeeds."""
    done = run("explain", "--format", "json", *words, **environ)
    assert (done.returncode, done.stderr) == (0, ""), done
    value: dict[str, Any] = json.loads(done.stdout)
    check_document(value)
    return value


def test_table_is_plain_when_piped(qwen: Path) -> None:
    done = run("explain", str(qwen), "--tp", "8", *PLAN)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert " for Qwen3.5-397B-A17B-NVFP4 on 8 × NVIDIA RTX PRO 6000" in done.stdout.splitlines()[0]


def test_markdown(qwen: Path) -> None:
    done = run("explain", str(qwen), "--tp", "8", *PLAN, "--format", "markdown")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("## 1 repair, ")


@pytest.mark.parametrize(
    ("environ", "colour"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_on_a_terminal(qwen: Path, environ: dict[str, str], colour: bool) -> None:
    """Short and coloured, unless somebody minds."""
    master, slave = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environ}
    process = subprocess.Popen(
        [sys.executable, "-m", "autolaunch", "explain", str(qwen), "--tp", "8", *PLAN],
        stdout=slave,
        cwd=ROOT,
        env=env,
    )
    os.close(slave)
    text = b""
    while True:
        try:
            data = os.read(master, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not data:
            break
        text += data
    os.close(master)
    assert process.wait(30) == 0
    assert (b"\x1b[32m" in text) is colour
    assert b"--why DIMENSION" in text


def test_a_pasted_line_and_its_pieces_say_the_same(qwen: Path) -> None:
    line = (
        f"SGLANG_X=1 python3 -m sglang.launch_server --model-path {qwen} \\\n --tp 8 --attention-backend fa3"
    )
    whole = explained(*PLAN, "--", line)
    assert whole["env"] == {"SGLANG_X": "1"}
    pieces = explained(*PLAN, "--", *shlex.split(line.replace("\\\n", "")))
    typed = explained(str(qwen), "--tp", "8", "--attention-backend", "fa3", *PLAN)
    assert whole == pieces
    assert whole["dimensions"] == typed["dimensions"]
    assert whole["command"] == typed["command"]
    assert any("fa3" in one["text"] for one in whole["warnings"])


def test_options_have_variables(qwen: Path) -> None:
    value = explained(
        str(qwen),
        AUTOLAUNCH_FOR_SM="100",
        AUTOLAUNCH_FOR_GPUS="4",
        AUTOLAUNCH_FOR_SGLANG="0.5.14",
        AUTOLAUNCH_FOR_FLASHINFER="0.6.8",
        AUTOLAUNCH_WHY="attention-backend=fa3\nmoe-runner-backend=triton",
        AUTOLAUNCH_ADMIT="moe-runner-backend=triton",
        AUTOLAUNCH_LOSSY="1",
        AUTOLAUNCH_NEXTN="off",
    )
    assert [gpu["sm"] for gpu in value["machine"]["gpus"]] == [100]  # without --tp one GPU is used
    assert value["software"] == {
        "sglang": {"version": "0.5.14", "source": "assumed"},
        "flashinfer": {"version": "0.6.8", "source": "assumed"},
    }
    assert [one["choice"] for one in value["why"]] == ["fa3", "triton"]
    assert any("triton" in one["flags"] for one in value["candidates"])
    assert not any("--speculative-algorithm" in one["flags"] for one in value["candidates"])


@pytest.mark.parametrize("value", ["fa3", "warp=fa3", "attention-backend=warp9"])
def test_an_error_in_a_variable_names_it(value: str, qwen: Path) -> None:
    said = "because the variable AUTOLAUNCH_ADMIT says so"
    done = run("explain", str(qwen), *PLAN, AUTOLAUNCH_ADMIT=f"moe-runner-backend=triton\n{value}")
    assert done.returncode == 2
    assert said in done.stderr.replace("  and ", "because "), done.stderr
    typed = run("explain", str(qwen), *PLAN, "--admit", value, AUTOLAUNCH_ADMIT="moe-runner-backend=triton")
    assert typed.returncode == 2
    assert said not in typed.stderr


def test_doctor_describes_a_machine_that_explain_plans_for(qwen: Path, tmp_path: Path) -> None:
    done = run("doctor", "--format", "json")
    assert done.returncode in (0, 1), done
    file = tmp_path / "machine.json"
    machine = json.loads(done.stdout)
    gpu = {"index": 0, "name": "NVIDIA H200", "sm": 90, "sm_count": 132, "memory_bytes": 150754820096}
    machine["machine"] |= {"platform": "cuda", "gpus": [{**gpu, "index": n} for n in range(2)]}
    file.write_text(json.dumps(machine))
    value = explained(str(qwen), "--tp", "2", "--for-machine", str(file), "--for-sglang", "0.5.23")
    assert value["machine"]["source"] == "file"
    assert [one["sm"] for one in value["machine"]["gpus"]] == [90, 90]


def test_doctor_for_a_person() -> None:
    done = run("doctor")
    assert done.returncode in (0, 1)
    assert "\x1b" not in done.stdout
    assert "who told:" in done.stdout


def test_why_alone(qwen: Path) -> None:
    done = run("explain", str(qwen), "--tp", "8", *PLAN, "--why", "fp4-gemm-backend=flashinfer_trtllm")
    assert done.returncode == 0
    assert done.stdout.startswith("`--fp4-gemm-backend flashinfer_trtllm` is excluded\n  because ")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), 2, "no model was named"),
        (("/no/such/folder",), 2, "there is no model `/no/such/folder`"),
        (("{qwen}", "--why", "nonsense=1"), 2, "names no dimension"),
        (("{qwen}", "--admit", "nonsense"), 2, "is not DIMENSION=CHOICE"),
        (("{qwen}", "--for-gpu", "H2000"), 2, "H2000"),
        (("{qwen}", "--for-sm", "12345"), 2, "no compute capability"),
        (("{qwen}", "--for-gpus", "many"), 2, "many"),
        (("{qwen}", "--for-sglang", "newest"), 2, "is no version"),
        (("{qwen}", "--for-machine", "/no/such.json"), 2, "/no/such.json"),
        (("{qwen}", "--format", "yaml"), 2, "yaml"),
        (("{qwen}", "--nextn", "maybe"), 2, "maybe"),
        (("--", "ls", "-l"), 2, "starts SGLang"),
        (("{empty}",), 2, "config.json"),
        (("{broken}",), 1, "config.json"),
    ],
)
def test_one_clear_error(words: tuple[str, ...], code: int, says: str, qwen: Path, tmp_path: Path) -> None:
    empty, broken = tmp_path / "empty", tmp_path / "broken"
    empty.mkdir()
    broken.mkdir()
    (broken / "config.json").write_text("{")
    names = {"qwen": str(qwen), "empty": str(empty), "broken": str(broken)}
    done = run("explain", *(word.format(**names) for word in words), "--for-sglang", "0.5.23")
    if "--for-sglang" in words:
        done = run("explain", *(word.format(**names) for word in words))
    assert done.stdout == ""
    assert done.stderr.startswith("error: "), done.stderr
    assert says in done.stderr
    assert done.returncode == code, done


def test_mixed_gpus_are_refused(qwen: Path, tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    gpus = [
        {"index": 0, "name": "NVIDIA A100 80GB PCIe", "sm": 80, "memory_bytes": 85899345920},
        {"index": 1, "name": "NVIDIA GeForce RTX 4090", "sm": 89, "memory_bytes": 25769803776},
    ]
    file.write_text(json.dumps({"schema": "autolaunch.machine/1", "platform": "cuda", "gpus": gpus}))
    done = run("explain", str(qwen), "--tp", "2", "--for-machine", str(file), "--for-sglang", "0.5.23")
    assert done.returncode == 1, done
    assert "several compute capabilities" in done.stderr


def test_nothing_that_could_work_is_exit_code_3(qwen: Path) -> None:
    """All is printed, and then that there is no candidate."""
    done = run(
        "explain", str(qwen), "--tp", "8", "--for-gpu", "T4", "--for-sglang", "0.5.23", "--format", "json"
    )
    check_document(json.loads(done.stdout))
    if done.returncode == 3:
        assert done.stderr.startswith("error: ")
    else:
        assert done.returncode == 0


def test_a_hub_name_without_a_network_is_a_note(tmp_path: Path) -> None:
    done = run(
        "explain",
        "org/model",
        "--for-gpu",
        "H200",
        "--for-sglang",
        "0.5.23",
        HF_HUB_OFFLINE="1",
        HF_HOME=str(tmp_path),
    )
    assert done.returncode == 0, done
    assert "  not inspected: it is not in " in done.stdout


def test_a_reader_that_goes_away_is_no_traceback(qwen: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "autolaunch", "explain", str(qwen), "--tp", "8", *PLAN]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=env)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    process.stderr.close()
    process.wait(30)


@pytest.mark.parametrize("words", [("explain", "{qwen}", "--tp", "8", *PLAN), ("doctor",)])
def test_a_closed_stdout_is_one_clear_error(words: tuple[str, ...], qwen: Path) -> None:
    """As `>&-` leaves it: Python then has no stream at all."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "autolaunch"]
        + [word.format(qwen=qwen) for word in words],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=env,
        timeout=60,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: the answer could not be written to stdout\n  because it is closed")


def test_the_question_to_ask_next_is_about_the_same_plan(qwen: Path) -> None:
    done = run("explain", str(qwen), "--tp", "8", *PLAN)
    (line,) = [one for one in done.stdout.splitlines() if "ask why:" in one]
    again = shlex.split(line.partition("ask why:")[2])
    assert all(word in again for word in PLAN)
    assert run(*again[1:]).stdout.startswith("`--moe-runner-backend flashinfer_trtllm` is excluded")


def test_no_secret_of_the_models_address_is_shown() -> None:
    for form in ("table", "json", "markdown"):
        done = run("explain", "s3://me:sekret@bucket/model", "--tp", "8", *PLAN, "--format", form)
        assert done.returncode == 0, done
        assert "sekret" not in done.stdout + done.stderr


def test_a_full_disk_is_one_clear_error(qwen: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "autolaunch", "explain", str(qwen), "--tp", "8", *PLAN]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=env, timeout=60
        )
    assert done.returncode == 1
    assert done.stderr.startswith("error: the answer could not be written to stdout")
    assert "Traceback" not in done.stderr


def test_a_narrow_character_set_gets_escapes(qwen: Path) -> None:
    done = run("explain", str(qwen), "--tp", "8", *PLAN, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "8 \\xd7 NVIDIA" in done.stdout
