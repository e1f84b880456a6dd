"""Profiles as TOML: what is refused and how that is said, what survives, and what never gets in."""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autolaunch.errors import AutolaunchError
from autolaunch.profiles.document import SIZE_LIMIT, NewerProfileError, ProfileError, from_toml, to_toml
from autolaunch.profiles.profile import Chosen, Entrant, Measured, Profile
from autolaunch.redact import redact
from tests.profiles.made import made
from tests.real_server import ROOT

SECRET = "s3cr3tValue77"
SOUND = """
schema = "autolaunch.profile/1"
model = "Qwen3-8B"
origin = "tune"
created = "2026-12-01T00:00:00+00:00"
reason = "it is faster"
chosen.flags = ["--attention-backend", "triton"]
measured.depth = "slice"
workload.concurrency = 1
objective.name = "throughput"
fingerprint.platform = "cuda"
"""


def fault(text: str | bytes) -> ProfileError:
    """What is said of a file with `text`."""
    with pytest.raises(ProfileError) as found:
        from_toml(text if isinstance(text, bytes) else text.encode(), where="a/b.toml")
    assert isinstance(found.value, AutolaunchError) and found.value.exit_code == 1
    message = str(found.value)
    assert "`a/b.toml`" in found.value.what and found.value.hint and found.value.because
    assert all(line.isprintable() for line in message.splitlines()) and len(message) < 3000
    return found.value


def changed(old: str, new: str) -> str:
    assert old in SOUND
    return SOUND.replace(old, new)


def test_the_sound_one_is_read() -> None:
    profile = from_toml(SOUND.encode(), where="x")
    assert (profile.model, profile.status, profile.chosen.flags) == (
        "Qwen3-8B",
        "fresh",
        ("--attention-backend", "triton"),
    )
    assert from_toml(b"\xef\xbb\xbf" + SOUND.replace("\n", "\r\n").encode(), where="x") == profile


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it has no `schema`"),
        ("schema = 1", "its schema is no text"),
            (f"schema = 0x{'f' * 5000}", "its schema is no text"),
        ('schema = "autolaunch.result/1"', "its schema is `autolaunch.result/1`, not `autolaunch.profile/1`"),
        ('schema = "autolaunch.profile/1"', "missing required field"),
        ("schema = ", "it is not TOML"),
        ("a = 1\na = 2", "it is not TOML"),
        (b"\x00\x01", "it is not TOML"),
        (b"a = '\xff'", "byte 5 is not UTF-8"),
        (b"x" * (SIZE_LIMIT + 1), "it has more than 256 KiB"),
        (changed('model = "Qwen3-8B"', "model = 8"), "`model`: expected `str`, got `int`"),
        (changed('model = "Qwen3-8B"', 'model = ""'), "`model`: expected `str` of length >= 1"),
        (changed('"tune"', '"elsewhere"'), "`origin`: invalid enum value 'elsewhere'"),
        (changed('"--attention-backend"', "1"), "`chosen.flags[0]`: expected `str`, got `int`"),
        (changed('["--attention-backend", "triton"]', '"--attention-backend triton"'), "`chosen.flags`: expected `array`, got `str`"),
        (SOUND + 'chosen.env.A = 1\n', "`chosen.env[...]`: expected `str`, got `int`"),
        (SOUND + 'status = "best"\n', "`status`: invalid enum value 'best'"),
        (SOUND + "measured.value = nan\n", "`measured.value` is no finite number"),
        (SOUND + "measured.value = -inf\n", "`measured.value` is no finite number"),
        (SOUND + "measured.value = 1e999\n", "`measured.value` is no finite number"),
        (SOUND + "workload.other = inf\n", "`workload.other` is no finite number"),
        (SOUND + "other = [1, [nan]]\n", "`other[1][0]` is no finite number"),
        (SOUND + "measured.value = true\n", "`measured.value`: expected `float | null`, got `bool`"),
        (SOUND + "other = 0xffffffffffffffffffff\n", "`other` is too large a number"),
        (SOUND + "other = 1979-05-27T07:32:00Z\n", "`other` is a date, and a profile writes dates as texts"),
        (SOUND + "entrants = [1]\n", "`entrants[0]`: expected `object`, got `int`"),
        (SOUND + "entrants = [{chosen = {}, rank = 0}]\n", "`entrants[0].rank`: expected `int` >= 1"),
        (SOUND + "entrants = [{rank = 1}]\n", "`entrants[0]`: object missing required field `chosen`"),
        (SOUND + "fingerprint.gpu.a.b = 1\n", "`fingerprint[...][...]`: expected"),
        (SOUND + "fingerprint.gpu = [1]\n", "`fingerprint[...]`: expected"),
        (SOUND + 'fingerprint."a.b" = 1\n', "`fingerprint.a.b` is no name of a field"),
        (SOUND + 'fingerprint.gpu."" = 1\n', "is no name of a field"),
        (SOUND + 'notes = ["\\u001b[31m"]\n', "`notes[0]` holds characters that cannot be shown"),
        (SOUND + 'notes = ["\\u202Eoko"]\n', "`notes[0]` holds characters that cannot be shown"),
        (SOUND + '"\\u001b" = 1\n', "holds characters that cannot be shown"),
        (SOUND + "notes = ['" + "a" * 5000 + "']\n", "`notes[0]` has more than 4096 characters"),
        (SOUND + "notes = [" + "'a'," * 200 + "]\n", "`notes`: expected `array` of length <= 100"),
        (SOUND + "other = " + "[" * 500, "it is nested too deep"),
        (SOUND + "a.b.c.d.e.f.g.h = 1\n", "it is nested too deep"),
        (SOUND + "".join(f"a{number} = 1\n" for number in range(6000)), "it has more than 5000 values"),
        (changed("2026-12-01T00:00:00+00:00", "yesterday"), "`created`: `yesterday` is no date of ISO 8601"),
        (changed("2026-12-01T00:00:00+00:00", "2026-12-01T00:00:00"), "has no time zone"),
    ],
)  # fmt: skip
def test_one_clear_error_names_what_is_wrong(text: str | bytes, said: str) -> None:
    assert said in fault(text).because[0]


@pytest.mark.parametrize("number", ["2", "10", "999"])
def test_a_newer_schema_is_told_apart(number: str) -> None:
    error = fault(changed("autolaunch.profile/1", f"autolaunch.profile/{number}") + "anything = 1979-05-27\n")
    assert isinstance(error, NewerProfileError)
    assert error.what == "`a/b.toml` was written by a newer autolaunch" and "update autolaunch" in (
        error.hint or ""
    )


@pytest.mark.parametrize(
    "schema",
    [
        "autolaunch.profile/",
        "autolaunch.profile/1.1",
        "autolaunch.profile/-2",
        "autolaunch.profile/٢",
        "AUTOLAUNCH.PROFILE/2",
    ],
)
def test_other_schemas_are_not_newer(schema: str) -> None:
    assert not isinstance(fault(changed("autolaunch.profile/1", schema)), NewerProfileError)


def test_no_secret_is_written() -> None:
    chosen = Chosen(
        ("--api-key", SECRET, f"--admin-api-key={SECRET}", "--page-size", "16"), (("HF_TOKEN", SECRET),)
    )
    profile = made(
        chosen=chosen,
        entrants=(Entrant(chosen, lost=f"it said api_key={SECRET}"),),
        reason=f"see https://me:{SECRET}@host/x",
        warnings=(f"`--api-key {SECRET}`",),
        provenance=(f"Bearer {SECRET}",),
        notes=(f"password: {SECRET}",),
        status_reason=f"HF_TOKEN={SECRET}",
        fingerprint={
            "env.SGLANG_API_KEY": SECRET,
            "flag.admin_api_key": SECRET,
            "unread": f"--api-key {SECRET}",
        },
        workload={"words": f"token={SECRET}", "source": {"password": SECRET}},
        measured=Measured("slice", figures=f"api-key={SECRET}"),
        extra={"later": {"api_key": SECRET}, "list": [f"https://me:{SECRET}@host"]},
    )
    assert SECRET not in to_toml(profile)


def test_what_cannot_be_written_is_left_out_or_spelled() -> None:
    profile = made(
        reason="two\nlines\x1b[31m \udcff",
        measured=Measured("slice", value=math.inf, gain={"mean": math.nan, "rounds": 5}),
        workload={"concurrency": 1, "none": None, "rate": math.nan, "list": [1, None]},
        notes=("n" * 9000,) * 300,
    )
    read = from_toml(to_toml(profile).encode(), where="x")
    assert read.reason == r"two\nlines\x1b[31m \udcff"
    assert read.measured.value is None and read.measured.gain == {"rounds": 5}
    assert read.workload == {"concurrency": 1, "list": [1]}


def test_what_was_kept_unread_is_written_again_and_overrides_nothing() -> None:
    extra = {
        "status": "verified",
        "new": 1,
        "chosen": {"flags": ["--host"], "seed": 2},
        "entrants": {"0": {"x": 1, "rank": 9}, "7": {"y": 1}, "z": {"y": 1}},
    }
    profile = made(extra=extra)
    read = from_toml(to_toml(profile).encode(), where="x")
    assert (read.status, read.chosen, read.entrants) == (profile.status, profile.chosen, profile.entrants)
    assert read.extra == {"new": 1, "chosen": {"seed": 2}, "entrants": {"0": {"x": 1}}}


PRINTABLE = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=30).filter(
    str.isprintable
)
WORDS = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True).filter(
    lambda word: redact(f"{word}=some {word}") == f"{word}=some {word}"
)
"""Neither names of secrets nor secrets, which would be hidden."""
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)
SCALARS = st.one_of(WORDS, st.integers(-(1 << 62), 1 << 62), NUMBERS, st.booleans())
CHOSEN = st.builds(
    Chosen,
    flags=st.lists(st.sampled_from(["--attention-backend", "fa3", "--page-size", "16"]), max_size=6).map(
        tuple
    ),
    env=st.dictionaries(st.sampled_from(["A", "TRITON_INTERPRET"]), st.sampled_from(["1", "x y"])).map(
        lambda env: tuple(sorted(env.items()))
    ),
    id=WORDS,
    origin=st.sampled_from(["original", "table", "user"]),
    dimension=st.none() | WORDS,
    choice=st.none() | WORDS,
)
PROFILES = st.builds(
    Profile,
    model=WORDS,
    chosen=CHOSEN,
    reason=WORDS,
    origin=st.sampled_from(["serve", "tune", "shipped", "imported"]),
    created=st.datetimes(timezones=st.timezones()).map(lambda when: when.isoformat()).filter(lambda text: len(text) < 33),
    fingerprint=st.dictionaries(st.sampled_from(["platform", "gpu.name", "gpu.sm", "flag.x", "version.a-b", "pin.A_B"]), SCALARS),
    workload=st.dictionaries(WORDS, st.one_of(SCALARS, st.lists(SCALARS, max_size=3), st.dictionaries(WORDS, SCALARS, max_size=2)), max_size=4),
    objective=st.dictionaries(WORDS, SCALARS, max_size=4),
    measured=st.builds(Measured, depth=st.sampled_from(["slice", "whole", "none"]), unit=WORDS, value=st.none() | NUMBERS, gain=st.none() | st.dictionaries(WORDS, NUMBERS, min_size=1, max_size=3), figures=WORDS, acceptance_length=st.none() | NUMBERS),
    entrants=st.lists(st.builds(Entrant, chosen=CHOSEN, value=st.none() | NUMBERS, lost=WORDS, failure=st.none() | WORDS, rank=st.none() | st.integers(1, 12)), max_size=3).map(tuple),
    status=st.sampled_from(["fresh", "verified", "suspect", "quarantined"]),
    status_reason=WORDS,
    warnings=st.lists(WORDS, max_size=3).map(tuple),
    notes=st.lists(WORDS, max_size=3).map(tuple),
)  # fmt: skip


@settings(deadline=None)
@given(PROFILES)
def test_what_is_written_is_what_is_read(profile: Profile) -> None:
    text = to_toml(profile)
    read = from_toml(text.encode(), where="x")
    assert read == replace(profile, fingerprint=dict(sorted(profile.fingerprint.items())))
    assert to_toml(read) == text


@settings(deadline=None, max_examples=300)
@given(
    st.one_of(
        st.binary(max_size=300),
        st.text(max_size=300).map(lambda text: text.encode(errors="surrogatepass")),
        st.text(alphabet="[]{}.=\"'#\\\n ,a1-_:", max_size=200).map(str.encode),
    )
)
def test_whatever_lies_there_there_is_no_traceback(content: bytes) -> None:
    for text in (content, SOUND.encode() + content, content + SOUND.encode()):
        with contextlib.suppress(ProfileError):
            from_toml(text, where="x")


@settings(deadline=None, max_examples=200)
@given(st.integers(0, len(SOUND) - 1), PRINTABLE)
def test_a_file_that_was_damaged_is_read_or_refused(at: int, put: str) -> None:
    for text in (SOUND[:at], SOUND[:at] + put + SOUND[at + 1 :]):
        with contextlib.suppress(ProfileError):
            from_toml(text.encode(), where="x")


COST = """
import json, resource, sys, time
from autolaunch.profiles.document import ProfileError, from_toml
K, HEAD = 1 << 10, 'schema = "autolaunch.profile/1"\\n'
N = 255 * K
CASES = {
    "long key": "a." * (N // 2) + "a=1",
    "long quoted key": '"a".' * (N // 4) + "a=1",
    "long spaced key": "a . " * (N // 4) + "a=1",
    "long header": "[" + "a." * (N // 2) + "a]",
    "key after a string that ends twice": 'a=\"\"\"x\"\"\"\"\"\\n' + "a." * (N // 2) + "a=1",
    "key in a comment's shadow": "a='#'\\n" + "b." * (N // 2) + "a=1",
    "lists": "a=" + "[" * N,
    "tables": "a=" + "{a=" * (N // 3),
    "escapes": 'a="' + '\\\\"' * (N // 2),
    "quotes": 'a="' + '"' * N,
    "single quotes": "a='''" + "'" * N,
    "text marks that close nowhere": '\\\\\"\"\" \"\\n' * (N // 7),
    "single text marks that close nowhere": "\\\\''' '\\n" * (N // 7),
    "open strings": "a='''\\n" + '"\\n' * (N // 2),
    "small tables": "\\n".join(f"{i:x}={{}}" for i in range(30000)),
    "headers": "\\n".join(f"[{i:x}.a.a.a.a]" for i in range(16000)),
    "deep keys": "\\n".join(f"{i:x}.a.a.a.a=1" for i in range(4500)),
    "header and key": "\\n".join(f"[{i:x}.a.a.a.a]\\na.a.a.a.a=1" for i in range(2200)),
    "list of tables": "[[a]]\\n" * (N // 6),
    "large hexadecimal": "a=0x" + "f" * N,
    "large number": "a=" + "9" * N,
    "long fraction": "a=0." + "9" * N,
    "numbers": "a=[" + "1," * (N // 2) + "]",
    "spaces": "a" + " " * N + "=1",
    "words": "a " * (N // 2),
    "comments": "#\\n" * (N // 2),
    "long text": 'a="' + "x" * N + '"',
    "odd text": 'a="' + "\\u00a0" * (N // 2) + '"',
    "too long": "#" * (64 << 20),
}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
times, said = {}, {}
for name, text in CASES.items():
    content = (HEAD + text).encode()
    before = max(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    started = time.process_time()
    try:
        from_toml(content, where=name)
        said[name] = "read"
    except ProfileError as error:
        said[name] = error.because[0]
    times[name] = time.process_time() - started
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (after - before) / 1024 < 100, (name, after - before)
print(json.dumps([times, said]))
"""


def test_no_file_costs_a_second_or_a_hundred_megabytes() -> None:
    """The parser alone would take gigabytes for some of these."""
    import json

    done = subprocess.run([sys.executable, "-c", COST], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    times, said = json.loads(done.stdout)
    assert max(times.values()) < 3.0, sorted(times.items(), key=lambda pair: -pair[1])[:3]
    assert "read" not in said.values()


def test_reading_is_light() -> None:
    code = "import sys, autolaunch.profiles.document; print('tomli_w' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "False"
