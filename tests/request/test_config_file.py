"""SGLang's configuration files: the same tokens as SGLang makes of them, and no harm from a bad one."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from autolaunch.errors import UsageError
from autolaunch.request.command_line import Pin, read_request
from autolaunch.request.config_file import ConfigFile, read_config_file
from autolaunch.request.flags import Flag, FlagCatalogue
from autolaunch.request.interpreter import Interpreter
from tests.request.conftest import RealSglang, catalogue_of

OLD, MIDDLE, NEW = "nothing", "json.dumps(value)", "json.dumps(value) _config_keys(action)"
CATALOGUE = FlagCatalogue(
    "1",
    "bundled",
    (
        Flag(("--model-path", "--model"), "model_path", type="str"),
        Flag(("--tp-size", "--tp"), "tp_size", type="int"),
        Flag(("--fast", "--quick"), "fast", action="store_true", nargs=0),
        Flag(("--graph", "--no-graph"), "graph", action="boolean_optional", nargs=0),
        Flag(("--sizes",), "sizes", nargs="+"),
        Flag(("--lora",), "lora", action="other", nargs="*"),
        Flag(("--old-tp",), "tp_size", action="deprecated"),
        Flag(("--old-fast",), "slow", action="deprecated", nargs=0),
        Flag(("--config",), "config"),
    ),
)


@pytest.fixture
def read(tmp_path: Path):  # type: ignore[no-untyped-def]
    """Read `text` as `c.yaml` with the rules of one version."""

    def read(
        text: str | bytes, rules: str = NEW, argv: tuple[str, ...] = ("--config", "c.yaml")
    ) -> ConfigFile:
        package = tmp_path / "sglang"
        (package / "srt").mkdir(parents=True, exist_ok=True)
        (package / "srt" / "server_args_config_parser.py").write_text(rules)
        (tmp_path / "c.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
        found = read_config_file(argv, CATALOGUE, package, tmp_path)
        assert found is not None
        return found

    return read


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", ()),
        ("# nothing\n", ()),
        ("tp-size: 2\nmodel: m\n", ("--tp-size", "2", "--model", "m")),
        ("tp_size: 2", ("--tp_size", "2")),
        ("fast: true", ("--fast",)),
        ("quick: true", ("--quick",)),
        ("fast: false", ()),
        ("unknown: false", ("--unknown", "false")),
        ("unknown: yes", ("--unknown", "true")),
        ("sizes: [1, 2, x y]", ("--sizes", "1", "2", "x y")),
        ("sizes: []", ()),
        ("model: null", ("--model", "None")),
        ("model: 1.50", ("--model", "1.5")),
        ("model: -1", ("--model", "-1")),
        ("model: 2026-11-30", ("--model", "2026-11-30")),
        ('model: {a: [1, null], "b": "x"}', ("--model", '{"a": [1, null], "b": "x"}')),
        ("model: a\nmodel: b\n", ("--model", "b")),
        ("x: &a 1\ny: *a\n", ("--x", "1", "--y", "1")),
        ("sizes: [[1, 2], {a: 1}]", ("--sizes", "[1, 2]", "{'a': 1}")),
        ("tp-size: 2\nold-tp: 3\n", ("--tp-size", "2", "--old-tp", "3")),
    ],
)
def test_tokens(read, text: str, tokens: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    assert read(text).tokens == tokens


def test_rules_of_older_versions(read) -> None:  # type: ignore[no-untyped-def]
    assert read("model: {a: 1}", OLD).tokens == ("--model", "{'a': 1}")
    assert read("model: {a: 1}", MIDDLE).tokens == ("--model", '{"a": 1}')
    # Another spelling of a switch was no switch to them.
    assert read("quick: true", MIDDLE).tokens == ("--quick", "true")
    # A deprecated flag spoilt the key of the flag whose attribute it sets.
    with pytest.raises(UsageError, match="tp-size"):
        read("tp-size: 2", MIDDLE)
    assert read("tp: 2", MIDDLE).tokens == ("--tp", "2")


@pytest.mark.parametrize("key", ["graph", "no-graph", "lora", "old-fast"])
def test_keys_that_sglang_refuses(read, key: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=f"SGLang does not take `{key}`"):
        read(f"{key}: true")


def test_the_rest_of_the_line(read) -> None:  # type: ignore[no-untyped-def]
    found = read("fast: false\nquick: false", argv=("--tp", "2", "--config", "c.yaml", "--fast"))
    assert found.rest == ("--tp", "2", "--fast")
    assert found.declined == {"fast": "quick"}
    assert read_config_file(("--config=c.yaml", "--conf", "x"), CATALOGUE, Path("/"), Path("/")) is None


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--config",), "no file after"),
        (("--config", "a.yaml", "--config", "b.yaml"), "given 2 times"),
        (("--config", "missing.yaml"), "No such file"),
        (("--config", "c.json"), "YAML only"),
        (("--config", ""), "YAML only"),
        (("--config", "x\0.yaml"), "null"),
        (("--config", "folder.yaml"), "no regular file"),
        (("--config", "pipe.yml"), "no regular file"),
        (("--config", "huge.YAML"), "200.0 MiB"),
        (("--config", "a" * 300 + ".yaml"), "File name too long"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, argv: tuple[str, ...], said: str) -> None:
    (tmp_path / "folder.yaml").mkdir()
    os.mkfifo(tmp_path / "pipe.yml")
    with (tmp_path / "huge.YAML").open("wb") as file:
        file.truncate(200 << 20)
    with pytest.raises(UsageError) as caught:
        read_config_file(argv, CATALOGUE, tmp_path, tmp_path)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 900


def laughs(levels: int) -> str:
    """Ten aliases of the level before in each of `levels`."""
    lines = ["l0: &l0 [lol, lol]"]
    for level in range(1, levels):
        row = ", ".join([f"*l{level - 1}"] * 10)
        lines.append(f"l{level}: &l{level} [{row}]")
    return "\n".join(lines)


def merged_laughs(levels: int) -> str:
    """The same with merge keys, which multiply while the file is read."""
    lines = ["l0: &l0 {a: 1, b: 2}"]
    for level in range(1, levels):
        row = ", ".join([f"*l{level - 1}"] * 10)
        lines.append(f"l{level}: &l{level}\n  <<: [{row}]\n  k{level}: 1")
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1, 2]", "a list"),
        ("just words", "a single value"),
        ("a: [", "line 1"),
        ("a: b: c", "line 1"),
        ("a: 1\n\tb: 2\n", "line 2"),
        (b"a: \xff\xfe\xfa", "can't decode"),
        ("a: \x00", "unacceptable"),
        ("!!python/object/apply:os.system ['true']", "constructor"),
        ("a: !!python/name:os.system", "constructor"),
        ("1: x", "is no text"),
        ("null: x", "is no text"),
        ("? [a]\n: x", "unhashable"),
        ("? {a: 1}\n: x", "unhashable"),
        ("a: 2026-99-99", "month"),
        ("a: {b: 2026-11-30}", "JSON"),
        ("a: " + "9" * 5000, "digits"),
        ("a: 0x" + "f" * 5000, "digits"),
        ("a: " + "[" * 3000 + "]" * 3000, "too deep"),
        ("a: " + "{b: " * 3000 + "}" * 3000, "too deep"),
        (laughs(30), "too much data"),
        (merged_laughs(12), "merges mappings"),
        ("a: &a [*a]", "too much data"),
        ("b: &b " + "x" * 100_000 + "\na: [" + "*b, " * 1000 + "]", "too much data"),
        ("a: 1\n---\nb: 2\n", "document"),
        ("a: *unknown", "alias"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_content_that_is_refused(read, text: str | bytes, said: str) -> None:  # type: ignore[no-untyped-def]
    start = time.monotonic()
    with pytest.raises(UsageError) as caught:
        read(text)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 900
    assert time.monotonic() - start < 20


def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("a: 1")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root reads everything")
    with pytest.raises(UsageError, match="Permission denied"):
        read_config_file(("--config", "c.yaml"), CATALOGUE, tmp_path, tmp_path)


def test_pins_from_the_file_and_the_line(tmp_path: Path, make_interpreter: Interpreter) -> None:
    (tmp_path / "s.yaml").write_text(
        "model-path: from/file\ntp-size: 4\nport: 1\ndisable-radix-cache: false\ndisable-overlap-schedule: true\n"
    )
    line = ("--port", "2", "--config", "s.yaml")
    request = read_request(line, "serve", make_interpreter, catalogue_of("0.5.21"), tmp_path, {})
    source = "--config s.yaml"
    assert request.argv == line
    assert request.model == "from/file"
    assert request.pins == {
        "disable_radix_cache": Pin("--disable-radix-cache", "disable_radix_cache", "--disable-radix-cache", ("false",), source),
        "model_path": Pin("--model-path", "model_path", "--model-path", ("from/file",), source),
        "tp_size": Pin("--tp-size", "tp_size", "--tp-size", ("4",), source),
        "disable_overlap_schedule": Pin("--disable-overlap-schedule", "disable_overlap_schedule", "--disable-overlap-schedule", (), source),
        "port": Pin("--port", "port", "--port", ("2",), "command line"),
    }  # fmt: skip


CONFIGS = (
    "tp-size: 2\nport: 31000\n",
    "tp_size: 2\n",
    "tp: 2\nmodel: other\n",
    "disable-radix-cache: true\ndisable-overlap-schedule: false\n",
    "trust_remote_code: true\n",
    "cuda-graph-bs-decode: [1, 2, 4]\n",
    "served-model-name: null\n",
    'json-model-override-args: {"a": [1, 2]}\n',
    "mem-fraction-static: 0.5\nlog-level: debug\n",
    "lora-paths: [a=b]\n",
    "disable-cuda-graph: true\n",
    "dsa-prefill-backend: trtllm\n",
    "enable-flashinfer-allreduce-fusion: true\n",
    "gc-threshold: []\n",
    "unknown-key: 1\n",
    "[]\n",
    "1: 2\n",
    "",
)


@pytest.mark.sglang
def test_real_mergers_make_the_same_tokens(real: RealSglang, tmp_path: Path) -> None:
    lines = []
    for number, text in enumerate(CONFIGS):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text)
        lines.append(["--model-path", "m", "--config", str(path), "--host", "h"])
    catalogue = catalogue_of(real.interpreter.version)
    accepted = 0
    for text, line, result in zip(CONFIGS, lines, real.ask(lines)["results"], strict=True):
        try:
            found = read_config_file(line, catalogue, real.interpreter.package, tmp_path)
        except UsageError:
            assert "error" in result, text
            continue
        assert found is not None
        if "error" in result:
            assert "unrecognized arguments" in result["error"] or "expected" in result["error"], (
                text,
                result,
            )
            continue
        accepted += 1
        assert [*found.tokens, *found.rest] == result["merged"], text
    assert accepted > 8
