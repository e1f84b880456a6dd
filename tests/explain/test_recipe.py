"""Lines as they are found in READMEs, issues, compose files and Dockerfiles."""

from __future__ import annotations

import shlex

import pytest

from autolaunch.errors import UsageError
from autolaunch.explain.recipe import read_recipe

WANTED = ("org/M", "--tp", "8", "--attention-backend", "fa3")

LAUNCH = "sglang.launch_server --model-path org/M --tp 8 --attention-backend fa3"


def after(text: str, *typed: str) -> tuple[str, ...]:
    """The tokens of `explain … -- TEXT`, with TEXT split by a shell."""
    return (*typed, "--", *shlex.split(text))


@pytest.mark.parametrize(
    "text",
    [
        f"python -m {LAUNCH}",
        f"python3 -m {LAUNCH}",
        f"/opt/venv/bin/python3.12 -u -m {LAUNCH}",
        f"$ python3 -m {LAUNCH}",
        f"sudo numactl --interleave=all python -m {LAUNCH}",
        f"nohup python3 -m {LAUNCH}",
        f"uv run python -m {LAUNCH}",
        "sglang serve org/M --tp 8 --attention-backend fa3",
        "sglang serve --model-path org/M --tp 8 --attention-backend fa3",
        "/usr/local/bin/sglang serve --model org/M --tp 8 --attention-backend fa3",
        "python -m sglang.launch_server --model-path=org/M --tp 8 --attention-backend fa3",
        "python -m sglang.launch_server --tp 8 --model org/M --attention-backend fa3",
        "python sglang/python/sglang/launch_server.py --model-path org/M --tp 8 --attention-backend fa3",
        "autolaunch serve org/M --tp 8 --attention-backend fa3",
        "python -m autolaunch.launch_server --model-path org/M --tp 8 --attention-backend fa3",
    ],
)
def test_what_starts_sglang_is_found(text: str) -> None:
    for tokens in (after(text), ("--", text), tuple(shlex.split(text))):
        assert read_recipe(tokens).tokens == WANTED
        assert read_recipe(tokens).env == {}


def test_a_line_with_everything_around_it() -> None:
    """As it stands in many a README: variables, a container, continued lines, a log behind it."""
    text = """
    # start it on eight GPUs
    export SGLANG_ENABLE_SPEC_V2=1
    docker run --gpus all --shm-size 32g -p 30000:30000 \\
        -v ~/.cache/huggingface:/models/huggingface \\
        --env "HF_TOKEN=<secret>" -e NCCL_P2P_LEVEL=SYS --ipc=host lmsysorg/sglang:latest \\
        python3 -m sglang.launch_server --model-path org/M \\\r
        --tp 8 --attention-backend fa3 2>&1 | tee server.log
    """
    found = read_recipe(("--", text))
    assert found.tokens == WANTED
    assert found.env == {"SGLANG_ENABLE_SPEC_V2": "1", "HF_TOKEN": "<secret>", "NCCL_P2P_LEVEL": "SYS"}


@pytest.mark.parametrize(
    "text",
    [
        f"docker run --gpus all image bash -c 'SGLANG_X=1 python3 -m {LAUNCH} > log'",
        f"ssh host 'bash -lc \"SGLANG_X=1 python3 -m {LAUNCH}\"'",
        f"SGLANG_X=1 python -m {LAUNCH} &",
        f"SGLANG_X=1 python -m {LAUNCH} > /tmp/log 2>&1 &",
        f"cd /work && SGLANG_X=1 python -m {LAUNCH}; echo done",
        f"env SGLANG_X=1 python -m {LAUNCH}",
        f"SGLANG_X=1 python -m {LAUNCH} # on eight GPUs".replace(" # on eight GPUs", "\n# on eight GPUs"),
        "export SGLANG_X=1\npython3 -m sglang.launch_server\n  --model-path org/M\n  --tp 8\n  --attention-backend fa3",
        "MODEL=org/M SGLANG_X=1 python -m sglang.launch_server --model-path $MODEL --tp ${TP:-8} --attention-backend fa3",
        '["env", "SGLANG_X=1", "python3", "-m", "sglang.launch_server", "--model-path", "org/M", "--tp", "8", "--attention-backend", "fa3"]',
    ],
)
def test_shell_around_it_is_left_out(text: str) -> None:
    found = read_recipe(("--", text))
    assert found.tokens == WANTED
    assert {name: value for name, value in found.env.items() if name != "MODEL"} == {"SGLANG_X": "1"}


def test_values_keep_what_the_quotes_held() -> None:
    text = (
        """python -m sglang.launch_server --model-path org/M --json-model-override-args '{"a": "b; c > d"}'"""
    )
    assert read_recipe(("--", text)).tokens == ("org/M", "--json-model-override-args", '{"a": "b; c > d"}')


def test_what_is_typed_before_wins() -> None:
    """The pasted recipe against another model and other flags."""
    found = read_recipe(("/models/mine", "--tp", "4", "--", *shlex.split(f"python -m {LAUNCH}")))
    assert found.tokens == ("/models/mine", "--tp", "8", "--attention-backend", "fa3", "--tp", "4")
    found = read_recipe(("--tp", "4", "--", *shlex.split(f"python -m {LAUNCH}")))
    assert found.tokens == (*WANTED, "--tp", "4")


def test_flags_alone_may_stand_behind_the_dashes() -> None:
    assert read_recipe(("org/M", "--", "--tp", "8")).tokens == ("org/M", "--tp", "8")
    assert read_recipe(("org/M", "--tp", "8", "--")).tokens == ("org/M", "--tp", "8")
    assert read_recipe(("org/M", "--tp", "8")).tokens == ("org/M", "--tp", "8")


def test_a_tp_before_a_redirection_stays() -> None:
    assert read_recipe(("--", "sglang serve org/M --tp 2 > log")).tokens == ("org/M", "--tp", "2")


def test_comments_are_no_flags() -> None:
    """What stands behind a hash was taken for flags, and `--tp 2` for another number."""
    text = f"python -m {LAUNCH} # or --tp 2\n"
    assert read_recipe(("--", text)).tokens == WANTED
    text = "sglang serve org/M \\\n  # --tp 2, it's slow \\\n  --tp 8 \\\n  --attention-backend fa3 # fast"
    assert read_recipe(("--", text)).tokens == WANTED
    text = "sglang serve org/M --revision a#b --served-model-name '# x'"
    assert read_recipe(("--", text)).tokens == ("org/M", "--revision", "a#b", "--served-model-name", "# x")


@pytest.mark.parametrize(
    "text",
    [
        '["python3","-m","sglang.launch_server","--model-path","org/M","--tp","8","--attention-backend","fa3"]',
        f"`python -m {LAUNCH}`",
        f"```bash\npython -m {LAUNCH}\n```",
        f"python -m {LAUNCH}".replace(" ", "\xa0"),
        "entrypoint: python3 -m sglang.launch_server\ncommand: --model-path org/M\n  --tp 8\n  --attention-backend fa3",
        "entrypoint: python3 -m sglang.launch_server\ncommand: >-\n  --model-path org/M --tp 8\n  --attention-backend fa3",
    ],
)
def test_pages_issues_and_compose_files(text: str) -> None:
    assert read_recipe(("--", text)).tokens == WANTED


@pytest.mark.parametrize(
    "text",
    ["vllm serve org/M --tensor-parallel-size 8", "ls -l", "python -m sglang.bench_serving", "x " * 60_000],
)
def test_another_program_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="nothing in `"):
        read_recipe(("--", text))


def test_quotes_that_do_not_end_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot be split"):
        read_recipe(("--", "python -m sglang.launch_server --model-path 'org/M --tp 8"))
