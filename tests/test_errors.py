"""The form of a message and the exit codes."""

from __future__ import annotations

import pytest

from autolaunch import errors


def test_a_message_has_four_parts() -> None:
    error = errors.UsageError(
        "`--tp 0` cannot be served",
        because=("it is 0", "1 is the least"),
        evidence="sglang 0.5.23",
        hint="omit it",
    )
    assert str(error) == (
        "error: `--tp 0` cannot be served\n"
        "  because it is 0\n"
        "  and 1 is the least\n"
        "  evidence: sglang 0.5.23\n"
        "\n"
        "hint: omit it"
    )


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.AutolaunchError, 1),
        (errors.UsageError, 2),
        (errors.SglangNotFoundError, 1),
        (errors.StageError, 1),
        (errors.NoCandidateError, 3),
    ],
)
def test_exit_codes(kind: type[errors.AutolaunchError], code: int) -> None:
    assert kind("x").exit_code == code


def test_a_message_only_shows_what_it_quotes() -> None:
    text = errors.render_message("warning", "no `a\nb\x1b[31m\u202e\udcff`", ("c\rd",), hint="e\x9bf")
    assert text == "warning: no `a\\nb\\x1b[31m\\u202e\\udcff`\n  because c\\rd\n\nhint: e\\x9bf"
    assert errors.visible("ü 模 🙂") == "ü 模 🙂"
    assert len(errors.visible("x" * 200_000)) == errors.LONGEST_PART
