"""What DESIGN.md says of the JSON object, as a checker: types, nulls and words; further keys are allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[str, Any], None]

FAILURES = (
    *("rejected", "crash", "oom", "hang", "garbage", "silent_fallback", "slow", "memory", "environment"),
    None,
)


def of(*kinds: type | None) -> Check:
    """One of the types; None in it allows null, and a bool is no number."""
    allowed = tuple(kind for kind in kinds if kind is not None)

    def check(where: str, value: Any) -> None:
        if value is None:
            assert None in kinds, f"{where} is null"
            return
        assert isinstance(value, allowed), f"{where} is {value!r}"
        assert not isinstance(value, bool) or bool in allowed, f"{where} is {value!r}"

    return check


def among(*words: str | None) -> Check:
    """One of the words."""

    def check(where: str, value: Any) -> None:
        assert value in words, f"{where} is {value!r}"

    return check


def is_list(item: Check) -> Check:
    """A list of such items."""

    def check(where: str, value: Any) -> None:
        assert isinstance(value, list), f"{where} is no list"
        for at, one in enumerate(value):
            item(f"{where}[{at}]", one)

    return check


def is_object(keys: Mapping[str, Check], *, or_null: bool = False) -> Check:
    """An object with these keys, and perhaps more."""

    def check(where: str, value: Any) -> None:
        if value is None and or_null:
            return
        assert isinstance(value, dict), f"{where} is no object"
        for key, item in keys.items():
            assert key in value, f"{where} lacks {key}"
            item(f"{where}.{key}", value[key])

    return check


def is_map(item: Check) -> Check:
    """An object whose values are all alike."""

    def check(where: str, value: Any) -> None:
        assert isinstance(value, dict), f"{where} is no object"
        for key, one in value.items():
            item(f"{where}.{key}", one)

    return check


EVIDENCE = is_list(is_object({"kind": among("source", "docs", "issue", "measured"), "ref": of(str)}))
CHOICE = is_object(
    {
        "choice": of(str),
        "verdict": among("eligible", "excluded", "unknown"),
        "failure": among(*FAILURES),
        "numerics": among("same", "lossy", "unknown"),
        "reason": of(str),
        "rules": is_list(of(str)),
        "evidence": EVIDENCE,
    }
)
DIMENSION = is_object(
    {
        "flag": of(str),
        "pinned": of(str, None),
        "auto": of(str, None),
        "decision": among("kept", "repaired", "pinned", "raced"),
        "value": of(str, None),
        "choices": is_list(CHOICE),
    }
)
CANDIDATE = is_object({"id": of(str), "flags": is_list(of(str)), "origin": of(str)})
DOCUMENT = is_object(
    {
        "schema": among("autolaunch.explain/1"),
        "software": is_object(
            {
                "sglang": is_object({"version": of(str, None), "source": among("installed", "assumed")}),
                "flashinfer": is_object(
                    {
                        "version": of(str, None),
                        "source": among("installed", "assumed", "pinned-by-sglang"),
                    }
                ),
            }
        ),
        "machine": is_object(
            {
                "source": among("nvml", "named", "file", "none"),
                "gpus": is_list(
                    is_object(
                        {
                            "index": of(int),
                            "name": of(str),
                            "sm": of(int, None),
                            "sm_count": of(int, None),
                            "memory_bytes": of(int, None),
                        }
                    )
                ),
            }
        ),
        "model": is_object(
            {
                "path": of(str),
                "architecture": of(str, None),
                "attention": of(str, None),
                "moe": is_object({"experts": of(int), "top_k": of(int, None)}, or_null=True),
                "quantization": is_object(
                    {"scheme": of(str, None), "method": of(str, None), "parts": is_map(of(str))}
                ),
                "weight_bytes": of(int, None),
            }
        ),
        "mtp": is_object(
            {
                "announced": of(bool, None),
                "present": of(bool, None),
                "tensors": of(int, None),
                "experts": of(int, None),
                "prefix": of(str, None),
                "usable": of(bool),
                "reason": of(str),
            }
        ),
        "memory": is_object(
            {
                "fits": of(bool, None),
                "weight_bytes_per_gpu": of(int, None),
                "kv_tokens": of(int, None),
                "reason": of(str),
            }
        ),
        "dimensions": is_list(DIMENSION),
        "candidates": is_list(CANDIDATE),
        "warnings": is_list(is_object({"id": of(str), "text": of(str)})),
        "command": is_list(of(str)),
    }
)


def check_document(value: Any) -> None:
    """AssertionError that says where `value` is not what was promised."""
    DOCUMENT("document", value)
    assert value["candidates"][0] == {"id": "c0", "flags": [], "origin": "original"}
    ids = [one["id"] for one in value["candidates"]]
    assert len(ids) == len(set(ids)) <= 12
    flags = [one["flag"] for one in value["dimensions"]]
    assert len(flags) == len(set(flags))
    for dimension in value["dimensions"]:
        for choice in dimension["choices"]:
            if choice["verdict"] == "excluded":
                assert choice["failure"], f"{dimension['flag']} {choice['choice']}"
                assert choice["rules"], f"{dimension['flag']} {choice['choice']}"
                assert choice["evidence"], f"{dimension['flag']} {choice['choice']}"
