"""What a kept choice may set: all that tables can put into a candidate, and nothing else there is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autolaunch.candidates.dimensions import load_choices
from autolaunch.capability.repair import choice_tokens
from autolaunch.capability.table import COMBINATIONS, bundled_table
from autolaunch.nextn.families import bundled_families
from autolaunch.profiles.profile import Chosen
from autolaunch.profiles.tuned_flags import check, tuned_flags, tuned_variables
from autolaunch.request.catalogue import bundled_catalogue, bundled_versions
from autolaunch.request.flags import FlagCatalogue

MODEL = "/models/Qwen3-8B"
NEWEST = bundled_catalogue(bundled_versions()[-1])
CATALOGUES = [bundled_catalogue(version) for version in bundled_versions()]
TABLE = bundled_table()
DANGEROUS = """
    --trust-remote-code --host --port --nccl-port --api-key --admin-api-key --model-path --tokenizer-path --load-format
    --model-loader-extra-config --config --download-dir --revision --json-model-override-args --ssl-keyfile --ssl-certfile
    --ssl-ca-certs --ssl-keyfile-password --file-storage-path --crash-dump-folder --export-metrics-to-file-dir --served-model-name
    --chat-template --completion-template --lora-paths --enable-lora --dist-init-addr --nnodes --node-rank --tp-size --pp-size
    --dp-size --ep-size --base-gpu-id --device --forward-hooks --custom-weight-loader --enable-custom-logit-processor --tool-server
    --sidecar --sidecar-args --otlp-traces-endpoint --kt-weight-path --speculative-token-map --debug-tensor-dump-output-folder
    --disaggregation-mode --encoder-urls --delete-ckpt-after-loading --log-requests --enable-memory-saver --quantization-param-path
    --hicache-storage-backend-extra-config --mem-fraction-static --context-length --dtype --max-total-tokens --watermark-config
    --modelopt-export-path --speculative-ngram-external-corpus-path --allowed-media-domains --skip-tokenizer-init --grpc-mode
""".split()


def refused(
    *flags: str, env: tuple[tuple[str, str], ...] = (), catalogue: FlagCatalogue | None = NEWEST
) -> str | None:
    return check(Chosen(flags, env), catalogue, model=MODEL)


def from_tables() -> Iterator[tuple[FlagCatalogue, tuple[str, ...]]]:
    """Every flag with a value that a candidate of any known version can have."""
    for catalogue in CATALOGUES:
        for dimension in TABLE.dimensions:
            flag = dimension.in_version(catalogue)
            if flag is None:
                continue
            spelling = next(name for name in (dimension.flag, *dimension.also) if name in flag.names)
            preferred = {choice for row in TABLE.autos(dimension).prefers for choice in row.order}
            offered = set(flag.choices or ())
            raced = offered if dimension.raced else set()
            for choice in raced | (preferred & offered if offered else preferred):
                yield catalogue, choice_tokens(flag, spelling, choice)


def companions() -> Iterator[tuple[str, ...]]:
    """Every flag or `NAME=value` that rules and heads put beside a choice."""
    for stem in TABLE.rule_files():
        for rule in TABLE.rules(stem):
            if stem != COMBINATIONS:
                for one in rule.require:
                    yield (f"{one.name}={one.values[0]}",) if one.is_variable else one.tokens
    for row in bundled_families().companions:
        yield (f"{row.env}={row.value}",) if row.env else row.tokens
    for family in bundled_families().families:
        if family.form != "separate":
            yield "--speculative-algorithm", family.algorithm
            for steps in range(1, family.steps + 1):
                yield "--speculative-num-steps", str(steps)
                yield "--speculative-num-draft-tokens", str(steps + 1)
            yield "--speculative-eagle-topk", "1"
    for concurrency in (1, 49, 512, 4096):
        yield "--max-running-requests", str(concurrency)


def test_every_choice_of_the_tables_may_be_set() -> None:
    count = 0
    for catalogue, tokens in from_tables():
        count += 1
        assert refused(*tokens, catalogue=catalogue) is None, (catalogue.version, tokens)
    assert count > 500


@pytest.mark.parametrize("tokens", sorted(set(companions())), ids=" ".join)
def test_every_companion_may_be_set(tokens: tuple[str, ...]) -> None:
    if tokens[0].startswith("--"):
        having = [one for one in CATALOGUES if tokens[0] in one.names()]
        assert having
        assert all(refused(*tokens, catalogue=one) is None for one in having)
    else:
        name, _, value = tokens[0].partition("=")
        assert refused(env=((name, value),)) is None


@pytest.mark.parametrize("choice", load_choices(), ids=lambda one: one.id)
def test_every_choice_on_a_cpu_may_be_set(choice: object) -> None:
    tokens, env = choice.tokens, choice.env  # type: ignore[attr-defined]
    assert refused(*tokens, env=env) is None


def test_no_row_is_dangerous_and_each_is_a_flag() -> None:
    rows = {name for row in tuned_flags() for name in row.names}
    assert not rows & set(DANGEROUS)
    names = {name for catalogue in CATALOGUES for name in catalogue.names()}
    assert rows <= names
    assert set(DANGEROUS) & names == set(DANGEROUS)
    fields = [row.field for row in (*tuned_flags(), *tuned_variables())]
    assert len(fields) == len(set(fields))


@pytest.mark.parametrize("flag", DANGEROUS)
@pytest.mark.parametrize("catalogue", [NEWEST, None], ids=["known", "unknown"])
def test_dangerous_flags_are_refused_however_they_are_typed(
    flag: str, catalogue: FlagCatalogue | None
) -> None:
    sound = ("--attention-backend", "triton")
    for tokens in (
        (flag,), (flag, "x"), (f"{flag}=x",), (*sound, flag), (*sound, f"{flag}=x"), (flag, *sound),
        ("--attention-backend", flag), (flag[:-1], "x"), (f"--no-{flag[2:]}",), (f" {flag}",), (flag.upper(), "x"),
    ):  # fmt: skip
        assert refused(*tokens, catalogue=catalogue) is not None, tokens


def test_all_other_flags_of_all_versions_are_refused() -> None:
    tuned = {name for row in tuned_flags() for name in row.names}
    negated = {f"--no-{name[2:]}" for row in tuned_flags() if row.kind == "switch" for name in row.names}
    for catalogue in CATALOGUES:
        for name in set(catalogue.names()) - tuned - negated:
            for tokens in ((name,), (name, "1"), (f"{name}=1",)):
                assert refused(*tokens, catalogue=catalogue) is not None, tokens


@pytest.mark.parametrize(
    "tokens",
    [
        ("--attention-backend",),
        ("--attention-backend", "triton", "fa3"),
        ("--attention-backend", "not-a-backend"),
        ("--attention-backend", "../../etc/passwd"),
        ("--attention-backend", "tri ton"),
        ("--attention-backend", ""),
        ("--attention-backend=",),
        ("--attention-backen", "triton"),
        ("--fp8-gemm", "triton"),
        ("--disable-radix-cache", "yes"),
        ("--disable-radix-cache=1",),
        ("--no-attention-backend", "triton"),
        ("--no-attention-backend",),
        ("--max-running-requests", "0"),
        ("--max-running-requests", "-1"),
        ("--max-running-requests", "1e3"),
        ("--max-running-requests", "99999999999999"),
        ("--max-running-requests", "٣"),
        ("--page-size", "16x"),
        ("--kv-cache-dtype", "fp8_e4m3"),
        ("--quantization", "fp8"),
        ("--speculative-algorithm", "NGRAM"),
        ("--speculative-draft-model-path", "/models/other"),
        ("--speculative-draft-model-path", "/models/Qwen3-8B/../other"),
        ("triton",),
        ("--", "--trust-remote-code"),
        ("-",),
        ("-h",),
        ("--disable-radix-cache",) * 65,
    ],
    ids=lambda tokens: " ".join(tokens[:3]),
)
def test_odd_values_are_refused(tokens: tuple[str, ...]) -> None:
    assert refused(*tokens) is not None


@pytest.mark.parametrize(
    "tokens",
    [
        (),
        ("--attention-backend=triton",),
        ("--disable-radix-cache",),
        ("--speculative-draft-model-path", MODEL),
        ("--moe-runner-backend", "cutlass", "--fp4-gemm-backend", "flashinfer_cudnn"),
    ],
    ids=" ".join,
)
def test_sound_choices_pass(tokens: tuple[str, ...]) -> None:
    assert refused(*tokens) is None


@pytest.mark.parametrize(
    "env",
    [("LD_PRELOAD", "/tmp/x.so"), ("PYTHONPATH", "/tmp"), ("PATH", "/tmp"), ("TRITON_INTERPRET", "0"), ("SGLANG_X", "1"),
     ("triton_interpret", "1"), ("SGLANG_ENABLE_SPEC_V2", "1 "), ("", "1"), ("HF_ENDPOINT", "http://evil")],
)  # fmt: skip
def test_other_variables_are_refused(env: tuple[str, str]) -> None:
    assert refused("--attention-backend", "triton", env=(env,)) is not None


def test_without_a_catalogue_plain_words_pass() -> None:
    assert refused("--attention-backend", "a_plugin.2", catalogue=None) is None
    assert refused("--attention-backend", "/a/plugin", catalogue=None) is not None


def test_a_flag_of_another_version_is_refused() -> None:
    oldest = CATALOGUES[0]
    assert (
        refused("--dsv4-attn-backend", "auto", catalogue=oldest)
        == f"SGLang {oldest.version} has no `--dsv4-attn-backend`"
    )


def test_what_the_user_wishes_passes_as_it_was_typed_and_only_so() -> None:
    chosen = Chosen(("--mem-fraction-static", "0.7"), (("B", "2"), ("A", "1")))
    assert check(chosen, NEWEST, model=MODEL) is not None
    assert check(chosen, NEWEST, model=MODEL, wished=["A=1 B=2 --mem-fraction-static 0.7"]) is None
    for other in (
        "A=1 --mem-fraction-static 0.7",
        "A=1 B=2 --mem-fraction-static 0.8",
        "--attention-backend triton",
    ):
        assert check(chosen, NEWEST, model=MODEL, wished=[other]) is not None


def test_what_the_user_admits_passes() -> None:
    fp8 = Chosen(("--kv-cache-dtype", "fp8_e4m3"))
    assert check(fp8, NEWEST, model=MODEL, admitted=["kv-cache-dtype=fp8_e4m3"]) is None
    assert check(fp8, NEWEST, model=MODEL, admitted=["--kv-cache-dtype = fp8_e4m3"]) is None
    assert check(fp8, NEWEST, model=MODEL, admitted=["kv-cache-dtype=fp8_e5m2"]) is not None
    switch = Chosen(("--enable-torch-compile",))
    assert check(switch, NEWEST, model=MODEL) is not None
    assert check(switch, NEWEST, model=MODEL, admitted=["enable-torch-compile=on"]) is None
    remote = Chosen(("--trust-remote-code",))
    assert check(remote, NEWEST, model=MODEL, admitted=["trust-remote-code=on"]) is not None


@given(
    st.lists(
        st.one_of(
            st.text(max_size=20),
            st.sampled_from(sorted(NEWEST.names())),
            st.sampled_from(["triton", "1", "="]),
        )
    )
)
def test_whatever_passes_is_made_of_tuned_flags_and_plain_words(tokens: list[str]) -> None:
    if refused(*tokens) is None:
        names = {name for row in tuned_flags() for name in row.names}
        names |= {f"--no-{name[2:]}" for name in names}
        for token in tokens:
            name, _, value = token.partition("=")
            assert (
                name in names
                or token == MODEL
                or token.replace("_", "").replace(".", "").replace("-", "").replace("+", "").isalnum()
            )
            assert "/" not in value or value == MODEL
