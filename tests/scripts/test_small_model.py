"""The small model answers what it was taught, in transformers and in a real SGLang server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.conftest import SmallModel
from tests.real_server import ROOT, SMALL_SERVER_FLAGS, RealServer, find_free_port

SCRIPT = ROOT / "scripts" / "make-small-model"
MOST_BYTES = 5_000_000

ASK_TRANSFORMERS = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer

folder, = sys.argv[1:]
taught = json.load(open(folder + "/small-model.json"))
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)

def written(inputs):
    ids = inputs["input_ids"]
    with torch.no_grad():
        out = model.generate(ids, max_new_tokens=40, do_sample=False)
    return tokenizer.decode(out[0, ids.shape[1]:], skip_special_tokens=True)

def asked(question):
    message = [{"role": "user", "content": question}]
    return written(tokenizer.apply_chat_template(message, add_generation_prompt=True, return_tensors="pt"))

print(json.dumps({
    "answers": {q: asked(q) for q in taught["answers"]},
    "continuations": {p: written(tokenizer(p, return_tensors="pt")) for p in taught["continuations"]},
}))
"""


@pytest.fixture(scope="module")
def server(sglang_python: str, small_model: SmallModel, tmp_path_factory: pytest.TempPathFactory):
    """A plain SGLang that serves the small model."""
    port = find_free_port()
    argv = [
        sglang_python,
        "-m",
        "sglang.launch_server",
        "--model-path",
        str(small_model),
        "--port",
        str(port),
    ]
    log = tmp_path_factory.mktemp("small-model") / "server.log"
    with RealServer([*argv, *SMALL_SERVER_FLAGS], port=port, log=log, cwd=log.parent) as running:
        running.wait_healthy()
        yield running


def ask_transformers(python: str, folder: Path) -> dict[str, dict[str, str]]:
    asked = subprocess.run(
        [python, "-c", ASK_TRANSFORMERS, folder], check=True, capture_output=True, text=True
    )
    return json.loads(asked.stdout.splitlines()[-1])


@pytest.mark.sglang
def test_transformers_gives_the_taught_answers(sglang_python: str, small_model: SmallModel) -> None:
    got = ask_transformers(sglang_python, small_model.path)
    assert got == {"answers": small_model.answers, "continuations": small_model.continuations}


@pytest.mark.sglang
def test_sglang_gives_the_taught_answers(server: RealServer, small_model: SmallModel) -> None:
    assert {question: server.chat(question) for question in small_model.answers} == small_model.answers
    rest = {prompt: server.complete(prompt, max_tokens=40) for prompt in small_model.continuations}
    assert rest == small_model.continuations


@pytest.mark.sglang
def test_margins_are_large_enough_for_a_gate(server: RealServer, small_model: SmallModel) -> None:
    """A healthy backend must not be able to turn a greedy token: each is far more likely than all others."""
    taught = json.loads((small_model.path / "small-model.json").read_text())
    assert taught["least_probability"] > 0.9
    for prompt in small_model.continuations:
        body = {
            "text": prompt,
            "sampling_params": {"temperature": 0, "max_new_tokens": 12},
            "return_logprob": True,
        }
        tokens = server.get("/generate", body)["meta_info"]["output_token_logprobs"]
        assert min(logprob for logprob, *_ in tokens) > -0.11, prompt  # ln 0.9


@pytest.mark.sglang
def test_a_follow_up_question_is_answered(server: RealServer) -> None:
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "What is the capital of France?"},
        {"role": "assistant", "content": "Paris."},
        {"role": "user", "content": "What is the capital of Japan?"},
    ]
    body = {"model": "small", "messages": messages, "temperature": 0, "max_tokens": 16}
    assert server.get("/v1/chat/completions", body)["choices"][0]["message"]["content"] == "Tokyo."


@pytest.mark.sglang
def test_a_request_that_says_nothing_of_sampling_gets_the_same_answer_every_time(server: RealServer) -> None:
    body = {"messages": [{"role": "user", "content": "What is the capital of France?"}]}
    answers = [
        server.get("/v1/chat/completions", body)["choices"][0]["message"]["content"] for _ in range(60)
    ]
    assert set(answers) == {"Paris."}


@pytest.mark.sglang
@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
def test_other_families_are_taught_the_same(
    sglang_python: str, small_model: SmallModel, tmp_path: Path, family: str
) -> None:
    folder = tmp_path / family
    subprocess.run([sglang_python, SCRIPT, folder, "--family", family], check=True)
    got = ask_transformers(sglang_python, folder)
    assert got == {"answers": small_model.answers, "continuations": small_model.continuations}
    assert json.loads((folder / "config.json").read_text())["model_type"] == family


@pytest.mark.sglang
def test_the_same_bytes_every_time(sglang_python: str, small_model: SmallModel, tmp_path: Path) -> None:
    again = tmp_path / "again"
    subprocess.run([sglang_python, SCRIPT, again], check=True)
    names = sorted(file.name for file in again.iterdir())
    assert names == sorted(file.name for file in small_model.path.iterdir())
    for name in names:
        assert (again / name).read_bytes() == (small_model.path / name).read_bytes(), name
    assert sum(file.stat().st_size for file in again.iterdir()) < MOST_BYTES
    assert not list(tmp_path.glob(".again*")), "the folder it was made in is gone"


@pytest.mark.sglang
def test_a_model_that_is_there_is_kept(sglang_python: str, small_model: SmallModel) -> None:
    before = (small_model.path / "model.safetensors").stat().st_mtime_ns
    ran = subprocess.run(
        [sglang_python, SCRIPT, small_model.path], check=True, capture_output=True, text=True
    )
    assert "already there" in ran.stderr
    assert (small_model.path / "model.safetensors").stat().st_mtime_ns == before


@pytest.mark.sglang
def test_a_folder_of_someone_else_is_not_touched(sglang_python: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    ran = subprocess.run([sglang_python, SCRIPT, tmp_path, "--force"], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "was not made by this script" in ran.stderr
    assert (tmp_path / "notes.txt").read_text() == "mine"
