"""Secrets are hidden wherever they stand; what people need to read stays."""

from __future__ import annotations

import json
import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolaunch.redact import HIDDEN, STAND_IN, redact, redact_argv, secrets_of, without_credentials

SECRET = "s3cr3t-Value.42"


@pytest.mark.parametrize(
    "text",
    [
        "--api-key s3cr3t-Value.42",
        "--api-key=s3cr3t-Value.42 --tp 2",
        "--api-key 's3cr3t-Value.42'",
        '--api-key "s3cr3t-Value.42"',
        "--api-k s3cr3t-Value.42",
        "--ap=s3cr3t-Value.42",
        "--admin-api-key s3cr3t-Value.42",
        "--ad s3cr3t-Value.42",
        "--ssl-keyfile-password s3cr3t-Value.42",
        "--ssl-keyfile-p s3cr3t-Value.42",
        "--watermark-config s3cr3t-Value.42",
        "['--api-key', 's3cr3t-Value.42', '--tp', '2']",
        '["--api-key", "s3cr3t-Value.42"]',
        "ServerArgs(api_key='s3cr3t-Value.42', admin_api_key=None)",
        '{"api_key": "s3cr3t-Value.42", "port": 1}',
        "api-key: s3cr3t-Value.42",
        "HF_TOKEN=s3cr3t-Value.42 python -m sglang",
        "AWS_SECRET_ACCESS_KEY=s3cr3t-Value.42",
        "export MY_PASSWORD='s3cr3t-Value.42'",
        "https://host/x?token=s3cr3t-Value.42&y=1",
        "https://user:s3cr3t-Value.42@host/path",
        "redis://:s3cr3t-Value.42@host:6379/0",
        "https://s3cr3t-Value.42@host/path",
        "Authorization: Bearer s3cr3t-Value.42",
        "{'authorization': 'bearer s3cr3t-Value.42'}",
        "-----BEGIN RSA PRIVATE KEY-----\ns3cr3t/Value.42\n-----END",
    ],
)
def test_hidden(text: str) -> None:
    shown = redact(text)
    assert "s3cr3t" not in shown
    assert HIDDEN in shown
    assert redact(shown) == shown


def test_known_shapes() -> None:
    assert redact("cannot log in with hf_AbCdEfGhIjKlMnOp") == "cannot log in with hf_***"
    assert redact("sk-abcdefghijklmnop1234") == "sk-***"


@pytest.mark.parametrize(
    "text",
    [
        "Decode batch, #running-req: 1, #token: 57, token usage: 0.02, gen throughput (token/s): 1.2",
        "max_total_num_tokens=4096, context_len=2048",
        "ServerArgs(model_path='x', api_key=None, admin_api_key=None)",
        "--tokenizer-path /models/x --max-total-tokens 4096",
        "--bucket-time-to-first-token 0.1 0.5 --ssl-keyfile /etc/key.pem",
        "KeyError: 'model.layers.0.mlp'",
        "http://127.0.0.1:30000/health",
        '{"eos_token": 2, "pad_token": null}',
        "Ignore import error when loading sglang.srt.models.x",
        "missing key: model.layers.0.weight",
        "",
    ],
)
def test_kept(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (("--api-key", SECRET, "--tp", "2"), ("--api-key", HIDDEN, "--tp", "2")),
        ((f"--api-key={SECRET}",), ("--api-key=***",)),
        (("--api-k", SECRET), ("--api-k", HIDDEN)),
        (("--admin-api-key", "1234"), ("--admin-api-key", HIDDEN)),
        (("--api-key", "two words"), ("--api-key", HIDDEN)),
        (("--api-key", "--tp", "2"), ("--api-key", "--tp", "2")),
        (("--api-key",), ("--api-key",)),
        (("--ssl-keyfile", "/k", "--ssl-keyfile-password", SECRET), ("--ssl-keyfile", "/k", "--ssl-keyfile-password", HIDDEN)),
        (("--bucket-time-to-first-token", "0.1", "0.2"), ("--bucket-time-to-first-token", "0.1", "0.2")),
        (("--model-path", f"https://u:{SECRET}@h/m"), ("--model-path", "https://***@h/m")),
        (("--json", json.dumps({"api_key": SECRET})), ("--json", '{"api_key": "***"}')),
        (("--kt-max-deferred-experts-per-token", "2"), ("--kt-max-deferred-experts-per-token", "2")),
    ],
)  # fmt: skip
def test_argv(argv: tuple[str, ...], shown: tuple[str, ...]) -> None:
    assert redact_argv(argv) == shown


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=40))
def test_a_key_is_hidden_whatever_it_is_made_of(secret: str) -> None:
    if secret.startswith("-") or secret.lower() in ("none", "null", "true", "false"):
        return
    assert redact_argv(("m", "--api-key", secret)) == ("m", "--api-key", HIDDEN)
    assert secret not in " ".join(redact_argv((f"--api-key={secret}",)))
    assert secret not in redact(f"run --api-key {shlex.quote(secret)} --tp 2")


@given(st.text(max_size=300))
def test_any_text_can_be_redacted_twice(text: str) -> None:
    once = redact(text)
    assert redact(once) == once


def test_long_lines_take_linear_time() -> None:
    start = time.perf_counter()
    for text in ("a" * 300_000, "key" * 100_000, "a-" * 150_000, "://" * 100_000, "--api-key " * 30_000):
        redact(text)
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize(
    ("argv", "replaced"),
    [
        (("--api-key", SECRET, "--tp", "2"), ("--api-key", STAND_IN, "--tp", "2")),
        (("--api-k=" + SECRET,), (f"--api-k={STAND_IN}",)),
        (("--admin-api-key", SECRET), ("--admin-api-key", STAND_IN)),
        (("--ssl-keyfile-password", SECRET), ("--ssl-keyfile-password", STAND_IN)),
        (("--ssl-keyfile", "/etc/key.pem"), ("--ssl-keyfile", "/etc/key.pem")),
        (("--watermark-config", "{}"), ("--watermark-config", "{}")),
        (("--api-key", "--tp", "2"), ("--api-key", "--tp", "2")),
        (("--api-key", ""), ("--api-key", "")),
        (("--api-key",), ("--api-key",)),
        (("--apply", "api-key", "x"), ("--apply", "api-key", "x")),
    ],
)
def test_an_engine_that_serves_no_http_gets_other_keys(
    argv: tuple[str, ...], replaced: tuple[str, ...]
) -> None:
    assert without_credentials(argv) == replaced


def test_an_environment_shows_its_secrets() -> None:
    environ = {
        "HF_TOKEN": "a-token-of-some-length",
        "SSH_KEY": "first line\nsecond line",
        "HTTP_PROXY": "http://user:pass%2Fword@proxy:1",
        "HOME": "/home/of/all",
        "API_KEY": "short",
        "OTHER_KEY": "none",
        "MAX_TOKEN": "1234567890",
        "TOKENIZERS_PARALLELISM": "false-or-true",
    }
    assert secrets_of(environ) == (
        "a-token-of-some-length", "pass%2Fword", "second line", "first line", "pass/word",
    )  # fmt: skip
    assert redact("it was pass/word", secrets_of(environ)) == f"it was {HIDDEN}"
