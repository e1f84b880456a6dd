"""Small tables for tests, written as TOML into a folder."""

from __future__ import annotations

import textwrap
from pathlib import Path

from autolaunch.capability.table import Table, read_table

EVIDENCE = 'evidence = [{ kind = "source", ref = "flashinfer 0.6.3 gemm/gemm_base.py:1" }]\n'

DIMENSIONS = """
[[dimension]]
flag = "--attention-backend"
dest = "attention_backend"
title = "attention"
raced = true
order = 20

[[dimension]]
flag = "--decode-attention-backend"
dest = "decode_attention_backend"
title = "attention of the decode"
rules = ["attention-backend"]
order = 21

[[dimension]]
flag = "--fp4-gemm-backend"
dest = "fp4_gemm_runner_backend"
title = "FP4 GEMM"
when = { scheme = "*nvfp4*" }
raced = true
order = 10

[[dimension]]
flag = "--dsa-decode-backend"
also = ["--nsa-decode-backend"]
dest = "dsa_decode_backend"
title = "sparse attention"
when = { attention = "dsa" }
raced = true

[[dimension]]
flag = "--page-size"
dest = "page_size"
title = "page size"
kernel = false
values = ["1", "64"]

[[dimension]]
flag = "--kv-cache-dtype"
dest = "kv_cache_dtype"
title = "KV cache type"
kernel = false
raced = true

[[dimension]]
flag = "--enable-torch-symm-mem"
dest = "enable_torch_symm_mem"
title = "symmetric memory"
raced = true
rules = ["allreduce"]
"""


def rule(**keys: str) -> str:
    """One `[[rule]]` from TOML values, with evidence and a reason unless they are given."""
    keys = {"reason": '"because the test says so"', **keys}
    lines = [f"{key} = {value}" for key, value in keys.items()]
    return "[[rule]]\n" + "\n".join(lines) + ("\n" if "evidence" in keys else f"\n{EVIDENCE}")


def auto(dimension: str, value: str, **keys: str) -> str:
    """One `[[auto]]` row."""
    keys = {"id": f'"auto.{value.strip("= ")}.{len(keys)}"', "reason": '"the source says so"', **keys}
    lines = [f"{key} = {text}" for key, text in keys.items()]
    return f'[[auto]]\ndimension = "{dimension}"\nvalue = "{value}"\n' + "\n".join(lines) + f"\n{EVIDENCE}"


def make_table(folder: Path, files: dict[str, str], dimensions: str = DIMENSIONS) -> Table:
    """The table in `folder` with `files` (`rules/x`, `auto/x`, without `.toml`) in it."""
    (folder / "rules").mkdir(parents=True, exist_ok=True)
    (folder / "auto").mkdir(exist_ok=True)
    (folder / "dimensions_gpu.toml").write_text(dimensions)
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(textwrap.dedent(text))
    return read_table(folder)
